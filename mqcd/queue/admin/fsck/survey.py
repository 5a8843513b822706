"""Every file of a queue against every other: what `mqcd fsck` knows.

Reads under a pin and changes nothing, with or without a running server. Beside a running one the view is
that of one moment, but files come and go meanwhile: what is found wrong counts only when a second look
finds it again. Raises StoreUnavailable when there is no queue, StoreBusy when no pin is to be had, OSError.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mqcd.core.errors import DecodeError, StoreBusy, StoreDamaged, StoreUnavailable
from mqcd.core.model import Area
from mqcd.core.progress import Progress, no_progress
from mqcd.core.queueing.spid import SILOS, format_spid
from mqcd.disk.durable import TEMP_SUFFIX, Disk, describe
from mqcd.queue.admin.findings import Findings, Kind, Problem, plain
from mqcd.queue.admin.fsck.keyfiles import look_at_keys
from mqcd.queue.admin.fsck.quarantined import look_into_quarantine
from mqcd.queue.clusters import file as cluster
from mqcd.queue.disk.owner_lock import check_roots
from mqcd.queue.disk.vacancy import check_maker
from mqcd.queue.format import filenames, record
from mqcd.queue.format.segment_header import is_file_name
from mqcd.queue.manifest import log as manifests
from mqcd.queue.manifest.state import ClusterState, ManifestState
from mqcd.queue.memory.shard_state import Options
from mqcd.queue.recovery.imports import pending_events
from mqcd.queue.spool.silos import Silos
from mqcd.queue.wal.chain import SegmentMissing, find_chain, irregular_files
from mqcd.queue.wal.live_entries import LiveEntries
from mqcd.queue.wal.segments import JournalEntry, Segment

_ADVICE = (
    "Keep both roots as they are, put {} back from a copy of the same moment, or begin with empty roots and "
    "get the mail out of these by `mqcd queue export --without-manifest`"
)
_MANIFEST_ADVICE = (
    "What this edit said is lost, and does not follow from the files: a cluster that it added looks like one "
    f"that it ended. {_ADVICE.format('the MANIFEST')}"
)
_JOURNAL_ADVICE = (
    "If it is gone for good: what it said of the mail in the other files is lost, too. "
    f"{_ADVICE.format('the journal')}"
)
_TWICE_ADVICE = (
    "A server goes on with both, one behind the other: nothing is lost, but the message may come twice"
)


def survey(disk: Disk, options: Options, progress: Progress = no_progress, *, ours: bool = False) -> Findings:
    """Look at a whole queue; `ours` when the caller holds its lock."""
    first = _Survey(disk, options, progress).run()
    if ours:
        first.running = False
    if not first.running or first.ok:
        return first
    second = _Survey(disk, options, progress).run()
    before = {(problem.kind, problem.path, problem.text) for problem in first.problems}
    second.problems = [each for each in second.problems if (each.kind, each.path, each.text) in before]
    second.bereft = {path: count for path, count in second.bereft.items() if path in first.bereft}
    return second


class _Survey:
    """One look."""

    def __init__(self, disk: Disk, options: Options, progress: Progress) -> None:
        self._disk = disk
        self._options = options
        self._progress = progress
        self._queue_root = options.settings.rootpath
        self._spool_root = options.settings.spool.rootpath
        self._silos = Silos(self._spool_root, SILOS)
        """As many as the MANIFEST says, once it is read."""
        self._found = Findings()
        self._places: dict[tuple[int, int], Path] = {}
        """Where each recipient was first found."""
        self._inside: set[int] = set()
        """Messages whose content lies in the journal."""
        self._sizes: dict[int, int] = {}
        """By file number, of contents that must lie in the spool."""
        self._recipients: Counter[int] = Counter()
        """Of the same: unfinished recipients."""

    def run(self) -> Findings:
        """All of it, under one pin."""
        pin = self._take_pin()
        try:
            self._found.running = self._is_running()
            self._check_roots()
            state = self._read_manifest()
            if state is not None:
                self._silos = Silos(self._spool_root, state.silos)
                self._read_journal(state)
                self._read_clusters(state)
                self._check_contents()
                self._look_for_orphans(state)
                self._look_for_events(state)
                look_at_keys(self._disk, self._queue_root, state, self._found)
            look_into_quarantine(self._disk, self._queue_root, self._found)
        finally:
            if pin >= 0:
                self._disk.close(pin)
        return self._found

    def _wrong(self, kind: Kind, path: Path, text: str, line: int | None = None) -> None:
        self._found.problems.append(Problem(kind, path, line, text))

    def _note(self, kind: Kind, path: Path, text: str) -> None:
        self._found.notes.append(Problem(kind, path, None, text))

    def _take_pin(self) -> int:
        try:
            fd = self._disk.open(self._queue_root / "pin", os.O_RDONLY)
        except FileNotFoundError as error:
            if not self._disk.names(self._queue_root):
                raise StoreUnavailable(f"{self._queue_root} holds no queue") from error
            return -1
        if not self._disk.lock(fd, exclusive=False):
            self._disk.close(fd)
            raise StoreBusy("the server is removing files at this moment; try again")
        return fd

    def _is_running(self) -> bool:
        try:
            fd = self._disk.open(self._queue_root / "lock", os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            return not self._disk.lock(fd, exclusive=False)
        finally:
            self._disk.close(fd)

    def _check_roots(self) -> None:
        try:
            check_roots(self._disk, [self._queue_root, self._spool_root], new=False)
        except StoreDamaged as error:
            self._wrong(Kind.ROOTS, self._queue_root / "uuid", str(error))
        except OSError as error:
            self._wrong(Kind.ROOTS, self._queue_root / "uuid", describe(error))

    def _read_manifest(self) -> ManifestState | None:
        path = self._queue_root / "MANIFEST"
        try:
            state = manifests.read(self._disk, path)
        except StoreDamaged as error:
            self._read_manifest_by_line(path, _pathless(error, path))
            return None
        except OSError as error:
            self._wrong(Kind.MANIFEST, path, _out_of_reach(error, "what the queue consists of"))
            return None
        if state is None:
            text = f"is missing. {_ADVICE.format('it')}"
            try:
                check_maker(self._disk, self._queue_root)
            except StoreUnavailable as error:
                text = str(error)
            self._wrong(Kind.MANIFEST, path, text)
        elif state.dropped:
            text = (
                f"its last {state.dropped} octets are an edit that a crash cut off, and that did not happen"
            )
            self._note(Kind.MANIFEST, path, text)
        return state

    def _read_manifest_by_line(self, path: Path, error_text: str) -> None:
        """Which lines are damaged, where the whole cannot be read."""
        lines = self._disk.read_file(path).split(b"\n")
        before = len(self._found.problems)
        for number, line in enumerate(lines[:-1], 1):
            try:
                _, version = manifests.decode(line)
                if number == 1 and version is None:
                    raise DecodeError("the first line carries no format version")
            except DecodeError as error:
                self._wrong(Kind.MANIFEST, path, f"{error}. {_MANIFEST_ADVICE}", number)
        if len(self._found.problems) == before:
            self._wrong(Kind.MANIFEST, path, f"{error_text} {_MANIFEST_ADVICE}")

    # ------------------------------------------------------------ records

    def _read_journal(self, state: ManifestState) -> None:
        directory = self._queue_root / "journal"
        replay = LiveEntries()
        segments: dict[int, Segment] = {}
        for path in irregular_files(self._disk, directory):
            self._wrong(Kind.JOURNAL, path, "is no regular file; move it away")
        try:
            chain = find_chain(self._disk, directory, state)
        except SegmentMissing as error:
            self._wrong(Kind.JOURNAL, directory, f"{_pathless(error, directory)} {_JOURNAL_ADVICE}")
            return
        except StoreDamaged as error:
            self._wrong(Kind.JOURNAL, directory, _pathless(error, directory))
            return
        for index, segment in enumerate(chain):
            self._progress("journal", index, len(chain))
            replay.read(self._disk, segment, last=segment is chain[-1])
            segments[segment.number] = segment
        for each in replay.damage:
            text = f"octets {each.start} to {each.end} of segment {each.segment} do not check"
            self._wrong(Kind.FRAME, each.path, f"{text}; the next start moves them to quarantine")
        for entry in replay.entries(segments):
            self._take_entry(entry, segments)
        state.clusters = replay.clusters(state)

    def _take_entry(self, entry: JournalEntry, segments: dict[int, Segment]) -> None:
        path = entry.segment.path
        try:
            record.decode(entry.raw)
        except DecodeError as error:
            self._wrong(Kind.LINE, path, f"octet {entry.offset}: {error}")
            return
        self._take(entry.spid, entry.qid, path, None)
        if entry.content.segment in segments:
            self._inside.add(entry.spid)
        else:
            self._need(entry.file, entry.size)

    def _take(self, spid: int, qid: int, path: Path, line: int | None) -> None:
        self._found.records += 1
        first = self._places.get((spid, qid))
        if first is None:
            self._places[spid, qid] = path
            return
        text = f"recipient {format_spid(spid)}/{qid} is recorded twice, also in {first}. {_TWICE_ADVICE}"
        self._wrong(Kind.HOME, path, text, line)

    def _need(self, file: int, size: int) -> None:
        self._sizes[file] = size
        self._recipients[file] += 1

    def _read_clusters(self, state: ManifestState) -> None:
        for index, each in enumerate(state.clusters.values()):
            self._progress("clusters", index, len(state.clusters))
            if each.cursor < each.size and each.left:
                self._read_cluster(each, state.writer)

    def _read_cluster(self, state: ClusterState, writer: str) -> None:
        path = self._queue_root / state.name
        try:
            data = self._disk.read_file(path)
        except OSError as error:
            lost = " are lost with it" if isinstance(error, FileNotFoundError) else ""
            self._wrong(Kind.CLUSTER, path, _out_of_reach(error, f"{state.left} records{lost}"))
            return
        before = len(self._found.problems)
        try:
            cluster.check_first_line(data, path, writer)
        except DecodeError as error:
            self._wrong(Kind.CLUSTER, path, str(error), 1)
            self._found.damaged.append(state.name)
        short = len(data) < state.size
        if short:
            text = f"is {state.size - len(data)} octets shorter than it should be; put it back from a copy"
            self._wrong(Kind.CLUSTER, path, text)
        lines = data[state.cursor : state.size]
        found = 0
        for number, raw in enumerate(cluster.split_lines(lines), data.count(b"\n", 0, state.cursor) + 1):
            found += 1
            self._take_line(path, number, raw, state.name)
        if short and state.name in self._found.damaged:
            # To mend it would end it, and what is missing could not be put back.
            self._found.damaged.remove(state.name)
        if found != state.left and len(self._found.problems) == before:
            self._wrong(Kind.COUNT, path, f"holds {found} records, and should hold {state.left}")

    def _take_line(self, path: Path, number: int, raw: bytes, name: str) -> None:
        try:
            recipient = record.decode(raw)
            record.sound(raw)
        except DecodeError as error:
            self._wrong(Kind.LINE, path, str(error), number)
            if self._found.damaged[-1:] != [name]:
                self._found.damaged.append(name)
            return
        self._take(recipient.spid, recipient.qid, path, number)
        self._need(filenames.number_of(recipient), recipient.size)

    # ------------------------------------------------------------ contents

    def _check_contents(self) -> None:
        present = set(self._inside)
        for index, (file, size) in enumerate(self._sizes.items()):
            if index % 1000 == 0:
                self._progress("contents", index, len(self._sizes))
            path = self._silos.file(file)
            try:
                length = self._length(path)
            except OSError as error:
                count = self._recipients[file]
                self._found.bereft[path] = count
                text = _out_of_reach(error, f"content of {count} unfinished recipients")
                self._wrong(Kind.CONTENT, path, text)
                continue
            present.add(filenames.spid_of(file))
            if length != size:
                self._wrong(Kind.CONTENT, path, f"is {length} octets long; its records say {size}")
        self._found.contents = len(present)

    def _length(self, path: Path) -> int:
        fd = self._disk.open(path, os.O_RDONLY)
        try:
            return self._disk.size(fd)
        finally:
            self._disk.close(fd)

    # ------------------------------------------------------------ what has no owner

    def _look_for_orphans(self, state: ManifestState) -> None:
        for path in self._files():
            name = path.name
            if name.endswith(TEMP_SUFFIX):
                self._note_orphan(path, "was left half-written")
            elif path.parent.parent == self._spool_root:
                self._look_at_message(path)
            elif path.parent.name == "journal":
                if not (name.isdecimal() or is_file_name(name)):
                    self._note(Kind.STRAY, path, "is none of the queue's files")
            elif cluster.NAME.fullmatch(name) is None:
                self._note(Kind.STRAY, path, "is none of the queue's files")
            elif str(path.relative_to(self._queue_root)) not in state.clusters:
                self._note_orphan(path, "is in neither the MANIFEST nor a frame that can be read")

    def _note_orphan(self, path: Path, text: str) -> None:
        if self._disk.measure(path) is None:
            self._note(
                Kind.STRAY, path, "has a name of the queue's own, and is no regular file; move it away"
            )
        else:
            self._note(Kind.ORPHAN, path, text)

    def _files(self) -> Iterator[Path]:
        """All files where the queue keeps what comes and goes."""
        for silo in self._silos:
            yield from (silo / name for name in self._disk.names(silo))
        journal = self._queue_root / "journal"
        yield from (journal / name for name in self._disk.names(journal))
        for area in Area:
            root = self._queue_root / area
            for name in self._disk.names(root):
                below = root / name
                if self._disk.is_dir(below) and cluster.NAME.fullmatch(name) is None:
                    yield from (below / inner for inner in self._disk.names(below))
                else:
                    yield below

    def _look_at_message(self, path: Path) -> None:
        file = filenames.parse(path.name)
        if file is None:
            self._note(Kind.STRAY, path, "is none of the queue's files")
        elif file not in self._sizes:
            self._note_orphan(path, "belongs to no unfinished recipient")
        elif (right := self._silos.file(file)) != path:
            self._note(
                Kind.STRAY, path, f"lies in the wrong silo, where it counts for nothing; its place is {right}"
            )

    def _look_for_events(self, state: ManifestState) -> None:
        for path in pending_events(self._disk, self._options, state):
            text = "the events of an import that was cut off; `mqcd fsck --repair` gives them their name"
            self._wrong(Kind.EVENTS, path, text)


def _out_of_reach(error: OSError, what: str) -> str:
    """What there is to say of a file that is not there, or that is and cannot be read."""
    if isinstance(error, FileNotFoundError):
        return f"{error.strerror}: {what}; put it back from a copy"
    return f"cannot be read: {error.strerror}: {what}; make it readable, or put it back from a copy"


def _pathless(error: StoreDamaged, path: Path) -> str:
    """What an error says, without the path."""
    return plain(error).removeprefix(f"{path}: ")

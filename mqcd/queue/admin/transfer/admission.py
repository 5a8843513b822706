"""Takes mail from elsewhere into a queue whose lock is held: contents, records, events, and the edit.

In this order, each step durable before the next: contents in the spool, records in clusters, the list of
what is brought, the events under a temporary name; then one MANIFEST edit, which is the commit; then the
events get their name. Before the edit all of it is waste, which the next start or the next try removes.
Between the edit and the name of its events a kill leaves that name to be given by the next start, import or
`mqcd fsck --repair`.

Raises OSError and StoreUnavailable; then nothing was taken in.
"""

from __future__ import annotations

import gzip
import io
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from mqcd.core.errors import StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Area, Body, Discarded, Recipient
from mqcd.core.progress import Progress
from mqcd.core.queueing.spid import SpidSource
from mqcd.core.queueing.transition import end_of, ended_as, last_attempt
from mqcd.core.smtp.marks import LOOKED_AT, marks_of
from mqcd.disk.durable import TEMP_SUFFIX, Disk
from mqcd.queue.admin.ownership import Owned
from mqcd.queue.admin.transfer.letters import Letter, Tree, with_crlf
from mqcd.queue.clusters import file as cluster
from mqcd.queue.events.lines import EventText
from mqcd.queue.format import record, verdict
from mqcd.queue.format.frame import (
    ALIVE,
    IN_SPOOL,
    Entry,
    Header,
    Kind,
    Mark,
    pack_entry,
    pack_submission,
)
from mqcd.queue.manifest.state import ClusterState, Edit, ManifestState
from mqcd.queue.recovery.imports import DEPARTED, events_temp, name_events

_SHELVED_AT_ONCE = 16 << 20
"""Octets of record lines that are kept in memory before they go to clusters."""


def known_keys(disk: Disk, queue_root: Path, state: ManifestState) -> set[str]:
    """What earlier imports have brought. Raises OSError."""
    known: set[str] = set()
    for name in state.imports:
        if name.startswith(DEPARTED):
            continue
        known.update(disk.read_file(queue_root / "imports" / name).decode("ascii", "replace").split())
    return known


def admit(
    owned: Owned, kind: str, tree: Tree, progress: Progress, decide: Callable[[], None] = lambda: None
) -> int:
    """Take its letters in by one edit named after `kind`; returns how many recipients that were.

    `decide` is called right before the edit.
    """
    letters = tree.letters
    if not letters:
        return 0
    _check_room(owned, tree.octets, len(letters))
    with owned.disk.watching(owned.spool_root) as watch:
        admission = _Admission(owned, kind, watch)
        try:
            return admission.run(letters, progress, decide)
        except BaseException:
            admission.tidy()
            raise


def _check_room(owned: Owned, octets: int, files: int) -> None:
    settings = owned.options.settings
    free, inodes = owned.disk.free(owned.spool_root)
    # A file system without a fixed number of inodes reports 0 of them.
    if octets + settings.minfree > free or 0 < inodes < files + settings.mininodes:
        need = f"{octets} octets in {files} files, beyond minfree and mininodes"
        raise StoreUnavailable(f"{owned.spool_root} has too little room: the mail needs {need}")


class _Admission:
    """One import."""

    def __init__(self, owned: Owned, kind: str, watch: int) -> None:
        """`watch` is the spool's, see `Disk.watching`."""
        self._owned = owned
        self._watch = watch
        self._disk = owned.disk
        self._now = owned.clock.now()
        self._name = f"{kind}-{owned.number}"
        state = owned.manifest.state
        self._spids = SpidSource(owned.options.source.shard, state.spid)
        self._written = array("Q")
        """Messages whose content lies in the spool, under its temporary or its final name."""
        self._lines: dict[Area, list[cluster.Line]] = defaultdict(list)
        self._waiting = 0
        """Octets of these lines."""
        self._clusters: list[ClusterState] = []
        self._keys = bytearray()
        self._imported = 0
        self._events = ImportEvents(owned, state.sequence, self._now)
        self._committing = False

    def run(self, letters: Sequence[Letter], progress: Progress, decide: Callable[[], None]) -> int:
        for index, letter in enumerate(letters):
            progress("copying", index, len(letters))
            self._take(letter)
        progress("syncing", len(letters), len(letters))
        self._settle_contents()
        self._write_clusters()
        self._list_keys()
        self._events.write(events_temp(self._owned.options, self._owned.number))
        state = self._owned.manifest.state
        totals = state.totals + self._events.totals
        decide()
        self._committing = True
        self._owned.commit(
            Edit(
                sequence=self._events.sequence,
                spid=self._spids.last,
                totals={str(verb): count for verb, count in totals.items()},
                add=tuple(self._clusters),
                imports=(self._name,),
            )
        )
        name_events(self._disk, self._owned.options, self._owned.manifest.state)
        return self._imported

    def tidy(self) -> None:
        """After a failure: what may be large goes at once, the next start removes the rest.

        Not once the edit was begun: one that failed may still be the one that the disk has.
        """
        if not self._committing:
            for spid in self._written:
                path = self._owned.silos.path(spid)
                self._disk.unlink(path.with_suffix(TEMP_SUFFIX))
                self._disk.unlink(path)

    def _take(self, letter: Letter) -> None:
        spid = letter.spid or self._spids.next(self._now, letter.several or len(letter.recipients) > 1)
        self._spids.pass_over(spid)
        manifest = self._owned.manifest
        if spid > manifest.state.spid:
            # Of an import that is cut off files stay: no other message may get their names.
            manifest.commit(Edit(spid=self._spids.ceiling(self._now)))
        size, eight, head = self._copy(letter, spid)
        body = Body.EIGHT if eight and not letter.spid else letter.envelope.body
        labels = letter.envelope.labels or marks_of(head).labels()
        envelope = replace(letter.envelope, spid=spid, body=body, labels=labels)
        shared = record.encode_envelope(envelope)
        lines = []
        for recipient in letter.recipients:
            here = replace(recipient, envelope=envelope, size=size)
            raw = record.encode(here, shared)
            lines.append(raw)
            line = cluster.Line(here.due, envelope.received, size, raw, envelope.tenant)
            self._lines[here.area].append(line)
            self._waiting += len(raw)
            self._events.ended(here, raw)
        self._events.accepted(lines, size)
        self._keys += "".join([f"{key}\n" for key in letter.keys]).encode()
        self._imported += len(letter.keys)
        if self._waiting >= _SHELVED_AT_ONCE:
            self._write_clusters()

    def _write_clusters(self) -> None:
        """Put the lines so far into clusters: the MANIFEST lists them with the edit."""
        self._clusters += self._owned.write_clusters(self._lines.items(), first=len(self._clusters))
        self._lines.clear()
        self._waiting = 0

    def _copy(self, letter: Letter, spid: int) -> tuple[int, bool, bytes]:
        """Its content under a temporary name; returns octets, whether one of them has its high bit, and the
        beginning."""
        path = self._owned.silos.path(spid)
        temp = path.with_suffix(TEMP_SUFFIX)
        self._written.append(spid)
        size, eight, head = 0, False, b""
        fd = self._disk.create(temp)
        try:
            for chunk in letter.content() if letter.spid else with_crlf(letter.content()):
                size += self._disk.pwritev(fd, [chunk], size)
                eight = eight or not chunk.isascii()
                if len(head) < LOOKED_AT:
                    head += chunk[:LOOKED_AT]
        finally:
            self._disk.close(fd)
        return size, eight, head

    def _settle_contents(self) -> None:
        self._disk.sync_filesystem(self._owned.spool_root, self._watch)
        silos = set()
        for spid in self._written:
            path = self._owned.silos.path(spid)
            self._disk.rename(path.with_suffix(TEMP_SUFFIX), path)
            silos.add(path.parent)
        for silo in silos:
            self._disk.sync_dir(silo)

    def _list_keys(self) -> None:
        path = self._owned.queue_root / "imports" / self._name
        self._disk.mkdir(path.parent)
        self._disk.replace_file(path, [self._keys])


class ImportEvents:
    """The event file of an import or a departure, made of the frames that its segment would have held."""

    def __init__(self, owned: Owned, sequence: int, at: int) -> None:
        self._owned = owned
        self._at = at
        self._packed = io.BytesIO()
        self._gzip = gzip.GzipFile(fileobj=self._packed, mode="wb", compresslevel=1, mtime=0)
        self._text = EventText(owned.options.source)
        self._ended: list[Entry] = []
        self.sequence = sequence
        """The first one that is free."""

    @property
    def totals(self) -> Counter[Verb]:
        """Events of each verb so far."""
        return self._text.totals

    def ended(self, recipient: Recipient, raw: bytes) -> None:
        """A recipient may come as a bounce, or removed: the event of that follows its acceptance."""
        if (end := end_of(recipient)) is not None:
            note = verdict.encode(end, verdict.foreign_part(last_attempt(recipient).host))
            self._ended.append(Entry(verdict.mark_of(end), ALIVE, 0, 0, IN_SPOOL, raw, note))

    def accepted(self, lines: list[bytes], size: int) -> None:
        """A message is taken in, and what of it `ended` before this call."""
        self._append(Kind.ACCEPT, b"".join(pack_submission(b"".join(lines), None, size)), len(lines))
        if self._ended:
            entries, self._ended = self._ended, []
            self._append(Kind.SETTLE, b"".join(map(pack_entry, entries)), len(entries))

    def _append(self, kind: Kind, body: bytes, count: int) -> None:
        header = Header(kind, len(body), count, 0, self.sequence, 0, self._at)
        for line in self._text.lines(header, memoryview(body)):
            self._gzip.write(line.encode())
        self.sequence += count

    def discarded(self, raw: bytes, reason: str) -> None:
        """A recipient leaves."""
        undone = ended_as(record.decode(raw)) or ""
        note = verdict.encode(Discarded(reason=reason, undone=undone))
        self._append(Kind.SETTLE, pack_entry(Entry(Mark.DISCARDED, 0, 0, 0, IN_SPOOL, raw, note)), 1)

    def write(self, path: Path) -> None:
        """Make the file durable under the name given."""
        self._gzip.close()
        disk = self._owned.disk
        disk.write_temp(path, [self._packed.getvalue()])
        disk.sync_dir(path.parent)

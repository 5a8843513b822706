"""A queue that Mailismus wrote: read whole, checked, and turned into letters. It is never written to.

    queue/incoming/M*.mqc  queue/deferred/T<epoch s>/M*.mqc  queue/bounces/M*.mqc
    spool/sNN/<SPID>.msg or <SPID>-<QID>.msg      spool/ndrdiag/<SPID>-<QID>.ndr

A record is `SPID|QID|sender|mailbox|domain|received ms|source|retries|last code`. Records before the octet
in a cluster's name (`-p782`) are done. What cannot be taken over is reported with its place; the rest is.
Raises StoreUnavailable when the place holds no such queue, OSError when it cannot be read.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Set
from functools import partial
from pathlib import Path

from mqcd.core.address import check_address
from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.events import format_time
from mqcd.core.model import Area, Envelope, Origin, Recipient
from mqcd.core.progress import Progress, no_progress
from mqcd.core.queueing.transition import stored_text
from mqcd.core.smtp.reply import Reply
from mqcd.core.smtp.transparency import unstuff
from mqcd.core.value import value
from mqcd.disk.durable import Disk
from mqcd.queue.admin.findings import Kind, Problem
from mqcd.queue.admin.transfer.letters import Letter, Letters, Tree, chunks_of, files_below, key_of, size_of
from mqcd.queue.admin.transfer.ndrdiag import Diagnosis, decode, last_reply
from mqcd.queue.clusters.file import split_lines

_AREAS = (Area.INCOMING, Area.DEFERRED, Area.BOUNCES)
_OFFSET = re.compile(r"-p(\d+)\.mqc$")
_DUE = re.compile(r"T(\d+)")
_SILO = re.compile(r"s\d+")
_MESSAGE = re.compile(r"([0-9A-F]{8})(?:-(\d+))?\.msg")
_SPID = re.compile(r"[0-9A-Fa-f]{8}")
_FIELDS = 9
_CONTENT = b"@"
"""Marks a file of a message's content among what is kept of it."""


@value
class Row:
    """One record."""

    path: Path
    line: int
    spid: str
    qid: int
    sender: str
    address: str
    received: int
    source: str
    attempts: int
    code: int
    area: Area
    due: int

    @property
    def name(self) -> tuple[str, int, int]:
        """What identifies it, also after SPIDs began anew."""
        return self.spid, self.qid, self.received

    @property
    def key(self) -> str:
        """The same in 24 hex digits, for knowing it again."""
        return key_of("mailismus", self.spid, self.qid, self.received, self.sender, self.address)

    @property
    def standing(self) -> tuple[int, int]:
        """The later of two lines for one record has the greater standing."""
        return self.attempts, _AREAS.index(self.area)


def places(directory: Path, spool: Path | None) -> tuple[Path, Path]:
    """Queue and spool of a Mailismus whose %DIRVAR% is `directory`, or lies in it as `var`."""
    for var in (directory, directory / "var"):
        if (var / "queue").is_dir():
            return var / "queue", spool or var / "spool"
    raise StoreUnavailable(f"{directory} holds no queue of Mailismus: it has neither queue/ nor var/queue/")


def read_tree(
    disk: Disk,
    directory: Path,
    *,
    spool: Path | None = None,
    now: int,
    latest: int,
    known: Set[str] = frozenset(),
    progress: Progress = no_progress,
) -> Tree:
    """Read and check everything; `known` are keys that earlier imports have brought.

    What is due later than `latest`, ms, is due then.
    """
    queue_root, spool_root = places(directory, spool)
    if disk.measure(queue_root / "MANIFEST") is not None:
        raise StoreUnavailable(
            f"{queue_root} is a queue of mqcd: `mqcd queue export` there, `mqcd import eml` here"
        )
    if not spool_root.is_dir():
        raise StoreUnavailable(f"{spool_root} is missing: name the spool by --spool")
    return _Reader(disk, (queue_root, spool_root), (now, latest), progress).read(known)


class _Reader:
    def __init__(
        self, disk: Disk, roots: tuple[Path, Path], times: tuple[int, int], progress: Progress
    ) -> None:
        self._disk = disk
        self._queue_root, self._spool_root = roots
        self._now, self._latest_due = times
        self._progress = progress
        self._letters = Letters(self._make)
        self._tree = Tree(letters=self._letters)
        self._clusters: list[tuple[Area, Path, int]] = []
        """Area, file, and when its records are due."""
        self._kept: dict[int, bytes] = {}
        """By SPID, what was found of a message, as text: there may be a million. A line for each record, with
        the number of its cluster and its own, and one for each file of its content, with the QID."""
        self._known: Set[str] = frozenset()

    def read(self, known: Set[str]) -> Tree:
        self._known = known
        self._progress("looking for files", 0, 0)
        clusters = [(area, path) for area in _AREAS for path in self._find_clusters(self._queue_root / area)]
        for index, (area, path) in enumerate(clusters):
            self._progress("reading", index, len(clusters))
            self._read_cluster(area, path)
        self._list_contents()
        for index, (spid, kept) in enumerate(self._kept.items()):
            if index % 100 == 0:
                self._progress("checking", index, len(self._kept))
            self._check(spid, kept)
        # What is found again when a letter is made has been reported now.
        tree, self._tree = self._tree, Tree()
        return tree

    def _check(self, spid: int, kept: bytes) -> None:
        lines, files = self._look_up(kept)
        rows = self._latest(lines)
        self._tree.skipped += len(lines) - len(rows)
        letter = self._letter(rows, files) if rows else None
        if letter is not None:
            self._letters.tokens.append(spid)
            self._tree.recipients += len(rows)
            self._tree.octets += letter.octets

    def _make(self, spid: int) -> Letter:
        lines, files = self._look_up(self._kept[spid])
        letter = self._letter(self._latest(lines), files)
        if letter is None:
            raise StoreUnavailable(f"message {spid:08X} has changed during the import")
        return letter

    def _look_up(self, kept: bytes) -> tuple[list[Row], dict[int, str]]:
        """The records of a message, and silo and name of its content by QID; 0 = one file for all."""
        rows: list[Row] = []
        files: dict[int, str] = {}
        for line in kept.split(b"\n"):
            number, at, rest = line.split(b"|", 2)
            if number == _CONTENT:
                files[int(at)] = rest.decode()
            else:
                area, path, due = self._clusters[int(number)]
                rows.append(_row(rest, area, path, int(at), due))
        return rows, files

    def _latest(self, rows: list[Row]) -> list[Row]:
        """The last of the lines for each record, without those that an earlier import has brought."""
        latest: dict[tuple[str, int, int], Row] = {}
        for row in rows:
            other = latest.get(row.name)
            if other is None or row.standing > other.standing:
                latest[row.name] = row
        return [row for row in latest.values() if not (self._known and row.key in self._known)]

    def _keep(self, spid: int, number: int | bytes, at: int, rest: bytes) -> None:
        line = b"%b|%d|%b" % (number if isinstance(number, bytes) else b"%d" % number, at, rest)
        kept = self._kept.get(spid)
        self._kept[spid] = line if kept is None else b"%b\n%b" % (kept, line)

    def _damaged(self, path: Path, line: int | None, text: str, kind: Kind = Kind.LINE) -> None:
        self._tree.damaged += 1
        self._tree.problems.append(Problem(kind, path, line, text))

    # ------------------------------------------------------------ records

    def _find_clusters(self, area: Path) -> Iterator[Path]:
        if os.path.lexists(area) and not area.is_dir():
            raise StoreUnavailable(f"{area} is no directory")
        for path in files_below(self._disk, area, self._tree.problems):
            if path.name.startswith("M") and path.name.endswith(".mqc"):
                yield path
            else:
                self._tree.problems.append(Problem(Kind.STRAY, path, None, "is no cluster; left out"))

    def _read_cluster(self, area: Area, path: Path) -> None:
        try:
            data = self._disk.read_file(path)
        except OSError as error:
            self._tree.found += 1
            self._damaged(path, None, f"cannot be read, with all its records: {error.strerror}", Kind.CLUSTER)
            return
        offset = _OFFSET.search(path.name)
        start = int(offset[1]) if offset is not None else 0
        if start > len(data):
            text = f"octet {start} of its name lies behind its end ({len(data)}): all counts as done"
            self._tree.problems.append(Problem(Kind.CLUSTER, path, None, text))
            start = len(data)
        due = self._due(path) if area is Area.DEFERRED else 0
        self._clusters.append((area, path, due))
        number = data.count(b"\n", 0, start) + 1
        if start and data[start - 1 : start] != b"\n":
            end = data.find(b"\n", start) + 1 or len(data)
            self._tree.found += 1
            self._damaged(path, number, f"octet {start} of its name lies in the middle of a line")
            start, number = end, number + 1
        for line in split_lines(data[start:]):
            # A last line without its end may be whole all the same.
            self._read_line(area, path, number, line.rstrip(b"\n"), due)
            number += 1

    def _due(self, path: Path) -> int:
        """When what lies in a directory is to be tried, ms; at once for one without a time."""
        match = _DUE.fullmatch(path.parent.name)
        due = int(match[1]) * 1000 if match is not None else self._now
        if due <= self._latest_due:
            return due
        problems = self._tree.problems
        if not problems or problems[-1].path != path.parent:
            text = "is later than the longest delay here: what it holds is due at "
            text += format_time(self._latest_due)
            problems.append(Problem(Kind.CLUSTER, path.parent, None, text))
        return self._latest_due

    def _read_line(self, area: Area, path: Path, number: int, line: bytes, due: int) -> None:
        if not line.strip():
            self._tree.problems.append(Problem(Kind.BLANK, path, number, "is blank"))
            return
        self._tree.found += 1
        try:
            row = _row(line, area, path, number, due)
        except DecodeError as error:
            self._damaged(path, number, f"{error}: {_shown(line)}")
            return
        self._keep(int(row.spid, 16), len(self._clusters) - 1, number, line)

    # ------------------------------------------------------------ contents

    def _list_contents(self) -> None:
        for silo in self._disk.names(self._spool_root):
            if _SILO.fullmatch(silo) is None:
                continue
            for name in self._disk.names(self._spool_root / silo):
                match = _MESSAGE.fullmatch(name)
                if match is not None:
                    if (spid := int(match[1], 16)) in self._kept:
                        self._keep(spid, _CONTENT, int(match[2] or 0), f"{silo}/{name}".encode())
                else:
                    path = self._spool_root / silo / name
                    self._tree.problems.append(Problem(Kind.STRAY, path, None, "is no message; left out"))

    def _letter(self, rows: list[Row], files: dict[int, str]) -> Letter | None:
        """The message; None when it cannot be taken, which is reported then."""
        first = rows[0]
        if any((row.sender, row.received) != (first.sender, first.received) for row in rows):
            for row in rows:
                text = f"two messages are called {row.spid}; it is unknown whose the one content is"
                self._damaged(row.path, row.line, text, Kind.CONTENT)
            return None
        name, octets, trouble = self._content(rows, files)
        if trouble:
            for row in rows:
                self._damaged(row.path, row.line, trouble, Kind.CONTENT)
            return None
        rows.sort(key=lambda row: row.qid)
        envelope = Envelope(
            spid=0,
            sender=first.sender,
            received=first.received,
            origin=Origin.IMPORT,
            smtputf8=not all(text.isascii() for row in rows for text in (row.sender, row.address)),
            client=first.source,
        )
        return Letter(
            octets=octets,
            envelope=envelope,
            recipients=tuple(self._recipients(envelope, rows)),
            keys=tuple(row.key for row in rows),
            several=bool(int(first.spid, 16) & 1),
            content=partial(_unstuffed, self._disk, self._spool_root, name),
        )

    def _content(self, rows: list[Row], files: dict[int, str]) -> tuple[str, int, str]:
        """The message's file, its length, and what is wrong; all links are equal."""
        wanted = [row.qid for row in rows if row.qid in files]
        order = [*([0] if 0 in files else []), *wanted, *sorted(files)]
        trouble = f"message {rows[0].spid} has no content in the spool"
        for qid in order:
            path = self._spool_root / files[qid]
            try:
                if octets := size_of(self._disk, path):
                    return files[qid], octets, ""
                # Received stands at least in every content: an empty file is one that was never synced.
                trouble = f"the content in {path} is empty"
            except OSError as error:
                trouble = f"the content in {path} cannot be read: {error.strerror}"
        return "", 0, trouble

    def _recipients(self, envelope: Envelope, rows: list[Row]) -> Iterator[Recipient]:
        diagnoses = {row.qid: self._diagnosis(row) for row in rows}
        for row in rows:
            own = diagnoses[row.qid]
            same = [
                each
                for qid, each in diagnoses.items()
                if qid != row.qid and each is not None and _code_of(rows, qid) == row.code
            ]
            reply = last_reply(own, row.code, same) if own is not None else Reply(code=row.code)
            yield Recipient(
                envelope=envelope,
                size=0,
                qid=row.qid,
                address=row.address,
                area=row.area,
                due=row.due,
                attempts=row.attempts,
                code=row.code,
                status=reply.status,
                reply=stored_text(reply),
                remote=own.remote if own is not None and reply.text else "",
            )

    def _diagnosis(self, row: Row) -> Diagnosis | None:
        if not row.code:
            return None
        path = self._spool_root / "ndrdiag" / f"{row.spid}-{row.qid}.ndr"
        try:
            return decode(self._disk.read_file(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            text = f"cannot be read, its reply is left out: {error.strerror}"
            self._tree.problems.append(Problem(Kind.STRAY, path, None, text))
            return None


def _code_of(rows: list[Row], qid: int) -> int:
    return next(row.code for row in rows if row.qid == qid)


def _row(line: bytes, area: Area, path: Path, number: int, due: int) -> Row:
    """Raises DecodeError."""
    try:
        fields = line.decode().split("|")
    except UnicodeDecodeError as error:
        raise DecodeError("the line is not UTF-8") from error
    if len(fields) != _FIELDS:
        raise DecodeError(f"the line has {len(fields)} fields, not {_FIELDS}")
    spid, qid, sender, mailbox, domain, *numbers = fields
    if _SPID.fullmatch(spid) is None:
        raise DecodeError("the SPID is not 8 hex digits")
    try:
        received, source, retries, code = map(int, numbers)
        qid_number = int(qid)
    except ValueError as error:
        raise DecodeError("a number is not one") from error
    if not (0 < qid_number < 1 << 31 and 0 < received < 1 << 43 and 0 <= retries < 1 << 31):
        raise DecodeError("a number cannot be")
    if code and not 200 <= code <= 599:
        raise DecodeError("the last code is no SMTP code")
    if not domain:
        raise DecodeError("the recipient has no domain: mail for a mailbox of Mailismus itself")
    return Row(
        path=path,
        line=number,
        spid=spid.upper(),
        qid=qid_number,
        sender=check_address(sender) if sender else "",
        address=check_address(f"{mailbox}@{domain}"),
        received=received,
        source=_source(source),
        attempts=retries,
        code=code,
        area=area,
        due=due,
    )


def _source(number: int) -> str:
    """The client's address; "" for mail that Mailismus wrote itself."""
    if not -(1 << 31) <= number < 1 << 31:
        raise DecodeError("the source is no IPv4 address")
    return str(ipaddress.IPv4Address(number & 0xFFFF_FFFF)) if number else ""


def _shown(line: bytes) -> str:
    return repr(line[:80].decode("utf-8", "replace"))


def _unstuffed(disk: Disk, root: Path, name: str) -> Iterator[bytes]:
    return unstuff(chunks_of(disk, root / name))

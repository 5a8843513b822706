"""A directory of `.eml` files, read whole, checked, and turned into letters. It is never written to.

With an `index.jsonl`, as `mqcd queue export` writes it, each message has the envelope, the recipients and
the octets that the index says, and files that it does not name are left out. Messages of an export whose
index is elsewhere, or not there yet, are refused: their headers do not say which recipients still wait.

Without one the envelope is taken from the header section (RFC 5322): Return-Path, else Sender, else From
sends; To, Cc and Bcc receive. Where the message was sent again (3.6.6), the first block of Resent- fields
says so instead, and only a Return-Path above it counts. Then Bcc and Resent-Bcc are dropped, as a
submitter must, and so is the line that an mbox puts first. Such mail is new: accepted now, tried
at once.

What cannot be taken is reported with its place, and stops nothing.
Raises StoreUnavailable when there is no such directory or an export without its index, OSError when it cannot
be read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Set
from dataclasses import replace
from email.parser import HeaderParser
from functools import partial
from itertools import chain
from pathlib import Path

from mqcd.core.address import domain_of, split_address
from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.events import format_time
from mqcd.core.model import Envelope, Origin, Recipient
from mqcd.core.progress import Progress, no_progress
from mqcd.core.queueing.spid import is_several
from mqcd.core.smtp.mailboxes import mailboxes
from mqcd.disk.durable import TEMP_SUFFIX, Disk
from mqcd.queue.admin.findings import Kind, Problem
from mqcd.queue.admin.transfer import index
from mqcd.queue.admin.transfer.letters import Letter, Tree, chunks_of, files_below, key_of, size_of

_RESENT = "resent-"
Field = tuple[str, str]
"""Name in lower case, and value."""
_MAX_HEADER = 1 << 20
"""Octets within which the header section must end."""


def read_directory(
    disk: Disk,
    directory: Path,
    *,
    now: int,
    latest: int,
    known: Set[str] = frozenset(),
    progress: Progress = no_progress,
) -> Tree:
    """Read and check everything; `known` are keys that earlier imports have brought.

    What is due later than `latest`, ms, is due then.
    """
    if not directory.is_dir():
        raise StoreUnavailable(f"{directory} is no directory")
    return _Reader(disk, directory, (now, latest), progress).read(known)


class _Reader:
    def __init__(self, disk: Disk, directory: Path, times: tuple[int, int], progress: Progress) -> None:
        self._disk = disk
        self._directory = directory
        self._now, self._latest_due = times
        self._progress = progress
        self._letters: list[Letter] = []
        self._indexed: set[str] = set()
        """Keys of what the index has named so far."""
        self._tree = Tree(letters=self._letters)

    def read(self, known: Set[str]) -> Tree:
        self._progress("looking for files", 0, 0)
        below = list(files_below(self._disk, self._directory, self._tree.problems))
        files = sorted(path for path in below if path.name.lower().endswith(".eml"))
        path = self._directory / index.NAME
        if path.is_file():
            self._read_index(path, files, known)
            return self._tree
        _check_not_exported(below)
        for count, file in enumerate(files):
            self._progress("reading", count, len(files))
            self._read_file(file, known)
        return self._tree

    def _damaged(self, path: Path, line: int | None, text: str, count: int = 1) -> None:
        self._tree.found += count
        self._tree.damaged += count
        self._tree.problems.append(Problem(Kind.LINE if line else Kind.CONTENT, path, line, text))

    def _take(self, letter: Letter, *known: Set[str]) -> None:
        """Keep those of its recipients that are new."""
        self._tree.found += len(letter.keys)
        pairs = zip(letter.recipients, letter.keys, strict=True)
        new = [pair for pair in pairs if not any(pair[1] in each for each in known)]
        self._tree.skipped += len(letter.keys) - len(new)
        if new:
            recipients, keys = zip(*new, strict=True)
            self._letters.append(replace(letter, recipients=recipients, keys=keys))
            self._tree.recipients += len(new)
            self._tree.octets += letter.octets

    # ------------------------------------------------------------ what was exported

    def _read_index(self, path: Path, files: list[Path], known: Set[str]) -> None:
        named: set[Path] = set()
        lines = self._disk.read_file(path).decode("utf-8", "replace").split("\n")
        if not lines[-1]:
            lines.pop()
        if lines and all(map(index.is_foreign, lines)):
            raise StoreUnavailable(
                f"{path} is no index of `mqcd queue export` (`mqcd sink --store` uses that name, too); "
                "move it away, and the .eml files are taken by their headers"
            )
        for number, line in enumerate(lines, 1):
            self._progress("reading", number, len(lines))
            try:
                entry = index.decode(line)
            except DecodeError as error:
                self._damaged(path, number, str(error))
                continue
            named.add(self._directory / entry.file)
            self._read_entry(path, number, entry, known)
        for file in files:
            if file not in named:
                text = f"is not named in {index.NAME}; left out"
                self._tree.problems.append(Problem(Kind.STRAY, file, None, text))

    def _read_entry(self, path: Path, number: int, entry: index.Entry, known: Set[str]) -> None:
        file = self._directory / entry.file
        first = entry.recipients[0]
        try:
            octets = size_of(self._disk, file)
        except OSError as error:
            text = f"{entry.file} cannot be read: {error.strerror}"
            self._damaged(path, number, text, len(entry.recipients))
            return
        if octets != first.size:
            text = f"{entry.file} is {octets} octets long, and should be {first.size}"
            self._damaged(path, number, text, len(entry.recipients))
            return
        recipients = [replace(each, due=min(each.due, self._latest_due)) for each in entry.recipients]
        if recipients != [*entry.recipients]:
            text = f"is due later than after the longest delay here: now at {format_time(self._latest_due)}"
            self._tree.problems.append(Problem(Kind.LINE, path, number, text))
        envelope = first.envelope
        of_message = ("eml", envelope.spid, envelope.received, envelope.sender)
        letter = Letter(
            octets=octets,
            envelope=replace(envelope, origin=Origin.IMPORT),
            recipients=tuple(recipients),
            keys=tuple(key_of(*of_message, each.qid, each.address) for each in entry.recipients),
            several=is_several(envelope.spid),
            content=partial(chunks_of, self._disk, file),
        )
        self._take(letter, known, self._indexed)
        self._indexed.update(letter.keys)

    # ------------------------------------------------------------ any message

    def _read_file(self, path: Path, known: Set[str]) -> None:
        try:
            octets = size_of(self._disk, path)
            head, at = _header_section(self._disk, path)
            prefix, fields = _latest(_fields(head))
            sender, recipients = _sender(prefix, fields), _recipients(prefix, fields)
            digest = hashlib.sha256()
            for chunk in chunks_of(self._disk, path):
                digest.update(chunk)
        except (OSError, DecodeError) as error:
            self._damaged(path, None, getattr(error, "strerror", None) or str(error))
            return
        name = str(path.relative_to(self._directory))
        envelope = Envelope(
            spid=0,
            sender=sender,
            received=self._now,
            origin=Origin.IMPORT,
            smtputf8=not all(text.isascii() for text in (sender, *recipients)),
        )
        letter = Letter(
            octets=octets,
            envelope=envelope,
            recipients=tuple(
                Recipient(envelope=envelope, size=0, qid=qid, address=address)
                for qid, address in enumerate(recipients, 1)
            ),
            keys=tuple(key_of("eml", name, digest.hexdigest(), address) for address in recipients),
            several=len(recipients) > 1,
            content=partial(_submitted, self._disk, path, _cleaned(head), at),
        )
        self._take(letter, known)


def _check_not_exported(files: list[Path]) -> None:
    """Raises StoreUnavailable when an index, or the beginning of one, lies among them."""
    for path in files:
        if path.name == index.NAME:
            raise StoreUnavailable(f"{path.parent} has an index of its own: import that directory by itself")
        if path.name == index.NAME + TEMP_SUFFIX:
            raise StoreUnavailable(
                f"{path.parent} holds a part of an export, without its index: it is still being written or "
                "broke off, and the recipients are unknown. Export again to another directory"
            )


def _header_section(disk: Disk, path: Path) -> tuple[bytes, int]:
    """The header section, and where what follows it begins. Raises DecodeError."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        data = disk.pread(fd, _MAX_HEADER, 0)
        whole = len(data) < _MAX_HEADER
    finally:
        disk.close(fd)
    at = 0
    while at < len(data):
        end = data.find(b"\n", at) + 1 or len(data)
        if not data[at:end].rstrip(b"\r\n"):
            return data[:at], at
        at = end
    if not whole:
        raise DecodeError("its header section does not end within a megabyte")
    return data, len(data)


def _cleaned(head: bytes) -> bytes:
    """A header section without Bcc, and without the line that an mbox puts before it."""
    if head.startswith(b"From "):
        head = head[head.find(b"\n") + 1 :]
    kept: list[bytes] = []
    inside = False
    for line in head.splitlines(keepends=True):
        folded = line[:1] in (b" ", b"\t")
        inside = inside if folded else line.lower().startswith((b"bcc:", b"resent-bcc:"))
        if not inside:
            kept.append(line)
    return b"".join(kept)


def _fields(head: bytes) -> list[Field]:
    """The fields of a header section. Octets that are not UTF-8 are half characters (PEP 383).

    Raises DecodeError where the parser ends it early: what stands below would not be read, recipients too.
    """
    header = HeaderParser().parsestr(head.decode("utf-8", "surrogateescape"))
    if rest := str(header.get_payload()):
        line = ascii(rest.split("\n", 1)[0])[:80]
        if header.defects:
            raise DecodeError(f"a line of its header section is no field: {line}")
        # CR CR LF: for the parser that is the end of a line, and an empty one.
        raise DecodeError(f"an empty line parts its fields: {line}")
    return [(name.lower(), value) for name, value in header.raw_items()]


def _latest(fields: list[Field]) -> tuple[str, list[Field]]:
    """The fields that say how the message went last, and what their names begin with there.

    Each sending puts its fields above those of the ones before.
    """
    start = next((at for at, (name, _) in enumerate(fields) if name.startswith(_RESENT)), None)
    if start is None:
        return "", fields
    found = [field for field in fields[:start] if field[0] == "return-path"]
    names: set[str] = set()
    for name, value in fields[start:]:
        if not name.startswith(_RESENT) or name in names:
            break
        names.add(name)
        found.append((name.removeprefix(_RESENT), value))
    return _RESENT.title(), found


def _sender(prefix: str, fields: list[Field]) -> str:
    """The reverse-path. Raises DecodeError when there is none."""
    paths = [value for name, value in fields if name == "return-path"]
    if paths and paths[0].strip() == "<>":
        return ""
    for wanted in ("return-path", "sender", "from"):
        first = next((value for name, value in fields if name == wanted), "")
        for address in mailboxes(first):
            return address
    raise DecodeError(f"no header field names a sender: Return-Path, {prefix}Sender or {prefix}From")


def _recipients(prefix: str, fields: list[Field]) -> list[str]:
    """The forward-paths, each mailbox once. Raises DecodeError when there is none."""
    found: dict[tuple[str, str], str] = {}
    for wanted in ("to", "cc", "bcc"):
        for address in chain.from_iterable(mailboxes(value) for name, value in fields if name == wanted):
            local, _ = split_address(address)
            found.setdefault((local, domain_of(address)), address)
    if not found:
        text = f"{prefix}To, {prefix}Cc or {prefix}Bcc"
        raise DecodeError(f"no header field names a recipient: {text}")
    return list(found.values())


def _submitted(disk: Disk, path: Path, head: bytes, at: int) -> Iterator[bytes]:
    """A message as it would have been submitted: without Bcc."""
    yield head
    yield from chunks_of(disk, path, at)

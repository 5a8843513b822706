"""Messages out of the queue into a directory: an `.eml` file for each, and `index.jsonl` for them all.

Reads under a pin, with or without a running server, and changes nothing in the queue: it is a copy. A
large queue is exported in parts, each of its own moment, so that neither memory nor the time of a pin grows
with it. Beside a running server a message may be delivered before its turn comes; it is left out and counted
as gone. What the server moves or ends once the pin's time is up is looked up in a new view. The index appears
last, and only whole. Raises StoreBusy, StoreDamaged, StoreUnavailable, OSError.
"""

from __future__ import annotations

import os
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from mqcd.core.errors import ContentUnavailable, DecodeError, MqcdError, StoreBusy, StoreUnavailable
from mqcd.core.model import Recipient
from mqcd.core.progress import Progress, no_progress
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.selection import Selection
from mqcd.core.value import value
from mqcd.disk.durable import TEMP_SUFFIX, Disk, describe
from mqcd.queue.admin.transfer import index
from mqcd.queue.format.record import parse
from mqcd.queue.manifest.state import ManifestState
from mqcd.queue.reading.shards import Snapshots

Made = TypeVar("Made")


class Looked(Protocol):
    """A view of a queue, such as `Snapshots`."""

    @property
    def left_out(self) -> int:
        """Records that are damaged or missing."""

    def project(self, selection: Selection, make: Callable[[str, bool], Made]) -> Iterator[list[Made]]:
        """What `make` makes of the text of each record."""

    def content(self, spid: int, recipient: Recipient | None = None) -> Iterator[bytes]:
        """A message's octets."""

    def close(self) -> None: ...


Look = Callable[[], Looked]
"""Gives a view of the queue as it is at that moment."""
_LINES = 500
"""Index lines that are written at once."""
_PART = 100_000
"""Recipients whose records are in memory at once."""
_TRIES = 5
"""How often records are read, each time in a new view, while the queue moves on before they have been."""


@dataclass(slots=True)
class Exported:
    """What came of it."""

    messages: int = 0
    recipients: int = 0
    gone: int = 0
    """Messages that left the queue meanwhile."""
    damaged: int = 0
    """Records that do not check or are missing, and stretches of the journal that do not check: their
    recipients are left out. A caller that knows of a whole segment that is gone counts it as one."""
    failed: dict[int, str] = field(default_factory=dict)
    """SPIDs of messages that are in the queue and could not be copied, and why."""


def export(
    disk: Disk,
    roots: tuple[Path, Path],
    selection: Selection,
    target: Path,
    progress: Progress = no_progress,
    part: int = _PART,
    state: ManifestState | None = None,
) -> Exported:
    """Copy what is selected from the queue (queue root, spool root) to `target`, which is new or empty.

    About `part` recipients are copied at a time. `state` stands for a MANIFEST that cannot be read.
    """
    return export_view(disk, lambda: Snapshots(disk, *roots, state), selection, target, progress, part)


def export_view(
    disk: Disk,
    look: Look,
    selection: Selection,
    target: Path,
    progress: Progress = no_progress,
    part: int = _PART,
) -> Exported:
    """The same of any queue that `look` gives views of."""
    done = Exported()

    def spids_of(snapshot: Looked) -> array[int]:
        if disk.names(target):
            raise StoreUnavailable(f"{target} is not empty: name a new directory")
        spids = array("Q")
        for found in snapshot.project(selection, _spid):
            spids.extend(found)
        return spids

    snapshot, spids = _viewed(look, spids_of)
    with closing(snapshot):
        done.damaged = snapshot.left_out
    disk.mkdir(target, sync=False)
    # A limit chooses by the order of reading: what it chose must not be parted.
    parts = list(_parts(array("Q", sorted(spids)), max(part, selection.limit or 0)))
    try:
        _Export(disk, look, selection, target, done, progress).run(parts)
    except (OSError, MqcdError) as error:
        why = describe(error) if isinstance(error, OSError) else str(error)
        raise StoreUnavailable(
            f"{why}. What {target} holds by now is a part, without its index: name another directory"
        ) from error
    return done


def _viewed(look: Look, read: Callable[[Looked], Made], tries: int = _TRIES) -> tuple[Looked, Made]:
    """A view, for the caller to close, and what `read` makes of it. Raises StoreBusy after so many tries."""
    try:
        with ExitStack() as opened:
            snapshot = opened.enter_context(closing(look()))
            made = read(snapshot)
            opened.pop_all()
    except StoreBusy:
        if tries == 1:
            raise
        return _viewed(look, read, tries - 1)
    return snapshot, made


def _spid(text: str, _begun: bool) -> int:
    try:
        return int(text[:16], 16)
    except ValueError as error:
        raise DecodeError(f"record line begins with no SPID: {text[:120]!r}") from error


@value(kw_only=False)
class _Part:
    """The messages from one SPID to another."""

    first: int
    last: int
    messages: int


def _parts(spids: array[int], size: int) -> Iterator[_Part]:
    """Cut sorted SPIDs, one for each recipient, into parts; no message is in two."""
    start = 0
    while start < len(spids):
        end = min(start + size, len(spids))
        while end < len(spids) and spids[end] == spids[end - 1]:
            end += 1
        yield _Part(spids[start], spids[end - 1], len(set(spids[start:end])))
        start = end


@value(kw_only=False)
class _Export:
    disk: Disk
    look: Look
    selection: Selection
    target: Path
    done: Exported
    progress: Progress

    def run(self, parts: list[_Part]) -> None:
        """All of them, in the order of their acceptance."""
        path = self.target / index.NAME
        temp = path.with_name(path.name + TEMP_SUFFIX)
        with self.disk.watching(self.target) as watch:
            fd = self.disk.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                at = before = 0
                messages = sum(part.messages for part in parts)
                for part in parts:
                    for count, lines in self._lines(part):
                        self.progress("exporting", before + count, messages)
                        at += self.disk.pwritev(fd, [line.encode() for line in lines], at)
                    before += part.messages
            finally:
                self.disk.close(fd)
            self.disk.sync_filesystem(self.target, watch)
        self.disk.rename(temp, path)
        self.disk.sync_dir(self.target)

    def _lines(self, part: _Part) -> Iterator[tuple[int, list[str]]]:
        """How many messages have been copied, and the next lines of the index.

        What fails is tried again in a new view, as long as fewer fail there.
        """
        copied = 0
        lines: list[str] = []
        before: dict[int, str] | None = None
        while True:
            failed: dict[int, str] = {}
            snapshot, records = _viewed(self.look, partial(self._records, part=part, only=before))
            with closing(snapshot):
                for spid in sorted(records):
                    try:
                        lines.append(self._copy(snapshot, spid, records.pop(spid)))
                    except MqcdError as error:
                        failed[int(spid, 16)] = str(error)
                        continue
                    copied += 1
                    if copied % _LINES == 0:
                        yield copied, lines
                        lines = []
            if not failed or (before is not None and len(failed) == len(before)):
                break
            before = failed
        self.done.failed |= failed
        self.done.gone += part.messages - copied - len(failed)
        yield part.messages, lines

    def _records(self, snapshot: Looked, part: _Part, only: Collection[int] | None) -> dict[str, list[str]]:
        """Texts of the part's records by SPID; of these alone, if any are given."""
        first, last = format_spid(part.first), format_spid(part.last)
        records: dict[str, list[str]] = defaultdict(list)

        def within(text: str, _begun: bool) -> str:
            return text if first <= text[:16] <= last else ""

        # A limit has chosen these already.
        selection = self.selection if only is None else replace(self.selection, limit=None)
        for texts in snapshot.project(selection, within):
            for text in filter(None, texts):
                if only is None or int(text[:16], 16) in only:
                    records[text[:16]].append(text)
        return records

    def _copy(self, snapshot: Looked, spid: str, texts: list[str]) -> str:
        """Copy a message; gives its line of the index. Raises MqcdError when it cannot be had whole."""
        recipients = _recipients(texts)
        name = f"{spid}.eml"
        try:
            self._write(self.target / name, snapshot, recipients[0])
        except MqcdError:
            self.disk.unlink(self.target / name)
            raise
        self.done.messages += 1
        self.done.recipients += len(recipients)
        return index.encode(name, recipients)

    def _write(self, path: Path, snapshot: Looked, recipient: Recipient) -> None:
        """Write a recipient's content. Raises MqcdError, OSError."""
        fd = self.disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        written = 0
        try:
            for chunk in snapshot.content(recipient.spid, recipient):
                written += self.disk.pwritev(fd, [chunk], written)
        finally:
            self.disk.close(fd)
        if written != recipient.size:
            raise ContentUnavailable(f"its content has {written} octets and should have {recipient.size}")


def _recipients(texts: list[str]) -> list[Recipient]:
    """Those of one message. Raises DecodeError."""
    found = sorted(map(parse, texts), key=lambda each: (each.qid, each.attempts))
    # Where the MANIFEST is guessed, some may be there twice: the one with more attempts is later.
    return list({each.qid: each for each in found}.values())

"""Messages out of the queue into a directory: an `.eml` file for each, and `index.jsonl` for them all.

Reads under a pin, with or without a running server, and changes nothing in the queue: it is a copy. Beside
a running server a message may be delivered before its turn comes; it is left out and counted as gone. The
index appears last, and only whole. Raises StoreBusy, StoreDamaged, StoreUnavailable, OSError.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mqcd.core.errors import MqcdError, StoreUnavailable
from mqcd.core.model import Recipient
from mqcd.core.selection import Selection
from mqcd.core.spid import format_spid
from mqcd.queue.admin import index
from mqcd.queue.admin.findings import Progress, silent
from mqcd.queue.durable import TEMP_SUFFIX, Disk
from mqcd.queue.snapshot import Snapshot

_LINES = 500
"""Index lines that are written at once."""


@dataclass(slots=True)
class Exported:
    """What came of it."""

    messages: int = 0
    recipients: int = 0
    gone: int = 0
    """Messages that left the queue meanwhile."""
    failed: dict[int, str] = field(default_factory=dict)
    """SPIDs of messages that are in the queue and could not be copied, and why."""


def export(
    disk: Disk,
    roots: tuple[Path, Path],
    selection: Selection,
    target: Path,
    progress: Progress = silent,
) -> Exported:
    """Copy what is selected from the queue (queue root, spool root) to `target`, which is new or empty."""
    done = Exported()
    snapshot = Snapshot(disk, *roots)
    try:
        if disk.names(target):
            raise StoreUnavailable(f"{target} is not empty: name a new directory")
        messages: dict[int, list[Recipient]] = defaultdict(list)
        for item in snapshot.items(selection):
            messages[item.recipient.spid].append(item.recipient)
        disk.mkdir(target)
        _Export(disk, snapshot, target, done).run(messages, progress)
    finally:
        snapshot.close()
    if done.failed:
        _tell_gone_from_failed(disk, roots, done)
    return done


def _tell_gone_from_failed(disk: Disk, roots: tuple[Path, Path], done: Exported) -> None:
    """What is no longer in the queue has not failed."""
    snapshot = Snapshot(disk, *roots)
    try:
        left = {item.recipient.spid for item in snapshot.items(Selection())} & done.failed.keys()
    finally:
        snapshot.close()
    done.gone = len(done.failed) - len(left)
    done.failed = {spid: text for spid, text in done.failed.items() if spid in left}


class _Export:
    def __init__(self, disk: Disk, snapshot: Snapshot, target: Path, done: Exported) -> None:
        self._disk = disk
        self._snapshot = snapshot
        self._target = target
        self._done = done

    def run(self, messages: dict[int, list[Recipient]], progress: Progress) -> None:
        """All of them, in the order of their acceptance."""
        path = self._target / index.NAME
        temp = path.with_name(path.name + TEMP_SUFFIX)
        fd = self._disk.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            at = 0
            for lines in self._lines(messages, progress):
                at += self._disk.pwritev(fd, [line.encode() for line in lines], at)
        finally:
            self._disk.close(fd)
        self._disk.sync_filesystem(self._target)
        self._disk.rename(temp, path)
        self._disk.sync_dir(self._target)

    def _lines(self, messages: dict[int, list[Recipient]], progress: Progress) -> Iterator[list[str]]:
        lines: list[str] = []
        for count, spid in enumerate(sorted(messages)):
            progress("exporting", count, len(messages))
            recipients = sorted(messages[spid], key=lambda each: each.qid)
            name = f"{format_spid(spid)}.eml"
            if not self._copy(recipients[0], self._target / name):
                continue
            lines.append(index.encode(name, recipients))
            self._done.messages += 1
            self._done.recipients += len(recipients)
            if len(lines) >= _LINES:
                yield lines
                lines = []
        if lines:
            yield lines

    def _copy(self, recipient: Recipient, path: Path) -> bool:
        """Copy a recipient's content; False when it cannot be had whole."""
        fd = self._disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        written = 0
        try:
            for chunk in self._snapshot.content(recipient.spid, recipient):
                written += self._disk.pwritev(fd, [chunk], written)
            trouble = "" if written == recipient.size else _differs(written, recipient.size)
        except MqcdError as error:
            trouble = str(error)
        finally:
            self._disk.close(fd)
        if trouble:
            self._disk.unlink(path)
            self._done.failed[recipient.spid] = trouble
        return not trouble


def _differs(written: int, size: int) -> str:
    return f"its content has {written} octets and should have {size}"

"""All keys of a shard that are remembered, and the uses that are under way.

Promise: of two uses of a key one ends before the other is looked up, so that a message is accepted once. A
use ends when its frame is durable, and the key in memory, or when its frame is refused. A refused frame may
count after a kill, but not once a later frame, as that of the other use, is durable (see `wal.trouble`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import Key
from mqcd.core.queueing.idempotency import Used
from mqcd.core.value import value
from mqcd.disk.durable import Disk, describe
from mqcd.queue.format import keys
from mqcd.queue.keys.file import OpenFile, prints_of, to_merge
from mqcd.queue.keys.filter import Filter
from mqcd.queue.keys.live import LiveKeys, Taken
from mqcd.queue.keys.turns import Turn, take_turn
from mqcd.queue.manifest.state import KeyFile

log = logging.getLogger(__name__)

PRINTS_SHARE: Final = 4
"""The part of `memorybudget` that the prints of key files may take: one in so many."""


@value(kw_only=False)
class MovedKeys:
    """Keys that an evacuation moves from memory to a file."""

    taken: Taken
    file: OpenFile | None
    """Has them from the commit on; None = no key is young enough."""
    ended: Sequence[str]
    """Key files that are part of this one, or too old."""


class Keys:
    """Of one shard."""

    def __init__(
        self, disk: Disk, executor: Executor, queue_root: Path, room: int, since: Callable[[], int]
    ) -> None:
        """`room`: octets for the prints of files; `since`: uses of before this time are forgotten, s."""
        self._disk = disk
        self._executor = executor
        self._queue_root = queue_root
        self._room = room
        self.since = since
        self.live = LiveKeys()
        self._turns: dict[bytes, Turn] = {}
        self._files: list[OpenFile] = []
        """The oldest first."""
        self._filed = Filter()
        """Of their names."""
        self.repeats = 0
        """Submissions that were answered as repeats."""

    # ------------------------------------------------------------ uses

    def new(self, key: Key) -> Turn | None:
        """A turn that is held, where the key is certainly new; None = `turn` finds out."""
        name = key.name
        if name in self._turns or name in self.live.bucket(name):
            return None
        if self._files and self._filed.perhaps(name):
            return None
        return Turn(self._turns, key)

    async def turn(self, key: Key) -> Turn | Used:
        """Wait until no other use is under way; what is remembered of the key, or a turn that is held.

        Raises StoreUnavailable when that cannot be found out.
        """
        turn = await take_turn(self._turns, key)
        name = key.name
        used = self.live.find(name)
        try:
            if used is None and self._files:
                used = await self._in_files(name)
        except BaseException as error:
            turn.let_go()
            if isinstance(error, OSError):
                raise StoreUnavailable(f"keys cannot be read: {describe(error)}") from error
            raise
        if used is None or used.at < self.since():
            return turn
        turn.let_go()
        self.repeats += 1
        return used

    async def _in_files(self, name: bytes) -> Used | None:
        top = keys.top_of(name)
        found = [each for each in self._files if each.perhaps(name, top)][::-1]
        # Also the last of them must stay open, though a merge ends it while the first is read.
        with ExitStack() as pins:
            for file in found:
                pins.enter_context(file.pinned())
            for file in found:
                used = await file.find(self._executor, name)
                if used is not None:
                    return used
        return None

    @property
    def count(self) -> int:
        """Keys that are remembered, with some that are too old."""
        return self.live.count + sum(file.state.records for file in self._files)

    # ------------------------------------------------------------ files

    def load(self, records: bytes | bytearray, states: Sequence[KeyFile]) -> None:
        """Take in what the last run left: records of its segments, and its files. Blocks.

        What cannot be read is logged, and its keys are forgotten.
        """
        for record in keys.split(records):
            self.live.add(record)
        for state in states:
            try:
                self._files.append(self.open_file(state))
            except (OSError, DecodeError) as error:
                text = describe(error) if isinstance(error, OSError) else f"{state.name}: {error}"
                log.error("%d idempotency keys are forgotten: %s; run `mqcd fsck`", state.records, text)

    def open_file(self, state: KeyFile, instead: Sequence[str] = (), new: bytes | None = None) -> OpenFile:
        """One file, with its prints where there is room; `instead` of others. Blocks.

        `new`: the records whose names no older file has, None = all. The filter knows the others already, and
        forgets them only when they are too old for any file. Raises OSError, DecodeError.
        """
        file = OpenFile.open(self._disk, self._queue_root, state)
        names = file.prints if new is None else prints_of(new)
        self._filed.add(memoryview(names).cast("I"), state.newest)
        held = sum(len(each.prints) for each in self._files if each.state.name not in instead)
        if held + len(file.prints) > self._room:
            file.prints = b""
        return file

    def to_merge(self, new: int) -> list[KeyFile]:
        """The files that are rewritten together with so many new keys."""
        return to_merge([file.state for file in self._files], new)

    def expired(self, states: Sequence[KeyFile]) -> list[str]:
        """Names of the files whose keys are all too old."""
        since = self.since()
        return [state.name for state in states if state.newest < since]

    def evacuated(self, moved: MovedKeys) -> None:
        """An edit has put a file in the place of a segment's keys, and of those of other files."""
        old = [file for file in self._files if file.state.name in moved.ended]
        self._files = [file for file in self._files if file not in old]
        if moved.file is not None:
            self._files.append(moved.file)
        self.live.drop(moved.taken)
        self._filed.expire(self.since())
        for file in old:
            file.close()

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()
        self._files.clear()

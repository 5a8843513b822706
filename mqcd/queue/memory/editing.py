"""Edits to the MANIFEST while the queue is open: one at a time, and off the event loop.

Promise: each edit names the newest segment that has held a durable frame, and the sequence up to which all is
durable. A segment that is begun is named by an edit of its own, as soon as its first group is durable, but
not before: what the MANIFEST knows of must be there. So a start misses a journal file that vanishes, or is
emptied or cut off from outside, also the newest one, which no header of another one names yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace

from mqcd.core.ports import Clock
from mqcd.disk.durable import describe
from mqcd.disk.waits import in_thread
from mqcd.queue.manifest.log import Manifest
from mqcd.queue.manifest.state import Edit
from mqcd.queue.wal.group_commit import Journal
from mqcd.queue.wal.segments import Segment

log = logging.getLogger(__name__)

_CERTAIN_MS = 1000
"""How often a MANIFEST that is in doubt is written again."""
_AGAIN_MS = 10_000
"""How long after a failure a new segment is named again."""


class Editing:
    """One per shard."""

    def __init__(self, manifest: Manifest, journal: Journal, executor: Executor, clock: Clock) -> None:
        self._manifest = manifest
        self._journal = journal
        self._executor = executor
        self._clock = clock
        self._one = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        """Records new segments."""
        self._reserved = manifest.state.spid
        """No later start hands out a SPID up to it."""

    async def reserve(self, spid: int, ceiling: int) -> None:
        """Have no later start hand out `spid`, nor any other up to `ceiling`. Raises OSError.

        Mostly that has been done already. To be awaited before a file is named after the message.
        """
        if spid <= self._reserved:
            return
        async with self._one:
            if spid > self._reserved:
                await self._commit(Edit(spid=max(spid, ceiling)))

    async def commit(self, edit: Edit) -> None:
        """Make an edit durable, with what is known of the journal. Raises OSError: then it did not happen."""
        async with self._one:
            await self._commit(edit)

    async def _commit(self, edit: Edit) -> None:
        reserved = max(self._reserved, edit.spid or 0)
        edit = replace(edit, sequence=self._journal.sequence, spid=reserved)
        newest = self._unknown()
        if newest is not None:
            edit = replace(edit, last_segment=newest.number, last_size=self._journal.capacity)
        await in_thread(self._executor, self._manifest.commit, edit)
        self._reserved = reserved

    def _unknown(self) -> Segment | None:
        """The newest segment, unless the MANIFEST knows of it."""
        last = self._journal.ring.last
        return last if last is not None and last.number > self._manifest.state.last_segment else None

    async def certain(self, given_up: Callable[[], bool]) -> bool:
        """Wait until the disk says whether the last edit happened; False when that was given up."""
        while self._manifest.uncertain:
            if given_up():
                return False
            await self._clock.sleep(_CERTAIN_MS)
            async with self._one:
                await in_thread(self._executor, self._manifest.take_back)
        return True

    def begun(self) -> None:
        """The first group of a new segment is durable."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._enrol())

    async def _enrol(self) -> None:
        try:
            # Another one may have been begun meanwhile, so it is looked at again.
            while not await self._record_new():
                await self._clock.sleep(_AGAIN_MS)
        finally:
            self._task = None

    async def _record_new(self) -> bool:
        """Record new segments until none is unknown; False when the disk fails."""
        while True:
            async with self._one:
                if self._unknown() is None:
                    return True
                try:
                    await self._commit(Edit())
                except OSError as error:
                    log.warning("the MANIFEST does not know the newest segment yet: %s", describe(error))
                    return False

    async def stop(self) -> None:
        """Record no more; what is being written is written first."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

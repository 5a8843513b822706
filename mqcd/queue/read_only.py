"""The store of a server with `read_only`: it shows the queue and changes nothing.

Promise: nothing on disk is written, no lock is taken, nothing is recovered; no mail is accepted, tried or
reported on. Figures are those of the moment of opening. Everything that would change the queue raises
StoreUnavailable, which at the door is a 4xx.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NoReturn

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Area, AreaStats, Batch, Recipient, Settlement, Submission
from mqcd.core.ports import Content, FindConnection
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.queueing.turns import Places
from mqcd.core.selecting.parts import Listed, measured, part_of
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk
from mqcd.eventlog.history import History, history
from mqcd.eventlog.retention import Retention
from mqcd.queue.memory.shard_state import Options
from mqcd.queue.reading.happened import lines_of_all
from mqcd.queue.reading.shards import Snapshots

READ_ONLY = "mta/queue/read_only is set: the queue is only looked at"


class ReadOnlyStore:
    """`core.ports.QueueStore` that changes nothing."""

    def __init__(self, options: Options, disk: Disk | None = None) -> None:
        self._options = options
        self._disk = disk or Disk()
        self._stats: Mapping[Area, AreaStats] = {}

    async def open(self) -> None:
        """Read the queue once. Raises StoreUnavailable when there is none, StoreBusy, StoreDamaged."""
        loop = asyncio.get_running_loop()
        snapshot = await loop.run_in_executor(None, self._snapshot)
        self._stats = snapshot.stats()
        snapshot.close()

    async def recovered(self) -> None:
        """Nothing is."""

    async def close(self) -> None:
        """There is nothing to let go of."""

    def _snapshot(self) -> Snapshots:
        settings = self._options.settings
        return Snapshots(self._disk, settings.rootpath, settings.spool.rootpath)

    def refusing(self) -> str:
        return READ_ONLY

    def stalled(self) -> str:
        """Nothing is recorded, so nothing hinders it."""
        return ""

    def reload(self, schedule: RetrySchedule, retention: Retention) -> None:
        """Neither matters here."""

    def reserve(self, several: bool) -> NoReturn:
        raise StoreUnavailable(READ_ONLY)

    async def enqueue(self, submission: Submission) -> Sequence[Recipient]:
        raise StoreUnavailable(READ_ONLY)

    async def claim(
        self,
        room: int,
        now: int,
        skip: Mapping[str, int] | None = None,
        overdue: Callable[[Recipient], bool] | None = None,
        received_by: int | None = None,
        places: Places | None = None,
    ) -> Sequence[Recipient]:
        return ()

    async def claim_bounces(self, room: int) -> Sequence[Recipient]:
        return ()

    async def claim_removed(self, room: int) -> Sequence[Recipient]:
        return ()

    async def claim_held(self, domain: str, room: int) -> Sequence[Recipient]:
        """Nothing."""
        return ()

    def held_domains(self) -> Collection[str]:
        """None that may be claimed."""
        return ()

    def pick(self, selection: Selection, batch: Batch) -> NoReturn:
        raise StoreUnavailable(READ_ONLY)

    def begin(self, recipients: Sequence[Recipient], destination: str) -> Awaitable[None]:
        raise StoreUnavailable(READ_ONLY)

    def settle(
        self, settlements: Sequence[Settlement], submissions: Sequence[Submission] = ()
    ) -> Awaitable[None]:
        raise StoreUnavailable(READ_ONLY)

    def park(self, recipients: Sequence[Recipient], until: int) -> Awaitable[None]:
        raise StoreUnavailable(READ_ONLY)

    async def content(self, recipient: Recipient) -> Content:
        """Nobody is handed out whose content could be asked for; `mqcd queue cat` reads it."""
        raise StoreUnavailable(READ_ONLY)

    async def scan(self, selection: Selection) -> AsyncIterator[Recipient]:
        """The recipients that match, read from the files under a pin."""
        loop = asyncio.get_running_loop()
        snapshot = await loop.run_in_executor(None, self._snapshot)
        try:
            batches = snapshot.batches(selection)
            while batch := await loop.run_in_executor(None, next, batches, None):
                for item in batch:
                    yield item.recipient
        finally:
            snapshot.close()

    async def browse(self, selection: Selection, after: str = "", by_age: bool = False) -> Listed:
        """A part of a list, by a look at all of it."""

        def part() -> Listed:
            with closing(self._snapshot()) as snapshot:
                items = snapshot.items(replace(selection, limit=None))
                return part_of((each.recipient for each in items), selection, after, by_age)

        return await asyncio.get_running_loop().run_in_executor(None, part)

    async def history(self, spid: int) -> History:
        """What happened to a message."""
        options = self._options

        def look() -> History:
            with closing(self._snapshot()) as snapshots:
                lines = lines_of_all(snapshots, options.source, spid)
                return history(self._disk, options.events, spid, lines)

        return await asyncio.get_running_loop().run_in_executor(None, look)

    async def changed_by(self, _batch: str, _since: int) -> int:
        """None: nothing is changed."""
        return 0

    async def measure(self, selection: Selection) -> AreaStats:
        """How much is selected."""
        return measured([each async for each in self.scan(selection)])

    async def lane_keys(self, selection: Selection) -> Collection[str]:
        """Theirs."""
        return {each.lane_key async for each in self.scan(selection)}

    def in_flight(self, recipient: Recipient) -> bool:
        return False

    def stats(self) -> Mapping[Area, AreaStats]:
        """What each area held at the opening."""
        return self._stats

    def next_due(self) -> int | None:
        """Nothing is ever to be claimed."""
        return None

    def may_expire(self) -> bool:
        """Nothing does here; of rules the clock alone says which have ended."""
        return True

    def watch(self, callback: Callable[[], None]) -> None:
        """Nothing will ever have changed."""

    def hand_over(self, find: FindConnection) -> None:
        """No message will ever be accepted."""

"""The two kinds of stores between which `migrating` moves mail: the clustered-file queue, and all others."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import replace
from typing import Protocol

from mqcd.config.settings import QueueSettings
from mqcd.core.errors import StoreDamaged
from mqcd.core.events import MIGRATED
from mqcd.core.model import Recipient
from mqcd.core.ports import Clock
from mqcd.core.progress import no_progress
from mqcd.core.queueing.spid import is_several
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.shards.division import shards_of
from mqcd.disk.durable import Disk
from mqcd.ops.fanout import Fanout
from mqcd.queue.admin.ownership import Owned, owned
from mqcd.queue.admin.transfer.admission import admit
from mqcd.queue.admin.transfer.departure import depart
from mqcd.queue.admin.transfer.letters import Letter, Tree
from mqcd.queue.memory.shard_state import Options
from mqcd.queue.reading.pinned import require_queue
from mqcd.queue.reading.shards import Snapshots
from mqcd.queue.reading.snapshot import item_of
from mqcd.queue.recovery.imports import name_events
from mqcd.stores.queue.stored_queue import StoredQueue

_CHUNK = 1 << 18
_AT_ONCE = 50

Messages = dict[int, dict[int, Recipient]]
"""Records by SPID and QID."""


class End(Protocol):
    """A store without a server, open.

    Raises StoreBusy, StoreDamaged, StoreUnavailable, OSError.
    """

    in_portions: bool
    """Whether `add` and `remove` may be called several times."""
    messages: Messages
    """All of them; kept up with `add`."""

    def read(self, recipient: Recipient) -> AsyncIterator[bytes]:
        """A message's content."""

    async def add(self, messages: Sequence[Sequence[Recipient]], source: End) -> None:
        """Take new messages as they are, durably, their contents from `source`."""

    async def remove(self, messages: Sequence[Sequence[Recipient]]) -> None:
        """Let messages go, durably."""


@asynccontextmanager
async def stored_end(queue: StoredQueue) -> AsyncIterator[End]:
    """A store of documents."""
    await queue.open()
    try:
        await queue.recovered()
        end = _StoredEnd(queue)
        async for recipient in queue.scan(Selection()):
            end.messages.setdefault(recipient.spid, {})[recipient.qid] = recipient
        yield end
    finally:
        await queue.close()


class _StoredEnd:
    in_portions = True

    def __init__(self, queue: StoredQueue) -> None:
        self._queue = queue
        self.messages: Messages = {}

    async def read(self, recipient: Recipient) -> AsyncIterator[bytes]:
        with closing(await self._queue.content(recipient)) as content:
            while chunk := await content.read(_CHUNK):
                yield chunk

    async def add(self, messages: Sequence[Sequence[Recipient]], source: End) -> None:
        for start in range(0, len(messages), _AT_ONCE):
            await asyncio.gather(*(self._add(each, source) for each in messages[start : start + _AT_ONCE]))

    async def _add(self, recipients: Sequence[Recipient], source: End) -> None:
        own = [replace(each, linked=False) for each in recipients]
        await self._queue.admit(own, source.read(recipients[0]))
        self.messages[own[0].spid] = {each.qid: each for each in own}

    async def remove(self, messages: Sequence[Sequence[Recipient]]) -> None:
        await asyncio.gather(*(self._queue.release(each, MIGRATED) for each in messages))


@asynccontextmanager
async def cluster_end(options: Options, clock: Clock, *, must_be: bool) -> AsyncIterator[End]:
    """The clustered-file queue, its journal emptied. `must_be`: none is made where there is none."""
    if must_be:
        require_queue(Disk(), options.settings.rootpath)
    async with AsyncExitStack() as opened:
        shards: dict[int, Owned] = {}
        for own in shards_of(options):
            shard = await opened.enter_async_context(owned(own, clock, Fanout()))
            name_events(shard.disk, own, shard.manifest.state)
            shards[own.source.shard] = shard
        end = _ClusterEnd(options.settings, shards)
        try:
            end.look()
            yield end
        finally:
            end.close()


class _ClusterEnd:
    """New mail comes into its first shard."""

    in_portions = False

    def __init__(self, settings: QueueSettings, shards: Mapping[int, Owned]) -> None:
        self._settings = settings
        self._shards = shards
        self._shard_of: dict[int, int] = {}
        self._snapshots: Snapshots | None = None
        self.messages: Messages = {}

    def look(self) -> None:
        """Read what is there."""
        self.close()
        settings = self._settings
        self._snapshots = Snapshots(Disk(), settings.rootpath, settings.spool.rootpath)
        messages: Messages = defaultdict(dict)
        for shard, snapshot in self._snapshots.by_shard.items():
            for items in snapshot.project(Selection(), item_of):
                for item in items:
                    messages[item.recipient.spid][item.recipient.qid] = item.recipient
                    self._shard_of[item.recipient.spid] = shard
        if self._snapshots.left_out:
            raise StoreDamaged(f"{settings.rootpath} has damaged records: run `mqcd fsck --repair` first")
        self.messages = dict(messages)

    def close(self) -> None:
        """Let go of what was read."""
        if self._snapshots is not None:
            self._snapshots.close()

    async def read(self, recipient: Recipient) -> AsyncIterator[bytes]:
        if self._snapshots is not None:
            for chunk in self._snapshots.content(recipient.spid, recipient):
                yield chunk

    async def add(self, messages: Sequence[Sequence[Recipient]], source: End) -> None:
        if messages:
            loop = asyncio.get_running_loop()
            letters = [_letter(each, source, loop) for each in messages]
            tree = Tree(letters=letters, octets=sum(letter.octets for letter in letters))
            first = self._shards[0]
            await asyncio.to_thread(admit, first, "migrate", tree, no_progress)
            self.look()

    async def remove(self, messages: Sequence[Sequence[Recipient]]) -> None:
        by_shard: Mapping[int, set[int]] = defaultdict(set)
        for recipients in messages:
            by_shard[self._shard_of[recipients[0].spid]].add(recipients[0].spid)
        for shard, spids in by_shard.items():
            depart(self._shards[shard], spids, MIGRATED)


def _letter(recipients: Sequence[Recipient], source: End, loop: asyncio.AbstractEventLoop) -> Letter:
    first = recipients[0]
    return Letter(
        octets=first.size,
        envelope=first.envelope,
        recipients=tuple(replace(each, linked=False) for each in recipients),
        keys=(),
        several=is_several(first.spid),
        spid=first.spid,
        content=lambda: _chunks(source, first, loop),
    )


def _chunks(source: End, recipient: Recipient, loop: asyncio.AbstractEventLoop) -> Iterator[bytes]:
    """The content, for another thread than the loop's."""
    chunks = source.read(recipient)

    async def following() -> bytes:
        with suppress(StopAsyncIteration):
            return await anext(chunks)
        return b""

    while chunk := asyncio.run_coroutine_threadsafe(following(), loop).result():
        yield chunk

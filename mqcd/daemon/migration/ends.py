"""The two kinds of stores between which `migrating` moves mail: the clustered-file queue, and all others."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import replace
from types import TracebackType
from typing import Protocol

from mqcd.core.errors import StoreDamaged
from mqcd.core.events import MIGRATED
from mqcd.core.model import Recipient
from mqcd.core.ports import Clock
from mqcd.core.progress import no_progress
from mqcd.core.queueing.spid import is_several
from mqcd.core.selecting.selection import Selection
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
from mqcd.queue.roots import existing
from mqcd.stores.queue.stored_queue import StoredQueue

_CHUNK = 1 << 18
_AT_ONCE = 50

Messages = dict[int, dict[int, Recipient]]
"""Records by SPID and QID."""


class End(Protocol):
    """A store without a server, open in an `async with`.

    Raises StoreBusy, StoreDamaged, StoreUnavailable, OSError.
    """

    in_portions: bool
    """Whether `add` and `remove` may be called several times."""
    messages: Messages
    """All of them; kept up with `add`."""

    async def __aenter__(self) -> End: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def read(self, recipient: Recipient) -> AsyncIterator[bytes]:
        """A message's content."""

    async def add(self, messages: Sequence[Sequence[Recipient]], source: End) -> None:
        """Take new messages as they are, durably, their contents from `source`."""

    async def remove(self, messages: Sequence[Sequence[Recipient]]) -> None:
        """Let messages go, durably."""


class StoredEnd:
    """A store of documents."""

    in_portions = True

    def __init__(self, queue: StoredQueue) -> None:
        self._queue = queue
        self.messages: Messages = {}

    async def __aenter__(self) -> End:
        await self._queue.open()
        try:
            await self._queue.recovered()
            async for recipient in self._queue.scan(Selection()):
                self.messages.setdefault(recipient.spid, {})[recipient.qid] = recipient
        except BaseException:
            await self._queue.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._queue.close()

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


class ClusterEnd:
    """The clustered-file queue, its journal emptied. New mail comes into its first shard."""

    in_portions = False

    def __init__(self, options: Options, clock: Clock, *, must_be: bool) -> None:
        """`must_be`: none is made where there is none."""
        self._options = options
        self._clock = clock
        self._must_be = must_be
        self._disk = Disk()
        self._opened = AsyncExitStack()
        self._shards: dict[int, Owned] = {}
        self._shard_of: dict[int, int] = {}
        self._snapshots: Snapshots | None = None
        self.messages: Messages = {}

    async def __aenter__(self) -> End:
        settings = self._options.settings
        if self._must_be:
            require_queue(self._disk, settings.rootpath)
        try:
            for each in existing(settings.rootpath, settings.spool.rootpath):
                own = replace(
                    self._options,
                    settings=replace(
                        settings, rootpath=each.queue, spool=replace(settings.spool, rootpath=each.spool)
                    ),
                    source=replace(self._options.source, shard=each.shard),
                )
                shard = await self._opened.enter_async_context(owned(own, self._clock, Fanout()))
                name_events(shard.disk, own, shard.manifest.state)
                self._shards[each.shard] = shard
            self._look()
        except BaseException:
            await self._opened.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._snapshots is not None:
            self._snapshots.close()
        await self._opened.aclose()

    def _look(self) -> None:
        if self._snapshots is not None:
            self._snapshots.close()
        settings = self._options.settings
        self._snapshots = Snapshots(self._disk, settings.rootpath, settings.spool.rootpath)
        messages: Messages = defaultdict(dict)
        for shard, snapshot in self._snapshots.by_shard.items():
            for items in snapshot.project(Selection(), item_of):
                for item in items:
                    messages[item.recipient.spid][item.recipient.qid] = item.recipient
                    self._shard_of[item.recipient.spid] = shard
        if self._snapshots.left_out:
            raise StoreDamaged(f"{settings.rootpath} has damaged records: run `mqcd fsck --repair` first")
        self.messages = dict(messages)

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
            self._look()

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

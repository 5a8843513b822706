"""A store that several nodes share, in memory: the rules of `stores.backend` in their simplest form.

`SharedWorld` is the server: its data, and its own clock, which tests move. `SharedStore` is a node's way to
it; while `cut` it reaches nothing, while `slow` its writes wait for `arrive` or `answer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from mqcd.core.content import MemoryContent
from mqcd.core.errors import ContentUnavailable, StoreBusy, StoreUnavailable
from mqcd.stores.backend import Marks, Promises, Stored, Write

LEASE_MS = 60_000
NOBODY = -1


@dataclass(slots=True)
class Kept:
    """A message."""

    values: dict[int, bytes]
    owner: int
    """Session of the node that it belongs to."""


@dataclass(slots=True)
class SharedWorld:
    """What the server holds."""

    now: int = 0
    """Its clock, ms."""
    messages: dict[int, Kept] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    marks: dict[int, dict[str, int]] = field(default_factory=dict)
    leases: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By session: its node number, and until when it lasts."""
    sessions: int = 0
    history: list[tuple[int, int, int]] = field(default_factory=list)
    """Each change of an owner: time, SPID, session."""

    def lives(self, session: int) -> bool:
        """Whether a node's lease lasts."""
        return session in self.leases and self.leases[session][1] > self.now

    def own(self, spid: int, session: int) -> None:
        self.messages[spid].owner = session
        self.history.append((self.now, spid, session))


@dataclass(slots=True)
class Request:
    """A write on its way."""

    write: Write
    session: int
    node: int
    lost: Sequence[int] | None = None
    """What the server has answered; None = it has not got the write."""
    done: asyncio.Future[Sequence[int]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class SharedStore:
    """`backend.Backend` for one node."""

    promises = Promises(synced=True, atomic=True, shared=True)
    lease_ms = LEASE_MS

    def __init__(self, world: SharedWorld) -> None:
        self.node = 0
        self.cut = False
        self.slow = False
        self._sent: Request | None = None
        self._world = world
        self._session = NOBODY

    def _reach(self) -> SharedWorld:
        if self.cut:
            raise StoreUnavailable("the network is cut")
        return self._world

    async def open(self) -> Marks:
        self._begin(self._reach())
        return self._world.marks.get(self.node, {})

    def _begin(self, world: SharedWorld) -> None:
        used = {number for session, (number, _) in world.leases.items() if world.lives(session)}
        free = next((number for number in range(256) if number not in used), None)
        if free is None:
            raise StoreBusy("256 nodes use this store")
        world.sessions += 1
        self._session, self.node = world.sessions, free
        world.leases[self._session] = free, world.now + LEASE_MS

    async def close(self) -> None:
        if not self.cut:
            self._world.leases.pop(self._session, None)

    async def take(self, most: int) -> Sequence[Stored] | None:
        world = self._reach()
        if not world.lives(self._session):
            return ()
        free = [spid for spid, kept in world.messages.items() if not world.lives(kept.owner)][:most]
        for spid in free:
            world.own(spid, self._session)
        return [Stored(spid=spid, values=dict(world.messages[spid].values)) for spid in free]

    async def renew(self) -> Marks | None:
        world = self._reach()
        if world.lives(self._session):
            world.leases[self._session] = self.node, world.now + LEASE_MS
            return None
        world.leases.pop(self._session, None)
        self._begin(world)
        return world.marks.get(self.node, {})

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        self._sent = request = Request(write, self._session, self.node)
        if not self.slow:
            self.answer()
        return request.done

    def arrive(self) -> None:
        """The server gets the write under way, unless it has."""
        request = self._sent
        if request is None or request.lost is not None:
            return
        try:
            request.lost = self._change(self._reach(), request)
        except StoreUnavailable as error:
            self._sent = None
            request.done.set_exception(error)

    def answer(self) -> None:
        """The answer to the write under way comes; without the network, an error."""
        self.arrive()
        request, self._sent = self._sent, None
        if request is None or request.lost is None:
            return
        if self.cut:
            request.done.set_exception(StoreUnavailable("the network is cut"))
        else:
            request.done.set_result(request.lost)

    @staticmethod
    def _change(world: SharedWorld, request: Request) -> Sequence[int]:
        lost: list[int] = []
        session, lives = request.session, world.lives(request.session)
        if lives:
            world.marks.setdefault(request.node, {}).update(request.write.marks)
        for change in request.write.changes:
            kept = world.messages.get(change.spid)
            own = kept is not None and kept.owner == session and (lives or not change.replaced)
            # New; or it has ended by a write whose answer was lost.
            if not own and (kept or not (lives and (change.is_new or change.due is None))):
                lost.append(change.spid)
                continue
            if change.is_new and kept is None:
                kept = world.messages[change.spid] = Kept({}, NOBODY)
                world.own(change.spid, session)
            if change.content is not None:
                world.contents[change.spid] = change.content
            if change.due is None:
                world.messages.pop(change.spid, None)
                world.contents.pop(change.spid, None)
            elif kept is not None:
                kept.values.update(change.puts)
                for qid in change.drops:
                    kept.values.pop(qid, None)
        return lost

    async def stage(self, spid: int, chunks: AsyncIterator[bytes]) -> int:
        content = b"".join([chunk async for chunk in chunks])
        self._reach().contents[spid] = content
        return len(content)

    async def unstage(self, spid: int) -> None:
        if spid not in self._reach().messages:
            self._world.contents.pop(spid, None)

    async def content(self, spid: int) -> MemoryContent:
        if spid not in self._reach().contents:
            raise ContentUnavailable("no such content")
        return MemoryContent(self._world.contents[spid])

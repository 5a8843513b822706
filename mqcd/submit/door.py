"""A door: one listening socket, its sessions, their deadlines, its opening and closing.

* `start` binds; port 0 takes any free one, `port` tells which. OSError when it cannot be bound.
* `stop` closes the socket, gives every session its 421 as soon as it is not committing, and waits for
  the replies to messages that are being committed. What is not done after `grace` ms is cut off.
* `close_door` and `open_door` refuse and admit new mail (4xx at MAIL) while sessions go on.
* Host names in relay_clients are looked up at the start and again every ten minutes, by their
  addresses: a name that the client's address claims to have proves nothing. What cannot be looked up
  keeps its last addresses, and lets nobody in before it has any.

Settings read: interface, port, name, timeout, maxpeerconnections, relay_clients, and those of
`dialogue`, `intake`, `policy`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter

from mqcd.config.settings import ListenerSettings
from mqcd.core.errors import NameNotFound, ResolveFailed
from mqcd.core.ports import Clock, Observer, QueueStore, Refusal, Resolver
from mqcd.core.reply import Reply
from mqcd.submit.dialogue import Gate, Rules
from mqcd.submit.engine import Session
from mqcd.submit.intake import Intake
from mqcd.submit.policy import DoorRefused, Reason, host_names, relay_policy
from mqcd.submit.received import DateCache

log = logging.getLogger(__name__)

_BACKLOG = 1024
_LOOK_MS = 1000
"""How often deadlines are looked at; a session may last that much longer."""
_LOOKUP_MS = 600_000

_TIMEOUT = Reply(code=421, status="4.4.2", text="Timeout, closing")
_STOPPING = Reply(code=421, status="4.3.2", text="Server is stopping, try again later")
_TOO_MANY = Reply(code=421, status="4.7.0", text="Too many connections from your address")


class Door:
    """One listener of the server."""

    def __init__(
        self,
        settings: ListenerSettings,
        store: QueueStore,
        clock: Clock,
        observer: Observer,
        *,
        inline_max: int,
        resolver: Resolver | None = None,
    ) -> None:
        """`inline_max`: octets up to which content goes to the store whole. Without a `resolver`, host
        names in relay_clients let nobody in."""
        self.settings = settings
        self._clock = clock
        self._observer = observer
        self._resolver = resolver
        self._names = host_names(settings.server.relay_clients)
        self._resolved: dict[str, tuple[str, ...]] = {}
        self._gate = Gate()
        self.intake = Intake(
            store=store,
            clock=clock,
            rules=Rules(settings.server, relay_policy(settings.server, {}), self._gate),
            listener=settings.name,
            inline_max=inline_max,
            dates=DateCache(),
        )
        self._server: asyncio.Server | None = None
        self._numbers = itertools.count(1)
        self._sessions: set[Session] = set()
        self._peers: Counter[str] = Counter()
        self._chores: list[asyncio.Task[None]] = []
        self._stopping = False
        self._empty = asyncio.Event()
        self.port = settings.port
        """TCP port; the bound one once started."""

    @property
    def sessions(self) -> int:
        """Connections that are open."""
        return len(self._sessions)

    @property
    def held(self) -> int:
        """Octets that have come, over all connections, and that nobody has read yet."""
        return sum(session.wire.held for session in self._sessions)

    async def start(self) -> None:
        """Listen. Raises OSError when the interface or port cannot be had."""
        loop = asyncio.get_running_loop()
        await self._look_up()
        self._server = await loop.create_server(
            lambda: Session(self, next(self._numbers), loop),
            self.settings.interface,
            self.settings.port,
            backlog=_BACKLOG,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._chores.append(loop.create_task(self._watch_deadlines()))
        if self._names and self._resolver is not None:
            self._chores.append(loop.create_task(self._keep_looking_up()))

    async def stop(self, grace: int = 8000) -> None:
        """Take nobody in, let commits end, tell all others 421. Returns when all sessions are gone."""
        self._stopping = True
        if self._server is not None:
            self._server.close()
        for session in list(self._sessions):
            session.interrupt(_STOPPING)
        if self._sessions:
            await self._await_empty(grace)
        for session in list(self._sessions):
            session.cut()
        if self._sessions:
            await self._empty.wait()
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        self._chores.clear()

    def close_door(self, reply: Reply) -> None:
        """Answer MAIL with `reply` (4yz) from now on; messages under way go on."""
        if not 400 <= reply.code < 500:
            raise ValueError(f"a closed door says 4yz, not {reply}")
        self._gate.closed = reply

    def open_door(self) -> None:
        """Let new mail in again."""
        self._gate.closed = None

    def admit(self, session: Session) -> None:
        """Note a new session. Raises DoorRefused when it may not stay."""
        client = session.client
        self._sessions.add(session)
        self._peers[client] += 1
        if self._stopping:
            raise DoorRefused(Reason.CLOSED, _STOPPING)
        limit = self.settings.server.maxpeerconnections
        if limit and self._peers[client] > limit:
            raise DoorRefused(Reason.CONNECTIONS, _TOO_MANY)

    def leave(self, session: Session) -> None:
        """Its connection is gone, and nothing is being committed for it."""
        client = session.client
        self._sessions.discard(session)
        self._peers[client] -= 1
        if not self._peers[client]:
            del self._peers[client]
        if self._stopping and not self._sessions:
            self._empty.set()

    def refused(self, refusal: Refusal) -> None:
        """Pass a refusal on."""
        self._observer.refused(self._clock.now(), refusal)

    async def _await_empty(self, grace: int) -> None:
        waiters = [asyncio.ensure_future(self._clock.sleep(grace)), asyncio.ensure_future(self._empty.wait())]
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)

    async def _watch_deadlines(self) -> None:
        timeout = self.settings.server.timeout
        while timeout:
            await self._clock.sleep(min(_LOOK_MS, timeout))
            now = self._clock.monotonic()
            for session in list(self._sessions):
                session.check_deadline(now, timeout, _TIMEOUT)

    async def _keep_looking_up(self) -> None:
        while True:
            await self._clock.sleep(_LOOKUP_MS)
            await self._look_up()

    async def _look_up(self) -> None:
        """Bring the policy up to date with what the host names in relay_clients stand for."""
        if self._resolver is None:
            if self._names:
                log.warning("relay_clients: host names let nobody in, there is no resolver: %s", self._names)
            return
        for name in self._names:
            try:
                self._resolved[name] = tuple(await self._resolver.addresses(name))
            except NameNotFound:
                self._resolved.pop(name, None)
                log.warning("relay_clients: host %s does not exist and lets nobody in", name)
            except ResolveFailed as error:
                log.warning("relay_clients: host %s keeps its last addresses: %s", name, error)
        self.intake.rules.policy = relay_policy(self.settings.server, self._resolved)

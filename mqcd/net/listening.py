"""TCP sockets, bound first and listening later, and the loop over `accept` for them.

`::` takes IPv4 as well, as administrators expect of it; any other address takes its own family alone.

Each connection is handed over at once, as a socket, so that its taker can count it or close it before the
next one is accepted: a burst holds no more descriptors than the taker allows. When the process has no
descriptor left, the others wait in the kernel's queue and are accepted after `REST_MS`; asyncio's own
server reports each of them, and uvloop's may close its socket for good.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Sequence

from mqcd.core.ports import Clock

log = logging.getLogger(__name__)

REST_MS = 1000
"""Pause after a connection that could not be accepted."""
_AT_ONCE = 64
"""Connections accepted in a row before the loop does anything else."""
_SILENT_MS = 60_000
_ITS_OWN = frozenset(
    (
        *(errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EHOSTUNREACH, errno.EHOSTDOWN),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.ENOPROTOOPT, errno.EOPNOTSUPP),
    )
)
"""Failures of a single connection, after which `accept` may go on (accept(2))."""

Take = Callable[[socket.socket, object], None]
"""Gets the socket of a new connection, not blocking, and its peer's name; the socket is its own then."""
MakeProtocol = Callable[[], asyncio.BaseProtocol]


async def bind(interface: str, port: int, *, shared: bool = False) -> Sequence[socket.socket]:
    """Sockets bound to an interface's addresses; no client can connect before they listen. Raises OSError.

    `shared`: this user's other sockets may be bound there too, and the kernel divides connections among them.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        interface, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            made = socket.socket(family, kind, protocol)
            sockets.append(made)
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, interface != "::")
            made.bind(address)
    except OSError:
        for made in sockets:
            made.close()
        raise
    return sockets


async def give_protocol(connection: socket.socket, make: MakeProtocol) -> bool:
    """Give an accepted connection the protocol of `make`; False where it is gone already, and closed here."""
    try:
        await asyncio.get_running_loop().connect_accepted_socket(make, connection)
    except OSError as error:
        log.debug("a client disconnected at once: %s", error)
        connection.close()
        return False
    return True


class Acceptor:
    """Accepts from `sockets`, which are its own, from `listen` until `close`."""

    def __init__(self, sockets: Sequence[socket.socket], take: Take, clock: Clock) -> None:
        self._sockets = sockets
        self._take = take
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._rests: set[asyncio.Task[None]] = set()
        self._silent_until = 0
        name = sockets[0].getsockname() if sockets else None
        self.port: int = name[1] if isinstance(name, tuple) else 0
        """Of the first; 0 for a unix socket."""

    def listen(self, backlog: int) -> None:
        """Listen. Raises OSError: of two sockets bound to a port only one may listen."""
        for each in self._sockets:
            each.listen(backlog)
            each.setblocking(False)
            self._loop.add_reader(each, self._accept, each)

    def close(self) -> None:
        """Stop listening. Twice is harmless."""
        for rest in self._rests:
            rest.cancel()
        for each in self._sockets:
            if each.fileno() >= 0:
                self._loop.remove_reader(each)
                each.close()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, peer = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _ITS_OWN:
                    continue
                self._pause(listening, error)
                return
            connection.setblocking(False)
            self._take(connection, peer)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        now = self._clock.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + _SILENT_MS
            log.warning(
                "port %d: connections wait, none can be accepted now: %s",
                self.port,
                os.strerror(error.errno or 0),
            )
        self._loop.remove_reader(listening)
        rest = self._loop.create_task(self._rest(listening))
        self._rests.add(rest)
        rest.add_done_callback(self._rests.discard)

    async def _rest(self, listening: socket.socket) -> None:
        await self._clock.sleep(REST_MS)
        self._loop.add_reader(listening, self._accept, listening)


class ProtocolServer:
    """Gives each connection to `sockets`, which are its own, a protocol of `make`.

    It lets go of none, unlike asyncio's own server: a connection that is accepted there just before a close
    stays open, without a protocol, until its socket is collected.
    """

    def __init__(self, sockets: Sequence[socket.socket], make: MakeProtocol, clock: Clock) -> None:
        self._acceptor = Acceptor(sockets, self._take, clock)
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Of the first socket; 0 for a unix socket."""
        return self._acceptor.port

    def listen(self, backlog: int) -> None:
        """Listen. Raises OSError: of two sockets bound to a port only one may listen."""
        self._acceptor.listen(backlog)

    async def close(self) -> None:
        """Stop listening, and return when each connection accepted so far has its protocol."""
        self._acceptor.close()
        if self._opening:
            await asyncio.wait(self._opening)

    def _take(self, connection: socket.socket, peer: object) -> None:
        task = self._loop.create_task(self._open(connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket) -> None:
        await give_protocol(connection, self._make)

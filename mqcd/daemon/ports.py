"""Where one server can be reached: the ports of mail and ops, the control socket, the socket of programs.

Ports are bound before privileges are dropped; the two sockets are made after, as the server's user's own. A
process of several shards gets the ports of mail bound, and has none of ops.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from mqcd.config.settings import Settings
from mqcd.core.ports import Clock
from mqcd.core.smtp.reply import Reply
from mqcd.daemon.companions import Companions, companions_of
from mqcd.daemon.control.pages import Pages
from mqcd.daemon.derived import ops_hosts
from mqcd.daemon.doors import Doors
from mqcd.daemon.places import CONTROL, LISTENERS, OPS, at_port, place_of
from mqcd.daemon.shards.role import Role
from mqcd.net.control.socket_file import AT_ONCE, ControlSocket
from mqcd.ops.http.server import HttpServer
from mqcd.ops.log.log import LogEvent
from mqcd.submit.door import Door

_STARTING = Reply(code=451, status="4.3.2", text="Server is starting, try again in a moment")


class Ports:
    """Of one server: `bind`, `listen`, `serve_commands`, `serve_programs`, and at the end `close`."""

    def __init__(
        self,
        settings: Settings,
        conf: Path | None,
        clock: Clock,
        doors: Doors,
        pages: Pages,
        role: Role | None,
        log_event: LogEvent,
    ) -> None:
        self._settings = settings
        self._conf = conf
        self._clock = clock
        self._doors = doors.listeners
        self._local = doors.local
        self._role = role
        self._log_event = log_event
        self._http = HttpServer(pages.for_ops(), clock, ops_hosts(settings))
        self._control = HttpServer(pages.for_commands(), clock, most=AT_ONCE)
        self._socket = ControlSocket(settings.ops.control.path, settings.ops.control.group)
        self.ops_port = settings.ops.port
        """TCP port of the pages; the bound one once bound."""
        self.companions: Companions | None = None
        """None: none is wanted, or the front process of several shards has them."""

    async def bind(self, given: Mapping[str, Sequence[socket.socket]]) -> None:
        """Bind every port; no client can connect yet. `given`: bound sockets, by listener.

        Raises ConfigError.
        """
        if self._role is not None:
            listening = self._role.sockets if self._role.listens else [()] * len(self._doors)
            for door, sockets in zip(self._doors, listening, strict=False):
                door.adopt(sockets)
            return
        ops = self._settings.ops
        with at_port(self._conf, OPS, ops.interface, ops.port):
            self.ops_port = await self._http.bind(ops.interface, ops.port)
        self.companions = await companions_of(self._settings, self._conf, self._clock)
        for door, at in self._doors_at_ports():
            if sockets := given.get(door.settings.name, ()):
                door.adopt(sockets)
                continue
            with at:
                await door.bind()

    async def listen(self) -> None:
        """Answer, and let no mail in yet: what peers send is read from here on. Raises ConfigError."""
        ops = self._settings.ops
        if self._role is None:
            with at_port(self._conf, OPS, ops.interface, self.ops_port):
                await self._http.listen()
        takes = self._role is None or self._role.listens
        for door, at in self._doors_at_ports():
            door.close_door(_STARTING)
            with at:
                await door.start(takes=takes)
            if takes:
                listener = door.settings
                self._log_event("listening", name=listener.name, address=listener.interface, port=door.port)
        if self._role is None:
            self._log_event("listening", name="ops", address=ops.interface, port=self.ops_port)

    def _doors_at_ports(self) -> Iterator[tuple[Door, AbstractContextManager[None]]]:
        for index, door in enumerate(self._doors):
            yield door, at_port(self._conf, LISTENERS, door.settings.interface, door.port, index)

    def admit(self, listener: int, connection: socket.socket) -> None:
        """A connection that another process has passed on."""
        try:
            peer = connection.getpeername()
        except OSError:
            connection.close()
            return
        if listener < len(self._doors):
            self._doors[listener].admit(connection, peer)
        else:
            connection.close()

    async def serve_commands(self) -> None:
        """Answer on the control socket. Raises ConfigError."""
        bound = self._socket.bind(place_of(self._conf, CONTROL))
        try:
            await self._control.serve(bound)
        except BaseException:
            bound.close()
            raise
        self._log_event("listening", name="control", address=str(self._settings.ops.control.path))

    async def serve_programs(self) -> None:
        """Answer on the socket of programs, if it is here. Raises ConfigError."""
        if self._local is not None:
            self._local.door.close_door(_STARTING)
            await self._local.listen(self._conf, self._log_event)

    def reload(self, settings: Settings) -> None:
        """Names of hosts that the pages of ops answer to."""
        self._http.hosts = ops_hosts(settings)

    async def close(self) -> None:
        """Close all but the doors, which end by themselves. Twice is harmless."""
        if self.companions is not None:
            self.companions.close()
        await self._http.stop()
        await self._control.stop()
        self._socket.close()
        if self._local is not None:
            self._local.close()

"""Mail of programs on this machine: the socket that any user may send by, and the maildrop.

Both lie in submit/local/rootpath, by default %DIRVAR%, where `mqcd sendmail` finds them without reading the
configuration. Of several shards the first serves them; while it is out of service, mail waits in the
maildrop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from mqcd.config.settings import Settings
from mqcd.core.errors import ConfigError
from mqcd.core.ports import Clock, MailTaker, Observer, QueueStore
from mqcd.daemon.listeners.maildrop import Maildrop
from mqcd.daemon.places import LOCAL, place_of
from mqcd.disk.durable import describe
from mqcd.net.control.socket_file import ControlSocket
from mqcd.net.credentials import peer_uid, user_name
from mqcd.sendmail.main import MAILDROP, SOCKET
from mqcd.submit.door import Door
from mqcd.submit.esmtp.caller import Caller
from mqcd.submit.policy.capacity import Capacity
from mqcd.submit.policy.load import Load
from mqcd.submit.policy.local import listener_of

log = logging.getLogger("mqcd.daemon")

_ARRIVALS = 100
"""Connections whose user is being looked up. More are closed, while that hangs: `mqcd sendmail` then uses the
maildrop."""


class LocalMail:
    """`listen`, then `door.start` and so on as of any door; `maildrop` as it says."""

    def __init__(
        self,
        settings: Settings,
        store: QueueStore,
        taker: MailTaker,
        clock: Clock,
        observer: Observer,
        capacity: Capacity,
        load: Load,
        *,
        serves: bool = True,
    ) -> None:
        """`serves`: whether it has socket and maildrop; else only the API gives it mail. `taker` takes the
        mail; `store` knows what the maildrop has brought before a crash."""
        local = self.settings = settings.submit.local
        """Those in effect."""
        self.serves = serves
        self.path = local.rootpath / SOCKET
        self.door = Door(
            listener_of(local, settings.application.announcehost),
            taker,
            clock,
            observer,
            inline_max=settings.queue.journal.inline_max,
            zones=settings.deliver.zones,
            capacity=capacity,
            load=load,
            local=True,
        )
        self.maildrop = Maildrop(
            local.rootpath / MAILDROP,
            lambda connection, caller: self.door.admit(connection, "", caller),
            store,
            clock,
            most=lambda: self.door.settings.server.maxmsgsize,
        )
        self._socket = ControlSocket(self.path, everybody=True)
        self._arrivals: set[asyncio.Task[None]] = set()

    async def listen(self, conf: Path | None, log_event: Callable[..., None]) -> None:
        """Take mail. Raises ConfigError."""
        if self.serves:
            self._bind(conf)
        else:
            self.door.adopt([])
        await self.door.start()
        if self.serves:
            log_event("listening", name=self.door.settings.name, address=str(self.path))

    def _bind(self, conf: Path | None) -> None:
        """Make socket and maildrop. Raises ConfigError."""
        bound = self._socket.bind(place_of(conf, LOCAL))
        try:
            self.maildrop.files.make()
        except OSError as error:
            bound.close()
            raise ConfigError(
                f"{place_of(conf, LOCAL)}: cannot make the maildrop: {describe(error)}"
            ) from error
        self.door.adopt([bound], self._take)
        if not self.path.parent.stat().st_mode & stat.S_IXOTH:
            log.info(
                "only the server's user can send by %s: chmod o+x %s lets others", SOCKET, self.path.parent
            )

    def close(self) -> None:
        """Remove the socket. Twice is harmless."""
        self._socket.close()

    def _take(self, connection: socket.socket, peer: object) -> None:
        if len(self._arrivals) >= _ARRIVALS:
            connection.close()
            return
        arrival = asyncio.get_running_loop().create_task(self._admit(connection))
        self._arrivals.add(arrival)
        arrival.add_done_callback(self._arrivals.discard)

    async def _admit(self, connection: socket.socket) -> None:
        # The system's users may be in a directory elsewhere.
        user = await asyncio.to_thread(user_name, peer_uid(connection))
        self.door.admit(connection, "", Caller(user=user))

    def reload(self, settings: Settings) -> None:
        """Go by these settings from now on, if their filter can be had."""
        server = listener_of(settings.submit.local, settings.application.announcehost).server
        if server != self.door.settings.server:
            self.door.reload(server)
        if server == self.door.settings.server:
            self.settings = settings.submit.local
        self.door.assign(settings.deliver.zones)

"""Stands in for the server process of a shard that cannot start: its disk has failed, or is not mounted.

Each connection to its sockets is passed on to a shard that takes mail; when none does, it gets 421. So no
client waits for a shard that is out of service. After `STAND_IN_MS` the process ends, and the supervisor
tries to start the shard again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from mqcd.core.ports import Clock
from mqcd.core.smtp.reply import Reply
from mqcd.daemon.host.loop import asked_to_end
from mqcd.daemon.shards.supervisor import TRY_AGAIN
from mqcd.net.listening import Acceptor
from mqcd.net.shared.balance import Balance

STAND_IN_MS = 10_000
"""Time until the shard is tried again."""
_BACKLOG = 1024
_OUT = Reply(code=421, status="4.3.2", text="No storage for mail now, try again later").encode()


class StandIn:
    """Of one shard."""

    def __init__(self, sockets: Sequence[Sequence[socket.socket]], balance: Balance, clock: Clock) -> None:
        """`sockets`: bound, by listener; they become its own."""
        self._sockets = sockets
        self._balance = balance
        self._clock = clock

    async def run(self, alive: int) -> int:
        """Pass connections on for a while; gives the exit code. `alive`: see `supervisor.Part`."""
        loop, stopped = asyncio.get_running_loop(), asked_to_end()
        loop.add_reader(alive, stopped.set)
        acceptors = [
            Acceptor(bound, partial(self._accepted, index), self._clock)
            for index, bound in enumerate(self._sockets)
        ]
        self._balance.listen(self._take)
        try:
            for acceptor in acceptors:
                acceptor.listen(_BACKLOG)
            with suppress(TimeoutError):
                async with asyncio.timeout(STAND_IN_MS / 1000):
                    await stopped.wait()
            return 0 if stopped.is_set() else TRY_AGAIN
        finally:
            loop.remove_reader(alive)
            self._balance.close()
            for acceptor in acceptors:
                acceptor.close()

    def _accepted(self, listener: int, connection: socket.socket, _: object) -> None:
        self._take(listener, connection)

    def _take(self, listener: int, connection: socket.socket) -> None:
        if not self._balance.passes(listener, connection, 0):
            with suppress(OSError):
                connection.send(_OUT)
            connection.close()

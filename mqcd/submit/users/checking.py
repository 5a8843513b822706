"""The check of passwords against their hashes: few threads of low priority, and a short queue before them.

A flood of logins so delays no mail: it fills the queue, and further logins raise LoginsBusy at once.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from mqcd.core.clients import client_network
from mqcd.core.errors import MqcdError
from mqcd.submit.users.passwords import verify

THREADS = 2
"""Each needs the memory of one hash, 19 MB by default."""
MOST = 64
"""Checks that run or wait: about a second's."""
MOST_OF_CLIENT = 8
_NICE = 5


class LoginsBusy(MqcdError):
    """More checks wait than may. Fault: nobody's, or of a flood. Try again later."""


class Checker:
    """The threads of one process; they start with the first check."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="login", initializer=_give_way)
        self._clients: Counter[str] = Counter()
        self._waiting = 0

    async def verify(self, client: str, encoded: str, password: str) -> bool:
        """Whether a prepared password fits the hash. Raises LoginsBusy."""
        network = client_network(client)
        if self._waiting >= MOST or self._clients[network] >= MOST_OF_CLIENT:
            raise LoginsBusy("too many logins at once")
        self._waiting += 1
        self._clients[network] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, verify, encoded, password)
        finally:
            self._waiting -= 1
            self._clients[network] -= 1
            if not self._clients[network]:
                del self._clients[network]

    def close(self) -> None:
        """End the threads once their checks are done; waits for none."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _give_way() -> None:
    """Lower the priority of this thread: on Linux each has its own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)

"""The helper process of a shard, and the end of it that the event loop holds.

Exporting and evacuating cost processor time that a thread would take from the commits, so a process of
its own does them. It holds the shard's lock together with its parent, so that no new owner can begin while
it still writes.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from mqcd.core.errors import MqcdError, StoreUnavailable
from mqcd.queue import child, tasks
from mqcd.queue.durable import Disk

log = logging.getLogger(__name__)

_BUFFER = 1 << 24


class Helper:
    """Runs tasks one after another in the helper process; starts it anew when it has died."""

    def __init__(self, lock_fd: int) -> None:
        self._lock_fd = lock_fd
        self._process: child.Child | None = None
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process is not None else None

    async def run(self, task: tasks.Task) -> tasks.Result:
        """Do a task. Raises what the task raised, and StoreUnavailable when the helper has died."""
        async with self._turn:
            if self._process is None:
                self._process = await child.start(__name__, self._lock_fd, buffer=_BUFFER)
            try:
                await self._process.send(task)
                answer = await self._process.receive()
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                await self._reap()
                raise StoreUnavailable("the helper process has died; it will be started anew") from error
            except asyncio.CancelledError:
                await self._reap()
                raise
        if isinstance(answer, Exception):
            raise answer
        result: tasks.Result = answer
        return result

    async def _reap(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            log.error("the helper process has ended with status %d", await process.kill())

    async def stop(self) -> None:
        """End the process after the task that it is at."""
        async with self._turn:
            if self._process is not None:
                await self._process.leave()
                self._process = None


def _work(channel: child.Channel) -> None:
    """Do tasks until the parent has no more. Raises ConnectionError when it is gone."""
    disk = Disk()
    while (task := channel.receive()) is not None:
        try:
            answer: object = tasks.run(disk, task)
        except (OSError, MqcdError) as error:
            answer = error
        channel.send(answer)


if __name__ == "__main__":
    sys.exit(child.serve(sys.argv[1:], _work))

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
        self._watcher: asyncio.Task[None] | None = None
        self._proved = False
        """Whether this process has answered: one that cannot even begin is not started without need."""
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process is not None else None

    async def run(self, task: tasks.Task) -> tasks.Result:
        """Do a task. Raises what the task raised, and StoreUnavailable when the helper dies of it.

        Tasks can be repeated: one whose helper is killed is done by the next.
        """
        async with self._turn:
            try:
                answer = await self._answer(task)
            except asyncio.CancelledError:
                # What it sends now would be taken for the answer to the next task.
                await self._end()
                raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _answer(self, task: tasks.Task) -> tasks.Result | Exception:
        """What a helper says to it: the next one, when the first dies."""
        try:
            return await self._ask(task)
        except (asyncio.IncompleteReadError, ConnectionError):
            await self._reap()
        try:
            return await self._ask(task)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            await self._reap()
            raise StoreUnavailable("the helper process has died twice of one task") from error

    async def _ask(self, task: tasks.Task) -> tasks.Result | Exception:
        process = self._process or await self._start()
        await process.send(task)
        answer: tasks.Result | Exception = await process.receive()
        self._proved = True
        return answer

    async def _start(self) -> child.Child:
        process = self._process = await child.start(__name__, self._lock_fd, buffer=_BUFFER)
        self._proved = False
        self._watcher = asyncio.get_running_loop().create_task(self._watch(process))
        return process

    async def _watch(self, process: child.Child) -> None:
        """See its end also while it has nothing to do, and have the next one ready."""
        await process.process.wait()
        async with self._turn:
            if self._process is not process:
                return
            await self._reap()
            if self._proved:
                try:
                    await self._start()
                except OSError as error:
                    log.error("the helper process cannot be started, the next task tries again: %s", error)

    async def _reap(self) -> None:
        """Tell of one that is gone, and forget it."""
        status = await self._end()
        if status is not None:
            log.error("the helper process has ended with status %d; a new one is started", status)

    async def _end(self) -> int | None:
        """Let go of the process, at once; its exit status, None when there is none."""
        process, self._process = self._process, None
        return None if process is None else await process.kill()

    async def stop(self) -> None:
        """End the process after the task that it is at."""
        async with self._turn:
            process, self._process = self._process, None
            if process is not None:
                await process.leave()
        if self._watcher is not None:
            await self._watcher


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

"""A shard's workers without threads and processes: what they are given is done at once, on the loop.

`InlineWorkers` leaves a test one order of events and no waiting: with a fake clock, a whole life of a
queue is the same each time. `LocalWorkers` has the real threads, and only what processes do at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar, cast

from mqcd.disk.durable import Disk
from mqcd.queue.helper import jobs
from mqcd.queue.helper.helper import Helper
from mqcd.queue.helper.scanner import Request, scan
from mqcd.queue.helper.scans import Process, Scans
from mqcd.queue.wal.committer import Committer, Write, perform
from mqcd.queue.workers import Workers

P = ParamSpec("P")
T = TypeVar("T")


class InlineHelper(Helper):
    """The helper's tasks, done at once and on the test's own disk: the shard cannot tell the difference."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(-1)
        self._disk = disk
        self.done: list[jobs.Task] = []

    async def run(self, task: jobs.Task) -> jobs.Result:
        result = jobs.run(self._disk, task)
        self.done.append(task)
        return result


class InlineScan:
    """`mqcd.queue.helper.scans.Process` whose work is done before its first answer is asked for."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._answers: deque[object] = deque()

    async def send(self, value: object) -> None:
        scan(self._disk, cast("Request", value), self._answers.append)

    async def receive(self) -> Any:
        return self._answers.popleft()

    async def kill(self) -> int:
        return 0


class InlineScans(Scans):
    """Scans on the test's own disk."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    async def _start(self) -> Process:
        return InlineScan(self._disk)


class InlineCommitter:
    """`mqcd.queue.wal.committer.Committer` that writes at once and answers at the loop's next turn."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def submit(self, write: Write, done: Callable[[OSError | None], None]) -> None:
        error: OSError | None = None
        try:
            perform(self._disk, write)
        except OSError as caught:
            error = caught
        asyncio.get_running_loop().call_soon(done, error)

    def stop(self) -> asyncio.Future[None]:
        """Nothing is ever left to do."""
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future


class InlineExecutor(Executor):
    """Calls what it is given before it answers."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class LocalWorkers(Workers):
    """Real threads; scans and the helper's tasks, which start processes otherwise, are done in this one."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def scans(self) -> Scans:
        return InlineScans(self._disk)

    def helper(self, lock_fd: int) -> Helper:
        return InlineHelper(self._disk)


class InlineWorkers(LocalWorkers):
    """Nothing runs beside the loop."""

    def executor(self) -> Executor:
        return InlineExecutor()

    async def end(self, executor: Executor) -> None:
        executor.shutdown()

    def committer(self, disk: Disk) -> Committer:
        return InlineCommitter(disk)

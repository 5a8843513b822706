"""The helper process of a shard, and the end of it that the event loop holds.

Exporting and evacuating cost processor time that a thread would take from the commits, so a process of
its own does them. It holds the shard's lock together with its parent, so that no new owner can begin while
it still writes.

A task may take as long as it likes, as long as it goes on: while it uses the disk the process gives a sign
twice a second. One that gives none (stopped, hung) is killed and replaced, as one that has died.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from mqcd.core.errors import MqcdError, StoreUnavailable
from mqcd.disk.durable import Buffer, Disk, Measure
from mqcd.queue.helper import jobs, pipe

log = logging.getLogger(__name__)

Given = TypeVar("Given")

_BUFFER = 1 << 24
_SIGN_SECONDS = 0.5
"""A task that goes on gives a sign so often."""
SHORT_SECONDS = 2
"""Without one for so long it is noted as trouble, and while the shard stops given up."""
PATIENCE_SECONDS = 30
"""Without one for so long it is given up; a sync of a slow disk takes some seconds, and gives none."""


class _Hung(Exception):
    """The process gives no sign."""


class Helper:
    """Runs tasks one after another in the helper process; starts it anew when it has died."""

    def __init__(
        self, lock_fd: int, sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep
    ) -> None:
        self._lock_fd = lock_fd
        self._sleep = sleep
        self._hurried = asyncio.Event()
        self.trouble = ""
        """Why the task under way may not end; "" while it goes on."""
        self.hung = 0
        """Processes that were killed because they gave no sign."""
        self.signs = 0
        """How often one has said something: while that rises, a task goes on."""
        self._process: pipe.Child | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._proved = False
        """Whether this process has answered: one that cannot even begin is not started without need."""
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def run(self, task: jobs.Task) -> jobs.Result:
        """Do a task. Raises what the task raised, and StoreUnavailable when the helper dies or hangs in it.

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

    async def _answer(self, task: jobs.Task) -> jobs.Result | Exception:
        """What a helper says to it: the next one, when the first dies or hangs."""
        try:
            return await self._ask(task)
        except (asyncio.IncompleteReadError, ConnectionError):
            await self._reap()
        except _Hung:
            await self._give_up()
        try:
            return await self._ask(task)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            await self._reap()
            raise StoreUnavailable("the helper process has died twice of one task") from error
        except _Hung as error:
            await self._give_up()
            raise StoreUnavailable("the helper process has hung twice in one task") from error

    async def _ask(self, task: jobs.Task) -> jobs.Result | Exception:
        process = self._process or await self._start()
        await self._in_time(process.send(task))
        answer: jobs.Result | jobs.Sign | Exception = jobs.Sign.BUSY
        while isinstance(answer, jobs.Sign):
            answer = await self._in_time(process.receive())
            self.signs += 1
        self._proved = True
        return answer

    async def _in_time(self, work: Coroutine[Any, Any, Given]) -> Given:
        """What `work` gives. Raises _Hung when the process gives no sign meanwhile."""
        working = asyncio.ensure_future(work)
        limit = asyncio.ensure_future(self._patience())
        try:
            await asyncio.wait((working, limit), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise _Hung
            self.trouble = ""
            return working.result()
        finally:
            await _ended(working, limit)

    async def _patience(self) -> None:
        """Return when no sign came in time."""
        await self._sleep(SHORT_SECONDS)
        self.trouble = f"the helper process {self.pid} gives no sign that it goes on"
        long = asyncio.ensure_future(self._sleep(PATIENCE_SECONDS - SHORT_SECONDS))
        hurried = asyncio.ensure_future(self._hurried.wait())
        try:
            await asyncio.wait((long, hurried), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _ended(long, hurried)

    async def _give_up(self) -> None:
        """End one that hangs."""
        self.hung += 1
        seconds = SHORT_SECONDS if self._hurried.is_set() else PATIENCE_SECONDS
        text = "the helper process %s has given no sign for %d s: it is killed, and a new one is started"
        log.error(text, self.pid, seconds)
        await self._end()

    def hurry(self) -> None:
        """The shard stops: from now on a process that gives no sign is given up sooner."""
        self._hurried.set()

    async def _start(self) -> pipe.Child:
        process = self._process = await pipe.start(__name__, self._lock_fd, buffer=_BUFFER)
        self._proved = False
        self._watcher = asyncio.get_running_loop().create_task(self._watch(process))
        return process

    async def _watch(self, process: pipe.Child) -> None:
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
        """Log one that is gone, and forget it."""
        status = await self._end()
        if status is not None:
            log.error("the helper process has ended with status %d; a new one is started", status)

    async def _end(self) -> int | None:
        """Let go of the process, at once; its exit status, None when there is none."""
        process, self._process = self._process, None
        status = None if process is None else await process.kill()
        self.trouble = ""
        return status

    async def stop(self) -> None:
        """End the process after the task that it is at."""
        self.hurry()
        async with self._turn:
            process = self._process
            if process is not None:
                try:
                    await self._in_time(process.leave())
                except _Hung:
                    await self._give_up()
                self._process = None
        if self._watcher is not None:
            await self._watcher


async def _ended(*futures: asyncio.Future[Any]) -> None:
    """End them, whatever they are at."""
    for each in futures:
        # Its waiters have its exception; also where this wait is cancelled.
        each.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        each.cancel()
    await asyncio.wait(futures)


class _Reporting(Disk):
    """The real disk; a call on it is a sign that the task goes on, sent when one is due.

    Overridden is what a loop over many records or files calls: to open, read, write, name, remove or look at
    one. `create`, `write_temp`, `zero_fill` and `read_file` are made of these calls. The others are not
    overridden: `close`, `mkdir` and `rmdir` come beside one of these, and a sync or `reserve` may be one long
    call, within which no sign can be given (see `PATIENCE_SECONDS`).
    """

    def __init__(self, sign: Callable[[], None]) -> None:
        self._sign = sign
        self._due = False
        signal.signal(signal.SIGALRM, self._note)

    def _note(self, *_: object) -> None:
        self._due = True

    @contextmanager
    def signs(self) -> Iterator[None]:
        """In the block signs are due, again and again."""
        signal.setitimer(signal.ITIMER_REAL, _SIGN_SECONDS, _SIGN_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _goes_on(self) -> None:
        if self._due:
            self._due = False
            self._sign()

    def open(self, path: Path, flags: int) -> int:
        self._goes_on()
        return super().open(path, flags)

    def pread(self, fd: int, octets: int, offset: int) -> bytes:
        self._goes_on()
        return super().pread(fd, octets, offset)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        self._goes_on()
        return super().pwritev(fd, buffers, offset)

    def rename(self, source: Path, target: Path) -> None:
        self._goes_on()
        super().rename(source, target)

    def link(self, source: Path, target: Path) -> bool:
        self._goes_on()
        return super().link(source, target)

    def unlink(self, path: Path) -> None:
        self._goes_on()
        super().unlink(path)

    def exists(self, path: Path) -> bool:
        self._goes_on()
        return super().exists(path)

    def names(self, path: Path) -> list[str]:
        self._goes_on()
        return super().names(path)

    def measure(self, path: Path) -> Measure | None:
        self._goes_on()
        return super().measure(path)


def _work(channel: pipe.Channel) -> None:
    """Do tasks until the parent has no more. Raises ConnectionError when it is gone."""
    disk = _Reporting(partial(channel.send, jobs.Sign.BUSY))
    while (task := channel.receive()) is not None:
        try:
            with disk.signs():
                answer: object = jobs.run(disk, task)
        except (OSError, MqcdError) as error:
            answer = error
        channel.send(answer)


if __name__ == "__main__":
    sys.exit(pipe.serve(sys.argv[1:], _work))

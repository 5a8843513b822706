"""Background tasks that must not end by themselves: the server reports one that does, and stops.

A server whose task failed unnoticed looks alive and does half its work. Stopping is better: the supervisor
restarts it, and a start recovers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any

from mqcd.core.ports import Clock

log = logging.getLogger("mqcd.daemon")


class Guard:
    """Holds the tasks of one server."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = False
        self.failed = asyncio.Event()
        """Set once a task has ended that should not have."""

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` until the server stops."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[name] = task
        task.add_done_callback(self._ended)

    def adopt(self) -> None:
        """Watch the tasks that the parts have begun for themselves: a failure of one counts as well."""
        for task in asyncio.all_tasks() - {asyncio.current_task(), *self._tasks.values()}:
            task.add_done_callback(self._adopted_ended)

    def fail(self, why: str, error: BaseException | None) -> None:
        """Something that has no task has failed for good, such as a thread."""
        log.critical("%s; the server stops", why, exc_info=error)
        self.failed.set()

    def stopping(self) -> None:
        """From now on tasks may end."""
        self._stopping = True

    async def ended(self, name: str) -> None:
        """Wait until a task has ended; harmless for one that was never begun."""
        task = self._tasks.get(name)
        if task is not None:
            await asyncio.wait([task])

    async def end(self, *names: str) -> None:
        """Cancel tasks that have no end of their own, and wait for each."""
        for task in filter(None, map(self._tasks.get, names)):
            task.cancel()
            await asyncio.wait([task])

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self.fail(f"{task.get_name()} has failed", error)
        elif not self._stopping:
            self.fail(f"{task.get_name()} has ended without being stopped", None)

    def _adopted_ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(f"a background task has failed ({task.get_coro()})", error)


async def within(clock: Clock, ms: int, what: str, work: Awaitable[object]) -> None:
    """Wait for a part of a stop, not longer than `ms`. A failure is logged: the others must still stop."""
    working = asyncio.ensure_future(work)
    limit = asyncio.ensure_future(clock.sleep(ms))
    await asyncio.wait([working, limit], return_when=asyncio.FIRST_COMPLETED)
    limit.cancel()
    if not working.done():
        log.warning("%s did not stop in time; the next start recovers what is left", what)
        working.cancel()
        await asyncio.wait([working])
    if not working.cancelled() and (error := working.exception()) is not None:
        log.error("%s did not stop cleanly: %s", what, error, exc_info=error)

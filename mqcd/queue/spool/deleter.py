"""Removes files that are not needed any more: ended clusters, spool files, empty directories.

Readers of the queue hold a shared lock on `queue/pin` while they read. Nothing that they may still read
is removed before they release it, or before their time is up: `PIN_MS` after the first removal that waited
for them, or as soon as it is urgent: the journal needs the room, the server stops, or too many files wait.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

from mqcd.core.ports import Clock
from mqcd.disk.durable import Disk, describe, let_go

log = logging.getLogger(__name__)

PIN_MS = 60_000
_POLL_MS = 50
"""How often a held pin is polled: a lock of another process gives no notice."""


class Deleter:
    """One per shard."""

    def __init__(self, disk: Disk, executor: Executor, clock: Clock, pin: Path) -> None:
        self._disk = disk
        self._executor = executor
        self._clock = clock
        self._fd = disk.open(pin, os.O_RDWR | os.O_CREAT)
        self._files: list[Path] = []
        self._task: asyncio.Task[None] | None = None
        # `bool()` is False: never urgent. Likewise in `settled`.
        self._urgent: Callable[[], bool] = bool

    def remove(self, path: Path) -> None:
        self._files.append(path)
        self._begin()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._sweep())

    async def settled(self, urgent: Callable[[], bool] = bool) -> None:
        """Wait until all files have been removed, or tried once more; not for readers when it is urgent."""
        self._urgent = urgent
        if self._files:
            self._begin()
        while self._task is not None and not self._task.done():
            await asyncio.shield(self._task)

    async def unpinned(self, urgent: Callable[[], bool]) -> None:
        """Return when no reader holds a pin, their time is up, or it has become urgent."""
        start = self._clock.monotonic()
        while self._is_pinned():
            if urgent() or self._clock.monotonic() - start > PIN_MS:
                log.warning(
                    "files are removed although readers of the queue hold their pin: their time is up, or "
                    "the journal needs room"
                )
                return
            await self._clock.sleep(_POLL_MS)

    def _is_pinned(self) -> bool:
        """Whether readers hold the pin; true as long as the system does not answer."""
        try:
            if not self._disk.lock(self._fd, exclusive=True):
                return True
            self._disk.unlock(self._fd)
        except OSError as error:
            log.error("the readers' pin cannot be tested: %s", describe(error))
            return True
        return False

    async def _sweep(self) -> None:
        kept: list[Path] = []
        while self._files:
            await self.unpinned(lambda: len(self._files) > 10_000 or self._urgent())
            files, self._files = self._files, []
            loop = asyncio.get_running_loop()
            kept += await loop.run_in_executor(self._executor, self._unlink, files)
        # Together with what comes next, and once more at the end.
        self._files = kept

    def _unlink(self, files: list[Path]) -> list[Path]:
        """Returns the files that are still there."""
        kept = []
        for path in files:
            try:
                self._disk.unlink(path)
                # The directory of a due time (`clusters.file._name`): it may be empty now.
                if path.parent.name.startswith("T"):
                    self._disk.rmdir(path.parent)
            except OSError as error:
                log.error("a file that is not needed any more could not be removed: %s", describe(error))
                kept.append(path)
        return kept

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        let_go(self._disk, self._fd, "the readers' pin")

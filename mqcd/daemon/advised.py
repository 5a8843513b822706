"""Applies changes of advice to the running server, without a restart.

Every two seconds it looks whether `active.xml` is another file than the one it read last, and whether a
piece has come to its end. A file that is not there means no advice; one that is wrong is logged once, with
every error, and what was in effect stays. Reading is done by a thread: however long the list, mail goes on.
Nothing is ever written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from mqcd.config.advice import Advice, read_advice
from mqcd.config.problems import BadConfiguration
from mqcd.core.ports import Clock

log = logging.getLogger("mqcd.daemon")

ACTIVE = "active.xml"
LOOK_MS = 2000

Stamp = tuple[int, int, int, int] | None
"""Identifies a file's version; None = there is no file."""


class Adviser:
    """Reads the advice of one directory, and gives it to `take` whenever it has changed."""

    def __init__(self, directory: Path, clock: Clock, take: Callable[[Advice], None]) -> None:
        self._path = directory / ACTIVE
        self._clock = clock
        self._take = take
        self._stamp: Stamp = None
        self._until = 0
        """When the first piece in effect ends; 0 = none does."""
        self.advice = Advice()
        """What is in effect."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._clock.sleep(LOOK_MS)
            await self.look()

    async def look(self) -> None:
        """Bring what is in effect up to date."""
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            await self._load(stamp)
        elif self._until and self._until <= self._clock.now():
            await self._put(self.advice)

    async def _load(self, stamp: Stamp) -> None:
        if stamp is None:
            log.info("advice: %s is gone, and none is in effect", self._path)
            await self._put(Advice())
            return
        try:
            read = await asyncio.to_thread(read_advice, self._path)
        except BadConfiguration as error:
            for remark in error.remarks:
                log.error("%s", remark)
            log.error("advice: %s has errors; what was in effect before stays", self._path)
            return
        await self._put(read)
        log.info(
            "advice: %d suppressions and %d shapings of %s are in effect, %d have ended",
            len(self.advice.suppressions),
            len(self.advice.shapings),
            self._path,
            len(read) - len(self.advice),
        )

    async def _put(self, advice: Advice) -> None:
        now = self._clock.now()
        self.advice = await asyncio.to_thread(advice.keeping, lambda piece: piece.until > now)
        self._until = min((piece.until for piece in self.advice.pieces()), default=0)
        self._take(self.advice)

    def counts(self) -> dict[str, int]:
        """How many pieces of each kind are in effect."""
        return {"suppress": len(self.advice.suppressions), "shape": len(self.advice.shapings)}


def _stamp(path: Path) -> Stamp:
    try:
        there = path.stat()
    except OSError:
        return None
    return there.st_dev, there.st_ino, there.st_mtime_ns, there.st_size

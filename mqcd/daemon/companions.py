"""The processes that a configuration wants beside the server: their start, end, and start again.

* The ports that one serves are bound with those of the server, before root is given up; the process is given
  them, also when it is started again, so that no connection is refused meanwhile.
* A process that ends is started again, after a pause that grows while it keeps ending. It ends with the
  server, however that ends: it sees the end of its socket.
* Mail does not depend on it: whatever becomes of it is logged, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mqcd.config.settings import Settings
from mqcd.core.ports import Clock
from mqcd.daemon.feeds import terms as feeds
from mqcd.daemon.page import terms as page
from mqcd.net.waits import in_time
from mqcd.queue.helper import pipe

log = logging.getLogger("mqcd.daemon")

_FIRST_PAUSE, _LONGEST_PAUSE = 200, 10_000
"""Milliseconds until a process that has ended is started again."""
_STEADY_MS = 30_000
"""Time after which a process counts as one that runs."""
_END_MS = 2_500
_BUFFER = 1 << 12


class Companion:
    """Keeps a process running from `run` on, until that is cancelled."""

    def __init__(
        self, module: str, name: str, terms: object, sockets: Sequence[socket.socket], clock: Clock
    ) -> None:
        """`module` is run with `terms` and the descriptors of `sockets`, which are its own from here on.
        `name` is for the log."""
        self._module = module
        self._name = name
        self._terms = terms
        self._sockets = sockets
        self._clock = clock
        self.pid: int | None = None

    def close(self) -> None:
        """Close the ports. Twice is harmless."""
        for each in self._sockets:
            each.close()

    async def run(self) -> None:
        """Start it, and again whenever it ends."""
        pause = _FIRST_PAUSE
        while True:
            begun = self._clock.monotonic()
            try:
                code = await self._life()
            except OSError as error:
                log.error("%s cannot be started: %s", self._name, error)
            else:
                why = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
                log.error("%s has ended (%s); it is started again", self._name, why)
            steady = self._clock.monotonic() - begun > _STEADY_MS
            pause = _FIRST_PAUSE if steady else min(pause * 2, _LONGEST_PAUSE)
            await self._clock.sleep(pause)

    async def _life(self) -> int:
        """One process, from start to end. Raises OSError."""
        fds = [each.fileno() for each in self._sockets]
        child = await pipe.start(self._module, *fds, buffer=_BUFFER)
        self.pid = child.pid
        try:
            with suppress(ConnectionError):
                await child.send((self._terms, fds))
            return await child.process.wait()
        finally:
            self.pid = None
            await self._end(child)

    async def _end(self, child: pipe.Child) -> None:
        try:
            await in_time(self._clock, _END_MS, child.leave())
        except TimeoutError:
            await child.kill()


PAGE, FEEDS = "mqcd.daemon.page.process", "mqcd.daemon.feeds.process"


class Companions:
    """All of them, from `run` on until that is cancelled."""

    def __init__(self, settings: Settings, sockets: Sequence[socket.socket], clock: Clock) -> None:
        """`sockets`: the page's, bound; none where it is not wanted."""
        self._companions: list[Companion] = []
        if sockets:
            self._companions.append(
                Companion(PAGE, "the page's process", page.terms_of(settings), sockets, clock)
            )
        if feeds.wanted(settings):
            self._companions.append(
                Companion(FEEDS, "the process of the feeds", feeds.terms_of(settings), (), clock)
            )

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._companions)

    def close(self) -> None:
        """Close the ports. Twice is harmless."""
        for each in self._companions:
            each.close()

    async def run(self) -> None:
        """Keep them running."""
        await asyncio.gather(*(each.run() for each in self._companions))


async def companions_of(settings: Settings, conf: Path | None, clock: Clock) -> Companions:
    """The processes of one server, their ports bound. Raises ConfigError."""
    feeds.check_feeds(settings)
    return Companions(settings, await page.bind_page(settings, conf), clock)

"""The processes that a configuration wants beside the server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

from mqcd.config.settings import Settings
from mqcd.core.ports import Clock
from mqcd.daemon.companions.companion import Companion
from mqcd.daemon.feeds import terms as feeds
from mqcd.daemon.page import terms as page

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

"""The server's side of the page's process: its ports, its start, its end.

* The ports are bound with those of the server, before root is given up; the process is given them, and keeps
  being given them when it is started again, so that no connection is refused meanwhile.
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
from mqcd.core.errors import ConfigError
from mqcd.core.ports import Clock
from mqcd.daemon.derived import ops_hosts
from mqcd.daemon.places import PAGE, at_port, place_of
from mqcd.net.listening import bind
from mqcd.net.tls_server import BadTlsFile, Certificates, ServerTlsTerms
from mqcd.page.requirements import check_packages
from mqcd.page.terms import Terms
from mqcd.queue.helper import pipe

log = logging.getLogger("mqcd.daemon")

MODULE = "mqcd.daemon.page.process"
_FIRST_PAUSE, _LONGEST_PAUSE = 200, 10_000
"""Milliseconds until a process that has ended is started again."""
_STEADY_MS = 30_000
"""Time after which a process counts as one that runs."""
_END_MS = 2_500
_BUFFER = 1 << 12


def terms_of(settings: Settings) -> Terms:
    """What the process needs of the settings."""
    ops = settings.ops
    return Terms(
        page=ops.page,
        control=ops.control.path,
        advice=ops.advice.rootpath,
        log=ops.log,
        hosts=ops_hosts(settings),
    )


def check_page(settings: Settings, conf: Path | None) -> None:
    """See that the page's packages are there, and that its TLS files can be loaded. Raises ConfigError."""
    check_packages()
    own = settings.ops.page
    if own.certfile is None:
        return
    keys = () if own.keyfile is None else (own.keyfile,)
    try:
        Certificates(ServerTlsTerms(certificates=(own.certfile,), keys=keys))
    except BadTlsFile as error:
        raise ConfigError(f"{place_of(conf, PAGE)}@{error.setting}: {error}") from error


async def bind_page(settings: Settings, conf: Path | None) -> list[socket.socket]:
    """The bound sockets of the page; none where it is not wanted. Raises ConfigError."""
    own = settings.ops.page
    if not own.enabled or settings.queue.read_only:
        # A server of a read-only queue has no control socket.
        return []
    check_page(settings, conf)
    with at_port(conf, PAGE, own.interface, own.port):
        return list(await bind(own.interface, own.port))


class PageKeeper:
    """Keeps the process running from `run` on, until that is cancelled."""

    def __init__(self, terms: Terms, sockets: Sequence[socket.socket], clock: Clock) -> None:
        """`sockets` are its own from here on."""
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
                log.error("the page's process cannot be started: %s", error)
            else:
                why = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
                log.error("the page's process has ended (%s); it is started again", why)
            steady = self._clock.monotonic() - begun > _STEADY_MS
            pause = _FIRST_PAUSE if steady else min(pause * 2, _LONGEST_PAUSE)
            await self._clock.sleep(pause)

    async def _life(self) -> int:
        """One process, from start to end. Raises OSError."""
        fds = [each.fileno() for each in self._sockets]
        child = await pipe.start(MODULE, *fds, buffer=_BUFFER)
        self.pid = child.pid
        try:
            with suppress(ConnectionError):
                await child.send((self._terms, fds))
            return await child.process.wait()
        finally:
            self.pid = None
            await self._end(child)

    async def _end(self, child: pipe.Child) -> None:
        leaving = asyncio.ensure_future(child.leave())
        limit = asyncio.ensure_future(self._clock.sleep(_END_MS))
        await asyncio.wait([leaving, limit], return_when=asyncio.FIRST_COMPLETED)
        limit.cancel()
        if not leaving.done():
            await child.kill()
        await leaving

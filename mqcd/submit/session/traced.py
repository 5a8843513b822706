"""A session at the door that a trace may be for: it says to the trace what client and server say."""

from __future__ import annotations

import asyncio

from mqcd.core.smtp.tracing import Side, Tap, Traces, Who
from mqcd.submit.esmtp.states import State
from mqcd.submit.session.session import Host, Session


def session_of(host: Host, traces: Traces, name: str, client: str) -> Session:
    """A session for a new client, traced where a trace may be for it."""
    loop = asyncio.get_running_loop()
    if traces and (tap := traces.tap(Side.IN, name, host.intake.listener, (client,))) is not None:
        return TracedSession(host, name, client, loop, tap)
    return Session(host, name, client, loop)


class TracedSession(Session):
    """What each line costs is paid by these alone."""

    def __init__(self, host: Host, name: str, client: str, loop: asyncio.AbstractEventLoop, tap: Tap) -> None:
        super().__init__(host, name, client, loop)
        self._tap = tap

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `Session`."""
        self._tap.note("opened")
        super().connection_made(transport)

    def secured(self) -> None:
        """See `Session`."""
        super().secured()
        self._tap.note("secured", tls=self._dialogue.channel.tls)

    def connection_lost(self, error: Exception | None) -> None:
        """See `Session`."""
        self._tap.note("closed")
        super().connection_lost(error)

    def _answer(self, line: bytes) -> bytes:
        self._hear(line)
        return super()._answer(line)

    async def _obey(self, line: bytes) -> None:
        if self._filter is not None:
            self._hear(line)
        await super()._obey(line)

    async def _take_content(self) -> None:
        await super()._take_content()
        self._tap.note("content", octets=self.wire.taken)

    def _hear(self, line: bytes) -> None:
        if self._dialogue.state is State.LOGIN:
            self._tap.secret(Who.CLIENT)
        else:
            self._tap.said(Who.CLIENT, line + b"\n")

    def _write(self) -> None:
        self._tap.names(self._dialogue.user)
        for octets in self._out:
            self._tap.said(Who.SERVER, octets)
        super()._write()

"""A session at the door that a trace may be for: it says to the trace what client and server say."""

from __future__ import annotations

import asyncio

from mqcd.core.smtp.tracing import Side, Tap, Traces, Who
from mqcd.submit.esmtp.states import State
from mqcd.submit.session.session import Host, Session
from mqcd.submit.session.tasks import SessionTask


def session_of(host: Host, traces: Traces, name: str, client: str) -> Session:
    """A session for a new client, traced where a trace may be for it."""
    loop = asyncio.get_running_loop()
    if traces and (tap := traces.tap(Side.IN, name, host.intake.listener, (client,))) is not None:
        return TracedSession(host, name, client, loop, tap)
    return Session(host, name, client, loop)


class TracedTask(SessionTask):
    """One of a traced session."""

    __slots__ = ()
    _session: TracedSession

    async def content(self) -> None:
        """See `SessionTask`."""
        await super().content()
        self._session.tap.note("content", octets=self._wire.taken)


class TracedSession(Session):
    """What each line costs is paid by these alone."""

    _task_type = TracedTask

    def __init__(self, host: Host, name: str, client: str, loop: asyncio.AbstractEventLoop, tap: Tap) -> None:
        super().__init__(host, name, client, loop)
        self.tap = tap

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `Session`."""
        self.tap.note("opened")
        super().connection_made(transport)

    def secured(self) -> None:
        """See `Session`."""
        super().secured()
        self.tap.note("secured", tls=self._dialogue.channel.tls)

    def connection_lost(self, error: Exception | None) -> None:
        """See `Session`."""
        self.tap.note("closed")
        super().connection_lost(error)

    def answer(self, line: bytes) -> bytes:
        """See `Session`."""
        self.hear(line)
        return super().answer(line)

    def write(self) -> None:
        """See `Session`."""
        self.tap.names(self._dialogue.user)
        for octets in self._out:
            self.tap.said(Who.SERVER, octets)
        super().write()

    def hear(self, line: bytes) -> None:
        """The client says a line."""
        if self._dialogue.state is State.LOGIN:
            self.tap.secret(Who.CLIENT)
        else:
            self.tap.said(Who.CLIENT, line + b"\n")

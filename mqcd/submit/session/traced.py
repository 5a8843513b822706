"""A session at the door that a trace may be for: it says to the trace what client and server say."""

from __future__ import annotations

import asyncio

from mqcd.core.smtp.tracing import Side, Tap, Traces, Who
from mqcd.submit.esmtp.caller import Caller
from mqcd.submit.esmtp.states import State
from mqcd.submit.policy.rules import Rules
from mqcd.submit.session.connections import tls_channel
from mqcd.submit.session.session import Host, Session


def session_of(host: Host, traces: Traces, rules: Rules, name: str, client: str, caller: Caller) -> Session:
    """A session for a new client, traced where a trace may be for it."""
    if traces and (tap := traces.tap(Side.IN, name, host.intake.listener, (client,))) is not None:
        return TracedSession(host, rules, name, client, caller, tap)
    return Session(host, rules, name, client, caller)


class TracedSession(Session):
    """What each line costs is paid by these alone."""

    def __init__(self, host: Host, rules: Rules, name: str, client: str, caller: Caller, tap: Tap) -> None:
        super().__init__(host, rules, name, client, caller)
        self.tap = tap

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `Session`."""
        self.tap.note("opened")
        super().connection_made(transport)

    def secured(self) -> None:
        """See `Session`."""
        self.tap.note("secured", tls=tls_channel(self._host.tls, self.transport).tls)
        super().secured()

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
        self.tap.names(self.dialogue.user)
        for octets in self._out:
            self.tap.said(Who.SERVER, octets)
        super().write()

    async def _content(self) -> None:
        await super()._content()
        self.tap.note("content", octets=self.deadlines.content)

    def hear(self, line: bytes) -> None:
        """The client says a line."""
        if self.dialogue.state is State.LOGIN:
            self.tap.secret(Who.CLIENT)
        else:
            self.tap.said(Who.CLIENT, line + b"\n")

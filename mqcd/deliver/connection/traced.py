"""A connection to a next hop that a trace may be for: it says to the trace what client and server say."""

from __future__ import annotations

from mqcd.config.settings import ClientSettings
from mqcd.core.smtp.tracing import Side, Tap, Who
from mqcd.deliver.connection.link import Link
from mqcd.deliver.smtp.client import SmtpClient
from mqcd.deliver.smtp.exchange import Options
from mqcd.deliver.smtp.states import State
from mqcd.deliver.terms import Terms


def link_of(
    terms: Terms,
    client: ClientSettings,
    options: Options,
    host: str,
    address: str,
    session: str,
    destination: str,
) -> Link:
    """A link, traced where a trace may be for it."""
    link = Link(client, terms.clock, options, host, address, session)
    traces = terms.traces
    if traces and (tap := traces.tap(Side.OUT, session, destination, (address, host, destination))):
        tap.note("opened", host=host)
        link.smtp = TracedClient(options, tap)
    return link


class TracedClient(SmtpClient):
    """What each line costs is paid by these alone."""

    def __init__(self, options: Options, tap: Tap) -> None:
        super().__init__(options)
        self._tap = tap

    def take(self) -> bytes:
        """See `SmtpClient`."""
        out = super().take()
        if out:
            self._tap.said(Who.CLIENT, out)
        return out

    def receive(self, data: bytes) -> State:
        """See `SmtpClient`."""
        self._tap.said(Who.SERVER, data)
        return super().receive(data)

    def content(self, chunk: bytes, last: bool) -> bytes:
        """See `SmtpClient`."""
        octets = super().content(chunk, last)
        self._tap.note("content", octets=len(chunk))
        return octets

    def tls_started(self) -> State:
        """See `SmtpClient`."""
        self._tap.note("secured")
        return super().tls_started()

    def lost(self, reason: str) -> State:
        """See `SmtpClient`."""
        self._tap.note("closed", reason=reason)
        return super().lost(reason)

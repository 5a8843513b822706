"""A connection that another protocol has had so far, as `mqcd.core.ports.Connection`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mqcd.core.errors import ConnectFailed
from mqcd.net.dialer import StreamConnection

Lost = Callable[[Exception | None], None]


class TakenConnection(StreamConnection):
    """Over TLS where that stands already; it stays as it is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lost: Lost | None = None) -> None:
        """`lost` is called when the connection is gone."""
        super().__init__(loop)
        self._lost = lost

    def secured(self) -> None:
        """See `tls_layer.Upper`: the handshake was done before."""

    def insecure(self, reason: str) -> None:
        """What came is no TLS."""
        self._end(ConnectFailed(reason))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        super().connection_lost(exc)
        if self._lost is not None:
            self._lost(exc)


def take(transport: asyncio.Transport, lost: Lost) -> TakenConnection:
    """What arrives from now on goes to the connection that is returned, and no longer to its protocol, whose
    `lost` is called at the end."""
    connection = TakenConnection(asyncio.get_running_loop(), lost)
    transport.set_protocol(connection)
    connection.connection_made(transport)
    return connection

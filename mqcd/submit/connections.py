"""What a connection shows of its client: its address, and what TLS says of both ends."""

from __future__ import annotations

import asyncio

from mqcd.net.tls_server import ListenerTls, peer_identities
from mqcd.submit.auth.binding import server_end_point
from mqcd.submit.channel import Channel


def tls_channel(tls: ListenerTls, transport: asyncio.BaseTransport) -> Channel:
    """Of a connection whose handshake with this listener is done."""
    connection = transport.get_extra_info("ssl_object")
    certificate = tls.certificate(connection)
    return Channel(
        tls=connection.version() or "",
        binding=server_end_point(certificate) if certificate else b"",
        identities=peer_identities(connection),
    )


def client_address(peername: object) -> str:
    """The IP address in a socket's peer name: IPv4 inside IPv6 as IPv4, without a scope."""
    if not isinstance(peername, tuple):
        return ""
    host = str(peername[0]).partition("%")[0]
    return host[7:] if host.startswith("::ffff:") and "." in host else host

"""What a connection shows of its client: its address, by itself or by a proxy; what TLS says of both ends."""

from __future__ import annotations

import asyncio
import socket

from mqcd.core.errors import DecodeError, MqcdError
from mqcd.core.ports import Clock
from mqcd.net.proxy_header import read_header
from mqcd.net.securing.server import ListenerTls, peer_identities
from mqcd.net.waits import in_time
from mqcd.submit.auth.binding import channel_bindings
from mqcd.submit.esmtp.caller import Channel

PROXY_MS = 10_000
"""How long a proxy may take to name its client."""


class Unnamed(MqcdError):
    """A proxy has not named its client."""


async def named_client(connection: socket.socket, clock: Clock) -> str:
    """The client that the proxy at the other end names, "" where it speaks for itself. Raises Unnamed."""
    try:
        return await in_time(clock, PROXY_MS, read_header(connection))
    except TimeoutError as error:
        raise Unnamed("no PROXY header in time") from error
    except (DecodeError, EOFError, OSError) as error:
        raise Unnamed(f"PROXY header expected: {error}") from error


def tls_channel(tls: ListenerTls, transport: asyncio.BaseTransport) -> Channel:
    """Of a connection whose handshake with this listener is done."""
    connection = transport.get_extra_info("ssl_object")
    version = connection.version() or ""
    unique = version == "TLSv1.2" and not connection.session_reused
    return Channel(
        tls=version,
        bindings=channel_bindings(
            tls.certificate(connection),
            transport.get_extra_info("exporter_secret", b""),
            connection.get_channel_binding("tls-unique") if unique else b"",
        ),
        identities=peer_identities(connection),
    )


def client_address(peername: object) -> str:
    """The IP address in a socket's peer name: IPv4 inside IPv6 as IPv4, without a scope."""
    if not isinstance(peername, tuple):
        return ""
    host = str(peername[0]).partition("%")[0]
    return host[7:] if host.startswith("::ffff:") and "." in host else host

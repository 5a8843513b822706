"""TLS of a listener without cryptography: it shows on which side of the handshake an octet was written.

A handshake is HELLO each way; a record is its plain text, each octet inverted.
"""

from __future__ import annotations

import ssl

HELLO = b"\x16"
_INVERTED = bytes(range(255, -1, -1))


def inverted(octets: bytes) -> bytes:
    """Records of a plain text, and the plain text of records."""
    return octets.translate(_INVERTED)


class FakeConnection:
    """What is used of `ssl.SSLObject`."""

    session_reused = False

    def __init__(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    def do_handshake(self) -> None:
        """Take the client's HELLO; anything else is no TLS."""
        first = self._incoming.read(1)
        if not first:
            raise ssl.SSLWantReadError
        if first != HELLO:
            error = ssl.SSLError(1, "no handshake")
            error.reason = "NO_HANDSHAKE"
            raise error
        self._outgoing.write(HELLO)

    def read(self, octets: int) -> bytes:
        """The next plain text."""
        if not self._incoming.pending:
            raise ssl.SSLWantReadError
        return inverted(self._incoming.read(octets))

    def write(self, data: bytes) -> None:
        """Send a plain text."""
        self._outgoing.write(inverted(data))

    def unwrap(self) -> None:
        """No end is said."""

    def version(self) -> str:
        """The newest."""
        return "TLSv1.3"

    def getpeercert(self) -> None:
        """The client has none."""


class FakeTls:
    """What is used of `ListenerTls`."""

    def begin(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> FakeConnection:
        """The server's end of a new connection."""
        return FakeConnection(incoming, outgoing)

    def certificate(self, connection: FakeConnection) -> bytes:
        """There is none."""
        return b""

    def exporter_secret(self) -> bytes:
        """There is none."""
        return b""

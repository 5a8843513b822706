"""TLS between a connection's transport and its protocol, at the server's end.

To the transport it is a protocol, to the protocol above a transport. Nothing passes upwards or downwards
before the handshake is done: what is written until then is dropped, for its reader is not known yet. The
deadlines are those of the protocol above. All that answers octets at once leaves in one write: the tickets of
a session with its first reply, close_notify with its last.

The loop's own `start_tls` is not used: octets that come while it begins reach the wrong end, and a session
must not see any octet that came before the handshake (CVE-2011-0411).
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any, Protocol

from mqcd.net.dialer import reason_of
from mqcd.net.securing.server import ListenerTls

_RECORD = 16384
"""Octets that one record holds at most (RFC 8446, 5.1): a read takes a whole one."""
_UNREAD = 1 << 20
"""Octets of what TLS itself answers that a client may leave unread."""


class Upper(Protocol):
    """The protocol above: asyncio's, and two calls more."""

    def secured(self) -> None:
        """The handshake is done."""

    def insecure(self, reason: str) -> None:
        """The handshake has failed, or what came later is no TLS: close."""

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""

    def eof_received(self) -> bool | None:
        """See asyncio.Protocol; also called at the client's close_notify."""

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol."""

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""


class TlsLayer(asyncio.Protocol, asyncio.Transport):
    """One connection's."""

    def __init__(self, transport: asyncio.Transport, upper: Upper, tls: ListenerTls) -> None:
        """Reads from `transport` from now on."""
        super().__init__()
        self._transport = transport
        self._upper = upper
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls
        self.connection = tls.begin(self._incoming, self._outgoing)
        self._exporter_secret = b""
        self._secure = False
        self._closed = False
        self._ended = False
        """A close_notify has come, or what is no TLS: what follows is dropped, not kept while the protocol
        above is not done."""
        self._receives = False
        self._answers = 0
        """At most so many octets of what TLS itself has answered are unread."""
        transport.set_protocol(self)

    # Called by the event loop.

    def data_received(self, data: bytes) -> None:
        """Octets of TLS."""
        if self._closed or self._ended:
            return
        self._incoming.write(data)
        self._receives = True
        try:
            if self._secure or self._handshake():
                self._read()
        except ssl.SSLError as error:
            self._secure, self._ended = False, True
            self._upper.insecure(reason_of(error))
        self._receives = False
        if not self._closed:
            self._flush()
            if self._answers > _UNREAD:
                # Answers to key updates (RFC 8446, 4.6.3): they cost the client nothing.
                self._upper.insecure("TLS failed: key updates whose answers are not read")

    def eof_received(self) -> bool | None:
        """The client sends no more. Without a close_notify too: no command or message ends where TLS ends."""
        if not self._secure and not self._closed:
            self._upper.insecure("TLS failed: the client left within the handshake")
            return False
        return self._upper.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._closed = True
        self._upper.connection_lost(exc)

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self._upper.pause_writing()

    def resume_writing(self) -> None:
        """It has room."""
        self._upper.resume_writing()

    # Called by the protocol above.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send octets, once the handshake is done."""
        if self._secure and not self._closed:
            self.connection.write(data)
            if not self._receives:
                self._flush()

    def close(self) -> None:
        """Send a close_notify behind what was written, and close."""
        if not self._closed:
            self._closed = True
            if self._secure:
                # The client's own close_notify is not waited for (RFC 8446, 6.1).
                with suppress(ssl.SSLError):
                    self.connection.unwrap()
            self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Drop the connection."""
        self._closed = True
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it is closed, or being closed."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """Read no more from the socket."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._transport.resume_reading()

    def set_protocol(self, protocol: Any) -> None:
        """Have another protocol above, see `Upper`."""
        self._upper = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Of the connection; `ssl_object` and `exporter_secret` are those of TLS."""
        own = {"ssl_object": self.connection, "exporter_secret": self._exporter_secret}
        return own[name] if name in own else self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        """Octets that are not sent yet."""
        return self._transport.get_write_buffer_size()

    def _handshake(self) -> bool:
        """Go on with it; whether it is done. Raises SSLError."""
        try:
            self.connection.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._exporter_secret = self._tls.exporter_secret() or self._exporter_secret
        self._secure = True
        self._upper.secured()
        return True

    def _read(self) -> None:
        """Pass on what has come. Raises SSLError."""
        parts: list[bytes] = []
        try:
            while self._incoming.pending and not self._closed and not self._ended:
                parts.append(self.connection.read(_RECORD))
                self._ended = not parts[-1]
        except ssl.SSLWantReadError:
            pass
        self._answers = min(self._answers, self.get_write_buffer_size()) + self._outgoing.pending
        if data := b"".join(parts):
            self._upper.data_received(data)
        if self._ended and not self._closed and not self._upper.eof_received():
            self.close()

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self._transport.write(data)

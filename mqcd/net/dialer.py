"""Outgoing TCP connections as an `asyncio.Protocol`: no streams, no task and no timer per connection.

Guarantees: every failure of a connection surfaces as ConnectFailed; what the peer sent before it closed is
read first. Received octets that are not read are bounded by `MAX_UNREAD`: beyond it the peer is no longer
read from. Time limits are the caller's, by `close`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from typing import cast

from mqcd.core.errors import ConnectFailed, LocalShortage, SourceUnavailable, TlsFilesUnusable
from mqcd.core.ports import TlsTerms
from mqcd.net.tls import client_context

MAX_UNREAD = 64 * 1024
"""Octets received and not yet read at which the peer is paused."""
SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
"""Errors of this machine, for any destination."""


def reason_of(error: BaseException) -> str:
    """The failure as text without addresses, so that equal failures read alike."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or 'handshake aborted'}"
    if isinstance(error, OSError) and error.errno in errno.errorcode:
        return os.strerror(error.errno or 0)
    return str(error) or type(error).__name__


class StreamConnection(asyncio.Protocol):
    """`mqcd.core.ports.Connection` over an asyncio transport."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._unread = b""
        self._reader: asyncio.Future[None] | None = None
        self._drainer: asyncio.Future[None] | None = None
        self._paused_reading = False
        self._paused_writing = False
        self._eof = False
        self._error: BaseException | None = None

    # What the port promises.

    @property
    def remote_addr(self) -> str:
        """The peer's IP address, "" once closed."""
        return self._address("peername")

    @property
    def source_addr(self) -> str:
        """Our own IP address on it, "" once closed."""
        return self._address("sockname")

    @property
    def tls(self) -> str:
        """TLS version in use, such as "TLSv1.3"; "" without."""
        if self._transport is None:
            return ""
        tls = self._transport.get_extra_info("ssl_object")
        return (tls.version() or "") if tls is not None else ""

    @property
    def quiet(self) -> bool:
        """Whether no unread octets have arrived and the peer has not closed."""
        return not self._unread and not self._eof

    def write(self, data: bytes) -> None:
        """Send octets, buffered. On a broken connection they are dropped, and `read` raises."""
        if self._transport is not None and not self._eof:
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the buffer is small enough to write more. Raises ConnectFailed."""
        while self._paused_writing and not self._eof:
            self._drainer = self._loop.create_future()
            await self._drainer
        if self._error is not None:
            raise self._failure()

    async def read(self) -> bytes:
        """The next octets, b"" when the peer has closed. Raises ConnectFailed."""
        if not self._unread and not self._eof:
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        if self._unread:
            data, self._unread = self._unread, b""
            if self._paused_reading and self._transport is not None:
                self._paused_reading = False
                self._transport.resume_reading()
            return data
        if self._error is not None:
            raise self._failure()
        return b""

    async def start_tls(self, hostname: str, terms: TlsTerms) -> None:
        """Turn to TLS; raises ConnectFailed when the handshake fails, or the name does not verify;
        TlsFilesUnusable for this server's files, LocalShortage for a shortage of this machine."""
        if self._transport is None or self._eof:
            raise ConnectFailed("connection lost before TLS started")
        try:
            context = client_context(terms)
        except OSError as error:
            self.close()
            if error.errno in SHORTAGES:
                raise LocalShortage(reason_of(error)) from error
            text = f"cannot load TLS certificate, key or trust file: {reason_of(error)}"
            raise TlsFilesUnusable(text) from error
        # Octets that came before the handshake may come from an attacker in between (CVE-2011-0411). Those
        # that come decrypted, while it ends, are already the server's, such as a greeting.
        self._unread = b""
        try:
            transport = await self._loop.start_tls(self._transport, self, context, server_hostname=hostname)
        except (OSError, ValueError, RuntimeError) as error:
            self.close()
            raise ConnectFailed(f"TLS handshake failed: {reason_of(error)}") from error
        if transport is None or self._eof:
            self.close()
            raise ConnectFailed("connection lost during the TLS handshake")
        self._transport = transport

    def close(self) -> None:
        """Close at once; a pending `read` or `drain` raises ConnectFailed."""
        transport, self._transport = self._transport, None
        if transport is not None:
            if transport.get_write_buffer_size():
                transport.abort()
            else:
                transport.close()
        self._end(ConnectFailed("connection closed on this side"))

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop has connected."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Keep octets for the reader."""
        self._unread = self._unread + data if self._unread else data
        if len(self._unread) > MAX_UNREAD and not self._paused_reading and self._transport is not None:
            self._paused_reading = True
            self._transport.pause_reading()
        self._wake(self._reader)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; `exc` is None when the peer closed in order."""
        self._transport = None
        self._end(exc)

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self._paused_writing = True

    def resume_writing(self) -> None:
        """The transport's buffer has room."""
        self._paused_writing = False
        self._wake(self._drainer)

    def _end(self, error: BaseException | None) -> None:
        if not self._eof:
            self._eof = True
            self._error = error
        self._wake(self._reader)
        self._wake(self._drainer)

    def _failure(self) -> ConnectFailed:
        if isinstance(self._error, ConnectFailed):
            return self._error
        return ConnectFailed(reason_of(self._error or ConnectionError("connection closed")))

    def _address(self, name: str) -> str:
        if self._transport is None:
            return ""
        address = self._transport.get_extra_info(name)
        return str(address[0]) if address else ""

    @staticmethod
    def _wake(future: asyncio.Future[None] | None) -> None:
        if future is not None and not future.done():
            future.set_result(None)


_ANY_PORT = 9


class SystemDialer:
    """`mqcd.core.ports.Dialer` by the running loop."""

    async def dial(self, address: str, port: int, source: str) -> StreamConnection:
        """Connect to an IP address, from `source` ("" = the system's choice). Raises ConnectFailed, for the
        source's fault SourceUnavailable, for the machine's LocalShortage."""
        loop = asyncio.get_running_loop()
        local = (source, 0) if source else None
        try:
            _, connection = await loop.create_connection(
                lambda: StreamConnection(loop), address, port, local_addr=local
            )
        except (OSError, ValueError, OverflowError) as error:
            reason = reason_of(error)
            if source and isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL:
                # Else it reads as if the other side were at fault.
                reason = f"source address {source} is not on this machine ({reason})"
                raise SourceUnavailable(reason) from error
            if isinstance(error, OSError) and _is_shortage(error, address):
                raise LocalShortage(reason) from error
            raise ConnectFailed(reason) from error
        return connection

    def is_own(self, address: str) -> bool:
        """See `is_own_address`."""
        return is_own_address(address)


def is_own_address(address: str) -> bool:
    """Whether an IP address is one of this machine's: the one that it would itself be reached from."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Nothing is sent. A bind would say the same, but not where any address may be bound.
            probe.connect((address, _ANY_PORT))
            return bool(probe.getsockname()[0] == address)
    except OSError:
        return False


def _is_shortage(error: OSError, address: str) -> bool:
    """Whether the error would occur with any other address."""
    # All ports in use; for IPv6 it may mean that the machine has none, and IPv4 does.
    no_port = error.errno == errno.EADDRNOTAVAIL and ":" not in address
    return no_port or error.errno in SHORTAGES

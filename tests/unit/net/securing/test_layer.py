"""TLS between transport and protocol: what a client can make it write."""

from __future__ import annotations

import ssl
from typing import Any, cast

import pytest

from mqcd.net.securing.layer import TlsLayer
from mqcd.net.securing.server import ListenerTls
from tests.fakes.tls import HELLO, FakeConnection, FakeTls, inverted


class Answering(FakeConnection):
    """Answers whatever comes by itself, as TLS 1.3 answers key updates."""

    def read(self, octets: int) -> bytes:
        self._outgoing.write(super().read(octets))
        raise ssl.SSLWantReadError


class AnsweringTls(FakeTls):
    def begin(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> FakeConnection:
        return Answering(incoming, outgoing)


class Unread:
    """A transport whose client reads nothing."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.held = 0

    def set_protocol(self, protocol: object) -> None:
        return None

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self.held += len(data)

    def get_write_buffer_size(self) -> int:
        return self.held

    def close(self) -> None:
        self.written.append(b"closed")


class Upper:
    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.ends = 0

    def eof_received(self) -> bool | None:
        self.ends += 1
        return True

    def secured(self) -> None:
        return None

    def insecure(self, reason: str) -> None:
        self.reasons.append(reason)


def test_answers_of_tls_that_are_not_read_end_the_connection() -> None:
    transport, upper = Unread(), Upper()
    layer = TlsLayer(cast("Any", transport), cast("Any", upper), cast("ListenerTls", AnsweringTls()))
    layer.data_received(HELLO)
    update = bytes(16384)
    while transport.held < 1 << 20:
        assert not upper.reasons
        layer.data_received(update)
    assert len(upper.reasons) == 1


class Reading(Upper):
    def data_received(self, data: bytes) -> None:
        assert data


def test_unread_replies_end_no_connection() -> None:
    transport, upper = Unread(), Reading()
    layer = TlsLayer(cast("Any", transport), cast("Any", upper), cast("ListenerTls", FakeTls()))
    layer.data_received(HELLO)
    layer.write(bytes(2 << 20))
    layer.data_received(inverted(b"NOOP"))
    assert upper.reasons == []


class EndingConnection(FakeConnection):
    """The first octet is a close_notify, or no TLS."""

    def read(self, octets: int) -> bytes:
        if self._incoming.read(1) != HELLO:
            return b""
        error = ssl.SSLError(1, "no record")
        error.reason = "NO_RECORD"
        raise error


class EndingTls(FakeTls):
    def begin(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> FakeConnection:
        self.incoming = incoming
        return EndingConnection(incoming, outgoing)


@pytest.mark.parametrize("last", [HELLO, b"\0"])
def test_what_comes_behind_the_end_of_tls_is_not_kept(last: bytes) -> None:
    transport, upper, tls = Unread(), Upper(), EndingTls()
    layer = TlsLayer(cast("Any", transport), cast("Any", upper), cast("ListenerTls", tls))
    layer.data_received(HELLO)
    layer.data_received(last)
    said = (upper.ends, len(upper.reasons))
    assert sum(said) == 1
    for _ in range(3):
        layer.data_received(bytes(65536))
    assert tls.incoming.pending == 0
    assert (upper.ends, len(upper.reasons)) == said


class Done(Upper):
    """As asyncio.Protocol: it has no use for a connection whose client sends no more."""

    def eof_received(self) -> None:
        return None


def test_a_protocol_that_is_done_at_the_end_is_closed() -> None:
    transport = Unread()
    layer = TlsLayer(cast("Any", transport), cast("Any", Done()), cast("ListenerTls", EndingTls()))
    layer.data_received(HELLO)
    layer.data_received(b"\0")
    assert transport.written == [HELLO, b"closed"]


class Leaving(Upper):
    """Answers, and closes."""

    layer: TlsLayer

    def data_received(self, data: bytes) -> None:
        self.layer.write(b"221 " + data)
        self.layer.close()


def test_what_answers_octets_at_once_leaves_in_one_write() -> None:
    transport, upper = Unread(), Leaving()
    upper.layer = TlsLayer(cast("Any", transport), cast("Any", upper), cast("ListenerTls", FakeTls()))
    upper.layer.data_received(HELLO + inverted(b"QUIT"))
    assert transport.written == [HELLO + inverted(b"221 QUIT"), b"closed"]

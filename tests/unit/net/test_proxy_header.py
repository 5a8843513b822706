"""The PROXY protocol: whom a header names, where it ends, and what is none."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.errors import DecodeError
from mqcd.net.proxy_header import missing, parse_header, read_header

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
FOUR = bytes((192, 0, 2, 1, 198, 51, 100, 2)) + b"\x30\x39\x00\x19"
SIX = b"\x20\x01\x0d\xb8" + bytes(11) + b"\x01" + bytes(16) + b"\x30\x39\x00\x19"


def v2(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + bytes((command, family)) + len(rest).to_bytes(2, "big") + rest


GOOD = [
    (b"PROXY TCP4 192.0.2.1 198.51.100.2 12345 25\r\n", "192.0.2.1"),
    (b"PROXY TCP6 2001:db8::1 2001:DB8:0::2 65535 25\r\n", "2001:db8::1"),
    (b"PROXY UNKNOWN\r\n", ""),
    (b"PROXY UNKNOWN ffff:f::1 ffff:f::2 65535 65535\r\n", ""),
    (v2(0x21, 0x11, FOUR), "192.0.2.1"),
    (v2(0x21, 0x21, SIX), "2001:db8::1"),
    (v2(0x21, 0x11, FOUR + b"\x04\x00\x03abc"), "192.0.2.1"),
    (v2(0x21, 0x21, bytes(10) + b"\xff\xff\xc0\x00\x02\x01" + SIX[16:]), "192.0.2.1"),
    (v2(0x20, 0x00, b""), ""),
    (v2(0x20, 0x11, FOUR), ""),
    (v2(0x21, 0x00, b""), ""),
]
BAD = [
    b"EHLO client.example\r\n",
    b"PROXY\r\n" + b" " * 20,
    b"PROXY TCP4 192.0.2.1 198.51.100.2 12345\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.2 12345 66000\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.2 12345 25 \r\n",
    b"PROXY TCP4 192.0.2.300 198.51.100.2 12345 25\r\n",
    b"PROXY TCP4 2001:db8::1 2001:db8::2 12345 25\r\n",
    b"PROXY TCP6 192.0.2.1 198.51.100.2 12345 25\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.2 12345 25\n",
    b"PROXY UDP4 192.0.2.1 198.51.100.2 12345 25\r\n",
    b"PROXY UNKNOWN " + b"x" * 200 + b"\r\n",
    SIGNATURE[:-1] + b"\r" + bytes(4),
    v2(0x11, 0x11, FOUR),
    v2(0x22, 0x11, FOUR),
    v2(0x21, 0x12, FOUR),
    v2(0x21, 0x31, bytes(216)),
    v2(0x21, 0x11, FOUR[:-1]),
    v2(0x21, 0x21, FOUR),
    v2(0x21, 0x11, FOUR + bytes(5000)),
]


async def read(octets: bytes) -> tuple[str, bytes]:
    """What a header names, and the octets behind it."""
    there, here = socket.socketpair()
    with there, here:
        here.setblocking(False)
        there.sendall(octets)
        there.shutdown(socket.SHUT_WR)
        address = await read_header(here)
        return address, await asyncio.get_running_loop().sock_recv(here, 1000)


@pytest.mark.parametrize(("header", "address"), GOOD)
async def test_the_client_is_named_and_nothing_more_is_read(header: bytes, address: str) -> None:
    behind = b"EHLO client.example\r\n"
    assert await read(header + behind) == (address, behind)


@pytest.mark.parametrize("header", BAD)
async def test_what_is_no_header_is_an_error(header: bytes) -> None:
    with pytest.raises(DecodeError):
        await read(header + b"EHLO client.example\r\n")


@pytest.mark.parametrize("header", [header for header, _ in GOOD])
async def test_a_header_that_ends_early_is_an_end(header: bytes) -> None:
    for end in (0, 5, 14, len(header) - 1):
        with pytest.raises(EOFError):
            await read(header[:end])


@pytest.mark.parametrize(("header", "address"), GOOD)
async def test_a_header_may_come_octet_by_octet(header: bytes, address: str) -> None:
    there, here = socket.socketpair()
    with there, here:
        here.setblocking(False)
        reading = asyncio.ensure_future(read_header(here))
        for octet in header:
            there.send(bytes((octet,)))
            await asyncio.sleep(0)
        assert await reading == address


@given(
    st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21"]), st.binary(max_size=120)
)
def test_any_octets_are_a_header_or_an_error(beginning: bytes, rest: bytes) -> None:
    octets, read = beginning + rest, b""
    try:
        while need := missing(read):
            assert need > 0
            if len(read) + need > len(octets):
                return
            read = octets[: len(read) + need]
        parse_header(read)
    except DecodeError:
        assert octets

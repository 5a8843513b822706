"""The PROXY protocol, versions 1 and 2: the header in which a proxy names the client that it connects for.

`read_header` reads the header and not an octet more: what follows, TLS or SMTP, is the client's. A proxy that
speaks for itself (LOCAL, UNKNOWN: its own checks) names no client.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket

from mqcd.core.errors import DecodeError

_V2 = b"\r\n\r\n\0\r\nQUIT\n"
_V1 = b"PROXY "
_FIXED = 16
"""Octets of version 2 ahead of its addresses."""
_SHORTEST_V1 = len(b"PROXY UNKNOWN\r\n")
_LONGEST_V1 = 107
_LONGEST_V2 = 4096
"""Addresses and what a proxy adds to them, such as names in certificates."""
_ADDRESS_OCTETS = {0x11: 4, 0x21: 16}
"""By family and protocol: TCP over IPv4, TCP over IPv6."""
_TEXT = re.compile(rb"PROXY (?:UNKNOWN(?: [^\r\n]*)?|(TCP[46]) (\S+) (\S+) ([0-9]{1,5}) ([0-9]{1,5}))\r\n")


async def read_header(connection: socket.socket) -> str:
    """The address of the client, "" where the proxy speaks for itself.

    Raises DecodeError for what is no header, EOFError when the connection ends within it, OSError.
    """
    loop = asyncio.get_running_loop()
    octets = b""
    while need := missing(octets):
        read = await loop.sock_recv(connection, need)
        if not read:
            raise EOFError("the connection has ended")
        octets += read
    return parse_header(octets)


def missing(octets: bytes) -> int:
    """How many octets more the header has at least; 0 = it is whole. Raises DecodeError."""
    if octets[: len(_V1)] == _V1[: len(octets)]:
        return _missing_v1(octets)
    if octets[: len(_V2)] != _V2[: len(octets)]:
        raise DecodeError("no PROXY header")
    if len(octets) < _FIXED:
        return _FIXED - len(octets)
    length = int.from_bytes(octets[14:16], "big")
    if length > _LONGEST_V2:
        raise DecodeError("PROXY header is too long")
    return _FIXED + length - len(octets)


def _missing_v1(octets: bytes) -> int:
    if octets.endswith(b"\n"):
        return 0
    if len(octets) >= _LONGEST_V1:
        raise DecodeError("PROXY header is too long")
    # Where its end is not seen yet, two octets more are not too many: it is CR LF.
    return max(_SHORTEST_V1 - len(octets), 1 if octets.endswith(b"\r") else 2)


def parse_header(octets: bytes) -> str:
    """The address in a whole header, "" without one. Raises DecodeError."""
    return _parse_v2(octets) if octets.startswith(_V2) else _parse_v1(octets)


def _parse_v1(octets: bytes) -> str:
    found = _TEXT.fullmatch(octets)
    if found is None:
        raise DecodeError("malformed PROXY header")
    family, client, server, *ports = found.groups()
    if family is None:
        return ""
    version = 4 if family == b"TCP4" else 6
    try:
        addresses = [ipaddress.ip_address(each.decode("ascii")) for each in (client, server)]
    except ValueError:
        raise DecodeError("malformed address in the PROXY header") from None
    if any(each.version != version for each in addresses) or any(int(port) > 65535 for port in ports):
        raise DecodeError("malformed address in the PROXY header")
    return _shown(addresses[0])


def _parse_v2(octets: bytes) -> str:
    command, family = octets[12], octets[13]
    if command == 0x20:
        return ""
    if command != 0x21:
        raise DecodeError("unknown command in the PROXY header")
    if family == 0:
        return ""
    size = _ADDRESS_OCTETS.get(family)
    if size is None:
        raise DecodeError("the PROXY header is not of TCP")
    if len(octets) < _FIXED + 2 * size + 4:
        raise DecodeError("malformed address in the PROXY header")
    return _shown(ipaddress.ip_address(octets[_FIXED : _FIXED + size]))


def _shown(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """IPv4 inside IPv6 as IPv4."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)

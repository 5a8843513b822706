"""What the server has to know of a certificate in DER that the ssl module does not say. Pure.

Only the elements on the way to the signature's algorithm and to the subject's names are read (RFC 5280,
4.1 and 4.2.1.6). Each function raises DecodeError for what is no certificate.
"""

from __future__ import annotations

from collections.abc import Iterator

from mqcd.core.errors import DecodeError

_SEQUENCE = 0x30
_OCTETS = 0x04
_OID = 0x06
_EXTENSIONS = 0xA3
_DNS_NAME = 0x82
_ALTERNATIVE_NAMES = "2.5.29.17"
_MISSING = 0, b""


def signature_algorithm(certificate: bytes) -> str:
    """The dotted OID of the algorithm that the certificate is signed with."""
    parts = _elements(_only(certificate, _SEQUENCE))
    next(parts, None)
    algorithm = _content(next(parts, _MISSING), _SEQUENCE)
    return _dotted(next(_elements(algorithm), _MISSING))


def dns_names(certificate: bytes) -> tuple[str, ...]:
    """The host names among the subject's alternative names, lower case, perhaps `*.` before one."""
    names = (value for tag, value in _alternatives(certificate) if tag == _DNS_NAME)
    return tuple(name.decode("ascii", "replace").lower() for name in names)


def _alternatives(certificate: bytes) -> Iterator[tuple[int, bytes]]:
    for tag, value in _elements(_only(_only(certificate, _SEQUENCE), _SEQUENCE)):
        if tag == _EXTENSIONS:
            for extension in _elements(_only(value, _SEQUENCE)):
                parts = list(_elements(_content(extension, _SEQUENCE)))
                if parts and _dotted(parts[0]) == _ALTERNATIVE_NAMES:
                    yield from _elements(_only(_content(parts[-1], _OCTETS), _SEQUENCE))


def _elements(octets: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element in a row of them."""
    while octets:
        if len(octets) < 2:
            raise DecodeError("not a certificate in DER")
        tag, length, start = octets[0], octets[1], 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(octets[2:start], "big")
        if start > 6 or start + length > len(octets):
            raise DecodeError("not a certificate in DER")
        yield tag, octets[start : start + length]
        octets = octets[start + length :]


def _content(element: tuple[int, bytes], tag: int) -> bytes:
    if element[0] != tag:
        raise DecodeError("not a certificate in DER")
    return element[1]


def _only(octets: bytes, tag: int) -> bytes:
    """The content of the first element."""
    return _content(next(_elements(octets), _MISSING), tag)


def _dotted(element: tuple[int, bytes]) -> str:
    numbers, value = [], 0
    for octet in _content(element, _OID):
        value = value << 7 | octet & 0x7F
        if not octet & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise DecodeError("not a certificate in DER")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))

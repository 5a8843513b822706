"""The channel binding tls-server-end-point of a certificate (RFC 5929, 4). Pure.

It is the digest of the certificate by the hash of its own signature, SHA-256 in the place of MD5 and SHA-1.
Of the certificate only the outermost structure is read, for the signature's algorithm.
"""

from __future__ import annotations

import hashlib

from mqcd.core.errors import DecodeError

_HASHES = {
    "1.2.840.113549.1.1.4": "sha256",  # md5WithRSAEncryption
    "1.2.840.113549.1.1.5": "sha256",  # sha1WithRSAEncryption
    "1.2.840.113549.1.1.11": "sha256",
    "1.2.840.113549.1.1.12": "sha384",
    "1.2.840.113549.1.1.13": "sha512",
    "1.2.840.113549.1.1.14": "sha224",
    "1.2.840.10045.4.1": "sha256",  # ecdsa-with-SHA1
    "1.2.840.10045.4.3.1": "sha224",
    "1.2.840.10045.4.3.2": "sha256",
    "1.2.840.10045.4.3.3": "sha384",
    "1.2.840.10045.4.3.4": "sha512",
}
_SEQUENCE = 0x30
_OID = 0x06


def server_end_point(certificate: bytes) -> bytes:
    """The binding of a certificate in DER; b"" where its signature has no hash that counts (Ed25519, PSS).

    Raises DecodeError for what is no certificate.
    """
    body, _ = _value(certificate, _SEQUENCE)
    _, rest = _value(body, _SEQUENCE)
    algorithm, _ = _value(rest, _SEQUENCE)
    oid, _ = _value(algorithm, _OID)
    name = _HASHES.get(_dotted(oid))
    return b"" if name is None else hashlib.new(name, certificate).digest()


def _value(octets: bytes, tag: int) -> tuple[bytes, bytes]:
    """The content of the first element, and what follows it."""
    if len(octets) < 2 or octets[0] != tag:
        raise DecodeError("not a certificate in DER")
    length, start = octets[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(octets[2:start], "big")
    if start > 6 or start + length > len(octets):
        raise DecodeError("not a certificate in DER")
    return octets[start : start + length], octets[start + length :]


def _dotted(oid: bytes) -> str:
    numbers, value = [], 0
    for octet in oid:
        value = value << 7 | octet & 0x7F
        if not octet & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise DecodeError("not a certificate in DER")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))

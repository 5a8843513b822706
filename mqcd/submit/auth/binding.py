"""The channel bindings of a TLS connection, by their types (RFC 5056). Pure.

| type | of | value |
|---|---|---|
| tls-server-end-point (RFC 5929, 4) | every connection | the certificate's digest, see `server_end_point` |
| tls-exporter (RFC 9266) | TLS 1.3 | keying material of the connection |
| tls-unique (RFC 5929, 3) | TLS 1.2, not resumed | the first Finished message of the handshake |

Of a resumed session tls-unique would bind nothing where the client lacks the extended master secret
(RFC 7627, 1), which the ssl module does not say.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from functools import lru_cache

from mqcd.core.smtp.x509 import signature_algorithm

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

_EXPORTER = b"EXPORTER-Channel-Binding"
_EXPORTED = 32
"""Octets of the binding tls-exporter (RFC 9266, 2)."""


def channel_bindings(certificate: bytes, exporter_secret: bytes, unique: bytes) -> Mapping[str, bytes]:
    """The bindings of a session; an argument is b"" where it is not known. Raises DecodeError for what is no
    certificate."""
    found = {
        "tls-server-end-point": server_end_point(certificate) if certificate else b"",
        "tls-exporter": tls_exporter(exporter_secret) if exporter_secret else b"",
        "tls-unique": unique,
    }
    return {kind: octets for kind, octets in found.items() if octets}


def tls_exporter(secret: bytes) -> bytes:
    """The binding of a connection with this exporter secret (RFC 8446, 7.5); the secret is as long as the
    digests of the connection's hash."""
    name = "sha384" if len(secret) == 48 else "sha256"
    nothing = hashlib.new(name).digest()
    derived = _expand(secret, _EXPORTER, nothing, len(secret), name)
    return _expand(derived, b"exporter", nothing, _EXPORTED, name)


def _expand(secret: bytes, label: bytes, context: bytes, length: int, name: str) -> bytes:
    """HKDF-Expand-Label (RFC 8446, 7.1) of at most one digest."""
    label = b"tls13 " + label
    info = length.to_bytes(2, "big") + bytes([len(label)]) + label + bytes([len(context)]) + context
    return hmac.digest(secret, info + b"\1", name)[:length]


@lru_cache
def server_end_point(certificate: bytes) -> bytes:
    """The binding of a certificate in DER; b"" where its signature has no hash that counts (Ed25519, PSS).

    It is the certificate's digest by the hash of its own signature, SHA-256 in the place of MD5 and SHA-1.
    Raises DecodeError for what is no certificate.
    """
    name = _HASHES.get(signature_algorithm(certificate))
    return b"" if name is None else hashlib.new(name, certificate).digest()

"""The channel binding tls-server-end-point of a certificate (RFC 5929, 4). Pure.

It is the digest of the certificate by the hash of its own signature, SHA-256 in the place of MD5 and SHA-1.
"""

from __future__ import annotations

import hashlib

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


def server_end_point(certificate: bytes) -> bytes:
    """The binding of a certificate in DER; b"" where its signature has no hash that counts (Ed25519, PSS).

    Raises DecodeError for what is no certificate.
    """
    name = _HASHES.get(signature_algorithm(certificate))
    return b"" if name is None else hashlib.new(name, certificate).digest()

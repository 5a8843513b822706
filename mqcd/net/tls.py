"""TLS contexts for outgoing connections, kept: loading the trust store takes milliseconds.

Without verification TLS protects against listening only (RFC 7435); with it, the certificate must
chain to the trust store and name the host (RFC 6125). TLS 1.2 is the oldest version used.
"""

from __future__ import annotations

import functools
import ssl
from pathlib import Path

from mqcd.core.ports import TlsTerms


def client_context(terms: TlsTerms) -> ssl.SSLContext:
    """The context for connections on these terms. Raises OSError (also SSLError) for files that cannot be
    loaded.

    Files that were written anew since are read anew: certificates end, and are replaced under one name.
    """
    return _context(terms, tuple(_stamp(path) for path in (terms.trust, terms.certificate, terms.key)))


def _stamp(path: str) -> int:
    return Path(path).stat().st_mtime_ns if path else 0


@functools.lru_cache(maxsize=64)
def _context(terms: TlsTerms, _stamps: tuple[int, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not terms.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif terms.trust:
        context.load_verify_locations(cafile=terms.trust)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if terms.certificate:
        # A key that asks for a passphrase must fail, not wait for someone at a terminal.
        context.load_cert_chain(terms.certificate, terms.key or None, password="")
    return context


def file_fault(error: Exception) -> str:
    """Why OpenSSL or the system cannot load a certificate, a key or what is trusted, in few words."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not in PEM form").replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or str(error)

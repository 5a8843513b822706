"""TLS contexts for outgoing connections, made once: loading the trust store takes milliseconds.

Without verification TLS protects against listening only (RFC 7435); with it, the certificate must
chain to the system's trust store and name the host (RFC 6125). TLS 1.2 is the oldest version used.
"""

import functools
import ssl


@functools.cache
def client_context(verify: bool) -> ssl.SSLContext:
    """The context for connections that check the peer's certificate, or do not."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context

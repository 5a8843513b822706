"""The signature of a webhook's request: HMAC-SHA256 (RFC 2104) of its time and its body. Pure.

    X-mqcd-Signature: t=1795186996,v1=<64 hex digits>[,v1=<64 hex digits>]

`t` is in seconds since 1970; what is signed is `t`, a full stop, and the body. While a secret is exchanged
there are two, and a signature by each: a receiver takes a request if one of them is right.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from mqcd.core.errors import ConfigError

FIELD = "X-mqcd-Signature"
LEAST_SECRET = 16
"""Characters of a secret, at least."""
MOST_SECRETS = 4


def signature(secrets: Sequence[bytes], at: int, body: bytes) -> str:
    """The field's value. `at`: seconds since 1970."""
    signed = f"{at}.".encode() + body
    digests = [hmac.new(secret, signed, hashlib.sha256).hexdigest() for secret in secrets]
    return ",".join([f"t={at}", *(f"v1={digest}" for digest in digests)])


def secrets_of(text: str, place: str) -> Sequence[bytes]:
    """The secrets in a file: one a line, the newest first; lines that begin with # do not count.

    Raises ConfigError, which shows nothing of the text.
    """
    lines = [line.strip() for line in text.splitlines()]
    secrets = [line.encode() for line in lines if line and not line.startswith("#")]
    if not 0 < len(secrets) <= MOST_SECRETS:
        raise ConfigError(f"{place}: expected 1 to {MOST_SECRETS} secrets, one a line, found {len(secrets)}")
    if any(len(secret) < LEAST_SECRET for secret in secrets):
        raise ConfigError(
            f"{place}: a secret has {LEAST_SECRET} characters or more; make one with `openssl rand -hex 32`"
        )
    return secrets

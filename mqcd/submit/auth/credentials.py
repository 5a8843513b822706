"""What is kept of a user's password: a hash, SCRAM keys, and the password itself only on request. Pure.

`decoy` gives credentials for a name that is no user's: the same name gets the same salt each time, so that a
client cannot find out by asking whether a user exists, and no password fits.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import field

from mqcd.core.value import value

ITERATIONS = 100_000
"""Rounds of PBKDF2 for new SCRAM keys (RFC 7677 asks for 4096 at least). The client computes them at each
login, the server never."""
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 10_000_000
SALT_OCTETS = 16
KEY_OCTETS = 32


@value
class ScramKeys:
    """Keys of SCRAM-SHA-256 (RFC 5802, 3): a thief of them cannot log in, but can try passwords."""

    iterations: int
    salt: bytes
    stored: bytes = field(repr=False)
    server: bytes = field(repr=False)


@value
class Credentials:
    """What each mechanism compares a login with; complete, also where the user's line lacks a part."""

    hash: str = field(repr=False)
    """Argon2id in its encoded form."""
    scram: ScramKeys
    plain: str = field(repr=False)
    """The password for CRAM-MD5."""


def scram_keys(password: str, salt: bytes, iterations: int = ITERATIONS) -> ScramKeys:
    """The keys of a prepared password. Takes a tenth of a second at the default."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client = hmac.digest(salted, b"Client Key", "sha256")
    return ScramKeys(
        iterations=iterations,
        salt=salt,
        stored=hashlib.sha256(client).digest(),
        server=hmac.digest(salted, b"Server Key", "sha256"),
    )


def decoy(name: str, key: bytes, hash_: str) -> Credentials:
    """Credentials that no password fits; `key` is secret, `hash_` is the hash of what nobody knows."""

    def part(purpose: bytes) -> bytes:
        return hmac.digest(key, purpose + name.encode("utf-8", "surrogatepass"), "sha256")

    keys = ScramKeys(
        iterations=ITERATIONS,
        salt=part(b"salt")[:SALT_OCTETS],
        stored=part(b"stored"),
        server=part(b"server"),
    )
    return Credentials(hash=hash_, scram=keys, plain=part(b"plain").hex())

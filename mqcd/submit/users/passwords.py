"""Argon2id (RFC 9106): a password's hash, and the check against it. Both take some 20 ms and 19 MB."""

from __future__ import annotations

import secrets

from argon2.exceptions import VerificationError
from argon2.low_level import Type, hash_secret, verify_secret

from mqcd.core.errors import DecodeError
from mqcd.submit.auth.credentials import SALT_OCTETS, scram_keys
from mqcd.submit.auth.mechanisms import MAX_TEXT
from mqcd.submit.auth.saslprep import saslprep
from mqcd.submit.users.lines import BadUsers, User, check_name

ROUNDS = 2
MEMORY_KIB = 19456
"""The least that OWASP's recommendation for argon2id has: several checks run at a time."""
_HASH_OCTETS = 32


def make_user(name: str, password: str, *, plain: bool = False) -> User:
    """A user with this password; `plain`: it is kept as it is, for CRAM-MD5. Raises BadUsers."""
    name = check_name(name)
    try:
        password = saslprep(password)
    except DecodeError as error:
        raise BadUsers(f"the password cannot be used: {error}") from error
    if len(password.encode()) > MAX_TEXT:
        raise BadUsers(f"the password has more than {MAX_TEXT} octets")
    return User(
        name=name,
        hash=hash_password(password),
        scram=scram_keys(password, secrets.token_bytes(SALT_OCTETS)),
        plain=password if plain else None,
    )


def hash_password(password: str) -> str:
    """The encoded hash of a prepared password, with a salt of its own."""
    salt = secrets.token_bytes(SALT_OCTETS)
    return hash_secret(password.encode(), salt, ROUNDS, MEMORY_KIB, 1, _HASH_OCTETS, Type.ID).decode()


def verify(encoded: str, password: str) -> bool:
    """Whether the hash is that of the prepared password; compared in constant time."""
    try:
        return verify_secret(encoded.encode(), password.encode(), Type.ID)
    except VerificationError:
        return False

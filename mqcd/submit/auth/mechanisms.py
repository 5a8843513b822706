"""The mechanisms with which a client logs in, and their table. Pure.

PLAIN (RFC 4616), LOGIN (draft-murchison-sasl-login), CRAM-MD5 (RFC 2195), EXTERNAL (RFC 4422, appendix A);
SCRAM stands in `scram`. A client may not act as another user than the one whose password it has: a second
identity is refused.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from functools import partial

from mqcd.config.kinds.values import AuthType
from mqcd.core.errors import DecodeError
from mqcd.core.value import value
from mqcd.submit.auth.saslprep import saslprep
from mqcd.submit.auth.scram import Scram
from mqcd.submit.auth.steps import (
    MALFORMED,
    Cause,
    Challenge,
    Check,
    Context,
    Failure,
    Mechanism,
    Step,
    Success,
)

MAX_TEXT = 1024
"""Octets of a name or a password. Longer ones are refused before anything is computed of them."""


def _text(octets: bytes) -> str:
    """A prepared name or password. Raises DecodeError, UnicodeDecodeError."""
    if len(octets) > MAX_TEXT:
        raise DecodeError("the text is too long")
    return saslprep(octets.decode())


class Plain:
    """[authzid] NUL user NUL password, in one response."""

    def __init__(self, context: Context) -> None:
        pass

    def begin(self) -> Challenge:
        """The client speaks first."""
        return Challenge(b"")

    def step(self, response: bytes) -> Step:
        """Take the response."""
        parts = response.split(b"\0")
        if len(parts) != 3:
            return MALFORMED
        try:
            user, password = _text(parts[1]), _text(parts[2])
            identity = _text(parts[0]) if parts[0] else user
        except (DecodeError, UnicodeDecodeError):
            return MALFORMED
        return Check(user, password) if identity == user else Failure(Cause.CREDENTIALS, user)


class LoginMechanism:
    """User and password, each in a response of its own. An initial response is the user."""

    def __init__(self, context: Context) -> None:
        self._user: str | None = None

    def begin(self) -> Challenge:
        """Ask for the user: clients go by these words."""
        return Challenge(b"Username:")

    def step(self, response: bytes) -> Step:
        """Take the user, then the password."""
        try:
            text = _text(response)
        except (DecodeError, UnicodeDecodeError):
            return MALFORMED
        if self._user is not None:
            return Check(self._user, text)
        self._user = text
        return Challenge(b"Password:")


class CramMd5:
    """The digest of our challenge by the password, which the server has to keep as it is."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._challenge = f"<{context.nonce()}@{context.host}>".encode()

    def begin(self) -> Challenge:
        """What the client has to sign."""
        return Challenge(self._challenge)

    def step(self, response: bytes) -> Step:
        """Take "user digest"."""
        name, _, digest = response.rpartition(b" ")
        try:
            user = _text(name)
        except (DecodeError, UnicodeDecodeError):
            return MALFORMED
        secret = self._context.find(user).plain.encode()
        good = hmac.new(secret, self._challenge, "md5").hexdigest().encode()
        return Success(user) if hmac.compare_digest(good, digest) else Failure(Cause.CREDENTIALS, user)


class External:
    """The certificate of the client says who it is; a name in the response has to be one of its."""

    def __init__(self, context: Context) -> None:
        self._identities = context.identities

    def begin(self) -> Challenge:
        """The client speaks first."""
        return Challenge(b"")

    def step(self, response: bytes) -> Step:
        """Take the identity to act as; empty = the certificate's only one."""
        try:
            named = _text(response) if response else ""
        except (DecodeError, UnicodeDecodeError):
            return MALFORMED
        if named in self._identities:
            return Success(named)
        if not named and len(self._identities) == 1:
            return Success(self._identities[0])
        return Failure(Cause.CREDENTIALS, named)


@value
class Entry:
    """One mechanism of the table."""

    type: AuthType
    start: Callable[[Context], Mechanism]
    server_first: bool = False
    """Whether an initial response is an error (RFC 4954, 4)."""
    binds: bool = False
    """Whether it needs a channel binding, so TLS."""
    certificate: bool = False
    """Whether it needs a client certificate."""


MECHANISMS: Mapping[str, Entry] = {
    "SCRAM-SHA-256-PLUS": Entry(
        type=AuthType.SCRAM_SHA_256_PLUS, start=partial(Scram, plus=True), binds=True
    ),
    "SCRAM-SHA-256": Entry(type=AuthType.SCRAM_SHA_256, start=partial(Scram, plus=False)),
    "EXTERNAL": Entry(type=AuthType.EXTERNAL, start=External, certificate=True),
    "CRAM-MD5": Entry(type=AuthType.CRAM_MD5, start=CramMd5, server_first=True),
    "PLAIN": Entry(type=AuthType.PLAIN, start=Plain),
    "LOGIN": Entry(type=AuthType.LOGIN, start=LoginMechanism),
}
"""By SASL name, in the order in which EHLO lists them: clients often take the first that they know."""

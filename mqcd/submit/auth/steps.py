"""What a SASL mechanism makes of a client's response. Pure.

Errors of the client are values: `Failure`, never an exception. No step shows a password in its text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum, auto
from typing import Protocol

from mqcd.core.value import value
from mqcd.submit.auth.credentials import Credentials


class Cause(Enum):
    """Why an exchange has failed."""

    MALFORMED = auto()
    """The response is not what the mechanism's grammar has."""
    CREDENTIALS = auto()
    """User, password, proof or certificate is wrong; which of them is not disclosed."""
    CANCELLED = auto()
    """The client has sent "*"."""


@value(kw_only=False)
class Challenge:
    """The server waits for a response to these octets."""

    octets: bytes


@value(kw_only=False)
class Check:
    """The mechanism ends here: whether the login is good, the password's hash decides."""

    user: str
    password: str = field(repr=False)


@value(kw_only=False)
class Success:
    """The client is this user."""

    user: str


@value(kw_only=False)
class Failure:
    """The client is nobody."""

    cause: Cause
    user: str = ""
    """The name that it has claimed; "" where it has named none."""


Step = Challenge | Check | Success | Failure

MALFORMED = Failure(Cause.MALFORMED)


@value
class Context:
    """What the mechanisms know of the session and the users."""

    find: Callable[[str], Credentials]
    """The credentials of a name; of an unknown one credentials that nothing fits, and that look alike."""
    nonce: Callable[[], str]
    """Printable random text without a comma, new at each call."""
    host: str = "localhost"
    """Our own name, for challenges."""
    bindings: Mapping[str, bytes] = field(default_factory=dict)
    """The connection's channel bindings by their types (`binding`); none without TLS."""
    plus_offered: bool = False
    """Whether a mechanism with channel binding was offered to this client."""
    identities: Sequence[str] = ()
    """Users that the verified client certificate stands for; none without one."""


class Mechanism(Protocol):
    """One exchange. Raises nothing; not to be used after a step that is no Challenge."""

    def begin(self) -> Challenge:
        """The first challenge, where the client has sent no initial response."""

    def step(self, response: bytes) -> Step:
        """Take the decoded response to the last challenge, or the initial one."""

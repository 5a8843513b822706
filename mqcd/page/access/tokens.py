"""Tokens, and the format of their file: one token a line (docs/formats.md). Pure.

    # comment
    NAME roles=ROLE[,ROLE...] sha256=HEX made=TIME

A token is 256 random bits, so that its plain SHA-256 cannot be turned back; the token itself is nowhere kept.
An error names its line and never shows a value.
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from enum import Enum

from mqcd.core.errors import ConfigError
from mqcd.core.value import value

HEADER = "# Tokens of the page and the HTTP API, changed by `mqcd token`; the format is in docs/formats.md.\n"
PREFIX = "mqcd_"
SECRET_OCTETS = 32
SHAPE = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")
"""A token, wherever it stands."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_HASH = re.compile("[0-9a-f]{64}")
_TIME = re.compile(r"[0-9TZ:.-]{20,24}")


class Role(Enum):
    """What a token may do. OPERATE includes READ."""

    READ = "read"
    """See everything but the contents of messages."""
    OPERATE = "operate"
    """Also change the queue, and see contents."""
    INJECT = "inject"
    """Submit messages."""


class BadTokens(ConfigError):
    """A file of tokens, a line of it, or a name cannot be used. Fault: its writer."""


@value
class Token:
    """One line."""

    name: str
    """Names it in the log; a token of another name is another token."""
    roles: frozenset[Role]
    digest: str
    """SHA-256 of the token, in hex."""
    made: str
    """When, RFC 3339."""

    def may(self, role: Role) -> bool:
        return role in self.roles or (role is Role.READ and Role.OPERATE in self.roles)


def secret_of(octets: bytes) -> str:
    """The token that stands for SECRET_OCTETS random octets."""
    return PREFIX + urlsafe_b64encode(octets).rstrip(b"=").decode()


def digest_of(secret: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def check_name(name: str) -> str:
    """The name. Raises BadTokens."""
    if not _NAME.fullmatch(name):
        raise BadTokens("a token's name has 1 to 64 letters, digits and ._@+-, and begins with no sign")
    return name


def parse_tokens(text: str) -> dict[str, Token]:
    """The tokens of a file, by name. Raises BadTokens with the number of the first wrong line."""
    tokens: dict[str, Token] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            token = _token(words)
        except BadTokens as error:
            raise BadTokens(f"line {number}: {error}") from error
        if token.name in tokens:
            raise BadTokens(f"line {number}: this token has a line already")
        tokens[token.name] = token
    return tokens


def show_tokens(tokens: Iterable[Token]) -> str:
    """The file that holds these."""
    return HEADER + "".join(f"{_line(each)}\n" for each in tokens)


def _line(token: Token) -> str:
    roles = ",".join(role.value for role in Role if role in token.roles)
    return f"{token.name} roles={roles} sha256={token.digest} made={token.made}"


def _token(words: list[str]) -> Token:
    values = _values(words[1:])
    if not _HASH.fullmatch(values["sha256"]):
        raise BadTokens("sha256= takes 64 hexadecimal digits")
    if not _TIME.fullmatch(values["made"]):
        raise BadTokens("made= takes a time (RFC 3339)")
    roles = frozenset(_role(each) for each in values["roles"].split(","))
    return Token(name=check_name(words[0]), roles=roles, digest=values["sha256"], made=values["made"])


def _values(words: list[str]) -> Mapping[str, str]:
    pairs = [word.partition("=") for word in words]
    names = [name for name, _, _ in pairs]
    if sorted(names) != ["made", "roles", "sha256"]:
        raise BadTokens("expected a name and the words roles=, sha256= and made=, each once")
    return {name: value for name, _, value in pairs}


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise BadTokens(f"roles= takes {', '.join(role.value for role in Role)}, with commas") from None

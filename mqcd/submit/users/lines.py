"""The format of the file of users: one user a line (docs/formats.md). Pure.

    # comment
    NAME argon2=HASH [scram=ITERATIONS:SALT:STORED:SERVER] [plain=PASSWORD]

Blanks separate the words; `argon2` is a hash in its encoded form ($argon2id$...), other values are base64.
An error names its line and never shows a value.
"""

from __future__ import annotations

import re
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Mapping
from dataclasses import field

from mqcd.core.errors import ConfigError, DecodeError
from mqcd.core.value import value
from mqcd.submit.auth.credentials import KEY_OCTETS, MAX_ITERATIONS, MIN_ITERATIONS, ScramKeys
from mqcd.submit.auth.saslprep import saslprep

HEADER = "# Users of mqcd, changed by `mqcd user`; the format is in docs/formats.md. Secret: keep it 0600.\n"
_NAME = re.compile(r"[^\s#|\x00-\x1f\x7f][^\s|\x00-\x1f\x7f]{0,127}")
_HASH = re.compile(
    r"\$argon2id\$v=19\$m=([0-9]{1,7}),t=([0-9]{1,2}),p=([0-9]{1,2})\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{22,86}"
)
_MAX_MEMORY = 1 << 20
"""KiB that one check may take."""


class BadUsers(ConfigError):
    """A file of users, or a line of it, cannot be used. Fault: its writer."""


@value
class User:
    """One line."""

    name: str
    hash: str = field(repr=False)
    """Argon2id, in its encoded form."""
    scram: ScramKeys | None = None
    """None: no login by SCRAM."""
    plain: str | None = field(default=None, repr=False)
    """The password; None: no login by CRAM-MD5."""


def check_name(name: str) -> str:
    """The name as logins are compared with it. Raises BadUsers."""
    try:
        prepared = saslprep(name)
    except DecodeError as error:
        raise BadUsers(f"the name cannot be a user's: {error}") from error
    if not _NAME.fullmatch(prepared):
        raise BadUsers("a user's name has 1 to 128 characters, no blank and no |, and does not begin with #")
    return prepared


def parse_users(text: str) -> dict[str, User]:
    """The users of a file, by name. Raises BadUsers with the number of the first wrong line."""
    users: dict[str, User] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            user = _user(words)
            if user.name in users:
                raise BadUsers("this user has a line already")
        except BadUsers as error:
            raise BadUsers(f"line {number}: {error}") from error
        users[user.name] = user
    return users


def rewrite(text: str, users: Mapping[str, User]) -> str:
    """A file's text with these users in the place of its own; comments stay where they are."""
    lines = []
    left = dict(users)
    for line in (text or HEADER).splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            lines.append(line)
        elif user := left.pop(check_name(words[0]), None):
            lines.append(_line(user))
    return "".join(f"{line}\n" for line in (*lines, *map(_line, left.values())))


def _line(user: User) -> str:
    words = [user.name, f"argon2={user.hash}"]
    if user.scram is not None:
        keys = (user.scram.salt, user.scram.stored, user.scram.server)
        words.append(f"scram={':'.join((str(user.scram.iterations), *map(_encoded, keys)))}")
    if user.plain is not None:
        words.append(f"plain={_encoded(user.plain.encode())}")
    return " ".join(words)


def _encoded(octets: bytes) -> str:
    return b64encode(octets).decode()


def _user(words: list[str]) -> User:
    values = _values(words[1:])
    if "argon2" not in values:
        raise BadUsers("the word argon2= is missing")
    plain = values.get("plain")
    scram = values.get("scram")
    return User(
        name=check_name(words[0]),
        hash=_hash(values["argon2"]),
        scram=None if scram is None else _scram(scram),
        plain=None if plain is None else _plain(plain),
    )


def _values(words: list[str]) -> Mapping[str, str]:
    values: dict[str, str] = {}
    for number, word in enumerate(words, start=2):
        key, equals, value = word.partition("=")
        # The word itself may be a secret.
        if not equals or key not in ("argon2", "scram", "plain"):
            raise BadUsers(f"word {number} is not argon2=, scram= or plain=")
        if key in values:
            raise BadUsers(f"{key}= is given twice")
        values[key] = value
    return values


def _hash(value: str) -> str:
    form = _HASH.fullmatch(value)
    if form is None:
        raise BadUsers("argon2= takes an argon2id hash of version 19 in its encoded form")
    memory, rounds, lanes = map(int, form.groups())
    if not 8 * lanes <= memory <= _MAX_MEMORY or not rounds >= 1 or not lanes:
        raise BadUsers("argon2= has a hash whose memory, time or lanes are out of bounds")
    return value


def _scram(value: str) -> ScramKeys:
    parts = value.split(":")
    if len(parts) != 4 or not re.fullmatch("[0-9]{1,8}", parts[0]):
        raise BadUsers("scram= takes iterations:salt:stored-key:server-key")
    salt, stored, server = (_decoded(part, "scram=") for part in parts[1:])
    iterations = int(parts[0])
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS or not salt:
        raise BadUsers(f"scram= takes {MIN_ITERATIONS} to {MAX_ITERATIONS} iterations and a salt")
    if (len(stored), len(server)) != (KEY_OCTETS, KEY_OCTETS):
        raise BadUsers(f"scram= takes keys of {KEY_OCTETS} octets (SCRAM-SHA-256)")
    return ScramKeys(iterations=iterations, salt=salt, stored=stored, server=server)


def _plain(value: str) -> str:
    try:
        return saslprep(_decoded(value, "plain=").decode())
    except (UnicodeDecodeError, DecodeError) as error:
        raise BadUsers("plain= takes a password in UTF-8, in base64") from error


def _decoded(value: str, key: str) -> bytes:
    try:
        return a2b_base64(value, strict_mode=True)
    except ValueError as error:
        raise BadUsers(f"{key} has a value that is not base64") from error

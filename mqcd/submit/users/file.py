"""The file of users on disk (see `disk.private`): read, and changed as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mqcd.core.value import value
from mqcd.disk.durable import Disk
from mqcd.disk.private import BadPrivateFile, Version, read_private, rewriting, version_of
from mqcd.submit.users.lines import BadUsers, User, parse_users, rewrite

__all__ = ["UsersFile", "Version", "changing", "read_users", "version_of"]

_HOLDS = "users"


@value(kw_only=False)
class UsersFile:
    """What was read."""

    users: dict[str, User]
    version: Version


def read_users(path: Path) -> UsersFile:
    """The users in a file. Raises BadUsers, which names the file, its line where one is wrong."""
    try:
        text, version = read_private(path, _HOLDS)
    except BadPrivateFile as error:
        raise BadUsers(str(error)) from error
    return UsersFile(_parsed(path, text), version)


@contextmanager
def changing(path: Path, disk: Disk, owner: tuple[int, int] | None = None) -> Iterator[dict[str, User]]:
    """The users, to be changed in place: written when the block ends without an error.

    A file that is missing is made, for `owner` (uid, gid) if that is given. Raises BadUsers, OSError.
    """
    try:
        with rewriting(path, _HOLDS, disk, owner) as draft:
            old = _parsed(path, draft.text or "")
            users = dict(old)
            yield users
            if draft.text is None or users != old:
                draft.new = rewrite(draft.text or "", users)
    except BadPrivateFile as error:
        raise BadUsers(str(error)) from error


def _parsed(path: Path, text: str) -> dict[str, User]:
    try:
        return parse_users(text)
    except BadUsers as error:
        raise BadUsers(f"{path}: {error}") from error

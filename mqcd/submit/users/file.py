"""The file of users on disk: read with its mode checked, and replaced whole.

* A file that everybody may read or change is refused: it holds what opens accounts.
* A change is made under a lock on its directory, and put in place by a rename: after a crash the file is the
  old or the new one. Owner and mode of an existing file stay.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mqcd.disk.durable import TEMP_SUFFIX, Disk, describe
from mqcd.submit.users.lines import BadUsers, User, parse_users, rewrite

MAX_OCTETS = 64 << 20
_OTHERS = 0o007


@dataclass(frozen=True, slots=True)
class Version:
    """Distinguishes one state of a file from another."""

    inode: int
    modified: int
    changed: int
    octets: int


@dataclass(frozen=True, slots=True)
class UsersFile:
    """What was read."""

    users: dict[str, User]
    text: str
    version: Version


def version_of(path: Path) -> Version | None:
    """The state of the file now; None where there is none that can be looked at."""
    try:
        return _version(path.stat())
    except OSError:
        return None


def read_users(path: Path) -> UsersFile:
    """The users in a file. Raises BadUsers, which names the file, its line where one is wrong."""
    try:
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            octets = file.read(MAX_OCTETS + 1)
    except OSError as error:
        raise BadUsers(f"the users cannot be read: {describe(error)}") from error
    if stat.st_mode & _OTHERS:
        raise BadUsers(f"{path}: everybody may read or change the users: chmod 600 it")
    if len(octets) > MAX_OCTETS:
        raise BadUsers(f"{path} has more than {MAX_OCTETS} octets: is this the file of users?")
    try:
        text = octets.decode()
        users = parse_users(text)
    except UnicodeDecodeError as error:
        raise BadUsers(f"{path}: not UTF-8") from error
    except BadUsers as error:
        raise BadUsers(f"{path}: {error}") from error
    return UsersFile(users, text, _version(stat))


def _version(stat: os.stat_result) -> Version:
    return Version(stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)


@contextmanager
def changing(path: Path, disk: Disk, owner: tuple[int, int] | None = None) -> Iterator[dict[str, User]]:
    """The users, to be changed in place: written when the block ends without an error.

    A file that is missing is made, for `owner` (uid, gid) if that is given. Raises BadUsers, OSError.
    """
    with _locked(path.parent, disk):
        missing = not disk.exists(path)
        read = None if missing else read_users(path)
        users = dict(read.users) if read is not None else {}
        yield users
        if read is not None and users == read.users:
            return
        temp = path.with_name(path.name + TEMP_SUFFIX)
        disk.write_temp(temp, [rewrite(read.text if read is not None else "", users).encode()])
        try:
            _dress(temp, None if missing else path.stat(), owner)
        except OSError:
            disk.unlink(temp)
            raise
        disk.rename(temp, path)
        disk.sync_dir(path.parent)


def _dress(temp: Path, old: os.stat_result | None, owner: tuple[int, int] | None) -> None:
    """Give the new file the owner and mode that it is to have."""
    if old is not None:
        owner = old.st_uid, old.st_gid
        temp.chmod(old.st_mode & 0o770)
    if owner is not None and owner != ((mine := temp.stat()).st_uid, mine.st_gid):
        os.chown(temp, *owner)


@contextmanager
def _locked(directory: Path, disk: Disk) -> Iterator[None]:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not disk.lock(fd, exclusive=True):
            raise BadUsers(f"another command is changing a file in {directory}: try again")
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)

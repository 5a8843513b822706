"""From root to the user that the server runs as: directories first, then groups, group and user.

* Root makes the directories that are missing, mode 0700, and gives the new ones to the user; below the user's
  directories the user makes them. What existed keeps its owner: a server never changes the owner of mail that
  it finds.
* A link that is not root's leads wherever its owner likes, so what is behind it counts as that owner's.
* After the drop nothing of root is left (real, effective and saved ids, supplementary groups).
* Then it is checked, as the user, that each directory can be written to and that Python can be started
  (the queue's helper is a process): what is not so is an error that says how to mend it.

Settings read: application/user. Failures: ConfigError.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pwd
import sys
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISLNK

from mqcd.core.errors import ConfigError

log = logging.getLogger("mqcd.daemon")

_MOST_LINKS = 40
"""On one way, as for Linux."""


class Identity:
    """What is asked of the operating system; tests have one of their own, for they are seldom root."""

    def euid(self) -> int:
        """The effective user id."""
        return os.geteuid()

    def owner(self, path: Path) -> tuple[int, int]:
        """User and group id of what `path` names, or of the first link on the way there that is not root's.

        Raises OSError.
        """
        links = 0
        way = list(reversed(path.absolute().parts))
        reached = Path(way.pop())
        while way:
            name = way.pop()
            at = reached.parent if name == ".." else reached / name
            found = at.lstat()
            if not S_ISLNK(found.st_mode):
                reached = at
                continue
            links += 1
            if found.st_uid != 0:
                return found.st_uid, found.st_gid
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = at.readlink()
            if target.is_absolute():
                reached = Path(target.anchor)
            way += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        found = reached.stat()
        return found.st_uid, found.st_gid

    def become(self, user: pwd.struct_passwd) -> None:
        """Take on the user's groups, group and id, for good."""
        # Groups first: after setuid there is no right to change them any more.
        os.initgroups(user.pw_name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)

    def give(self, path: Path, user: pwd.struct_passwd) -> None:
        """Make the user the owner of the directory `path`; of nothing that a link there leads to."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchown(fd, user.pw_uid, user.pw_gid)
        finally:
            os.close(fd)


SYSTEM = Identity()


def take_identity(
    name: str | None, directories: Sequence[Path], identity: Identity = SYSTEM, *, also: Sequence[Path] = ()
) -> None:
    """Make the directories and become the user `name`, if root is to. Raises ConfigError.

    Those in `also` are made and given to the user too, where that can be.
    """
    user = find_user(name) if name is not None else None
    root = identity.euid() == 0
    if user is not None and not root and identity.euid() != user.pw_uid:
        log.warning("application/user is %s, but only root can become it; staying as started", user.pw_name)
    if user is None and root:
        log.warning("running as root, for application/user names no user to become; create one and name it")
    wanted = [*directories, *also]
    try:
        if user is not None and root:
            by_root = [each for each in wanted if not _is_below(user, each, identity)]
            for path in _make_all(by_root, also):
                identity.give(path, user)
            identity.become(user)
        _make_all(wanted, also)
    except OSError as error:
        raise ConfigError(f"{error.filename or 'privileges'}: {error.strerror}") from error
    _check(user.pw_name if user is not None else str(os.geteuid()), directories)


def become_owner(
    root: Path, name: str | None, directories: Sequence[Path], identity: Identity = SYSTEM
) -> pwd.struct_passwd | None:
    """What root does before maintenance of a queue: it becomes the owner of `root`, for good.

    Where there is no queue yet, the directories are made for the user `name`, if that is set. Returns the
    user, None where nothing changed. Raises ConfigError.
    """
    if identity.euid() != 0:
        return None
    try:
        uid, gid = identity.owner(root)
    except FileNotFoundError:
        if name is None:
            return None
        take_identity(name, directories, identity)
        return find_user(name)
    except OSError as error:
        raise ConfigError(f"{root}: {error.strerror}") from error
    if uid == 0:
        return None
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        user = pwd.struct_passwd((str(uid), "x", uid, gid, "", "/", ""))
    identity.become(user)
    _check_python(user.pw_name)
    return user


def find_user(name: str) -> pwd.struct_passwd:
    """The system's entry. Raises ConfigError when there is no such user."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise ConfigError(
            f'application/user: there is no user "{name}" on this system; create it, or name another'
        ) from None


def _check(who: str, directories: Sequence[Path]) -> None:
    for directory in directories:
        if not directory.is_dir():
            raise ConfigError(f"{directory}: not a directory; move away what has its name")
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
            raise ConfigError(f"{directory}: {who} cannot write here; as root: chown -R {who} {directory}")
    _check_python(who)


def _check_python(who: str) -> None:
    if not os.access(sys.executable, os.X_OK):
        raise ConfigError(
            f"{sys.executable}: {who} cannot run it, and the queue's helper process needs it; "
            "install mqcd where that user may read it"
        )


def _is_below(user: pwd.struct_passwd, directory: Path, identity: Identity) -> bool:
    """Whether what there is of its way belongs to the user, so that root must not go there."""
    there = next(path for path in (directory, *directory.parents) if os.path.lexists(path))
    return identity.owner(there)[0] == user.pw_uid


def _make_all(directories: Sequence[Path], spare: Sequence[Path]) -> list[Path]:
    """Make directories and their parents; gives those made. Raises OSError, but not for those in `spare`."""
    made: list[Path] = []
    for directory in directories:
        with contextlib.suppress(OSError) if directory in spare else contextlib.nullcontext():
            made += _make(directory)
    return made


def _make(directory: Path) -> list[Path]:
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    return missing

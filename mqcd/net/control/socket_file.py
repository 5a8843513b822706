"""The control socket in the file system: its owner, group and mode decide which users may connect.

* A path of any length: it is bound and connected to by way of its directory's descriptor, since a unix
  socket's own path may have 107 octets only.
* Of two servers with the same path the second is refused: the lock beside it, `<name>.lock`, is held as long
  as the server lives, however it ends. With the lock, a socket that is there is what a killed server left.
* Nothing but a socket is ever replaced, and no symlink is followed.

Failures: ConfigError, which names the setting.
"""

from __future__ import annotations

import fcntl
import grp
import logging
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from mqcd.core.errors import ConfigError

log = logging.getLogger(__name__)

PLACE = "ops/control@path"
_DESCRIPTORS = Path("/proc/self/fd")
_PRIVATE, _SHARED, _OPEN = 0o600, 0o660, 0o666

AT_ONCE = 18
"""Connections of commands at once."""


class ControlSocket:
    """Binds on `bind`, and unlinks on `close`."""

    def __init__(self, path: Path, group: str | None = None, *, everybody: bool = False) -> None:
        """`group` may connect besides the owner, or `everybody`."""
        self._path = path
        self._group = group
        self._everybody = everybody
        self._directory = self._lock = -1
        self._identity: tuple[int, int] | None = None

    def bind(self, place: str = PLACE) -> socket.socket:
        """The socket, bound and not yet listening. `place` is where the path is configured."""
        gid = self._find_group(place)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._take_lock(place)
            self._remove_stale(place)
            bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                # On Linux what is bound has this mode from its first moment on, less the umask.
                os.fchmod(bound.fileno(), _PRIVATE)
                bound.bind(str(way_by(self._directory, self._path.parent) / self._path.name))
                self._identity = self._found()
                self._share(gid)
            except BaseException:
                bound.close()
                raise
        except OSError as error:
            self.close()
            raise ConfigError(
                f"{place}: cannot make {self._path}: {error.strerror or error}; "
                "name a place in a directory that the server's user may write to"
            ) from error
        except BaseException:
            self.close()
            raise
        bound.setblocking(False)
        return bound

    def close(self) -> None:
        """Remove the socket and release its lock. Twice is harmless."""
        if self._directory >= 0:
            if self._identity is not None and self._found() == self._identity:
                with suppress(OSError):
                    os.unlink(self._path.name, dir_fd=self._directory)
            self._identity = None
            os.close(self._directory)
            self._directory = -1
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _find_group(self, place: str) -> int:
        if not self._group:
            return -1
        try:
            return grp.getgrnam(self._group).gr_gid
        except KeyError:
            raise ConfigError(
                f'{place}: there is no group "{self._group}" on this system; create it, or name another'
            ) from None

    def _take_lock(self, place: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock = os.open(f"{self._path.name}.lock", flags, _PRIVATE, dir_fd=self._directory)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{place}: another server has {self._path}; stop it, or name another place"
            ) from None

    def _remove_stale(self, place: str) -> None:
        with suppress(FileNotFoundError):
            found = os.stat(self._path.name, dir_fd=self._directory, follow_symlinks=False)
            if not stat.S_ISSOCK(found.st_mode):
                raise ConfigError(
                    f"{place}: {self._path} is not a socket; move it, or configure another path"
                )
            os.unlink(self._path.name, dir_fd=self._directory)

    def _found(self) -> tuple[int, int] | None:
        """Device and inode of the file that is there."""
        try:
            found = os.stat(self._path.name, dir_fd=self._directory, follow_symlinks=False)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _share(self, gid: int) -> None:
        """Let the group, or everybody, connect."""
        if gid < 0 and not self._everybody:
            return
        fd = os.open(self._path.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._directory)
        own = _DESCRIPTORS / str(fd)
        try:
            if self._everybody:
                own.chmod(_OPEN)
                return
            os.chown(own, -1, gid)
            own.chmod(_SHARED)
        except PermissionError as error:
            text = f"not a member of group {self._group}, so the group cannot connect"
            raise PermissionError(error.errno, text) from None
        finally:
            os.close(fd)
        around = os.fstat(self._directory)
        if not around.st_mode & (stat.S_IXGRP if around.st_gid == gid else stat.S_IXOTH):
            log.warning(
                "%s: group %s may connect, but not enter %s: chgrp %s, chmod g+x",
                *(PLACE, self._group, self._path.parent, self._group),
            )


def way_by(fd: int, path: Path) -> Path:
    """A short name of what is open as `fd`, for as long as it is; else its path, where there is no /proc."""
    short = _DESCRIPTORS / str(fd)
    return short if short.exists() else path

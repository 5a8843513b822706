"""Every operating-system call that the queue makes on its files, in one class.

Promise: nothing in `mqcd.queue` touches a file except through a `Disk`. So a test can record the calls in
their order, make any one of them fail, or leave any sync out. A further call also goes into the disks that
stand in for this one: `_Reporting` in `queue.helper.helper` (else a long call looks hung), and those of
tests: `tests/fakes/disk.py`, `tests/crash/memory.py`, `sick_disk.py`. An error reaches the caller as OSError,
for the caller alone knows what it means. Where an error is an answer (a name is there already, or missing; a
lock is taken), the call's docstring says so. No failed write or sync is tried again. There are no writes
through mmap: their errors would come as signals.

Directories are made 0700 and files 0600. A new name is durable only after `sync_dir` of its directory.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import NamedTuple

log = logging.getLogger(__name__)

IRREGULAR = (errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.ENXIO)
"""Errors of `Disk.open` that say: no regular file."""
NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))
"""Errors of a write that there is no space for."""
_IOV_MAX = 1024
_ZEROS = bytes(1 << 20)
_ZEROS_AT_ONCE = 4
"""How many times `_ZEROS` is written between two syncs."""
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_UNTOLD = frozenset((errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS))
"""Errors of a non-blocking read that would wait, or is not supported."""

Buffer = bytes | bytearray | memoryview


class Measure(NamedTuple):
    """A file's metadata."""

    modified: int
    """When its content was last written, ms."""
    octets: int


class Disk:
    """The real disk."""

    def open(self, path: Path, flags: int) -> int:
        """Open a file; a new one gets mode 0600. Returns the descriptor.

        What is no regular file raises OSError; so does a FIFO, at once, instead of holding up the caller.
        A symbolic link is not followed: root may work in directories that other users can write to.
        """
        try:
            fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, "Is a symbolic link, and is not followed", str(path)) from error
            raise
        mode = os.fstat(fd).st_mode
        if not S_ISREG(mode):
            os.close(fd)
            if S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        return fd

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, octets: int, offset: int) -> bytes:
        """Octets at an offset; fewer only at the end of the file."""
        try:
            data = os.pread(fd, octets, offset)
            if len(data) == octets or not data:
                return data
            parts = [data]
            have = len(data)
            while have < octets and (data := os.pread(fd, octets - have, offset + have)):
                parts.append(data)
                have += len(data)
        except OSError as error:
            raise _naming(error, fd) from error
        return b"".join(parts)

    def pread_cached(self, fd: int, octets: int, offset: int) -> bytes | None:
        """Octets at an offset if the kernel has them in memory, perhaps fewer than asked for, else None: on
        the event loop never waits for a disk, and a thread to wait in costs more than what it reads."""
        if not _NOWAIT:
            return None
        buffer = bytearray(octets)
        try:
            have = os.preadv(fd, [buffer], offset, _NOWAIT)
        except OSError as error:
            if error.errno in _UNTOLD:
                return None
            raise _naming(error, fd) from error
        return bytes(memoryview(buffer)[:have])

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Write all buffers at an offset, whole. Returns the octets written."""
        total = 0
        try:
            for start in range(0, len(buffers), _IOV_MAX):
                part = buffers[start : start + _IOV_MAX]
                want = sum(map(len, part))
                done = os.pwritev(fd, part, offset + total)
                if done < want:
                    _write_rest(fd, memoryview(b"".join(part)), offset + total, done)
                total += want
        except OSError as error:
            raise _naming(error, fd) from error
        return total

    def datasync(self, fd: int) -> None:
        """Make a file's content and length durable.

        Not enough by itself for octets in space that was never written and synced before: an ext4 whose
        journal aborts meanwhile may return without an error and lose them. They are durable when a later
        change of metadata is (a rename and its `sync_dir`), or see `sync_appended`.
        """
        try:
            os.fdatasync(fd)
        except OSError as error:
            raise _naming(error, fd) from error

    def sync_appended(self, fd: int) -> None:
        """Make octets durable that were written behind the end of a file: there `datasync` is not enough.

        A file system that has aborted takes no new time of modification, and does not sync it.
        """
        self.datasync(fd)
        try:
            os.utime(fd)
            os.fsync(fd)
        except OSError as error:
            raise _naming(error, fd) from error

    def sync_dir(self, path: Path) -> None:
        """Make a directory's entries durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            raise _naming(error, fd) from error
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def watching(self, path: Path) -> Iterator[int]:
        """A descriptor for `sync_filesystem`, taken before the first write that it is to make durable.

        A write that fails in the background is reported once to each descriptor that was open by then; to one
        that is opened later not at all, if another sync has reported it before.
        """
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)

    def sync_filesystem(self, path: Path, watch: int | None = None) -> None:
        """Make everything written on the filesystem of `path` durable (syncfs).

        `watch` is what `watching` gave; without it an error that came before this call may stay unknown.
        """
        with contextlib.nullcontext(watch) if watch is not None else self.watching(path) as fd:
            try:
                _syncfs(fd)
            except OSError as error:
                raise _naming(error, fd) from error

    def reserve(self, fd: int, octets: int) -> None:
        """Allocate a file's space, so that a later write within it needs none."""
        try:
            os.posix_fallocate(fd, 0, octets)
        except OSError as error:
            raise _naming(error, fd) from error

    def zero_fill(self, fd: int, start: int, end: int) -> None:
        """Write zeros and make them durable, a part at a time, so that no other sync waits for all of them.

        Later syncs of what is written there change no metadata: they are cheaper, and certain.
        """
        for offset in range(start, end, len(_ZEROS)):
            self.pwritev(fd, [_ZEROS[: end - offset]], offset)
            if (offset - start) // len(_ZEROS) % _ZEROS_AT_ONCE == _ZEROS_AT_ONCE - 1:
                self.datasync(fd)
        self.datasync(fd)

    def filled(self, fd: int) -> int:
        """How much of a file from its start has been written, however long it is.

        Where the file system does not know its holes that is all of it. What was not synced counts, too.
        """
        try:
            return os.lseek(fd, 0, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return 0
            raise _naming(error, fd) from error

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, replacing any file of that name."""
        source.rename(target)

    def link(self, source: Path, target: Path) -> bool:
        """Link a file to a second name; False, and no change, when that name exists."""
        try:
            os.link(source, target)
        except FileExistsError:
            return False
        return True

    def symlink(self, target: Path, path: Path) -> None:
        """Make a symbolic link, durably, in the place of another one."""
        temp = path.with_name(f"{path.name}{TEMP_SUFFIX}")
        self.unlink(temp)
        temp.symlink_to(target)
        self.rename(temp, path)
        self.sync_dir(path.parent)

    def make_symlink(self, target: Path, path: Path) -> None:
        """Make a symbolic link, not durable yet; an existing name is not an error."""
        with contextlib.suppress(FileExistsError):
            path.symlink_to(target)

    def unlink(self, path: Path) -> None:
        """Remove a name; a missing name is not an error."""
        path.unlink(missing_ok=True)

    def rmdir(self, path: Path) -> bool:
        """Remove an empty directory; False when it is not empty or gone."""
        try:
            path.rmdir()
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.ENOENT, errno.EEXIST):
                return False
            raise
        return True

    def make_dir(self, path: Path) -> None:
        """Make one directory, 0700; an existing one is not an error."""
        path.mkdir(mode=0o700, exist_ok=True)

    def mkdir(self, path: Path, *, sync: bool = True) -> None:
        """Make a directory and those above it; their names are durable.

        Also that of the lowest that was there, if the directory above it may be read: its maker may have
        been killed before its sync. With `sync` false the caller makes them durable, before anything inside
        counts.
        """
        missing = []
        while not self.is_dir(path):
            missing.append(path)
            path = path.parent
        if sync:
            # A process that may not read the directory above has not made this one.
            with contextlib.suppress(PermissionError):
                self.sync_dir(path.parent)
        for new in reversed(missing):
            self.make_dir(new)
            if sync:
                self.sync_dir(new.parent)

    def is_dir(self, path: Path) -> bool:
        """Whether there is a directory of that name."""
        return path.is_dir()

    def exists(self, path: Path) -> bool:
        """Whether there is such a file or directory. Raises OSError when that is not known."""
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def names(self, path: Path) -> list[str]:
        """Names in a directory, sorted; empty when there is no such directory."""
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def measure(self, path: Path) -> Measure | None:
        """What a file is by its directory entry; None for what is no file of its own, or gone."""
        try:
            stat = path.lstat()
        except FileNotFoundError:
            return None
        return Measure(stat.st_mtime_ns // 1_000_000, stat.st_size) if S_ISREG(stat.st_mode) else None

    def lock(self, fd: int, *, exclusive: bool) -> bool:
        """Take an advisory lock (flock) without waiting; False when another process has it."""
        try:
            fcntl.flock(fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)

    def free(self, path: Path) -> tuple[int, int]:
        """Free octets and free inodes of the filesystem of `path`. One that is read-only raises EROFS."""
        stat = os.statvfs(path)
        if stat.f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return stat.f_bavail * stat.f_frsize, stat.f_favail

    def read_file(self, path: Path) -> bytes:
        fd = self.open(path, os.O_RDONLY)
        try:
            return self.pread(fd, self.size(fd), 0)
        finally:
            self.close(fd)

    def create(self, path: Path) -> int:
        """Create a new, empty file, replacing any of that name. Returns the descriptor.

        Never the old file made empty: if its sync has failed, what it says of itself cannot be trusted.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        try:
            return self.open(path, flags)
        except FileExistsError:
            self.unlink(path)
            return self.open(path, flags)

    def write_temp(self, path: Path, chunks: Iterable[Buffer], *, sync: bool = True) -> int:
        """Write a file anew under a name that recovery removes. Returns its size.

        With `sync` false the caller makes it durable, by `sync_filesystem`, before it renames it.
        """
        fd = self.create(path)
        try:
            size = self.pwritev(fd, list(chunks), 0)
            if sync:
                self.datasync(fd)
        except OSError:
            # On a full disk others need the room.
            with contextlib.suppress(OSError):
                self.unlink(path)
            raise
        finally:
            self.close(fd)
        return size

    def replace_file(self, path: Path, chunks: Iterable[Buffer]) -> int:
        """Put a file in place whole: temporary name, sync, rename, directory sync. Returns its size."""
        temp = path.with_name(path.name + TEMP_SUFFIX)
        size = self.write_temp(temp, chunks)
        self.rename(temp, path)
        self.sync_dir(path.parent)
        return size


TEMP_SUFFIX = ".tmp"
"""Suffix of files that are still being written."""


def describe(error: OSError) -> str:
    """An error as text: the file and the error."""
    why = error.strerror or str(error)
    return f"{error.filename}: {why}" if error.filename else why


def let_go(disk: Disk, fd: int, what: str) -> None:
    """Close a file whose octets are all durable, or not needed. An error is logged as one of `what`: the
    descriptor is gone all the same, and at most the error of an earlier write is reported once more."""
    try:
        disk.close(fd)
    except OSError as error:
        log.error("%s could not be closed cleanly: %s", what, describe(error))


def _naming(error: OSError, fd: int) -> OSError:
    """The same error with the name of the file, which the system adds only for calls by name."""
    try:
        path = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return error
    return OSError(error.errno, error.strerror, path)


def _write_rest(fd: int, data: memoryview, offset: int, done: int) -> None:
    """Continue after a short write."""
    while done < len(data):
        wrote = os.pwrite(fd, data[done:], offset + done)
        if wrote == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done += wrote


def _load_syncfs() -> Callable[[int], None]:
    libc = ctypes.CDLL(None, use_errno=True)

    def call(fd: int) -> None:
        if libc.syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return call


_syncfs = _load_syncfs()

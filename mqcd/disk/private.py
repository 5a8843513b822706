"""Small text files that hold secrets: read with their mode checked, and replaced whole.

* A file that everybody may read or change is refused.
* A change is made under a lock on its directory, and put in place by a rename: after a crash the file is the
  old or the new one. Owner and mode of an existing file stay; a new one has mode 0600.

Failures: BadPrivateFile, whose text names the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mqcd.core.errors import MqcdError
from mqcd.core.value import value
from mqcd.disk.durable import TEMP_SUFFIX, Disk, describe
from mqcd.disk.locks import holding

MAX_OCTETS = 64 << 20
_OTHERS = 0o007


class BadPrivateFile(MqcdError):
    """The file cannot be used. Fault: its writer."""


@value(kw_only=False)
class Version:
    """Distinguishes one state of a file from another."""

    inode: int
    modified: int
    changed: int
    octets: int


@dataclass(slots=True)
class Draft:
    """A file that is being changed."""

    text: str | None
    """As it is; None: there is none."""
    new: str | None = None
    """What it is to hold; None: no change."""


def version_of(path: Path) -> Version | None:
    """The state of the file now; None where there is none that can be looked at."""
    try:
        return _version(path.stat())
    except OSError:
        return None


def read_private(path: Path, holds: str) -> tuple[str, Version]:
    """The text of a file, and the state that it is of; `holds` says what is in it."""
    try:
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            octets = file.read(MAX_OCTETS + 1)
    except OSError as error:
        raise BadPrivateFile(f"the {holds} cannot be read: {describe(error)}") from error
    if stat.st_mode & _OTHERS:
        raise BadPrivateFile(f"{path}: everybody may read or change the {holds}: chmod 600 it")
    if len(octets) > MAX_OCTETS:
        raise BadPrivateFile(f"{path} has more than {MAX_OCTETS} octets: is this the file of {holds}?")
    try:
        return octets.decode(), _version(stat)
    except UnicodeDecodeError as error:
        raise BadPrivateFile(f"{path}: not UTF-8") from error


@contextmanager
def rewriting(path: Path, holds: str, disk: Disk, owner: tuple[int, int] | None = None) -> Iterator[Draft]:
    """The file, to be changed: written when the block ends without an error, if it has set `new`.

    A file that is missing is made, for `owner` (uid, gid) if that is given. Raises OSError too.
    """
    with holding(disk, path.parent) as ours:
        if not ours:
            raise BadPrivateFile(f"another command is changing a file in {path.parent}: try again")
        missing = not disk.exists(path)
        draft = Draft(None if missing else read_private(path, holds)[0])
        yield draft
        if draft.new is None:
            return
        temp = path.with_name(path.name + TEMP_SUFFIX)
        disk.write_temp(temp, [draft.new.encode()])
        try:
            _dress(temp, None if missing else path.stat(), owner)
        except OSError:
            disk.unlink(temp)
            raise
        disk.rename(temp, path)
        disk.sync_dir(path.parent)


def _version(stat: os.stat_result) -> Version:
    return Version(stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)


def _dress(temp: Path, old: os.stat_result | None, owner: tuple[int, int] | None) -> None:
    """Give the new file the owner and mode that it is to have."""
    if old is not None:
        owner = old.st_uid, old.st_gid
        temp.chmod(old.st_mode & 0o770)
    if owner is not None and owner != ((mine := temp.stat()).st_uid, mine.st_gid):
        os.chown(temp, *owner)

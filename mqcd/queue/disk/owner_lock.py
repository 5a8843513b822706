"""Whose queue is this: one owner at a time, and the same name in every root.

The lock (`queue/lock`, its text the owner's process id) keeps two servers off one queue; the operating
system releases it when the owner and its helper have ended, in whatever way. The uuid that lies in
queue and spool root says that they belong together: a spool disk that is not mounted, or another
queue's, must never look like mail that has lost its content.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from pathlib import Path

from mqcd.core.errors import StoreBusy, StoreDamaged
from mqcd.disk.durable import Disk

log = logging.getLogger(__name__)

_WAIT_SECONDS = 0.05
_WAITS = 40
"""Looks at the lock of an owner that is there: it may be about to end."""
_ORPHAN_WAITS = 400
"""Looks at that of one that has ended. Its helper holds the lock until it has noticed: one that still starts
does so once it has started, which takes a busy machine some seconds."""


async def take_lock(disk: Disk, queue_root: Path) -> int:
    """Become the owner; returns the descriptor that holds the lock. Raises StoreBusy, OSError."""
    path = queue_root / "lock"
    fd = disk.open(path, os.O_RDWR | os.O_CREAT)
    looks, owner = 0, ""
    try:
        while not disk.lock(fd, exclusive=True):
            owner = disk.pread(fd, 20, 0).decode("ascii", "replace").strip()
            looks += 1
            if looks >= (_ORPHAN_WAITS if _has_ended(owner) else _WAITS):
                name = owner or "unknown"
                raise StoreBusy(f"{queue_root} is in use by process {name}; stop that server first")
            if looks == _WAITS:
                log.warning("process %s has ended: waiting for its helper to release %s", owner, path)
            await asyncio.sleep(_WAIT_SECONDS)
        disk.pwritev(fd, [f"{os.getpid():<20}\n".encode()], 0)
    except BaseException:
        disk.close(fd)
        raise
    return fd


def _has_ended(owner: str) -> bool:
    """Whether no process has this id any more; False where it is none."""
    try:
        os.kill(int(owner), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return False


def check_roots(disk: Disk, roots: list[Path], *, new: bool) -> None:
    """See that all roots carry one uuid; give them one when the queue is `new`. Raises StoreDamaged."""
    names = {root: _read(disk, root) for root in roots}
    known = {name for name in names.values() if name}
    if new and (not known or (len(known) == 1 and names[roots[0]])):
        # Also existing ones: nothing was ever accepted, and their maker may have been killed
        # between the roots, or before the name was durable.
        name = known.pop() if known else str(uuid.uuid4())
        _give(disk, roots, name)
        return
    if len(known) == 1 and all(names.values()):
        return
    named = ", ".join(f"{root}: {name or 'none'}" for root, name in names.items())
    raise StoreDamaged(f"these roots do not belong together (uuid of {named}). Is the right disk mounted?")


def _read(disk: Disk, root: Path) -> str:
    try:
        return disk.read_file(root / "uuid").decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""


def name_again(disk: Disk, roots: list[Path]) -> bool:
    """Write the uuid that a file of it has lost; False where they name two queues. Raises OSError.

    For a caller that knows by other means that the roots belong together.
    """
    names = {root: _read(disk, root) for root in roots}
    sound = {name for name in names.values() if _is_uuid(name)}
    if len(sound) > 1:
        return False
    name = sound.pop() if sound else str(uuid.uuid4())
    _give(disk, [root for root, there in names.items() if there != name], name)
    return True


def _give(disk: Disk, roots: list[Path], name: str) -> None:
    for root in roots:
        disk.replace_file(root / "uuid", [f"{name}\n".encode()])


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False

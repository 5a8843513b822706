"""Octets that do not check are put aside, never dropped: `queue/quarantine/` keeps them for the operator."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from mqcd.queue.durable import Disk

log = logging.getLogger(__name__)

QUARANTINE = "quarantine"
"""Directory below the queue root."""


def put_aside(disk: Disk, queue_root: Path, name: str, data: bytes, *, anew: bool = False) -> Path:
    """Append `data` to the quarantine file `name`, durably. Raises OSError: then nothing may be dropped.

    `anew` is for what is found again at each start: it takes the place of what the file holds.
    """
    path = queue_root / QUARANTINE / name
    disk.mkdir(path.parent)
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        disk.pwritev(fd, [data], 0 if anew else disk.size(fd))
        disk.datasync(fd)
    finally:
        disk.close(fd)
    disk.sync_dir(path.parent)
    log.error("%d damaged octets were put aside in %s; run `mqcd fsck`", len(data), path)
    return path

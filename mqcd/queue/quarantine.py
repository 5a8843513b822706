"""Octets that do not check are put aside, never dropped: `queue/quarantine/` keeps them for the operator.

Each find is a file of its own, named after its place, whole and durable or not there. So what is found
again is the same file again, and none is ever added to: one whose sync has failed is replaced.
"""

from __future__ import annotations

import logging
from pathlib import Path

from mqcd.queue.durable import Disk

log = logging.getLogger(__name__)

QUARANTINE = "quarantine"
"""Directory below the queue root."""


def put_aside(disk: Disk, queue_root: Path, source: str, offset: int, data: bytes) -> Path:
    """Keep `data`, found at an octet of a cluster (its name) or of a segment (`segment-<number>`), durably.

    Raises OSError: then nothing may be dropped.
    """
    path = queue_root / QUARANTINE / f"{source.replace('/', '-')}-{offset}.bad"
    disk.mkdir(path.parent)
    disk.replace_file(path, [data])
    log.error("%d damaged octets were put aside in %s; run `mqcd fsck`", len(data), path)
    return path

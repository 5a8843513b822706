"""Octets that do not check go to quarantine, never lost: `queue/quarantine/` keeps them for the operator.

Each find is a file of its own, named after its place, whole and durable or not there. So what is found
again is the same file again, and none is ever added to: one whose sync has failed is replaced. Its name also
says how many records it stands for, for its octets often do not; that of an older version does not.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mqcd.disk.durable import TEMP_SUFFIX, Disk

log = logging.getLogger(__name__)

QUARANTINE = "quarantine"
"""Directory below the queue root."""
_FIND = re.compile(r"(.*?)(?:\+(\d{1,18}))?\.bad")

Stretch = tuple[int, bytes]
"""Lines that do not check, one behind the other, and the octet of the cluster where they begin."""


def to_quarantine(disk: Disk, queue_root: Path, source: str, offset: int, data: bytes, records: int) -> Path:
    """Keep `data`, found at an octet of a cluster (its name) or of a segment (`segment-<number>`), durably.

    `records`: how many it stands for, as far as is known. What was found there before keeps its name, and
    with it the number. Raises OSError: then nothing may be dropped.
    """
    directory = queue_root / QUARANTINE
    place = place_of(source, offset)
    disk.mkdir(directory)
    finds = ((name, _FIND.fullmatch(name)) for name in disk.names(directory))
    before = next((name for name, find in finds if find is not None and find[1] == place), None)
    path = directory / (before or f"{place}+{records}.bad")
    disk.replace_file(path, [data])
    log.error("%d damaged octets are in quarantine, in %s; run `mqcd fsck`", len(data), path)
    return path


def unfinished(disk: Disk, queue_root: Path) -> list[Path]:
    """Finds that were still being written when the last run ended. Raises OSError."""
    directory = queue_root / QUARANTINE
    paths = [directory / name for name in disk.names(directory) if name.endswith(TEMP_SUFFIX)]
    return [path for path in paths if disk.measure(path) is not None]


def place_of(source: str, offset: int) -> str:
    """How the name of what was found there begins."""
    return f"{source.replace('/', '-')}-{offset}"


def places(names: Iterable[str]) -> set[str]:
    """The places at which finds of these names were made."""
    return {find[1] for name in names if (find := _FIND.fullmatch(name)) is not None}


def stands_for(name: str) -> int | None:
    """How many records the find of that name stands for, of a stretch of the journal at most; None when the
    name does not say."""
    find = _FIND.fullmatch(name)
    return int(find[2]) if find is not None and find[2] is not None else None


def extend(stretches: list[Stretch], offset: int, raw: bytes) -> None:
    """Add a line to the stretch that it follows, or begin another."""
    if stretches and stretches[-1][0] + len(stretches[-1][1]) == offset:
        offset, before = stretches.pop()
        raw = before + raw
    stretches.append((offset, raw))


def shared(stretches: Sequence[Stretch], records: int) -> list[tuple[int, bytes, int]]:
    """The same, each with how many of so many records it stands for: one at least, and the longest for all
    that the others leave. How many lines it has says little: damage splits lines and joins them."""
    more = max(0, records - len(stretches))
    longest = max(range(len(stretches)), key=lambda at: len(stretches[at][1]), default=0)
    return [(*each, 1 + more * (at == longest)) for at, each in enumerate(stretches)]

"""Where the shards of a queue lie: shard 0 in the roots themselves, shard k in `shard-k` below them.

A shard with roots of its own has a link of that name to each: so all readers find it by the roots of the
queue, also when the settings name it no more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mqcd.core.errors import StoreUnavailable
from mqcd.disk.durable import Disk

_NAME = re.compile(r"shard-([1-9][0-9]?)", re.ASCII)


@dataclass(frozen=True, order=True, slots=True)
class Roots:
    """Of one shard."""

    shard: int
    queue: Path
    spool: Path

    @property
    def is_made(self) -> bool:
        """Whether a queue is there."""
        return (self.queue / "MANIFEST").exists()


def roots_of(shard: int, queue: Path, spool: Path) -> Roots:
    """Of a shard of the queue with these roots."""
    if not shard:
        return Roots(shard, queue, spool)
    return Roots(shard, queue / f"shard-{shard}", spool / f"shard-{shard}")


def existing(queue: Path, spool: Path) -> list[Roots]:
    """Of shard 0, and of every other one that is there or has a link. Raises OSError for a root that cannot
    be listed."""
    try:
        names = [path.name for path in queue.iterdir()]
    except FileNotFoundError:
        names = []
    numbers = [int(match[1]) for name in names if (match := _NAME.fullmatch(name)) is not None]
    there = [roots_of(number, queue, spool) for number in sorted(numbers)]
    return [
        roots_of(0, queue, spool),
        *(each for each in there if each.is_made or each.queue.is_symlink()),
    ]


def check_place(below: Roots, own: Roots) -> None:
    """That a shard is in its own roots, or is new. `below`: where it lies without own ones.

    Raises StoreUnavailable when it was moved without the settings, or its disk is not mounted; OSError.
    """
    links = list(_links(below, own))
    if below.is_made and not (own.is_made and below.queue.samefile(own.queue)):
        raise StoreUnavailable(
            f"shard {own.shard} lies in {below.queue.resolve()} and {below.spool.resolve()}: move it to "
            f"{own.queue} and {own.spool}, or name these in the settings"
        )
    named = [str(link) for link, _ in links if link.is_symlink()]
    if named and not own.is_made:
        raise StoreUnavailable(
            f"shard {own.shard} is no longer in {own.queue}. Is its disk mounted? "
            f"To begin it anew, remove {' and '.join(named)}"
        )
    for link, _ in links:
        if link.exists() and not link.is_symlink():
            raise StoreUnavailable(f"{link} is in the place of a link to shard {own.shard}: move it away")


def link_place(disk: Disk, below: Roots, own: Roots) -> None:
    """Make the links to a shard with own roots, durably. Raises OSError."""
    for link, target in _links(below, own):
        if not (link.is_symlink() and link.readlink() == target):
            disk.mkdir(link.parent)
            disk.symlink(target, link)


def _links(below: Roots, own: Roots) -> Iterator[tuple[Path, Path]]:
    pairs = (below.queue, own.queue), (below.spool, own.spool)
    return ((link, target) for link, target in pairs if os.path.abspath(link) != os.path.abspath(target))

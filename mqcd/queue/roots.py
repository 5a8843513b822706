"""Where the shards of a queue lie: shard 0 in the roots themselves, shard k in `shard-k` below them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"shard-([1-9][0-9]?)", re.ASCII)


@dataclass(frozen=True, order=True, slots=True)
class Roots:
    """Of one shard."""

    shard: int
    queue: Path
    spool: Path


def roots_of(shard: int, queue: Path, spool: Path) -> Roots:
    """Of a shard of the queue with these roots."""
    if not shard:
        return Roots(shard, queue, spool)
    return Roots(shard, queue / f"shard-{shard}", spool / f"shard-{shard}")


def existing(queue: Path, spool: Path) -> list[Roots]:
    """Of shard 0, and of every other one that is there. Raises OSError for a root that cannot be listed."""
    try:
        names = [path.name for path in queue.iterdir()]
    except FileNotFoundError:
        names = []
    numbers = [int(match[1]) for name in names if (match := _NAME.fullmatch(name)) is not None]
    there = [roots_of(number, queue, spool) for number in sorted(numbers)]
    return [roots_of(0, queue, spool), *(each for each in there if (each.queue / "MANIFEST").exists())]


def is_shard(name: str) -> bool:
    """Whether a directory of this name in a root belongs to another shard."""
    return _NAME.fullmatch(name) is not None

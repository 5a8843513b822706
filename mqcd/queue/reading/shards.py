"""The shards of a queue read as one: a snapshot of each, each of its own moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TypeVar

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Area, AreaStats, Recipient
from mqcd.core.queueing.spid import shard_of
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk
from mqcd.queue.manifest.state import ManifestState
from mqcd.queue.reading.snapshot import Item, Snapshot, Unreadable, item_of
from mqcd.queue.roots import existing

Made = TypeVar("Made")


class Snapshots:
    """A view of every shard that is there; close it when done. Raises as `Snapshot` does."""

    def __init__(
        self, disk: Disk, queue_root: Path, spool_root: Path, state: ManifestState | None = None
    ) -> None:
        """`state` stands for a MANIFEST of shard 0 that cannot be read."""
        self.by_shard: dict[int, Snapshot] = {}
        with ExitStack() as stack:
            for roots in existing(queue_root, spool_root):
                given = state if not roots.shard else None
                snapshot = stack.enter_context(closing(Snapshot(disk, roots.queue, roots.spool, given)))
                self.by_shard[roots.shard] = snapshot
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    @property
    def parts(self) -> list[Snapshot]:
        """Of each shard, the first one's first."""
        return list(self.by_shard.values())

    @property
    def seen(self) -> int:
        """The latest time that a shard has recorded, ms."""
        return max(each.seen for each in self.parts)

    @property
    def unreadable(self) -> Unreadable:
        """See there; of all shards together, with the first error."""
        found = [each.unreadable for each in self.parts]
        return Unreadable(
            damaged_lines=sum(each.damaged_lines for each in found),
            missing=sum(each.missing for each in found),
            error=next((each.error for each in found if each.error is not None), None),
        )

    @property
    def damage(self) -> int:
        """Stretches of the journal that do not check."""
        return sum(each.damage for each in self.parts)

    @property
    def left_out(self) -> int:
        return sum(each.left_out for each in self.parts)

    def items(self, selection: Selection) -> Iterator[Item]:
        return chain.from_iterable(self.batches(selection))

    def batches(self, selection: Selection) -> Iterator[list[Item]]:
        return self.project(selection, item_of)

    def project(self, selection: Selection, make: Callable[[str, bool], Made]) -> Iterator[list[Made]]:
        """See `Snapshot`; a limit holds for all shards together."""
        left = selection.limit
        for each in self.parts:
            for batch in each.project(replace(selection, limit=left), make):
                yield batch
                if left is not None:
                    left -= len(batch)
            if left == 0:
                return

    def stats(self) -> dict[Area, AreaStats]:
        of_all = [each.stats() for each in self.parts]
        return {area: _together([stats[area] for stats in of_all]) for area in of_all[0]}

    def content(self, spid: int, recipient: Recipient | None = None) -> Iterator[bytes]:
        """See `Snapshot`. A message lies in the shard that its SPID names, unless it was moved."""
        first = self.by_shard.get(shard_of(spid))
        ordered = [each for each in (first, *self.parts) if each is not None]
        for each in dict.fromkeys(ordered[:-1]):
            try:
                yield from each.content(spid, recipient)
            except StoreUnavailable:
                continue
            return
        yield from ordered[-1].content(spid, recipient)


def _together(stats: list[AreaStats]) -> AreaStats:
    times = [each.oldest for each in stats if each.oldest is not None]
    return AreaStats(
        recipients=sum(each.recipients for each in stats),
        octets=sum(each.octets for each in stats),
        oldest=min(times, default=None),
    )

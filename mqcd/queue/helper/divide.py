"""Divides clusters: what a batch selects is changed and goes into clusters of its own, the rest into others.

Nothing is committed here: the shard's own process does, by one REPLACE frame for each cluster, whose entries
are made here. A cluster with a line that does not check is left as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from mqcd.core.errors import DecodeError
from mqcd.core.model import Amended, Area, Batch
from mqcd.core.queueing.amendment import amended, applies
from mqcd.core.queueing.holding import Holding
from mqcd.core.queueing.transition import not_later
from mqcd.core.selecting.selection import Selection
from mqcd.core.value import value
from mqcd.disk.durable import Disk
from mqcd.queue.clusters import file as cluster
from mqcd.queue.format import record, verdict
from mqcd.queue.format.choosing import chooser
from mqcd.queue.format.frame import ENTRY_HEAD, IN_SPOOL, Entry, pack_entry
from mqcd.queue.manifest.state import ClusterState


@value
class Divide:
    """Carry out a batch on what it selects in clusters."""

    queue_root: Path
    clusters: Sequence[ClusterState]
    selection: Selection
    batch: Batch
    most: int
    """Recipients that are changed."""
    latest: int
    """No due time is later, ms."""
    room: int
    """Octets of the entries of one frame."""
    first: int
    """New names have numbers from this one on."""
    max_cluster: int
    granularity: int
    """ms."""
    holding: Holding


File = tuple[ClusterState, Iterable[bytes]]
"""A cluster to be written, and its lines."""


@value
class Divided:
    """What takes the place of a cluster."""

    name: str
    changed: Sequence[ClusterState]
    """New clusters of what was changed."""
    rest: Sequence[ClusterState]
    """New clusters of the others."""
    before: Sequence[str]
    """The text that each changed record had, as `record.verify` gives it."""
    entries: bytes
    """The entries of the same records, for the frame."""
    more: bool
    """Whether the rest may hold more that is selected: a frame has not room for everything."""


@value(kw_only=False)
class Divisions:
    """What became of the clusters; those with no selected line are not named."""

    divided: Sequence[Divided]
    unread: Sequence[str]
    """Clusters that cannot be read, or hold a line that does not check, and why."""


@dataclass(slots=True)
class _Part:
    """What of a cluster is changed, and what is not."""

    changed: dict[Area, list[cluster.Line]] = field(default_factory=lambda: defaultdict(list))
    rest: list[bytes] = field(default_factory=list)
    """Without line feeds."""
    before: list[str] = field(default_factory=list)
    entries: list[bytes] = field(default_factory=list)
    more: bool = False


def divide(disk: Disk, task: Divide) -> tuple[list[File], Divisions]:
    """The clusters to be written, and what they stand for. Raises OSError."""
    files: list[File] = []
    divided: list[Divided] = []
    unread: list[str] = []
    left = task.most
    for state in task.clusters:
        if not left:
            break
        try:
            part = _part(_lines(disk, task, state), task, left)
        except (DecodeError, ValueError, FileNotFoundError) as error:
            unread.append(f"{state.name}: {error}")
            continue
        if not part.before:
            continue
        left -= len(part.before)
        changed = _changed(state, part, task, task.first + len(files))
        files += changed
        rest = _rest(state, part, task, task.first + len(files))
        files += rest
        divided.append(
            Divided(
                name=state.name,
                changed=[each for each, _ in changed],
                rest=[each for each, _ in rest],
                before=part.before,
                entries=b"".join(part.entries),
                more=part.more,
            )
        )
    return files, Divisions(divided, unread)


def _lines(disk: Disk, task: Divide, state: ClusterState) -> list[bytes]:
    """The lines of a cluster, without line feeds. Raises DecodeError, OSError."""
    data = cluster.read_from(disk, task.queue_root / state.name, state.cursor, state.size)
    *lines, end = data.split(b"\n")
    if len(data) < state.size - state.cursor or end:
        raise DecodeError("it is shorter than it should be")
    return lines


def _part(lines: Sequence[bytes], task: Divide, most: int) -> _Part:
    """Change what is selected. Raises DecodeError, and ValueError for a record that no batch can change."""
    chosen = chooser(task.selection) or _everything
    why = cast("Amended", not_later(Amended(batch=task.batch), task.latest))
    mark = verdict.mark_of(why)
    part, room = _Part(), task.room
    for raw, text in zip(lines, record.sound_all(lines), strict=True):
        if text is None:
            raise DecodeError(f"record line is damaged: {raw[:120]!r}")
        if part.more or not chosen(text) or not applies(before := record.parse(text), task.batch):
            part.rest.append(raw)
            continue
        following = amended(before, why.batch)
        line, note = record.encode(following), verdict.encode(why, "", before)
        room -= ENTRY_HEAD + len(line) + len(note)
        if part.before and (room < 0 or len(part.before) == most):
            part.more = True
            part.rest.append(raw)
            continue
        part.before.append(text)
        part.entries.append(pack_entry(Entry(mark, 0, 0, 0, IN_SPOOL, line, note)))
        given, size = following.envelope, following.size
        changed = cluster.Line(following.due, given.received, size, line, given.tenant)
        part.changed[following.area].append(changed)
    return part


def _everything(_text: str) -> bool:
    return True


def _changed(state: ClusterState, part: _Part, task: Divide, first: int) -> list[File]:
    """New clusters of what was changed."""
    plans: list[cluster.Plan] = []
    for area, lines in part.changed.items():
        for place, each in cluster.by_place(area, lines, task.holding).items():
            plans += cluster.plan(
                place,
                each,
                cluster.segment_of(state.name),
                task.max_cluster,
                task.granularity,
                first + len(plans),
            )
    return [(plan.state, [line.raw for line in plan.lines]) for plan in plans]


def _rest(state: ClusterState, part: _Part, task: Divide, number: int) -> list[File]:
    """A new cluster of the others, if there are any."""
    if not part.rest:
        return []
    changed = sum(line.size for lines in part.changed.values() for line in lines)
    octets = max(0, state.octets - changed)
    whole = b"\n".join(part.rest) + b"\n"
    return [(cluster.remainder(state, part.rest, octets, number, task.granularity), [whole])]

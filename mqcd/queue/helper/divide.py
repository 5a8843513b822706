"""Divides clusters: what a batch selects goes into clusters of its own, so that it can be taken whole.

Nothing about the records changes, and nothing is committed here: the shard's own process replaces the divided
clusters by one MANIFEST edit. A cluster with a line that does not check is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mqcd.core.errors import DecodeError
from mqcd.core.model import Batch
from mqcd.core.queueing.amendment import applies
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk
from mqcd.queue.clusters import file as cluster
from mqcd.queue.format import record
from mqcd.queue.manifest.log import ClusterState


@dataclass(frozen=True, slots=True)
class Divide:
    """Divide clusters by what is selected and a batch applies to."""

    queue_root: Path
    clusters: Sequence[ClusterState]
    selection: Selection
    batch: Batch
    first: int
    """New names have numbers from this one on."""
    max_cluster: int
    granularity: int
    """ms."""


@dataclass(frozen=True, slots=True)
class Divided:
    """One cluster with selected lines."""

    name: str
    chosen: Sequence[ClusterState]
    """Clusters of selected lines alone: new ones, or this one if all its lines are selected."""
    rest: Sequence[ClusterState] = ()
    """New clusters of the others."""


@dataclass(frozen=True, slots=True)
class Divisions:
    """What became of the clusters; those with no selected line are not named."""

    divided: Sequence[Divided]
    unread: Sequence[str]
    """Clusters that cannot be read, or hold a line that does not check, and why."""


def halves(disk: Disk, task: Divide) -> tuple[list[cluster.Plan], Divisions]:
    """The clusters to be written, and what they stand for. Raises OSError."""
    chooser = record.chooser(task.selection)
    plans: list[cluster.Plan] = []
    divided: list[Divided] = []
    unread: list[str] = []
    for state in task.clusters:
        chosen: list[cluster.Line] = []
        rest: list[cluster.Line] = []
        try:
            data = cluster.read_from(disk, task.queue_root / state.name, state.cursor, state.size)
            for raw in cluster.split_lines(data):
                glance = record.sound(raw)
                text = record.verify(raw)
                selected = chooser is None or chooser(text)
                side = chosen if selected and applies(record.parse(text), task.batch) else rest
                side.append(cluster.Line(glance.due, glance.received, glance.size, raw))
        except (DecodeError, FileNotFoundError) as error:
            unread.append(f"{state.name}: {error}")
            continue
        if not chosen:
            continue
        if not rest:
            divided.append(Divided(state.name, (state,)))
            continue
        first = task.first + len(plans)
        parts = [_plan(state, chosen, task, first)]
        parts.append(_plan(state, rest, task, first + len(parts[0])))
        plans += [plan for part in parts for plan in part]
        divided.append(Divided(state.name, *(tuple(plan.state for plan in part) for part in parts)))
    return plans, Divisions(divided, unread)


def _plan(state: ClusterState, lines: list[cluster.Line], task: Divide, first: int) -> list[cluster.Plan]:
    segment = cluster.segment_of(state.name)
    return cluster.plan(
        cluster.place_of(state.name), lines, segment, task.max_cluster, task.granularity, first
    )

"""What delivery tells of itself, as the objects that /v1/lanes and /v1/stuck list. Pure.

Fields are an interface: they may be added to, never renamed. Durations end in `_ms`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from mqcd.deliver.lanes import LaneState
from mqcd.deliver.watchdog import Stuck


def has_mail(lane: LaneState) -> bool:
    """Whether a lane has recipients in the active set, waiting or under way, or is held suspended."""
    return bool(lane.waiting or lane.connections or lane.suspended)


def lane_rows(lanes: Sequence[LaneState]) -> list[dict[str, object]]:
    """The lanes that have mail, those with the most waiting first."""
    shown = sorted(filter(has_mail, lanes), key=lambda lane: (-lane.waiting, lane.name))
    return [asdict(lane) for lane in shown]


def stuck_rows(stuck: Sequence[Stuck]) -> list[dict[str, object]]:
    """What is stuck, the longest first."""
    ordered = sorted(stuck, key=lambda each: (-each.since_ms, each.name))
    return [asdict(each) | {"kind": each.kind.value} for each in ordered]

"""The state of delivery, as the objects that /v1/lanes, /v1/destinations and /v1/stuck list. Pure.

Fields are an interface: they may be added to, never renamed. Durations end in `_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mqcd.core.samples import MOST_DESTINATIONS
from mqcd.deliver.health.watchdog import Stuck
from mqcd.deliver.lanes.lane import LaneState
from mqcd.ops.last_replies import LastReply

NO_RULES: Mapping[str, str] = {}


def has_mail(lane: LaneState) -> bool:
    """Whether a lane has recipients in the active set, waiting or under way, or is held suspended."""
    return bool(lane.waiting or lane.connections or lane.suspended)


def lane_rows(lanes: Sequence[LaneState]) -> list[dict[str, object]]:
    """The lanes that have mail, those with the most waiting first."""
    shown = sorted(filter(has_mail, lanes), key=lambda lane: (-lane.waiting, lane.name))
    return [asdict(lane) for lane in shown]


def destination_rows(
    lanes: Sequence[LaneState],
    oldest: Mapping[str, int],
    replies: Mapping[str, LastReply],
    now: int,
    rules: Mapping[str, str] = NO_RULES,
) -> list[dict[str, object]]:
    """The destinations that have mail, all their lanes together: the oldest mail first, then the most.

    `oldest`: when the oldest mail of a destination was accepted, as far as that is known; `replies`: the last
    reply of each. Both in ms, as `now` is. `rules`: the rules that suspend destinations, by their names.
    """
    by_name: dict[str, list[LaneState]] = {name: [] for name in (*oldest, *rules)}
    for lane in filter(has_mail, lanes):
        by_name.setdefault(lane.destination, []).append(lane)
    rows = [
        _destination(name, each, oldest.get(name), replies.get(name), now)
        | ({"suspended": True, "rule": rules[name]} if name in rules else {})
        for name, each in by_name.items()
    ]
    return sorted(rows, key=_badness)[:MOST_DESTINATIONS]


def _badness(row: Mapping[str, Any]) -> tuple[int, int, str]:
    return -(row["oldest_ms"] or 0), -row["waiting"], row["destination"]


def _destination(
    name: str, lanes: Sequence[LaneState], oldest: int | None, last: LastReply | None, now: int
) -> dict[str, object]:
    probes = [lane.probe_in_ms for lane in lanes if lane.suspended]
    rates = [lane.rate_in_ms for lane in lanes]
    return {
        "destination": name,
        "oldest_ms": None if oldest is None else max(now - oldest, 0),
        "waiting": sum(lane.waiting for lane in lanes),
        "connections": sum(lane.connections for lane in lanes),
        "idle": sum(lane.idle for lane in lanes),
        "suspended": bool(probes) and len(probes) == len(lanes),
        "probe_in_ms": min(probes, default=0),
        "rate_in_ms": min(rates, default=0),
        "reply": None if last is None else str(last.reply),
        "rule": next((lane.rule for lane in lanes if lane.rule), None),
        "reply_ms": None if last is None else max(now - last.at, 0),
    }


def stuck_rows(stuck: Sequence[Stuck]) -> list[dict[str, object]]:
    """What is stuck, the longest first."""
    ordered = sorted(stuck, key=lambda each: (-each.since_ms, each.name))
    return [asdict(each) | {"kind": each.kind.value} for each in ordered]

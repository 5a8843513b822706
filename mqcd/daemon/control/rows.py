"""The state of doors and delivery, as the objects that the control socket lists. Pure.

Fields are an interface: they may be added to, never renamed. Durations end in `_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mqcd.core.samples import MOST_DESTINATIONS
from mqcd.daemon.control.api.answers import WHY
from mqcd.deliver.connection.link import LinkView
from mqcd.deliver.health.watchdog import Stuck
from mqcd.deliver.lanes.lane import PROMPT_MS, LaneState
from mqcd.ops.last_replies import LastReply

if TYPE_CHECKING:
    from mqcd.submit.session.view import SessionView

NO_RULES: Mapping[str, str] = {}


def connection_rows(sessions: Sequence[SessionView], links: Sequence[LinkView]) -> list[dict[str, object]]:
    """Connections of clients, then those to next hops; on each side the oldest first."""
    inward = [{"side": "in", **asdict(each)} for each in sorted(sessions, key=lambda each: -each.since_ms)]
    outward = [{"side": "out", **asdict(each)} for each in sorted(links, key=lambda each: -each.since_ms)]
    return inward + outward


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
        | (_suspended(rules[name]) if name in rules else {})
        for name, each in by_name.items()
    ]
    return sorted(rows, key=badness)[:MOST_DESTINATIONS]


def _suspended(rule: str) -> dict[str, object]:
    text = f"{WHY['rule']}: {rule}"
    return {"suspended": True, "state": "suspended", "rule": rule, "why": "rule", "why_text": text}


def badness(row: Mapping[str, Any]) -> tuple[int, int, str]:
    """Destinations in this order: the oldest mail first, then the most."""
    return -(row["oldest_ms"] or 0), -row["waiting"], row["destination"]


def _destination(
    name: str, lanes: Sequence[LaneState], oldest: int | None, last: LastReply | None, now: int
) -> dict[str, object]:
    probes = [lane.probe_in_ms for lane in lanes if lane.suspended]
    rates = [lane.rate_in_ms for lane in lanes]
    why, text = why_slow(lanes, last)
    return {
        "destination": name,
        "state": _state(lanes),
        "oldest_ms": None if oldest is None else max(now - oldest, 0),
        "waiting": sum(lane.waiting for lane in lanes),
        "connections": sum(lane.connections for lane in lanes),
        "idle": sum(lane.idle for lane in lanes),
        "window": sum(lane.window for lane in lanes),
        "suspended": bool(probes) and len(probes) == len(lanes),
        "probe_in_ms": min(probes, default=0),
        "rate_in_ms": min(rates, default=0),
        "rates": sorted({rate for lane in lanes for rate in lane.rates}),
        "reply": None if last is None else str(last.reply),
        "rule": next((lane.rule for lane in lanes if lane.rule), None),
        "reply_ms": None if last is None else max(now - last.at, 0),
        "why": why,
        "why_text": text,
    }


def why_slow(lanes: Sequence[LaneState], last: LastReply | None) -> tuple[str, str]:
    """Why mail for a destination waits: a word of `WHY`, and a line for people."""
    waiting = sum(lane.waiting for lane in lanes)
    busy = sum(lane.connections - lane.idle for lane in lanes)
    window = sum(lane.window for lane in lanes)
    probes = [lane.probe_in_ms for lane in lanes if lane.suspended]
    rates = [lane.rate_in_ms for lane in lanes if lane.waiting]
    slowest = max((lane.pace_ms for lane in lanes), default=0)
    said = f": {last.reply}" if last is not None else ""
    if probes and len(probes) == len(lanes):
        return "suspended", f"{WHY['suspended']}{said}; next probe in {_seconds(min(probes))}"
    if (slowed := next((lane.rule for lane in lanes if lane.rule), "")) and waiting:
        return "rule", f"{WHY['rule']}: {slowed}"
    if rates and all(rates):
        return "rate", f"{WHY['rate']}; the next recipient may go in {_seconds(min(rates))}"
    if waiting and busy >= window:
        slow = slowest > PROMPT_MS
        text = f"{WHY['slow']} ({_seconds(slowest)} a message)" if slow else f"{WHY['full']} ({busy})"
        return ("slow" if slow else "full"), text
    if said:
        return "replies", f"{WHY['replies']}{said}"
    why = "waits" if waiting else "well"
    return why, WHY[why]


def _state(lanes: Sequence[LaneState]) -> str:
    if lanes and all(lane.suspended for lane in lanes):
        return "probing" if any(lane.connections for lane in lanes) else "suspended"
    return "open" if any(lane.waiting or lane.connections for lane in lanes) else "idle"


def _seconds(ms: int) -> str:
    return f"{-(-ms // 1000)} s"


def stuck_rows(stuck: Sequence[Stuck]) -> list[dict[str, object]]:
    """What is stuck, the longest first."""
    ordered = sorted(stuck, key=lambda each: (-each.since_ms, each.name))
    return [asdict(each) | {"kind": each.kind.value} for each in ordered]

"""The answers of several shards as one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from mqcd.core.queueing.spid import parse_spid
from mqcd.core.samples import MOST_DESTINATIONS
from mqcd.core.selecting.parts import Key, show_key
from mqcd.daemon.control.actions.orders import SAMPLE
from mqcd.daemon.control.rows import badness

Row = Mapping[str, Any]
_ADDED = ("matched", "changed", "in_flight")
"""Figures of a batch that are those of all shards together."""
_BETTER = ("well", "waits", "replies", "full", "slow", "rate", "suspended", "rule")
"""Reasons of slowness, from the least important on."""


def destinations(rows: Sequence[Row]) -> list[Row]:
    """The worst of all shards, each destination once."""
    by_name: dict[str, Row] = {}
    for row in rows:
        before = by_name.get(row["destination"])
        by_name[row["destination"]] = row if before is None else _together(before, row)
    return sorted(by_name.values(), key=badness)[:MOST_DESTINATIONS]


def _together(one: Row, other: Row) -> dict[str, Any]:
    """A destination's rows of two shards as one."""
    newer = min((one, other), key=lambda row: (row["reply_ms"] is None, row["reply_ms"] or 0))
    worse = max((one, other), key=lambda row: (row["waiting"] > 0, _rank(row["why"])))
    ages = [row["oldest_ms"] for row in (one, other) if row["oldest_ms"] is not None]
    suspended = one["suspended"] and other["suspended"]
    return {
        **one,
        **{name: worse[name] for name in ("why", "why_text", "state")},
        "oldest_ms": max(ages, default=None),
        **{name: one[name] + other[name] for name in ("waiting", "connections", "idle", "window")},
        "suspended": suspended,
        "rule": one["rule"] or other["rule"],
        **{name: min(one[name], other[name]) for name in ("probe_in_ms", "rate_in_ms")},
        "rates": sorted({*one["rates"], *other["rates"]}),
        **{name: newer[name] for name in ("reply", "reply_ms")},
    }


def _rank(why: str) -> int:
    return _BETTER.index(why) if why in _BETTER else len(_BETTER)


def totals(rows: Sequence[Row]) -> dict[str, Any]:
    """Figures of several parts of the queue as those of one."""
    return {
        **rows[0],
        "recipients": sum(row["recipients"] for row in rows),
        "bytes": sum(row["bytes"] for row in rows),
        "oldest": min((row["oldest"] for row in rows if row["oldest"] is not None), default=None),
        **_unrouted(rows),
    }


def _unrouted(rows: Sequence[Row]) -> Row:
    """How many domains of any of them have no route now: most domains have mail in each."""
    most = max(row.get("unrouted", 0) for row in rows)
    return {"unrouted": most} if most else {}


def areas(by_shard: Sequence[Sequence[Row]]) -> list[Row]:
    """What the areas of all shards hold."""
    return [totals(rows) for rows in zip(*by_shard, strict=True)]


def batch(rows: Sequence[Row]) -> dict[str, Any]:
    """What the shards say of one batch."""
    whole = dict(rows[0])
    whole |= {name: sum(row[name] for row in rows) for name in _ADDED if name in whole}
    if "done" in whole:
        whole["done"] = all(row["done"] for row in rows)
        whole["trouble"] = "; ".join(row["trouble"] for row in rows if row["trouble"])
    whole |= _unrouted(rows)
    if "undo" in whole:
        whole["undo"] = any(row["undo"] for row in rows)
    if "sample" in whole:
        whole["sample"] = [each for row in rows for each in row["sample"]][:SAMPLE]
    return whole


def state(rows: Sequence[Row]) -> Row:
    """What is paused in any of them, and what all wait for."""
    parts = [
        next((part for part in same if part["paused"]), same[0])
        for same in zip(*(row["parts"] for row in rows), strict=True)
    ]
    areas = {name: sum(row["areas"][name] for row in rows) for name in rows[0]["areas"]}
    return {
        "parts": parts,
        "waiting": sum(areas.values()),
        "areas": areas,
        "drained": all(row["drained"] for row in rows),
    }


def rules(by_shard: Sequence[Sequence[Row]]) -> list[Row]:
    """They are the same for all shards; each has its own count of what they did."""
    by_id: dict[str, dict[str, Any]] = {}
    for rows in by_shard:
        for row in rows:
            known = by_id.setdefault(row["id"], {**row, "applied": 0})
            known["applied"] += row["applied"]
    return list(by_id.values())


def batches(by_shard: Sequence[Sequence[Row]]) -> list[Row]:
    """The lists of all shards, each batch once, the newest first."""
    by_name: dict[str, list[Row]] = {}
    for rows in by_shard:
        for row in rows:
            by_name.setdefault(row["batch"], []).append(row)
    return sorted(map(batch, by_name.values()), key=lambda row: row["at"], reverse=True)


def oldest(parts: Sequence[Row], limit: int) -> dict[str, Any]:
    """Parts of lists by age, each from the same place on, as one; and where the next begins."""
    rows = sorted((row for part in parts for row in part["rows"]), key=key_of)
    more = len(rows) > limit or any(part["next"] is not None for part in parts)
    after = show_key(key_of(rows[:limit][-1]), by_age=True) if more and rows else None
    return {"rows": rows[:limit], "next": after}


def key_of(row: Row) -> Key:
    """The place of a recipient in the order of age."""
    at = datetime.fromisoformat(row["received"])
    return round(at.timestamp() * 1000), parse_spid(row["spid"]), row["qid"]

"""Samples of a server's pages, and the figures derived from two or more of them. Pure.

Rates come from counters, so a single sample has none. A server that was restarted between two samples
begins anew: counters that have shrunk give no rate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any

from mqcd.core.events import ATTEMPT_ENDS
from mqcd.core.value import value

AREAS = ("incoming", "deferred", "bounces", "held")
MOST_DESTINATIONS = 100
"""The server lists at most this many of the worst, without a total."""
SPAN = 5
"""Rates are means over so many intervals; fewer jump, more come late."""

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")

Series = Mapping[tuple[str, ...], float]
"""The values of one metric by the values of its labels, in their order on the page."""
Rows = Sequence[Mapping[str, Any]]


def parse(text: str) -> dict[str, Series]:
    """The series of a page in the Prometheus text format; what is no sample is passed over."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for name, labels, text_value in _SAMPLE.findall(text):
        try:
            number = float(text_value)
        except ValueError:
            continue
        key = tuple(_ESCAPE.sub(_unescape, each) for _, each in _LABEL.findall(labels)) if labels else ()
        found.setdefault(name, {})[key] = number
    return {**found}


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


@value
class Sample:
    """A server's pages at one moment."""

    taken: float
    """Seconds of a clock that is never set."""
    at: int
    """Wall time, ms."""
    metrics: Mapping[str, Series] = field(default_factory=dict)
    destinations: Rows = ()
    stuck: Rows = ()
    hidden: str = ""
    """Why destinations and what is stuck are not known; "" = they are."""
    against: str = ""
    """Why it is not ready; "" = it is."""

    def value(self, name: str, *labels: str) -> float:
        """One value; 0 where there is none."""
        return self.metrics.get(name, {}).get(labels, 0.0)

    def count(self, name: str, *labels: str) -> int:
        """The same for what is counted."""
        return int(self.value(name, *labels))

    def total(self, name: str) -> float:
        return sum(self.metrics.get(name, {}).values())


RATES = {
    "accepted": "mqcd_recipients_accepted_total",
    **{verb.value: f"mqcd_recipients_{verb}_total" for verb in ATTEMPT_ENDS},
    "refused": "mqcd_refused_total",
    "attempts": "mqcd_attempts_total",
    "accepted_bytes": "mqcd_accepted_bytes_total",
}
"""Rates per second, and the counters behind them."""


@value
class View:
    """The figures shown of a server."""

    at: int
    version: str
    uptime: float
    """Seconds."""
    against: str
    known: bool
    """Whether there are figures; a server that is not open has none."""
    rates: Mapping[str, float | None]
    """Per second, by the names of RATES; None = not known yet."""
    trends: Mapping[str, Sequence[float]]
    """Accepted and delivered, per second, interval by interval."""
    areas: Mapping[str, tuple[int, int, float]]
    """Recipients, octets, and the age of the oldest (seconds)."""
    commit_ms: float | None
    """A commit's time, mean of the last intervals; None = there was none."""
    group: float | None
    """Frames in it."""
    journal: float
    """Used share of the ring, 0 to 1; of the fullest one where there are several shards."""
    lag: float
    """How late the event loop ran, seconds."""
    cpu: float | None
    """Processors used."""
    memory: int
    """Octets resident."""
    clients: int
    connections: int
    disks: Mapping[str, int]
    """Free octets by root."""
    lanes: int
    suspended: int
    unknown: int
    """Outcomes that crashes hid, since the start."""
    imbalance: int
    stuck: Rows
    stuck_recipients: int
    destinations: Rows
    hidden: str = ""
    """Why there are no destinations; "" = nothing waits."""


def view(samples: Sequence[Sample]) -> View:
    """The view derived from samples, oldest first and at least one."""
    last = samples[-1]
    recent = samples[-SPAN - 1 :]
    versions = last.metrics.get("mqcd_build_info", {})
    began = last.value("process_start_time_seconds")
    commits = _grown(recent, "mqcd_commit_seconds_count")
    syncs = _grown(recent, "mqcd_commit_group_size_count")
    return View(
        at=last.at,
        version=next(iter(versions), ("",))[0],
        uptime=max(last.at / 1000 - began, 0) if began else 0,
        against=last.against,
        known=bool(last.metrics),
        rates={name: _rate(recent, metric) for name, metric in RATES.items()},
        trends={name: list(_trend(samples, RATES[name])) for name in ("accepted", "delivered")},
        areas={area: _area(last, area) for area in AREAS},
        commit_ms=1000 * (_grown(recent, "mqcd_commit_seconds_sum") or 0) / commits if commits else None,
        group=(_grown(recent, "mqcd_commit_group_size_sum") or 0) / syncs if syncs else None,
        journal=max(last.metrics.get("mqcd_journal_fill_ratio", {}).values(), default=0.0),
        lag=last.value("mqcd_loop_lag_seconds"),
        cpu=_rate(recent, "process_cpu_seconds_total"),
        memory=last.count("process_resident_memory_bytes"),
        clients=int(last.total("mqcd_listener_open_connections")),
        connections=int(last.total("mqcd_zone_open_connections")),
        disks={root: int(free) for (root,), free in last.metrics.get("mqcd_disk_free_bytes", {}).items()},
        lanes=last.count("mqcd_lanes"),
        suspended=last.count("mqcd_destinations_suspended"),
        unknown=last.count("mqcd_outcome_unknown_total"),
        imbalance=last.count("mqcd_ledger_imbalance_recipients"),
        stuck=last.stuck,
        stuck_recipients=last.count("mqcd_stuck_recipients"),
        destinations=last.destinations,
        hidden=last.hidden,
    )


def _area(sample: Sample, area: str) -> tuple[int, int, float]:
    return (
        sample.count("mqcd_queue_recipients", area),
        sample.count("mqcd_queue_bytes", area),
        sample.value("mqcd_oldest_recipient_age_seconds", area),
    )


def _grown(samples: Sequence[Sample], metric: str) -> float | None:
    """The growth of a counter from the first sample to the last; None if unknown."""
    first, last = samples[0], samples[-1]
    if first is last or not first.metrics or not last.metrics:
        return None
    grown = last.total(metric) - first.total(metric)
    return grown if grown >= 0 else None


def _rate(samples: Sequence[Sample], metric: str) -> float | None:
    grown = _grown(samples, metric)
    seconds = samples[-1].taken - samples[0].taken
    return None if grown is None or seconds <= 0 else grown / seconds


def _trend(samples: Sequence[Sample], metric: str) -> Iterator[float]:
    for pair in pairwise(samples):
        yield _rate(pair, metric) or 0.0

"""One exposition of several: the figures of the server processes of all shards, as of one server. Pure.

Figures are added, but for those in `_OTHERWISE`. What differs between shards and cannot be added has a
`shard` label instead. Counters do not go back when a process is started again, or does not answer: what it
had counted stays in the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

_OTHERWISE: Mapping[str, Callable[[float, float], float]] = {
    "mqcd_oldest_recipient_age_seconds": max,
    "mqcd_site_oldest_recipient_age_seconds": max,
    "mqcd_loop_lag_seconds": max,
    "mqcd_recovery_seconds": max,
    "mqcd_advice_pieces": max,
    "mqcd_disk_free_bytes": min,
    "mqcd_disk_free_inodes": min,
    "mqcd_build_info": max,
    "mqcd_clock_leap_seconds": lambda one, other: one if abs(one) > abs(other) else other,
    "process_start_time_seconds": min,
    "process_max_fds": max,
    "python_info": max,
}
_APART = frozenset(("mqcd_journal_fill_ratio",))
"""Shown for each shard."""

_COUNTING = frozenset(("counter", "histogram"))
_STARTED = "process_start_time_seconds"

_Key = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels of one series."""
_Families = Mapping[str, tuple[Metric, Mapping[_Key, float]]]
"""By name: a family of one process, and the values of its series."""


class _Merged(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


@dataclass(slots=True)
class _Shard:
    """What one shard has counted."""

    started: float = 0.0
    """When its process was started."""
    last: _Families = field(default_factory=dict)
    """The counters that it showed last."""
    earlier: dict[_Key, float] = field(default_factory=dict)
    """What its earlier processes had counted. Not by site: of sites a process shows a few in turn."""

    def look(self, families: _Families) -> None:
        """Take over what its process shows now."""
        started = max(families[_STARTED][1].values()) if _STARTED in families else 0.0
        if started != self.started:
            for key, value in self._series():
                self.earlier[key] = self.earlier.get(key, 0.0) + value
            self.started = started
        self.last = {name: each for name, each in families.items() if each[0].type in _COUNTING}

    def _series(self) -> Iterator[tuple[_Key, float]]:
        for _, values in self.last.values():
            for key, value in values.items():
                if all(label != "site" for label, _ in key[1]):
                    yield key, value


class Merger:
    """Keeps what has been counted, so that no sum goes back while a process is started again."""

    def __init__(self) -> None:
        self._shards: dict[int, _Shard] = {}

    def merge(self, expositions: Mapping[int, str], *, open_metrics: bool = False) -> bytes:
        """Of the text of each shard's /metrics that of all. Raises ValueError for what is no exposition."""
        families: dict[str, Metric] = {}
        sums: dict[str, dict[_Key, float]] = {}
        shown = {number: _families(number, text) for number, text in expositions.items()}
        for number, own in shown.items():
            self._shards.setdefault(number, _Shard()).look(own)
        for number, shard in sorted(self._shards.items()):
            for name, (family, values) in shown.get(number, shard.last).items():
                families.setdefault(name, Metric(name, family.documentation, family.type))
                found = sums.setdefault(name, {})
                together = _OTHERWISE.get(name, float.__add__)
                for key, value in values.items():
                    found[key] = together(found[key], value) if key in found else value
            for key, value in shard.earlier.items():
                family_name = next((each for each in (key[0], *_stems(key[0])) if each in sums), None)
                if family_name is not None:
                    sums[family_name][key] = sums[family_name].get(key, 0.0) + value
        for name, family in families.items():
            for (sample_name, pairs), value in sums[name].items():
                family.add_sample(sample_name, dict(pairs), value)
        encode = openmetrics if open_metrics else generate_latest
        merged: bytes = encode(_Merged(families.values()))
        return merged


def _families(shard: int, text: str) -> _Families:
    found: dict[str, tuple[Metric, dict[_Key, float]]] = {}
    for family in text_string_to_metric_families(text):
        _, values = found.setdefault(family.name, (family, {}))
        for sample in family.samples:
            labels = dict(sample.labels)
            if family.name in _APART:
                labels["shard"] = str(shard)
            values[sample.name, tuple(sorted(labels.items()))] = float(sample.value)
    return found


def _stems(name: str) -> Iterator[str]:
    return (name.removesuffix(end) for end in ("_total", "_bucket", "_count", "_sum") if name.endswith(end))

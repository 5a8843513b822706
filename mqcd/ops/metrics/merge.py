"""One exposition of several: the figures of the server processes of all shards, as of one server. Pure.

How a metric is merged is said by the catalogue, and here for what the client library adds. Counters do not
go back when a process is started again, or does not answer: what it had counted stays in the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from mqcd.ops.metrics.catalogue import CATALOGUE, Merge

_LIBRARY: Mapping[str, Merge] = {
    "process_start_time_seconds": Merge.MIN,
    "process_max_fds": Merge.MAX,
    "python_info": Merge.SAME,
}
"""All its other figures are added."""
_DECLARED: Mapping[str, Merge] = {**_LIBRARY, **{spec.name: spec.merge for spec in CATALOGUE}}
_TOGETHER: Mapping[Merge, Callable[[float, float], float]] = {
    Merge.SUM: float.__add__,
    Merge.MAX: max,
    Merge.MIN: min,
    Merge.SAME: max,
    Merge.FARTHEST: lambda one, other: one if abs(one) > abs(other) else other,
    # No two shards have a series in common.
    Merge.BY_SHARD: lambda one, _: one,
}

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
        """Makes one text of /metrics of those of all shards. Raises ValueError for what is no exposition."""
        families: dict[str, Metric] = {}
        sums: dict[str, dict[_Key, float]] = {}
        shown = {number: _families(number, text) for number, text in expositions.items()}
        for number, own in shown.items():
            self._shards.setdefault(number, _Shard()).look(own)
        for number, shard in sorted(self._shards.items()):
            for name, (family, values) in shown.get(number, shard.last).items():
                families.setdefault(name, Metric(name, family.documentation, family.type))
                found = sums.setdefault(name, {})
                together = _TOGETHER[_merge(name)]
                for key, value in values.items():
                    found[key] = together(found[key], value) if key in found else value
            for key, value in shard.earlier.items():
                # Of earlier processes only samples are kept: the family is found by the name of each.
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
            if _merge(family.name) is Merge.BY_SHARD:
                labels["shard"] = str(shard)
            values[sample.name, tuple(sorted(labels.items()))] = float(sample.value)
    return found


def _merge(family: str) -> Merge:
    # A counter's family has its name without `_total`: not found, it is added.
    return _DECLARED.get(family, Merge.SUM)


def _stems(name: str) -> Iterator[str]:
    """What the family of a sample of this name may be called: its counters and histograms have endings."""
    return (name.removesuffix(end) for end in ("_total", "_bucket", "_count", "_sum") if name.endswith(end))

"""One exposition of several: the figures of the server processes of all shards, as of one server. Pure.

Figures are added, but for those in `_OTHERWISE`. What differs between shards and cannot be added has a
`shard` label instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.exposition import generate_latest
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

_Key = tuple[str, tuple[tuple[str, str], ...]]


class _Merged(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def merge(expositions: Mapping[int, str]) -> bytes:
    """By shard, the text of its /metrics; gives that of all. Raises ValueError for what is no exposition."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[_Key, float]] = {}
    for shard, text in sorted(expositions.items()):
        for family in text_string_to_metric_families(text):
            families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            found = values.setdefault(family.name, {})
            together = _OTHERWISE.get(family.name, float.__add__)
            for sample in family.samples:
                labels = dict(sample.labels)
                if family.name in _APART:
                    labels["shard"] = str(shard)
                key = sample.name, tuple(sorted(labels.items()))
                value = float(sample.value)
                found[key] = together(found[key], value) if key in found else value
    for name, family in families.items():
        for (sample_name, pairs), value in values[name].items():
            family.add_sample(sample_name, dict(pairs), value)
    merged: bytes = generate_latest(_Merged(families.values()))
    return merged

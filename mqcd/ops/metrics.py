"""What /metrics shows, gathered at the moment of asking and given to prometheus-client.

The figures come from the event counters, from the store's own tallies and from callables that the
composition root supplies; a part that is not there (a store without a journal) leaves its metrics out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mqcd import __version__
from mqcd.core.model import Area, AreaStats
from mqcd.core.ports import Clock, Distribution, EngineFigures
from mqcd.ops.catalogue import CATALOGUE, Kind, Spec
from mqcd.ops.meters import Meters

Value = float | Mapping[str, float] | Distribution
"""A plain value, one per label value, or a distribution."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class HasStats(Protocol):
    """The one side of a queue store that is looked at."""

    def stats(self) -> Mapping[Area, AreaStats]:
        """What each area holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryFigures:
    """What mail out tells of itself."""

    lanes: int
    suspended: int
    stuck: int = 0


class Metrics(Collector):
    """All metrics of one server."""

    def __init__(
        self,
        clock: Clock,
        meters: Meters,
        store: HasStats,
        *,
        engine: Callable[[], EngineFigures] | None = None,
        delivery: Callable[[], DeliveryFigures] | None = None,
        loop_lag_ms: Callable[[], int] | None = None,
    ) -> None:
        self._clock = clock
        self._meters = meters
        self._store = store
        self._engine = engine
        self._delivery = delivery
        self._loop_lag_ms = loop_lag_ms
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def exposition(self) -> bytes:
        """The page, in the text format that CONTENT_TYPE names."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Every metric of the catalogue that has a value now."""
        values = self._values()
        for spec in CATALOGUE:
            if spec.name in values:
                yield _family(spec, values[spec.name])

    def _values(self) -> dict[str, Value]:
        values: dict[str, Value] = {"mqcd_build_info": {__version__: 1}}
        values |= _of_events(self._meters)
        values |= self._of_areas()
        if self._delivery is not None:
            values |= _of_delivery(self._delivery())
        if self._engine is not None:
            values |= _of_engine(self._engine())
        if self._loop_lag_ms is not None:
            values["mqcd_loop_lag_seconds"] = self._loop_lag_ms() / 1000
        return values

    def _of_areas(self) -> dict[str, Value]:
        stats = self._store.stats()
        now = self._clock.now()
        return {
            "mqcd_queue_recipients": {area.value: stats[area].recipients for area in Area},
            "mqcd_queue_bytes": {area.value: stats[area].octets for area in Area},
            "mqcd_oldest_recipient_age_seconds": {area.value: _age(stats[area], now) for area in Area},
        }


def _age(stats: AreaStats, now: int) -> float:
    return 0.0 if stats.oldest is None else max(now - stats.oldest, 0) / 1000


def _of_events(meters: Meters) -> dict[str, Value]:
    return {
        "mqcd_messages_accepted_total": meters.accepted_messages,
        "mqcd_accepted_bytes_total": meters.accepted_octets,
        "mqcd_recipients_accepted_total": meters.accepted_recipients,
        "mqcd_recipients_delivered_total": meters.delivered_recipients,
        "mqcd_recipients_deferred_total": meters.deferred_recipients,
        "mqcd_recipients_bounced_total": meters.bounced_recipients,
        "mqcd_recipients_expired_total": meters.expired_recipients,
        "mqcd_attempts_total": meters.attempts,
        "mqcd_reports_total": meters.reports,
        "mqcd_reports_failed_total": meters.failed_reports,
        "mqcd_bounces_reported_total": meters.reported_recipients,
        "mqcd_bounces_discarded_total": dict(meters.discarded_bounces.counts),
        "mqcd_outcome_unknown_total": meters.unknown_outcomes,
        "mqcd_possibly_delivered_total": meters.possibly_delivered,
        "mqcd_refused_total": dict(meters.refusals.counts),
        "mqcd_connections_total": meters.connections,
        "mqcd_connections_failed_total": meters.failed_connections,
        "mqcd_time_in_queue_seconds": meters.queued.in_seconds(),
        "mqcd_attempt_duration_seconds": meters.attempt_durations.in_seconds(),
    }


def _of_delivery(figures: DeliveryFigures) -> dict[str, Value]:
    return {
        "mqcd_lanes": figures.lanes,
        "mqcd_destinations_suspended": figures.suspended,
        "mqcd_stuck_recipients": figures.stuck,
    }


def _of_engine(figures: EngineFigures) -> dict[str, Value]:
    return {
        "mqcd_commit_seconds": figures.commit_seconds,
        "mqcd_commit_group_size": figures.commit_group_size,
        "mqcd_syncs_total": figures.syncs,
        "mqcd_journal_fill_ratio": figures.journal_fill_ratio,
        "mqcd_evacuation_seconds": figures.evacuation_seconds,
        "mqcd_spid_cache_entries": figures.spid_cache_entries,
        "mqcd_spid_cache_misses_total": figures.spid_cache_misses,
        "mqcd_reference_batch_entries": figures.reference_batch,
        "mqcd_reference_scan_seconds": figures.reference_scan_seconds,
        "mqcd_recovery_seconds": figures.recovery_seconds,
        "mqcd_quarantined_lines_total": figures.quarantined_lines,
        "mqcd_clock_leap_seconds": figures.clock_leap_seconds,
        "mqcd_disk_free_bytes": dict(figures.disk_free_bytes),
        "mqcd_disk_free_inodes": dict(figures.disk_free_inodes),
    }


def _family(spec: Spec, value: Value) -> Metric:
    """One metric as prometheus-client wants it; it adds `_total` to a counter's name by itself."""
    if isinstance(value, Distribution):
        bounds = [*(str(float(bound)) for bound in value.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(value.counts), strict=True))
        return HistogramMetricFamily(spec.name, spec.meaning, buckets=buckets, sum_value=value.total)
    labels = [spec.label] if spec.label else []
    family: CounterMetricFamily | GaugeMetricFamily
    if spec.kind is Kind.COUNTER:
        family = CounterMetricFamily(spec.name, spec.meaning, labels=labels)
    else:
        family = GaugeMetricFamily(spec.name, spec.meaning, labels=labels)
    samples = value if isinstance(value, Mapping) else {"": value}
    for label, number in samples.items():
        family.add_metric([label] if labels else [], number)
    return family

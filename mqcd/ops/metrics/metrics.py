"""What /metrics shows, gathered at the moment of asking and given to prometheus-client.

The figures come from the event counters, from the store's own tallies and from callables that the
composition root supplies; a part that is not there (a store without a journal) leaves its metrics out.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import field
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mqcd import __version__
from mqcd.core.figures import Distribution, EngineFigures
from mqcd.core.model import Area, AreaStats
from mqcd.core.ports import Clock
from mqcd.core.value import value
from mqcd.ops.metrics.breakdown import NO_NAME, Breakdown
from mqcd.ops.metrics.catalogue import CATALOGUE, Kind, Spec
from mqcd.ops.metrics.labelled import Labelled, by_label, by_site
from mqcd.ops.metrics.ledger import HasStats, Ledger
from mqcd.ops.metrics.meters import Meters

Value = float | Distribution | Mapping[str, float] | Labelled
"""A plain value or a distribution; one per value of the one label, or per values of all labels."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text"


@value
class DeliveryFigures:
    """Figures of delivery."""

    lanes: int
    suspended: int
    stuck: int = 0
    connections: Mapping[str, int] = field(default_factory=dict)
    """Open or being opened, by zone; "" is mail that no zone takes."""
    site_connections: Mapping[str, int] = field(default_factory=dict)
    """The same by destination, for the requested ones; "" are all others."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Recipients that wait in the active set, by destination, likewise."""
    oldest: Mapping[str, int] = field(default_factory=dict)
    """By destination, when the oldest message in the active set was accepted, ms."""


@value
class FeedFigures:
    """How far one feed of the event log has come."""

    events: int
    gaps: int
    failing_since: int
    """When it began to fail, ms; 0 = it does not."""


@value
class Omissions:
    """What logs and event files do not have, counted since the start."""

    log_lines: int
    audit_lines: int
    events: Mapping[str, int]
    """By verb, each that can be left out."""


class Metrics(Collector):
    """All metrics of one server."""

    def __init__(
        self,
        clock: Clock,
        meters: Meters,
        store: HasStats,
        *,
        breakdown: Breakdown | None = None,
        engine: Callable[[], EngineFigures] | None = None,
        delivery: Callable[[Container[str]], DeliveryFigures] | None = None,
        feeds: Callable[[], Mapping[str, FeedFigures]] | None = None,
        omissions: Callable[[], Omissions] | None = None,
        others: Mapping[str, Callable[[], Value]] = {},
    ) -> None:
        """`delivery` gives the figures of some destinations apart; `others`: what further metrics, by name,
        stand at. Raises ValueError for one that is not in the catalogue."""
        if unknown := others.keys() - {spec.name for spec in CATALOGUE}:
            raise ValueError(f"not in the catalogue: {min(unknown)}")
        self._clock = clock
        self._meters = meters
        self._breakdown = breakdown
        self._store = store
        self._engine = engine
        self._delivery = delivery
        self._feeds = feeds
        self._omissions = omissions
        self._others = others
        self._ledger = Ledger(meters, store)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def open_ledger(self) -> None:
        """The queue has been read: from now on the books must balance."""
        self._ledger.open(self._engine().quarantined_lines if self._engine else 0)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """The page and its content type: OpenMetrics for a client that accepts it, else Prometheus' own."""
        if OPENMETRICS in accept:
            encode, content_type = choose_encoder(f"{OPENMETRICS}; version=1.0.0")
        else:
            encode, content_type = choose_encoder("")[0], CONTENT_TYPE
        return encode(self._registry), content_type

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
        values |= {name: ask() for name, ask in self._others.items()}
        quarantined = 0
        if self._engine is not None:
            figures = self._engine()
            quarantined = figures.quarantined_lines
            values |= _of_engine(figures)
        if (imbalance := self._ledger.imbalance(quarantined)) is not None:
            values["mqcd_ledger_imbalance_recipients"] = imbalance
        if self._feeds is not None:
            values |= _of_feeds(self._feeds(), self._clock.now())
        if self._omissions is not None:
            values |= _of_omissions(self._omissions())
        self._add_labelled(values)
        return values

    def _add_labelled(self, values: dict[str, Value]) -> None:
        now, breakdown = self._clock.now(), self._breakdown
        sites: Container[str] = ()
        if breakdown is not None:
            breakdown.sites.tick(now)
            values |= by_label(breakdown)
            sites = breakdown.sites.names
        if self._delivery is not None:
            figures = self._delivery(sites)
            values |= _of_delivery(figures)
            if breakdown is not None:
                values |= by_site(breakdown, figures.site_connections, figures.waiting, figures.oldest, now)

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
        "mqcd_recipients_amended_total": dict(meters.amended_recipients.counts),
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
        "mqcd_zone_open_connections": {zone or NO_NAME: count for zone, count in figures.connections.items()},
    }


def _of_feeds(feeds: Mapping[str, FeedFigures], now: int) -> dict[str, Value]:
    failing = {
        name: max(now - each.failing_since, 0) / 1000 if each.failing_since else 0.0
        for name, each in feeds.items()
    }
    return {
        "mqcd_feed_events_total": {name: each.events for name, each in feeds.items()},
        "mqcd_feed_gaps_total": {name: each.gaps for name, each in feeds.items()},
        "mqcd_feed_failing_seconds": failing,
    }


def _of_omissions(omissions: Omissions) -> dict[str, Value]:
    return {
        "mqcd_log_lines_lost_total": omissions.log_lines,
        "mqcd_audit_lines_lost_total": omissions.audit_lines,
        "mqcd_events_left_out_total": dict(omissions.events),
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
        "mqcd_unreadable_frames_total": figures.unreadable_frames,
        "mqcd_event_files_removed_total": figures.removed_event_files,
        "mqcd_manifest_edits_dropped_total": figures.dropped_edits,
        "mqcd_helper_hung_total": figures.hung_helpers,
        "mqcd_idempotency_keys": figures.idempotency_keys,
        "mqcd_idempotent_repeats_total": figures.idempotent_repeats,
        "mqcd_clock_leap_seconds": figures.clock_leap_seconds,
        "mqcd_disk_free_bytes": dict(figures.disk_free_bytes),
        "mqcd_disk_free_inodes": dict(figures.disk_free_inodes),
    }


def _family(spec: Spec, value: Value) -> Metric:
    """One metric as prometheus-client wants it; it adds `_total` to a counter's name by itself."""
    if isinstance(value, Distribution | float | int):
        samples: Labelled = {(): value}
    else:
        samples = {(key,) if isinstance(key, str) else key: each for key, each in value.items()}
    if spec.kind is Kind.HISTOGRAM:
        return _histogram(spec, samples)
    make = CounterMetricFamily if spec.kind is Kind.COUNTER else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = make(spec.name, spec.meaning, labels=spec.labels)
    for labels, number in samples.items():
        if not isinstance(number, Distribution):
            family.add_metric(labels, number)
    return family


def _histogram(spec: Spec, samples: Labelled) -> Metric:
    family = HistogramMetricFamily(spec.name, spec.meaning, labels=spec.labels)
    for labels, counted in samples.items():
        if isinstance(counted, Distribution):
            bounds = [*(str(float(bound)) for bound in counted.bounds), "+Inf"]
            buckets = list(zip(bounds, accumulate(counted.counts), strict=True))
            family.add_metric(labels, buckets, counted.total)
    return family

"""The /metrics page, read back with prometheus-client's own parser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mqcd import __version__
from mqcd.core.model import Area
from mqcd.core.ports import Distribution, EngineFigures
from mqcd.ops.catalogue import CATALOGUE, Kind
from mqcd.ops.meters import Meters
from mqcd.ops.metrics import DeliveryFigures, Metrics
from mqcd.stores.memory import MemoryStore
from tests.contract.mail import BODY, Post, bounced, deferred, delivered
from tests.fakes.clock import FakeClock

ENGINE = EngineFigures(
    commit_seconds=Distribution(bounds=[0.001, 0.01], counts=[3, 2, 1], total=0.5),
    commit_group_size=Distribution(bounds=[1, 8], counts=[3, 2, 1], total=70),
    syncs=6,
    journal_fill_ratio=0.25,
    evacuation_seconds=Distribution(counts=[2], total=1.5),
    spid_cache_entries=9,
    spid_cache_misses=1,
    reference_batch=3,
    reference_scan_seconds=Distribution(counts=(2,), total=0.5),
    recovery_seconds=0.2,
    quarantined_lines=0,
    clock_leap_seconds=0.0,
    disk_free_bytes={"queue": 10**9, "spool": 2 * 10**9},
    disk_free_inodes={"queue": 1000, "spool": 2000},
)

NAMES = [
    "mqcd_recipients_accepted_total",
    "mqcd_recipients_delivered_total",
    "mqcd_recipients_deferred_total",
    "mqcd_recipients_bounced_total",
    "mqcd_recipients_expired_total",
    "mqcd_attempts_total",
    "mqcd_reports_total",
    "mqcd_outcome_unknown_total",
    "mqcd_refused_total",
    "mqcd_queue_recipients",
    "mqcd_queue_bytes",
    "mqcd_oldest_recipient_age_seconds",
    "mqcd_time_in_queue_seconds",
    "mqcd_attempt_duration_seconds",
    "mqcd_commit_seconds",
    "mqcd_commit_group_size",
    "mqcd_syncs_total",
    "mqcd_journal_fill_ratio",
    "mqcd_evacuation_seconds",
    "mqcd_spid_cache_entries",
    "mqcd_spid_cache_misses_total",
    "mqcd_recovery_seconds",
    "mqcd_quarantined_lines_total",
    "mqcd_clock_leap_seconds",
    "mqcd_disk_free_bytes",
    "mqcd_disk_free_inodes",
    "mqcd_lanes",
    "mqcd_destinations_suspended",
    "mqcd_stuck_recipients",
    "mqcd_loop_lag_seconds",
    "mqcd_build_info",
]
"""Names that dashboards rely on. This list only grows."""


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.meters = Meters()
        self.store = MemoryStore(self.clock, self.meters)
        self.post = Post(self.store, self.clock)
        self.metrics = Metrics(
            self.clock,
            self.meters,
            self.store,
            engine=lambda: ENGINE,
            delivery=lambda: DeliveryFigures(lanes=4, suspended=1, stuck=2),
            loop_lag_ms=lambda: 12,
        )

    def samples(self) -> dict[str, float]:
        """What the page says, by sample name and labels."""
        return read(self.metrics)


def read(metrics: Metrics) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


@pytest.fixture
async def bench() -> Bench:
    bench = Bench()
    await bench.store.open()
    return bench


async def test_the_page_follows_the_queue(bench: Bench) -> None:
    await bench.post.send("a@example.org", "b@example.org", "c@example.org")
    first, second, third = await bench.post.claim_all()
    await bench.post.settle(deferred(bench.clock.now() + 1000), first)
    await bench.post.settle(bounced(), second)
    bench.clock.advance(2500)
    await bench.post.settle(delivered(), third)
    samples = bench.samples()
    assert samples["mqcd_recipients_accepted_total"] == 3
    assert samples["mqcd_recipients_delivered_total"] == 1
    assert samples["mqcd_recipients_deferred_total"] == 1
    assert samples["mqcd_recipients_bounced_total"] == 1
    assert samples["mqcd_queue_recipients{area=incoming}"] == 0
    assert samples["mqcd_queue_recipients{area=deferred}"] == 1
    assert samples["mqcd_queue_bytes{area=bounces}"] == len(BODY)
    assert samples["mqcd_oldest_recipient_age_seconds{area=deferred}"] == 2.5
    assert samples["mqcd_oldest_recipient_age_seconds{area=incoming}"] == 0
    assert samples["mqcd_time_in_queue_seconds_count"] == 1
    assert samples["mqcd_time_in_queue_seconds_sum"] == 2.5
    assert samples["mqcd_time_in_queue_seconds_bucket{le=1.0}"] == 0
    assert samples["mqcd_time_in_queue_seconds_bucket{le=5.0}"] == 1
    assert samples["mqcd_time_in_queue_seconds_bucket{le=+Inf}"] == 1


async def test_every_area_has_its_samples_from_the_start(bench: Bench) -> None:
    samples = bench.samples()
    for name in ("mqcd_queue_recipients", "mqcd_queue_bytes", "mqcd_oldest_recipient_age_seconds"):
        for area in Area:
            assert samples[f"{name}{{area={area.value}}}"] == 0


async def test_figures_of_the_other_parts(bench: Bench) -> None:
    samples = bench.samples()
    assert samples["mqcd_commit_seconds_bucket{le=0.01}"] == 5
    assert samples["mqcd_commit_seconds_count"] == 6
    assert samples["mqcd_commit_seconds_sum"] == 0.5
    assert samples["mqcd_evacuation_seconds_bucket{le=+Inf}"] == 2
    assert samples["mqcd_evacuation_seconds_sum"] == 1.5
    assert samples["mqcd_disk_free_bytes{root=spool}"] == 2e9
    assert samples["mqcd_destinations_suspended"] == 1
    assert samples["mqcd_loop_lag_seconds"] == 0.012
    assert samples[f"mqcd_build_info{{version={__version__}}}"] == 1


async def test_a_part_that_is_not_there_leaves_its_metrics_out(bench: Bench) -> None:
    bare = read(Metrics(bench.clock, bench.meters, bench.store))
    assert "mqcd_syncs_total" not in bare
    assert "mqcd_lanes" not in bare
    assert bare["mqcd_attempts_total"] == 0


async def test_the_page_has_all_of_the_catalogue_and_nothing_else(bench: Bench) -> None:
    page = bench.metrics.exposition().decode()
    told = dict(re.findall(r"^# TYPE (mqcd_\S+) (\S+)$", page, re.MULTILINE))
    assert told == {spec.name: spec.kind.value for spec in CATALOGUE}
    for spec in CATALOGUE:
        assert f"# HELP {spec.name} {spec.meaning}\n" in page


def test_names_that_dashboards_rely_on_stay() -> None:
    assert set(NAMES) <= {spec.name for spec in CATALOGUE}


def test_names_follow_their_kind() -> None:
    for spec in CATALOGUE:
        assert (spec.kind is Kind.COUNTER) is spec.name.endswith("_total")


def test_the_document_says_what_the_code_says() -> None:
    text = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(mqcd_\w+)` \| (\w+) \| (?:`(\w+)`)? ?\| (.+) \|$", text, re.MULTILINE)
    assert rows == [(spec.name, spec.kind.value, spec.label, spec.meaning) for spec in CATALOGUE]


async def test_hostile_reasons_cannot_break_the_page(bench: Bench) -> None:
    bench.meters.refusals.add('x"} 1\nmqcd_forged_total 7\\')
    samples = bench.samples()
    assert "mqcd_forged_total" not in samples

"""The /metrics page, read back with prometheus-client's own parser."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from mqcd import __version__
from mqcd.core.figures import Distribution, EngineFigures
from mqcd.core.model import Area, Envelope, Recipient
from mqcd.core.ports import Refusal
from mqcd.core.smtp.reply import Reply
from mqcd.ops.fanout import Fanout
from mqcd.ops.metrics.breakdown import Breakdown
from mqcd.ops.metrics.catalogue import CATALOGUE, Kind, table
from mqcd.ops.metrics.labelled import WORST, Labelled
from mqcd.ops.metrics.meters import Meters
from mqcd.ops.metrics.metrics import CONTENT_TYPE, DeliveryFigures, FeedFigures, Metrics, Omissions
from tests.contract.mail import ATTEMPT, BODY, Post, bounced, deferred, delivered
from tests.fakes.clock import FakeClock
from tests.fakes.store import MemoryStore

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
    unreadable_frames=0,
    removed_event_files=4,
    dropped_edits=0,
    hung_helpers=0,
    idempotency_keys=0,
    idempotent_repeats=0,
    clock_leap_seconds=0.0,
    disk_free_bytes={"queue": 10**9, "spool": 2 * 10**9},
    disk_free_inodes={"queue": 1000, "spool": 2000},
)

NAMES = [
    "recipients_accepted_total", "recipients_delivered_total", "recipients_deferred_total",
    "recipients_bounced_total", "recipients_expired_total", "attempts_total", "reports_total",
    "outcome_unknown_total", "refused_total", "queue_recipients", "queue_bytes",
    "oldest_recipient_age_seconds", "time_in_queue_seconds", "attempt_duration_seconds", "commit_seconds",
    "commit_group_size", "syncs_total", "journal_fill_ratio", "evacuation_seconds", "spid_cache_entries",
    "spid_cache_misses_total", "recovery_seconds", "quarantined_lines_total", "unreadable_frames_total",
    "manifest_edits_dropped_total", "helper_hung_total", "idempotency_keys", "idempotent_repeats_total",
    "clock_leap_seconds", "disk_free_bytes",
    "disk_free_inodes", "lanes", "destinations_suspended", "stuck_recipients", "loop_lag_seconds",
    "build_info", "listener_messages_total", "listener_recipients_total", "listener_message_size_bytes",
    "listener_refused_total", "listener_open_connections", "zone_verdicts_total", "zone_delivered_total",
    "zone_time_in_queue_seconds", "zone_open_connections", "replies_total", "site_verdicts_total",
    "site_attempt_duration_seconds", "site_connections_total", "site_connections_failed_total",
    "site_open_connections", "site_waiting_recipients", "site_oldest_recipient_age_seconds",
    "ledger_imbalance_recipients", "event_files_removed_total", "events_left_out_total",
    "log_lines_lost_total", "audit_lines_lost_total",
]  # fmt: skip
"""Names that dashboards rely on, behind `mqcd_`. This list only grows."""


MAIL = Recipient(
    envelope=Envelope(spid=2, sender="s@example.com", received=0), size=1, qid=1, address="a@example.org"
)


STORE: Labelled = {("cluster", "yes", "yes", "no"): 1}


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.meters = Meters()
        self.breakdown = Breakdown(sites=5)
        self.store = MemoryStore(self.clock, Fanout(self.meters, self.breakdown))
        self.post = Post(self.store, self.clock)
        self.oldest: dict[str, int] = {}
        self.metrics = Metrics(
            self.clock,
            self.meters,
            self.store,
            breakdown=self.breakdown,
            engine=lambda: ENGINE,
            delivery=self._delivery,
            feeds=lambda: {"crm": FeedFigures(events=7, gaps=1, failing_since=self.clock.now() - 3000)},
            omissions=lambda: Omissions(log_lines=3, audit_lines=2, events={"refused": 5}),
            others={
                "mqcd_store_info": lambda: STORE,
                "mqcd_listener_open_connections": lambda: {"mx": 7},
                "mqcd_advice_pieces": lambda: {"suppress": 3, "shape": 1},
                "mqcd_rules": lambda: {"hold": 2, "suspend": 0},
                "mqcd_paused": lambda: {"accept": 0, "deliver": 1},
                "mqcd_loop_lag_seconds": lambda: 0.012,
            },
        )
        self.metrics.open_ledger()

    def _delivery(self, sites: Container[str]) -> DeliveryFigures:
        named = {"example.org": 6} if "example.org" in sites else {}
        return DeliveryFigures(
            lanes=4,
            suspended=1,
            stuck=2,
            connections={"": 5, "bulk": 3},
            site_connections={**named, "": 2},
            waiting={"": 9},
            oldest=self.oldest,
        )

    def samples(self) -> dict[str, float]:
        """What the page says, by sample name and labels."""
        return read(self.metrics)


def read(metrics: Metrics) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(metrics.exposition()[0].decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


@pytest.fixture
async def bench() -> Bench:
    bench = Bench()
    await bench.store.open()
    return bench


async def three_verdicts(bench: Bench) -> None:
    """One recipient put off, one refused, and 2.5 s later one delivered."""
    await bench.post.send("a@example.org", "b@example.org", "c@example.org")
    first, second, third = await bench.post.claim_all()
    await bench.post.settle(deferred(bench.clock.now() + 1000), first)
    await bench.post.settle(bounced(), second)
    bench.clock.advance(2500)
    await bench.post.settle(delivered(), third)


async def test_the_page_follows_the_queue(bench: Bench) -> None:
    await three_verdicts(bench)
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


async def one_of_each(bench: Bench) -> None:
    """Mail, verdicts and a refusal, so that every series has a sample."""
    await three_verdicts(bench)
    bench.breakdown.refused(0, Refusal(reason="relay", reply=Reply(code=550), listener="mx"))


async def test_figures_with_labels(bench: Bench) -> None:
    await one_of_each(bench)
    bench.oldest = {"dead.example": bench.clock.now() - 9000}
    bench.clock.advance(500)
    samples = bench.samples()
    assert samples["mqcd_listener_messages_total{listener=-,tls=none}"] == 1
    assert samples["mqcd_listener_recipients_total{listener=-}"] == 3
    assert samples["mqcd_listener_message_size_bytes_bucket{le=1024.0,listener=-}"] == 1
    assert samples["mqcd_listener_refused_total{code=5xx,listener=mx,reason=relay}"] == 1
    assert samples["mqcd_listener_open_connections{listener=mx}"] == 7
    assert samples["mqcd_zone_verdicts_total{verdict=deferred,zone=-}"] == 1
    assert samples["mqcd_zone_delivered_total{tls=none,zone=-}"] == 1
    assert samples["mqcd_zone_time_in_queue_seconds_sum{zone=-}"] == 2.5
    assert samples["mqcd_zone_open_connections{zone=-}"] == 5
    assert samples["mqcd_zone_open_connections{zone=bulk}"] == 3
    assert samples["mqcd_replies_total{class=address,code=5xx,verdict=bounced}"] == 1
    assert samples["mqcd_site_verdicts_total{site=example.org,verdict=bounced}"] == 1
    assert samples["mqcd_site_verdicts_total{site=other,verdict=bounced}"] == 0
    assert samples["mqcd_site_attempt_duration_seconds_count{site=example.org}"] == 3
    assert samples["mqcd_site_open_connections{site=example.org}"] == 6
    assert samples["mqcd_site_open_connections{site=other}"] == 2
    assert samples["mqcd_site_waiting_recipients{site=example.org}"] == 0
    assert samples["mqcd_site_waiting_recipients{site=other}"] == 9
    assert samples["mqcd_site_oldest_recipient_age_seconds{site=example.org}"] == 3
    assert samples["mqcd_site_oldest_recipient_age_seconds{site=dead.example}"] == 9.5
    assert samples["mqcd_ledger_imbalance_recipients"] == 0


async def test_only_the_worst_destinations_have_their_oldest_told(bench: Bench) -> None:
    now = bench.clock.now()
    bench.oldest = {f"d{number}.example": now - number * 1000 for number in range(500)}
    ages = {
        name: age for name, age in bench.samples().items() if name.startswith("mqcd_site_oldest_recipient")
    }
    assert sorted(ages.values()) == [500 - WORST + each for each in range(WORST)]


async def test_series_do_not_grow_with_destinations(bench: Bench) -> None:
    attempt = delivered().attempt

    def many(start: int, count: int) -> int:
        for number in range(start, start + count):
            site = f"d{number}.example"
            told = replace(deferred(10**13), attempt=replace(attempt, destination=site))
            bench.breakdown.deferred(bench.clock.now(), MAIL, told)
            bench.breakdown.connected(bench.clock.now(), told.attempt)
            bench.oldest[site] = number
        return len(bench.samples())

    assert many(0, 100) == many(100, 10_000)


async def test_whoever_asks_for_openmetrics_gets_it(bench: Bench) -> None:
    await one_of_each(bench)
    accept = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    body, content_type = bench.metrics.exposition(accept)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    read_back = openmetrics.text_string_to_metric_families(body.decode())  # type: ignore[no-untyped-call]
    kinds = {family.name: family.type for family in read_back}
    assert kinds["mqcd_recipients_accepted"] == "counter"
    assert bench.metrics.exposition("text/plain")[1] == CONTENT_TYPE


async def test_a_destination_that_is_no_text_cannot_break_the_page(bench: Bench) -> None:
    for name in ("x\udc80.example", 'y"} 1\nmqcd_forged_total 7\\', ""):
        bench.breakdown.connected(0, replace(ATTEMPT, destination=name))
    samples = bench.samples()
    assert samples["mqcd_site_connections_total{site=x\\udc80.example}"] == 1
    assert "mqcd_forged_total" not in samples


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
    assert samples["mqcd_advice_pieces{kind=suppress}"] == 3
    assert samples["mqcd_rules{action=hold}"] == 2
    assert samples["mqcd_paused{part=deliver}"] == 1
    assert samples["mqcd_feed_events_total{feed=crm}"] == 7
    assert samples["mqcd_feed_gaps_total{feed=crm}"] == 1
    assert samples["mqcd_feed_failing_seconds{feed=crm}"] == 3
    assert samples[f"mqcd_build_info{{version={__version__}}}"] == 1


async def test_a_part_that_is_not_there_leaves_its_metrics_out(bench: Bench) -> None:
    bare = read(Metrics(bench.clock, bench.meters, bench.store))
    assert "mqcd_syncs_total" not in bare
    assert "mqcd_lanes" not in bare
    assert bare["mqcd_attempts_total"] == 0


async def test_the_page_has_all_of_the_catalogue_and_nothing_else(bench: Bench) -> None:
    await one_of_each(bench)
    page = bench.metrics.exposition()[0].decode()
    told = dict(re.findall(r"^# TYPE (mqcd_\S+) (\S+)$", page, re.MULTILINE))
    assert told == {spec.name: spec.kind.value for spec in CATALOGUE}
    for spec in CATALOGUE:
        assert f"# HELP {spec.name} {spec.meaning}\n" in page


def test_names_that_dashboards_rely_on_stay() -> None:
    assert {f"mqcd_{name}" for name in NAMES} <= {spec.name for spec in CATALOGUE}


def test_names_follow_their_kind() -> None:
    for spec in CATALOGUE:
        assert (spec.kind is Kind.COUNTER) is spec.name.endswith("_total")


def test_the_document_says_what_the_code_says() -> None:
    text = (Path(__file__).parents[4] / "docs" / "metrics.md").read_text()
    assert f"\n\n{table()}\n" in text, (
        "put what `python -m mqcd.ops.metrics.catalogue` prints into docs/metrics.md"
    )
    labels = set(re.findall(r"^\| `(\w+)` \| [^|]*\|$", text.split("## Labels")[1], re.MULTILINE))
    assert labels == {label for spec in CATALOGUE for label in spec.labels} - {"root", "version"}


async def test_hostile_reasons_cannot_break_the_page(bench: Bench) -> None:
    bench.meters.refusals.add('x"} 1\nmqcd_forged_total 7\\')
    samples = bench.samples()
    assert "mqcd_forged_total" not in samples

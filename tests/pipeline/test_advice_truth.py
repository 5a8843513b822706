"""Advice from a generated log, held against what its world really is: who is dead, throttles, was down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mqcd.config.advice import Advice, Shaping, Suppression, comparable
from mqcd.core.schedule import RetrySchedule
from mqcd.pipeline import frames
from mqcd.pipeline.advice.decisions import MARGIN, MINUTE, Rules
from mqcd.pipeline.advice.making import Basis, Proposal, make, suppressions
from mqcd.pipeline.advice.outages import WhatIf, what_if, with_delays
from mqcd.pipeline.run import run
from mqcd.pipeline.store import Store
from mqcd.queue.admin.findings import silent
from tests.bench.eventlogs.generate import generate
from tests.bench.eventlogs.truth import Told
from tests.bench.eventlogs.world import Plan

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.timeout(600)]

PLAN = Plan(seed=5, events=40_000, nodes=2, days=6, sites=20, senders=80, mailboxes=25)
RULES = Rules()
SCHEDULE = RetrySchedule(delays=PLAN.delays, maxtime=PLAN.maxtime, maxtime_reports=PLAN.maxtime, jitter=0.1)


@dataclass(frozen=True)
class World:
    told: Told
    spark: SparkSession
    store: Store
    now: int

    def basis(self, active: Advice | None = None, most: int = RULES.most) -> Basis:
        return Basis(now=self.now, delays=PLAN.delays, active=active or Advice(), rules=Rules(most=most))

    def sites(self, habit: str) -> dict[str, dict[str, Any]]:
        """The sites that have it, by the match of a shaping for them."""
        return {site["site"].partition("+")[0]: site for site in self.told.world["sites"] if site[habit]}


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("advice")
    told = generate(PLAN, root / "log", processes=1)
    store = Store(root / "pipeline")
    run(spark, store, root / "log" / "events")
    return World(told, spark, store, max(node["end"] for node in told.nodes) + 1)


@pytest.fixture(scope="module")
def proposal(world: World) -> Proposal:
    return make(world.spark, world.store, world.basis(), silent)


def shapings(proposal: Proposal) -> dict[str, Shaping]:
    return {piece.match: piece for piece in proposal.advice.shapings}


def test_dead_recipients_are_found_and_nobody_else(world: World, proposal: Proposal) -> None:
    revives: dict[str, int] = {}
    for site in world.told.world["sites"]:
        revives |= {comparable(name): back for name, back in site["dead"].items()}
    refused: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    taken: defaultdict[str, int] = defaultdict(int)
    for row in world.told.recipients():
        name = comparable(row["recipient"])
        if row["outcome"] == "bounced" and row["cause"] == "dead":
            refused[name].append((int(row["ended"]), row["spid"]))
        elif row["outcome"] == "delivered":
            taken[name] = max(taken[name], int(row["ended"]))
    enough = set()
    for name, each in refused.items():
        late = [(at, spid) for at, spid in each if at > taken[name]]
        if len({spid for _, spid in late}) >= RULES.messages and max(late)[0] - min(late)[0] >= RULES.apart:
            enough.add(name)

    # Forged senders, whose reports bounce, are of another domain than the generator's events say.
    found = {name for name in proposal.advice.suppressions if not name.startswith("bounce+")}
    enough = {name for name in enough if not name.startswith("bounce+")}
    assert len(enough) > 5
    # Precision: of who exists at the end nobody, but for those who came to be and got no mail since.
    assert found <= set(refused)
    assert all(not 0 < revives.get(name, 0) <= max(refused[name])[0] for name in found)
    assert not [name for name in found if taken[name] > max(refused[name])[0]]
    # Recall: all of whom there was evidence enough, but for bad hours of whole sites.
    assert len(found & enough) >= 0.9 * len(enough)
    assert proposal.left_out == 0


def test_the_list_is_bounded_and_has_the_worst(world: World, proposal: Proposal) -> None:
    bounded, left_out = suppressions(world.spark, world.store, world.basis(most=2))
    count = len(proposal.advice.suppressions)
    assert (len(bounded), left_out) == (2, count - 2)

    def messages(found: Mapping[str, Suppression]) -> list[int]:
        return sorted(int(each.evidence.split()[0]) for each in found.values())

    assert messages(bounded) == messages(proposal.advice.suppressions)[-2:]


def test_limits_of_connections_and_rates_are_found(world: World, proposal: Proposal) -> None:
    found = shapings(proposal)
    met: defaultdict[str, int] = defaultdict(int)
    by_connections, by_rate = world.sites("connections"), world.sites("rate")
    for match, site in by_connections.items():
        if match in found and found[match].maxserverconnections:
            met["connections"] += 1
            assert abs((found[match].maxserverconnections or 0) - site["connections"]) <= 1, match
    for match, site in by_rate.items():
        rate = found[match].rate if match in found else None
        if rate:
            met["rate"] += 1
            assert rate.per == MINUTE
            assert site["rate"] * MARGIN * 0.5 - 1 <= rate.count <= site["rate"], match
    assert met["connections"] >= 1
    assert met["rate"] >= 1
    for match, piece in found.items():
        assert not piece.maxserverconnections or match in by_connections
        assert not piece.rate or match in by_rate


def test_greylisting_that_outlasts_the_first_retry_delays_it(world: World, proposal: Proposal) -> None:
    found = shapings(proposal)
    slow = {
        match: site
        for match, site in world.sites("greylist_ms").items()
        if site["greylist_ms"] > PLAN.delays[0] * 1.1
    }
    advised = {match: piece for match, piece in found.items() if piece.retry_delays}
    assert set(advised) == set(slow)
    for match, piece in advised.items():
        assert piece.retry_delays[0] >= slow[match]["greylist_ms"]
        assert piece.retry_delays[-1] == PLAN.delays[-1]


@pytest.fixture(scope="module")
def replayed(world: World) -> WhatIf:
    events = frames.read(world.spark, world.store, "events")
    return what_if(events, SCHEDULE, with_delays(SCHEDULE, (MINUTE, 10 * MINUTE)))


def test_the_schedule_in_force_replays_what_was_recorded(world: World, replayed: WhatIf) -> None:
    down = {site["site"] for site in world.told.world["sites"] if site["outages"]}
    assert replayed.total.recipients > 50
    assert {each.site for each in replayed.sites} <= down
    assert replayed.total.reproduces, replayed.total
    assert replayed.total.off < 0.1


def test_what_if_is_what_the_world_would_have_done(world: World, replayed: WhatIf) -> None:
    """Replayed here on the true outages, from the true first attempts."""
    outages = {site["site"]: site["outages"] for site in world.told.world["sites"]}
    ends = {node["node"]: node["end"] for node in world.told.nodes}
    attempts: defaultdict[str, int] = defaultdict(int)
    waits: defaultdict[str, int] = defaultdict(int)
    counts: defaultdict[str, int] = defaultdict(int)
    for row in world.told.recipients():
        # Tried at once, some ms after it was accepted.
        first = int(row["accepted"]) + 12
        hit = [each for each in outages[row["site"]] if each["begin"] <= first < each["end"]]
        if not hit:
            continue
        counts[row["site"]] += 1
        at, tries = first, 0
        limit, end = int(row["accepted"]) + PLAN.maxtime, ends[row["node"]]
        while at <= end:
            tries += 1
            if at >= hit[0]["end"] or at >= limit:
                break
            at = min(at + int((MINUTE if tries == 1 else 10 * MINUTE) * 1.05), limit)
        attempts[row["site"]] += tries
        waits[row["site"]] += min(at, end, limit) - first
    total = replayed.total
    assert total.recipients == pytest.approx(sum(counts.values()), rel=0.1)
    assert total.other_attempts == pytest.approx(sum(attempts.values()), rel=0.15)
    assert total.other_wait == pytest.approx(sum(waits.values()), rel=0.15)
    # More attempts, and mail that is there sooner.
    assert total.other_attempts > total.attempts
    assert total.other_wait < total.wait

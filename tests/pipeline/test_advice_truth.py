"""Advice from a generated log, held against what its world really is: who is dead, throttles, was down."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mqcd.config.advice import Advice, Shaping, Suppression, comparable
from mqcd.core.progress import no_progress
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.pipeline.advice.decisions import MARGIN, MINUTE, Rules
from mqcd.pipeline.advice.making import Basis, Proposal, make, suppressions
from mqcd.pipeline.advice.outages import WhatIf, what_if, with_delays
from mqcd.pipeline.batch.run import run
from mqcd.pipeline.store.store import Store
from tests.bench.eventlogs.generate import generate
from tests.bench.eventlogs.truth import Told
from tests.bench.eventlogs.world import Plan
from tests.pipeline.making import NOW

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.timeout(600)]

PLAN = Plan(seed=5, events=40_000, nodes=2, days=6, sites=20, senders=80, mailboxes=25, probes=True)
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
    run(spark, store, root / "log" / "events", now=NOW)
    return World(told, spark, store, max(node["end"] for node in told.nodes) + 1)


@pytest.fixture(scope="module")
def proposal(world: World) -> Proposal:
    return make(world.spark, world.store, world.basis(), no_progress)


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

    found = set(proposal.advice.suppressions)
    assert len(enough) > 5
    # Precision: of who exists at the end nobody, but for those who came to be and got no mail since.
    assert found <= set(refused)
    assert all(not 0 < revives.get(name, 0) <= max(refused[name])[0] for name in found)
    assert not [name for name in found if taken[name] > max(refused[name])[0]]
    # Recall: all of whom there was evidence enough, but for bad hours of whole sites.
    assert len(found & enough) >= 0.9 * len(enough)
    assert proposal.left_out == 0


def test_the_list_is_bounded_and_has_the_worst(world: World, proposal: Proposal) -> None:
    bounded, left_out, alone = suppressions(world.spark, world.store, world.basis(most=2))
    count = len(proposal.advice.suppressions)
    assert (len(bounded), left_out) == (2, count - 2)
    assert alone == [each for each in proposal.unadvised if "mailbox" in each.subject]

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
            minutely = rate.count * MINUTE / rate.per
            assert site["rate"] * MARGIN * 0.5 - 0.1 <= minutely <= site["rate"] * MARGIN, match
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
        assert piece.evidence.startswith("0 of ")
        # Sooner than it takes mail comes a probe at most.
        tried = accumulate(piece.retry_delays)
        assert sum(at < slow[match]["greylist_ms"] for at in tried) <= ("probe" in piece.reason), match
        assert piece.saves > 0
        assert piece.retry_delays[-1] == PLAN.delays[-1]


# ---------------------------------------------------------------- what if

OUTAGES = replace(PLAN, seed=46)
"""Four sites are down for ten hours each, well within the log."""
OTHER = replace(OUTAGES, delays=(5 * MINUTE, 20 * MINUTE))
"""The same world and the same mail under another retry schedule."""


def log_of(plan: Plan, directory: Path) -> tuple[Told, Path]:
    return generate(plan, directory, processes=1), directory / "events"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Told, Path]:
    return log_of(OUTAGES, tmp_path_factory.mktemp("outages") / "log")


@pytest.fixture(scope="module")
def replayed(spark: SparkSession, recorded: tuple[Told, Path]) -> WhatIf:
    events = spark.read.format("mqcd-events").load(str(recorded[1]))
    return what_if(events, SCHEDULE, with_delays(SCHEDULE, OTHER.delays))


def met(told: Told, events: Path) -> tuple[int, int, int]:
    """Of those accepted in an outage of their site: how many, their wait until somebody was there, ms, and
    how many attempts found nobody there."""
    outages = {site["site"]: site["outages"] for site in told.world["sites"]}
    count = wait = failed = 0
    for row in told.recipients():
        accepted = int(row["accepted"])
        if any(each["begin"] <= accepted < each["end"] for each in outages[row["site"]]):
            count += 1
            wait += int(row["first_attempt"]) - accepted
    for path in events.glob("*.jsonl.gz"):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            event = json.loads(line)
            nobody = event.get("phase") in ("connect", "greeting", "ehlo") and "remote_host" in event
            failed += nobody and event["event"] in ("deferred", "expired") and event["class"] != "policy"
    return count, wait, failed


def test_the_schedule_in_force_replays_what_was_recorded(
    recorded: tuple[Told, Path], replayed: WhatIf
) -> None:
    told, total = recorded[0], replayed.total
    count, wait, failed = met(*recorded)
    assert {each.site for each in replayed.sites} == {
        site["site"] for site in told.world["sites"] if site["outages"]
    }
    assert total.reproduces
    assert (total.recipients, total.recorded_attempts) == (count, failed + count)
    assert total.attempts == pytest.approx(failed + count, rel=0.02)
    assert total.through == count
    assert total.recorded_wait == pytest.approx(wait, rel=0.02)
    assert total.wait == pytest.approx(wait, rel=0.02)


def test_the_what_if_replay_matches_a_simulation(replayed: WhatIf, tmp_path: Path) -> None:
    """The generator made it once more, with nodes that go by the other delays."""
    count, wait, failed = met(*log_of(OTHER, tmp_path / "log"))
    total = replayed.total
    assert total.other_through == count
    assert total.other_attempts == pytest.approx(failed + count, rel=0.03)
    assert total.other_wait == pytest.approx(wait, rel=0.03)
    # Probes come sooner, so there are more of them, and mail is there sooner.
    assert total.other_attempts > 1.5 * total.attempts
    assert total.other_wait < total.wait

"""The generator of event logs: what it writes is what a server would write, and its truth adds up."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.bench.eventlogs import damage
from tests.bench.eventlogs.generate import generate
from tests.bench.eventlogs.truth import Told
from tests.bench.eventlogs.world import HOUR, Plan
from tests.contract.schema import check

SMALL = Plan(seed=3, events=9000, nodes=2, days=2, sites=14, senders=60, mailboxes=60, maxtime=12 * HOUR)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return generate(SMALL, tmp_path_factory.mktemp("log") / "log", processes=1)


@pytest.fixture(scope="module")
def log(told: Told) -> Path:
    return told.path.parent / "events"


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def transitions(log: Path, node: str) -> list[dict[str, Any]]:
    return [event for path in sorted(log.glob(f"{node}-0-0*.jsonl.gz")) for event in read(path)]


def test_every_event_fits_the_schema(log: Path) -> None:
    files = sorted(log.iterdir())
    assert any("-b" in path.name for path in files)
    check(event for path in files for event in read(path))


def test_sequences_have_no_gaps_and_times_grow(told: Told, log: Path) -> None:
    assert sum(node["events"] for node in told.nodes) == SMALL.events
    for node in told.nodes:
        events = transitions(log, node["node"])
        prefix = f"{node['node']}/0/"
        assert [event["id"] for event in events] == [f"{prefix}{n}" for n in range(1, node["events"] + 1)]
        times = [event["at"] for event in events]
        assert times == sorted(times)


def test_domains_are_of_recipients_sites_of_next_hops(told: Told, log: Path) -> None:
    """Also of reports, and of those to senders that were forged."""
    sites = {domain: site["site"] for site in told.world["sites"] for domain in site["domains"]}
    reports = 0
    for node in told.nodes:
        for event in transitions(log, node["node"]):
            if "recipient" in event:
                domain = event["recipient"].rpartition("@")[2].encode("idna").decode()
                assert (event["domain"], event.get("site", sites[domain])) == (domain, sites[domain])
                reports += event["recipient"].startswith("bounce+")
    assert reports > 0


def test_each_recipient_lives_as_the_document_says(told: Told, log: Path) -> None:
    """Accepted first, attempts that grow, at most one end, a report behind an end."""
    lives: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for node in told.nodes:
        for event in transitions(log, node["node"]):
            life = lives.setdefault((event["spid"], event["qid"]), [])
            life.append((event["event"], event.get("attempt", 0)))
    ends = {"delivered", "bounced", "expired"}
    for life in lives.values():
        verbs = [verb for verb, _ in life]
        assert verbs[0] == "accepted"
        assert verbs.count("accepted") == 1
        after = verbs[next((i for i, verb in enumerate(verbs) if verb in ends), len(verbs)) + 1 :]
        assert after in ([], ["reported"])
        tried = [number for verb, number in life if verb in {*ends, "deferred", "outcome-unknown"}]
        assert tried == list(range(1, len(tried) + 1))
    assert len(lives) == sum(1 for _ in told.recipients())


def test_the_truth_has_everything_in_it_and_is_even(told: Told) -> None:
    causes = told.causes()
    assert set(causes) == set(told.world["causes"]), "each cause happens even in a small log"
    outcomes = Counter(row["outcome"] for row in told.recipients())
    assert set(outcomes) == {"delivered", "bounced", "expired", "queued"}
    for row in told.ledger().values():
        assert row["accepted"] == sum(row[name] for name in ("delivered", "bounced", "expired", "queued"))
    sums = Counter[str]()
    for row in told.ledger().values():
        sums.update(row)
    assert {name: sums[name] for name in outcomes} == outcomes
    assert sums["unknown"] >= sums["duplicates"] > 0
    assert sums["possible_duplicates"] > 0
    # Whoever got mail twice is one of those who may have.
    for mail in told.recipients():
        if mail["outcome"] == "delivered":
            assert mail["twice"] <= max(mail["duplicate"], mail["possible_duplicate"])
    assert sum(row["attempts"] for row in told.hourly("sites").values()) == causes.total()


def test_the_same_seed_gives_the_same_octets(told: Told, log: Path, tmp_path: Path) -> None:
    """In processes of their own too."""
    generate(SMALL, tmp_path / "again", processes=2)
    assert {path.name: path.read_bytes() for path in (tmp_path / "again" / "events").iterdir()} == {
        path.name: path.read_bytes() for path in log.iterdir()
    }


def test_damage_is_what_it_says(log: Path, tmp_path: Path) -> None:
    source = max(log.iterdir(), key=lambda path: path.stat().st_size)
    path = damage.copy_as(source, tmp_path / source.name)
    good = read(path)
    count = damage.add_broken_lines(path)
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert len(lines) == len(good) + count
    lost = damage.overwrite_line(path)
    assert lost in good
    assert len(gzip.decompress(path.read_bytes()).splitlines()) == len(lines)
    damage.cut(path)
    with pytest.raises(EOFError):
        gzip.decompress(path.read_bytes())

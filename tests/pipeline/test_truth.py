"""The tables of a generated log, held against what really happened: not against themselves."""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from mqcd.pipeline import frames
from mqcd.pipeline.batch.run import run
from mqcd.pipeline.sources.decode import DOUBLED
from mqcd.pipeline.store.store import Store
from mqcd.pipeline.tables.folding import KEY
from mqcd.pipeline.tables.ledger import off_balance, with_homes
from tests.bench.eventlogs import damage
from tests.bench.eventlogs.generate import generate
from tests.bench.eventlogs.truth import Told
from tests.bench.eventlogs.world import HOUR, Plan
from tests.pipeline.making import NOW

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.timeout(600)]

PLAN = Plan(seed=11, events=20_000, days=2, sites=24, senders=80, mailboxes=80, maxtime=12 * HOUR)


@dataclass(frozen=True)
class World:
    """A log, its truth, and its tables.

    They are made by two runs, the second of which gets a file that was late. Nothing is missing in the files,
    but there is much too much in them: no table may show any of it but `damaged`.
    """

    told: Told
    spark: SparkSession
    store: Store
    doubled: int
    """Events that come a second time."""

    def frame(self, table: str) -> DataFrame:
        return frames.read(self.spark, self.store, table)

    def rows(self, table: str, *columns: str) -> Iterator[dict[str, Any]]:
        """With times as ms."""
        frame = self.frame(table).select(*columns)
        times = {name: F.unix_millis(name) for name, kind in frame.dtypes if kind == "timestamp"}
        for row in frame.withColumns(times).collect() if times else frame.collect():
            yield row.asDict(recursive=True)


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("truth")
    told = generate(PLAN, root / "log", processes=1)
    events, store = root / "log" / "events", Store(root / "pipeline")
    late = damage.hold_back(sorted(events.glob("mail2-0-0*"))[3], root)
    source = max(events.glob("mail3-0-0*"), key=lambda path: path.stat().st_size)
    damage.copy_as(source, "mail3-0-0000900009.jsonl.gz")
    damage.add_broken_lines(max(events.glob("mail1-0-0*"), key=lambda path: path.stat().st_size))
    damage.add_empty(events, "mail1")
    damage.add_newer(events, "mail1")
    run(spark, store, events, now=NOW)
    late.rename(events / late.name)
    run(spark, store, events, now=NOW)
    return World(told, spark, store, gzip.decompress(source.read_bytes()).count(b"\n"))


def test_events(world: World) -> None:
    """All of them, once."""
    transitions, aside = F.col("sequence").isNotNull(), F.col("sequence").isNull()
    row = (
        world.frame("events").agg(F.count_if(transitions), F.count_if(aside), F.count_distinct("id")).first()
    )
    assert row is not None
    asides = sum((Counter(node["asides"]) for node in world.told.nodes), Counter[str]())
    assert tuple(row) == (PLAN.events, asides.total(), PLAN.events + asides.total())


def test_damaged(world: World) -> None:
    """All that is too much is there, by its file; a file of no octets has no line that could be damaged."""
    found = Counter(row["damage"] == DOUBLED for row in world.rows("damaged", "damage"))
    assert found == {True: world.doubled, False: len(damage.BROKEN) + 1}


def test_recipients(world: World) -> None:
    names = ("node", "spid", "qid", "sender", "recipient", "site", "accepted", "first_attempt", "ended",
             "outcome", "attempts", "deferrals", "unknowns", "duplicate", "possible_duplicate")  # fmt: skip
    rows = world.rows("recipients", *names, "latency_ms")
    found = {(row["node"], row["spid"], row["qid"]): row for row in rows}
    seen = 0
    for true in world.told.recipients():
        row = found[true["node"], true["spid"], int(true["qid"])]
        seen += 1
        if row["site"] is None:
            # No verdict yet, so nothing says by which hosts the domain is served.
            assert int(true["attempts"]) <= 1 + int(true["unknowns"])
            row["site"] = true["site"]
        if true["outcome"] == "queued":
            # An attempt that is under way when the log ends: it may have no event yet.
            assert 0 <= int(true["attempts"]) - row["attempts"] <= 1
            true["attempts"] = str(row["attempts"])
        shown = {name: "" if row[name] is None else str(row[name]) for name in names}
        shown |= {name: str(int(row[name])) for name in ("duplicate", "possible_duplicate")}
        assert shown == {name: true[name] for name in names}
        latency = int(true["ended"]) - int(true["accepted"]) if true["ended"] else None
        assert row["latency_ms"] == latency
    assert seen == len(found)


def test_ledger(world: World) -> None:
    columns = ("accepted", "delivered", "bounced", "expired", "unknown", "duplicates", "possible_duplicates",
               "unfinished")  # fmt: skip
    found = {
        (row["node"], row["hour"]): tuple(row[name] for name in columns)
        for row in world.rows("ledger", "node", "hour", *columns)
    }
    true = {
        key: tuple(row[{"unfinished": "queued"}.get(name, name)] for name in columns)
        for key, row in world.told.ledger().items()
    }
    assert found == true


def test_the_account_balances_and_names_missing_mail(world: World) -> None:
    queued = [
        (row["node"], row["spid"], int(row["qid"]), 1, 0, 0)
        for row in world.told.recipients()
        if row["outcome"] == "queued"
    ]
    columns = "node string, spid string, qid int, queued long, quarantined long, waiting long"
    for missing in (0, 2):
        homes = world.spark.createDataFrame(queued[missing:], columns)
        off = off_balance(with_homes(world.frame("recipients"), homes)).select(*KEY).collect()
        assert {tuple(row) for row in off} == {row[:3] for row in queued[:missing]}


def test_sites(world: World) -> None:
    columns = ("attempts", "delivered", "deferred", "bounced", "expired", "first_attempts", "first_delivered")
    found, latencies = {}, {}
    percentiles = ("latency_p50_ms", "latency_p90_ms", "latency_p99_ms")
    for row in world.rows("sites", "hour", "site", "tls_share", "classes", *columns, *percentiles):
        key = row["hour"], row["site"]
        # Each class once, the most frequent first; every refusal has one.
        counts = [each["count"] for each in row["classes"] or ()]
        assert counts == sorted(counts, reverse=True)
        assert len({each["class"] for each in row["classes"] or ()}) == len(counts)
        assert sum(counts) == row["attempts"] - row["delivered"]
        found[key] = {name: row[name] for name in columns} | {
            "tls": round(row["tls_share"] * row["attempts"])
        }
        latencies[key] = [row[name] for name in percentiles]
    assert found == world.told.hourly("sites")

    waits: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for true in world.told.recipients():
        if true["outcome"] == "delivered":
            hour = int(true["ended"]) // HOUR * HOUR
            waits[hour, true["site"]].append(int(true["ended"]) - int(true["accepted"]))
    for key, values in waits.items():
        values.sort()
        assert latencies[key] == [values[ceil(share * len(values)) - 1] for share in (0.5, 0.9, 0.99)]


def test_senders(world: World) -> None:
    columns = ("messages", "accepted", "octets", "delivered", "deferred", "bounced", "expired")
    found = {
        (row["hour"], row["sender"]): {name: row[name] for name in columns}
        for row in world.rows("senders", "hour", "sender", *columns)
    }
    assert found == world.told.hourly("senders")


def test_replies(world: World) -> None:
    """Each cause is filed under the class that a postmaster would choose."""
    causes = world.told.world["causes"]
    true = Counter[tuple[str, str]]()
    for name, count in world.told.causes().items():
        if causes[name]["suggests"]:
            true[causes[name]["suggests"], causes[name]["class"]] += count
    found = Counter[tuple[str, str]]()
    shapes = set()
    for row in world.rows("replies", "suggested", "class", "count", "shape"):
        found[row["suggested"], row["class"]] += row["count"]
        shapes.add(row["shape"])
    assert found == true
    # A shape stands for many replies, whatever names and numbers they hold.
    assert len(shapes) <= 30


def test_queue_age(world: World) -> None:
    """Who waited at the end of each hour."""
    last = max(row["hour"] for row in world.rows("queue_age", "hour"))
    true: Counter[tuple[str, int]] = Counter()
    for row in world.told.recipients():
        end = int(row["ended"]) // HOUR * HOUR if row["ended"] else last + HOUR
        for hour in range(int(row["accepted"]) // HOUR * HOUR, end, HOUR):
            true[row["node"], hour] += 1
    found: Counter[tuple[str, int]] = Counter()
    for waiting in world.rows("queue_age", "node", "hour", "recipients"):
        found[waiting["node"], waiting["hour"]] += waiting["recipients"]
    assert found == true

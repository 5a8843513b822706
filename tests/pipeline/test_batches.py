"""Batches on hand-made events, on a real Spark: what the tables hold, and that nothing comes twice.

The same few recipients serve all tests: two batches are made of them, and the tables kept as each left them.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from mqcd.pipeline import frames
from mqcd.pipeline.batch.arrival import ClockBehind
from mqcd.pipeline.batch.run import run
from mqcd.pipeline.export import export
from mqcd.pipeline.sources.decode import DOUBLED, decode
from mqcd.pipeline.sources.schema import ARROW
from mqcd.pipeline.spark.session import little_work
from mqcd.pipeline.store.store import NOTHING, Commit, Store
from mqcd.pipeline.tables.ledger import off_balance, with_homes
from mqcd.pipeline.tables.replies import LONGEST, shape, suggested, words_of
from tests.pipeline.asking import table
from tests.pipeline.making import HOUR, MINUTE, NOW, T0, Event, Log, write

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.timeout(600)]

Rows = list[dict[str, Any]]
BEST = {"v": 1, "event": "refused", "at": "2025-11-18T11:07:00.000Z", "code": 550, "class": "policy"}


@dataclass(frozen=True)
class World:
    store: Store
    commits: tuple[Commit, ...]
    """Of three runs; nothing was new to the last one."""
    tables: tuple[dict[str, Rows], ...]
    """As the first two left them."""
    spid: str
    """Of one who waits, and of one of another node."""
    sites: Path
    """The table, exported."""
    told: list[tuple[str, int, int]]
    """The steps of the first."""

    def recipients(self, batch: int) -> dict[str, dict[str, Any]]:
        return {row["recipient"]: row for row in self.tables[batch]["recipients"]}


def first_events(log: Log, other: Log) -> tuple[Event, Event, Event]:
    """One is delivered, one waits, one bounces, one of another node waits; gives whom more is told of."""
    slow = log.accept(T0, "b@slow.example")
    log.attempt(slow, T0 + 10)
    log.verdict(slow, "deferred", T0 + 50, due="2025-11-18T11:30:00.000Z")
    told = log.deliver(T0 + MINUTE)
    dead = log.accept(T0 + MINUTE, "c@dead.example")
    log.verdict(dead, "bounced", T0 + MINUTE + 60)
    return told, slow, other.accept(T0, "d@other.example")


def later_events(log: Log, told: Event, slow: Event) -> None:
    """Of one who waited, of one who was finished, and of the next day."""
    log.attempt(slow, T0 + 2 * HOUR, 2)
    log.verdict(slow, "delivered", T0 + 2 * HOUR + 50, 2)
    log.add("reported", T0 + 2 * MINUTE, **told, queued_ms=500, report="0000000000000001")
    log.deliver(T0 + 13 * HOUR, "e@site.example")
    log.accept(T0 + 13 * HOUR, "f@site.example")


def add_damage(path: Path) -> None:
    """A line of nonsense, one of a newer server, and one that comes twice."""
    good = gzip.decompress(path.read_bytes())
    line = good.splitlines()[0]
    newer = line.replace(b'"v": 1', b'"v": 2').replace(b"n1/0/", b"n1/0/9")
    path.write_bytes(gzip.compress(good + b"{nonsense\n" + newer + b"\n" + line + b"\n"))


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("batches")
    # Names that mean something to shells, URIs or patterns, and one that leads back.
    odd = root / "a b%20é#[c]{d}*"
    odd.mkdir()
    store, events = Store(odd / ".." / odd.name / "pipeline"), odd / "events"
    log, other = Log("n1"), Log("n2")
    told, slow, stranger = first_events(log, other)
    first = log.seal(events)
    other.seal(events)
    steps: list[tuple[str, int, int]] = []
    commits = [run(spark, store, events, now=NOW, progress=lambda *step: steps.append(step))]
    tables = [{name: table(store, name) for name in frames.TABLES}]

    later_events(log, told, slow)
    add_damage(log.seal(events))
    other.verdict(stranger, "deferred", T0 + 60)
    other.seal(events)
    write(events / "n1-0-b17.jsonl.gz", [BEST | {"id": f"n1/0/b17-{n}"} for n in range(2)])
    first.with_name("copy-1-0000000007.jsonl.gz").write_bytes(first.read_bytes())
    # Hours and days are UTC whatever the session's zone is: what is expected says so.
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        commits.append(run(spark, store, events, now=NOW))
        export(frames.read(spark, store, "sites"), root / "sites.csv")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    tables.append({name: table(store, name) for name in frames.TABLES})
    commits.append(run(spark, store, events, now=NOW))
    return World(store, tuple(commits), tuple(tables), str(slow["spid"]), root / "sites.csv", steps)


def test_a_batch_tells_of_each_step_once(world: World) -> None:
    assert world.told[0] == ("reading events", 0, 0)
    steps = [step for step in world.told if step[0] != "reading events"]
    names = [what for what, _, _ in steps]
    made = set(frames.TABLES) - {"events", "damaged"}
    assert names[-2:] == ["joining small files", "committing"]
    assert sorted(names[:-2]) == sorted(made)
    assert sorted(done for _, done, _ in steps) == list(range(len(names)))
    assert {total for _, _, total in steps} == {len(names)}


def test_a_batch_makes_every_table(world: World) -> None:
    assert world.commits[0].counts == {"files": 2, "events": 9, "damaged": 0}
    assert {name: (row["outcome"], row["open"]) for name, row in world.recipients(0).items()} == {
        "a@site.example": ("delivered", False),
        "b@slow.example": ("queued", True),
        "c@dead.example": ("bounced", True),
        "d@other.example": ("queued", True),
    }
    tables = world.tables[0]
    columns = ("node", "accepted", "delivered", "bounced", "unfinished")
    assert sorted(tuple(row[name] for name in columns) for row in tables["ledger"]) == [
        ("n1", 3, 1, 1, 1),
        ("n2", 1, 0, 0, 1),
    ]
    sites = {row["site"]: row for row in tables["sites"]}
    assert sites["site.example"]["first_attempt_rate"] == 1.0
    assert sites["slow.example"]["deferred"] == 1
    assert sites["slow.example"]["replies"] == [{"count": 1, "code": 451, "shape": "Greylisted"}]
    assert [(row["sender"], row["accepted"]) for row in tables["senders"]] == [("s@here.example", 4)]
    assert {row["shape"]: row["suggested"] for row in tables["replies"]} == {
        "Greylisted": "greylisted",
        "User unknown": "no-such-user",
    }
    waiting = sorted((row["node"], row["recipients"], row["age"]) for row in tables["queue_age"])
    assert waiting == [("n1", 1, "5m-1h"), ("n2", 1, "5m-1h")]


def test_a_second_batch_adds_to_the_first(world: World) -> None:
    _, second, third = world.commits
    assert second.counts == {"files": 4, "events": 10, "damaged": 11}
    assert second.taken == {"copy-1-": "7", "n1-0-": "1-2", "n1-0-b": "17", "n2-0-": "1-2"}
    assert third.counts == NOTHING
    recipients, tables = world.recipients(1), world.tables[1]
    late = recipients["b@slow.example"]
    assert (late["outcome"], late["attempts"], late["deferrals"]) == ("delivered", 2, 1)
    assert late["latency_ms"] == 2 * HOUR + 50
    assert len(recipients) == len(tables["recipients"]) == 6
    ids = [*(f"n1/0/{n}" for n in range(1, 16)), "n2/0/1", "n2/0/2", "n1/0/b17-0", "n1/0/b17-1"]
    assert sorted(row["id"] for row in tables["events"]) == sorted(ids)
    unfinished = sorted((row["node"], row["hour"].hour, row["unfinished"]) for row in tables["ledger"])
    assert unfinished == [("n1", 0, 1), ("n1", 11, 0), ("n2", 11, 1)]
    waited: dict[str, list[int]] = {"n1": [], "n2": []}
    for row in sorted(tables["queue_age"], key=lambda each: each["hour"]):
        assert row["recipients"] == 1
        waited[row["node"]].append(row["hour"].hour)
    assert waited == {"n1": [11, 12, 0], "n2": [*range(11, 24), 0]}


def test_a_little_batch_is_one_task_unless_somebody_chose_more(spark: SparkSession, tmp_path: Path) -> None:
    name, store = "spark.sql.shuffle.partitions", Store(tmp_path / "pipeline")
    chosen = spark.conf.get(name)
    seen: dict[str, str | None] = {}

    def tell(what: str, _done: int, _total: int) -> None:
        seen[what] = spark.conf.get(name)

    try:
        spark.conf.set(name, "8")
        log = Log("n1")
        log.deliver(T0)
        log.seal(tmp_path / "events")
        run(spark, store, tmp_path / "events", now=NOW, progress=tell)
        assert (seen["recipients"], seen["sites"]) == ("1", "1")
        assert spark.conf.get(name) == "8", "for whoever comes next"
    finally:
        spark.conf.set(name, str(chosen))
    few = "spark.sql.files.minPartitionNum"
    spark.conf.set(few, "16")
    try:
        with little_work(spark):
            assert (spark.conf.get(name), spark.conf.get(few)) == (chosen, "16"), "somebody's choice"
        assert spark.conf.get(few) == "16"
    finally:
        spark.conf.unset(few)


def test_what_cannot_be_read_is_put_aside(world: World) -> None:
    damaged = [row for row in world.tables[1]["damaged"] if row["file"] == "n1-0-0000000002.jsonl.gz"]
    assert len(damaged) == 3
    assert any("newer" in row["damage"] for row in damaged)
    (doubled,) = (row["raw"] for row in damaged if row["damage"] == DOUBLED)
    assert json.loads(doubled)["id"] == "n1/0/9"
    assert "{nonsense" in [row["raw"] for row in damaged]


def test_a_file_under_another_name_doubles_nothing(world: World) -> None:
    """Nor do best-effort events, which have no sequences."""
    copied = [row["damage"] for row in world.tables[1]["damaged"] if row["file"].startswith("copy")]
    assert copied == [DOUBLED] * 8
    assert sum(row["event"] == "refused" for row in world.tables[1]["events"]) == 2


def test_events_of_a_finished_recipient_find_it(world: World) -> None:
    """Beside one that is finished at once, and one that is not."""
    found = {name[0]: (row["reports"], row["open"]) for name, row in world.recipients(1).items()}
    done, waits = (0, False), (0, True)
    assert found == {"a": (1, False), "b": done, "c": waits, "d": waits, "e": done, "f": waits}


def test_two_nodes_may_make_the_same_spid(spark: SparkSession, world: World) -> None:
    named = [
        (row["node"], row["recipient"], row["outcome"])
        for row in world.tables[1]["recipients"]
        if row["spid"] == world.spid
    ]
    assert sorted(named) == [("n1", "b@slow.example", "delivered"), ("n2", "d@other.example", "queued")]
    columns = "node string, spid string, qid int, queued long, quarantined long, waiting long"
    recipients = frames.read(spark, world.store, "recipients")
    other = world.recipients(1)["f@site.example"]["spid"]

    def off(node: str) -> list[tuple[Any, ...]]:
        homes = spark.createDataFrame([(node, world.spid, 1, 1, 0, 0), ("n1", other, 1, 1, 0, 0)], columns)
        rows = off_balance(with_homes(recipients, homes)).select("node", "excess").collect()
        return sorted(map(tuple, rows))

    assert off("n2") == []
    assert off("renamed") == [], "the node has been given another name since"
    assert off("n1") == [("n1", -1), ("n2", 1)]


def test_the_time_zone_of_the_session_changes_nothing(world: World) -> None:
    """Half past five in the morning there is midnight's hour here."""
    midnight = datetime(2025, 11, 19, tzinfo=UTC)
    for name in ("sites", "senders", "ledger"):
        assert max(row["hour"] for row in world.tables[1][name]) == midnight, name
        days = sorted(Path(path).parent.name for path in world.store.files(name))
        assert set(days) == {"day=2025-11-18", "day=2025-11-19"}, name
    told = list(csv.DictReader(world.sites.read_text().splitlines()))
    hours = {row["hour"] for row in told if row["site"] == "site.example"}
    assert hours == {"2025-11-18T11:00:00.000Z", "2025-11-19T00:00:00.000Z"}


def test_a_clock_behind_loses_nothing(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    log, events = Log(), tmp_path / "events"
    log.deliver(T0)
    log.seal(events)
    with pytest.raises(ClockBehind, match=r"n1-0-0000000001\.jsonl\.gz"):
        run(spark, store, events, now=T0 - 48 * HOUR)
    assert store.last().taken == Commit().taken
    assert run(spark, store, events, now=NOW).counts == {"files": 1, "events": 3, "damaged": 0}

    # Most events are of the wrong clock's time, yet the hours that are known betray it.
    log.deliver(T0 - 60 * HOUR)
    log.accept(T0 + HOUR)
    log.seal(events)
    with pytest.raises(ClockBehind):
        run(spark, store, events, now=T0 - 48 * HOUR)
    assert run(spark, store, events, now=NOW).counts == {"files": 1, "events": 4, "damaged": 0}


def test_a_file_removed_before_it_is_read_is_passed_over(
    spark: SparkSession, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And taken should it come back: a removal is not synced."""
    log, events, away = Log(), tmp_path / "events", tmp_path / "away"
    paths = []
    for _ in range(3):
        log.deliver(T0)
        paths.append(log.seal(events))
    name = os.fsdecode(b"\xff.jsonl.gz")
    (events / name).write_bytes(paths[2].read_bytes())

    def remove(what: str, _done: int, _total: int) -> None:
        if what == "reading events" and paths[1].exists():
            paths[1].rename(away)

    done = run(spark, store, events, now=NOW, progress=remove)
    assert done.counts == {"files": 3, "events": 6, "damaged": 3}
    assert done.taken == {"\\xff.jsonl.gz": "0", "n1-0-": "1,3"}
    (text,) = [text for _, _, text in caplog.record_tuples if "removed" in text]
    assert f": 1, {paths[1].name} first, all of before 2025-11-18T12:00:00.000Z" in text

    away.rename(paths[1])
    assert run(spark, store, events, now=NOW).counts == {"files": 1, "events": 3, "damaged": 0}
    assert store.last().taken == {"\\xff.jsonl.gz": "0", "n1-0-": "1-3"}
    paths[1].rename(away)
    log.deliver(T0)
    paths[1] = log.seal(events)
    before = store.last()
    assert run(spark, store, events, now=NOW, progress=remove).counts == NOTHING
    assert store.last() == before


def test_a_clock_ahead_distorts_nothing(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    """Nor does what an earlier mqcd made of one."""
    log, events = Log(), tmp_path / "events"
    log.accept(T0 - 2 * HOUR)
    log.accept(T0 + 2 * HOUR, "ahead@site.example")
    log.accept(T0 + 400 * 24 * HOUR, "future@site.example")
    log.seal(events)
    commit = run(spark, store, events, now=T0)
    assert (commit.last_hour, commit.counts["damaged"]) == (T0 // HOUR, 1)
    assert ages(store) == {9: (1, "5m-1h"), 10: (1, "1h-4h"), 11: (1, "1h-4h")}

    store.commit(replace(commit, batch=2, last_hour=T0 // HOUR + 9000, move=[], remove=[]))
    poisoned = store.table("queue_age") / "day=2026-10-01" / "x.parquet"
    poisoned.parent.mkdir()
    poisoned.write_bytes(Path(store.files("queue_age")[0]).read_bytes())
    log.deliver(T0 + 50 * MINUTE)
    log.seal(events)
    assert run(spark, store, events, now=T0 + HOUR).last_hour == T0 // HOUR + 1
    assert not poisoned.exists()
    assert ages(store)[12] == (1, "1h-4h")


def test_the_running_hour_has_ages_of_now(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    """And once it is over, of its end, even if nothing has happened since."""
    log, events = Log(), tmp_path / "events"
    log.accept(T0)
    log.seal(events)
    run(spark, store, events, now=T0 + 26_000)
    assert ages(store) == {11: (1, "0-5m")}
    (row,) = table(store, "queue_age")
    assert row["oldest_ms"] == 26_000

    log.deliver(T0 + HOUR)
    log.seal(events)
    run(spark, store, events, now=T0 + HOUR + MINUTE)
    assert ages(store) == {11: (1, "5m-1h"), 12: (1, "1h-4h")}


def ages(store: Store) -> dict[int, tuple[int, str]]:
    """By the hour of the day: who waits."""
    return {row["hour"].hour: (row["recipients"], row["age"]) for row in table(store, "queue_age")}


def test_recipients_with_missing_events_are_not_rewritten(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    """Until something is told of them: a file that was late, say."""
    log, events = Log(), tmp_path / "events"
    gone = log.accept(T0, "gone@site.example")
    acceptance = log.seal(events)
    acceptance.rename(tmp_path / "late")
    log.verdict(gone, "deferred", T0 + HOUR)
    now = T0 + 8 * 24 * HOUR
    log.deliver(now)
    log.seal(events)
    best = write(events / "n1-0-b17.jsonl.gz", [BEST | {"id": "n1/0/b17-1"}])
    run(spark, store, events, now=NOW)
    kept = {Path(path).parent.name: Path(path).name[:5] for path in store.files("recipients")}
    assert kept == {"day=2025-11-18": "aged-", "day=2025-11-26": "done-"}

    (tmp_path / "late").rename(acceptance)
    whole = log.accept(now + MINUTE, "whole@site.example")
    acceptance = log.seal(events)
    acceptance.rename(tmp_path / "late")
    log.verdict(whole, "deferred", now + 2 * MINUTE)
    log.verdict(gone, "delivered", now + 2 * MINUTE, 2)
    log.seal(events)
    run(spark, store, events, now=NOW)

    row, *_ = sorted(table(store, "recipients"), key=lambda each: each["spid"])
    assert (row["recipient"], row["accepts"], row["outcome"], row["open"]) == (
        "gone@site.example",
        1,
        "delivered",
        False,
    )

    # What is left of this one's life comes in a batch that tells of nobody else.
    (tmp_path / "late").rename(acceptance)
    log.verdict(whole, "delivered", now + 3 * MINUTE, 2)
    log.seal(events)
    run(spark, store, events, now=NOW)
    *_, row = sorted(table(store, "recipients"), key=lambda each: each["spid"])
    assert (row["recipient"], row["deferrals"], row["open"]) == ("whole@site.example", 1, False)
    assert len(table(store, "recipients")) == 3
    assert {Path(path).name[:5] for path in store.files("recipients")} == {"done-"}

    best.with_name("copy-0-b18.jsonl.gz").write_bytes(best.read_bytes())
    assert run(spark, store, events, now=NOW).counts == {"files": 1, "events": 0, "damaged": 1}


@pytest.mark.timeout(300)
def test_a_long_reply_is_cut_before_it_is_searched(spark: SparkSession) -> None:
    """Uncut, each of these takes minutes."""
    hostile = ["a." * 50_000, "0-" * 50_000, "@" * 100_000, "a@" * 50_000, "1:" * 50_000, "1.1.1." * 20_000]
    said = "Try again later, <someone@there.example> " * 6
    rows = spark.createDataFrame([(each,) for each in (said, *hostile)], "reply string")
    reply = F.col("reply")
    found = rows.select(
        shape(reply), suggested(shape(reply)), words_of(reply).rlike(r"\brate\b.{0,20}\blimit")
    ).collect()
    assert all(len(row[0]) <= LONGEST for row in found)
    # Its last address is cut in two, and left out.
    assert found[0][0] == "Try again later, ADDRESS " * 4 + "Try again later,"
    assert found[0][1] == "greylisted"


def test_an_export_holds_no_formula_and_can_be_undone(spark: SparkSession, tmp_path: Path) -> None:
    texts = [f"{first}1+1" for first in "=+-@\t\r\n\uff1d'a "] + ["", "'", "a=1", '=x",y\n']
    rows = [(n, -n, text) for n, text in enumerate(texts)]
    frame = spark.createDataFrame(rows, "n int, negative int, text string").orderBy("n")
    target = tmp_path / "x.csv"
    target.touch(0o644)
    before = os.umask(0)
    try:
        export(frame, target)
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [target]
    with target.open(newline="") as file:
        found = list(csv.DictReader(file))
    cells = [row["text"] for row in found]
    assert not [cell for cell in cells if cell[:1] in tuple("=+-@\t\r\n\uff1d")]
    assert [cell.removeprefix("'") for cell in cells] == texts
    assert found[3]["negative"] == "-3"


def test_a_stream_takes_each_file_once(spark: SparkSession, tmp_path: Path) -> None:
    log, events = Log(), tmp_path / "events"
    for hour in range(3):
        log.deliver(T0 + hour * HOUR)
        log.seal(events)

    def drain() -> int:
        reader = spark.readStream.format("mqcd-events").option("maxfiles", 1).load(str(events))
        writer = reader.select("id").writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).format("parquet").start(str(tmp_path / "ids"))
        query.awaitTermination()
        return len([progress for progress in query.recentProgress if progress.numInputRows])

    assert drain() == 3
    (events / "n1-0-0000000002.jsonl.gz").rename(events / "n1-0-0000000009.jsonl.gz.tmp")
    log.deliver(T0 + 9 * HOUR)
    log.seal(events)
    assert drain() == 1
    ids = [row["id"] for row in spark.read.parquet(str(tmp_path / "ids")).collect()]
    assert sorted(ids) == sorted(f"n1/0/{number}" for number in range(1, 13))


def test_the_schema_knows_every_field_of_an_event() -> None:
    schema = Path(__file__).parents[2] / "mqcd" / "core" / "events.schema.json"
    told = json.loads(schema.read_text(encoding="utf-8"))["properties"]
    kinds = {
        "integer": {"int32", "int64"},
        "string": {"string", "timestamp[us, tz=UTC]"},
        "boolean": {"bool"},
    }
    for name, field in told.items():
        assert str(ARROW.field(name).type) in kinds[field["type"]], name
        assert (str(ARROW.field(name).type) == "timestamp[us, tz=UTC]") == (name in ("at", "due", "until"))


def test_fields_of_a_newer_server_are_passed_over() -> None:
    log = Log()
    log.add("accepted", T0, novelty={"a": [1]}, spid="0000000000000002", qid=1)
    data = gzip.compress((json.dumps(log.events[0]) + "\n").encode())
    (row,) = [row for batch in decode("x", data) for row in batch.to_pylist()]
    assert (row["damage"], row["sequence"], row["node"]) == (None, 1, "n1")


@pytest.mark.parametrize("cut", [1, 30, 60])
def test_a_torn_file_gives_what_it_holds_and_says_so(cut: int) -> None:
    log = Log()
    for minute in range(20):
        log.deliver(T0 + minute * MINUTE)
    text = "".join(json.dumps(event) + "\n" for event in log.events).encode()
    data = gzip.compress(text)[:-cut]
    read = [row for batch in decode("x", data) for row in batch.to_pylist()]
    assert [row["damage"] for row in read if row["damage"]] == ["gzip: the file ends early"]
    assert [row["id"] for row in read if row["id"]] == [e["id"] for e in log.events][: len(read) - 1]

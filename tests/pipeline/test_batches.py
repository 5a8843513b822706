"""Batches on hand-made events, on a real Spark: what the tables hold, and that nothing comes twice."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mqcd.pipeline import frames
from mqcd.pipeline.export import export
from mqcd.pipeline.run import run
from mqcd.pipeline.schema import ARROW
from mqcd.pipeline.sources.decode import decode
from mqcd.pipeline.store import Store
from mqcd.pipeline.tables.ledger import off_balance, with_homes
from tests.pipeline.making import HOUR, MINUTE, T0, Log, write

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.timeout(600)]


def rows(spark: SparkSession, store: Store, table: str, *order: str) -> list[dict[str, Any]]:
    found = frames.read(spark, store, table)
    return [row.asDict(recursive=True) for row in found.orderBy(*order).collect()]


def test_a_batch_makes_every_table(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    log = Log()
    log.deliver(T0)
    slow = log.accept(T0 + MINUTE, "b@slow.example")
    log.attempt(slow, T0 + MINUTE)
    log.verdict(slow, "deferred", T0 + MINUTE + 50, due="2026-11-18T11:30:00.000Z")
    dead = log.accept(T0 + MINUTE, "c@dead.example")
    log.verdict(dead, "bounced", T0 + MINUTE + 60)
    log.seal(tmp_path / "events")

    done = run(spark, store, tmp_path / "events")

    assert done.counts == {"files": 1, "events": 8, "damaged": 0}
    assert {r["recipient"]: (r["outcome"], r["open"]) for r in rows(spark, store, "recipients", "spid")} == {
        "a@site.example": ("delivered", False),
        "b@slow.example": ("queued", True),
        "c@dead.example": ("bounced", True),
    }
    (account,) = rows(spark, store, "ledger", "hour")
    assert (account["accepted"], account["delivered"], account["bounced"], account["unfinished"]) == (
        3,
        1,
        1,
        1,
    )
    sites = {row["site"]: row for row in rows(spark, store, "sites", "site")}
    assert sites["site.example"]["first_attempt_rate"] == 1.0
    assert sites["slow.example"]["deferred"] == 1
    assert sites["slow.example"]["replies"] == [{"count": 1, "code": 451, "shape": "Greylisted"}]
    assert [(row["sender"], row["accepted"]) for row in rows(spark, store, "senders", "sender")] == [
        ("s@here.example", 3)
    ]
    assert {row["shape"]: row["suggested"] for row in rows(spark, store, "replies", "shape")} == {
        "Greylisted": "greylisted",
        "User unknown": "no-such-user",
    }
    (waiting,) = rows(spark, store, "queue_age", "hour")
    assert (waiting["recipients"], waiting["age"]) == (1, "5m-1h")


def test_two_nodes_may_make_the_same_spid(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    one, other = Log("n1"), Log("n2")
    told = one.accept(T0, "a@site.example")
    assert other.accept(T0, "b@slow.example")["spid"] == told["spid"]
    one.verdict(told, "delivered", T0 + 50)
    one.seal(tmp_path / "events")
    other.seal(tmp_path / "events")
    run(spark, store, tmp_path / "events")
    other.verdict(told | {"recipient": "b@slow.example"}, "deferred", T0 + 60)
    other.seal(tmp_path / "events")

    run(spark, store, tmp_path / "events")

    found = [(r["node"], r["recipient"], r["outcome"]) for r in rows(spark, store, "recipients", "node")]
    assert found == [("n1", "a@site.example", "delivered"), ("n2", "b@slow.example", "queued")]
    columns = "node string, spid string, qid int, queued long, quarantined long, waiting long"
    recipients = frames.read(spark, store, "recipients")
    # Also when the node has been given another name since.
    for node in ("n2", "renamed"):
        homes = spark.createDataFrame([(node, told["spid"], 1, 1, 0, 0)], columns)
        assert off_balance(with_homes(recipients, homes)).count() == 0
    homes = spark.createDataFrame([("n1", told["spid"], 1, 1, 0, 0)], columns)
    off = off_balance(with_homes(recipients, homes)).select("node", "excess").collect()
    assert sorted(map(tuple, off)) == [("n1", -1), ("n2", 1)]


def test_a_second_batch_adds_to_the_first(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    log, events = Log(), tmp_path / "events"
    slow = log.accept(T0, "b@slow.example")
    log.attempt(slow, T0 + 10)
    log.verdict(slow, "deferred", T0 + 50, due="2026-11-18T11:30:00.000Z")
    log.deliver(T0 + 60)
    log.seal(events)
    run(spark, store, events)
    log.attempt(slow, T0 + 2 * HOUR, 2)
    log.verdict(slow, "delivered", T0 + 2 * HOUR + 50, 2)
    log.seal(events)

    done = run(spark, store, events)

    assert done.counts == {"files": 1, "events": 2, "damaged": 0}
    assert done.taken == {"n1-0-": "1-2"}
    late = next(r for r in rows(spark, store, "recipients", "spid") if r["recipient"] == "b@slow.example")
    assert (late["outcome"], late["attempts"], late["deferrals"]) == ("delivered", 2, 1)
    assert late["latency_ms"] == 2 * HOUR + 50
    assert len(rows(spark, store, "recipients", "spid")) == 2
    assert len(rows(spark, store, "events", "sequence")) == 8
    assert [row["unfinished"] for row in rows(spark, store, "ledger", "hour")] == [0]
    assert [row["recipients"] for row in rows(spark, store, "queue_age", "hour")] == [1, 1]
    assert run(spark, store, events).counts == {}


def test_what_cannot_be_read_is_put_aside(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    log, events = Log(), tmp_path / "events"
    log.deliver(T0)
    path = log.seal(events)
    good = gzip.decompress(path.read_bytes())
    newer = good.splitlines()[0].replace(b'"v": 1', b'"v": 2').replace(b"n1/0/1", b"n1/0/9")
    path.write_bytes(gzip.compress(good + b"{nonsense\n" + newer + b"\n" + good.splitlines()[0] + b"\n"))

    done = run(spark, store, events)

    assert done.counts == {"files": 1, "events": 3, "damaged": 3}
    damaged = rows(spark, store, "damaged", "damage")
    assert any("newer" in row["damage"] for row in damaged)
    assert [row["raw"] for row in damaged if row["damage"] == "doubled id"] == [good.splitlines()[0].decode()]
    assert "{nonsense" in [row["raw"] for row in damaged]


def test_a_file_under_another_name_doubles_nothing(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    log, events = Log(), tmp_path / "events"
    log.deliver(T0)
    first = log.seal(events)
    run(spark, store, events)
    best = {"v": 1, "event": "refused", "at": "2026-11-18T11:07:00.000Z", "code": 550, "class": "policy"}
    write(events / "n1-0-b17.jsonl.gz", [best | {"id": f"n1/0/b17-{n}"} for n in range(2)])
    first.with_name("copy-1-0000000007.jsonl.gz").write_bytes(first.read_bytes())

    done = run(spark, store, events)

    assert done.counts == {"files": 2, "events": 2, "damaged": 3}
    assert len(rows(spark, store, "recipients", "spid")) == 1
    assert {row["damage"] for row in rows(spark, store, "damaged", "raw")} == {"doubled id"}


def test_events_of_a_finished_recipient_find_it(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    log, events = Log(), tmp_path / "events"
    told = log.deliver(T0)
    log.deliver(T0 + 5)
    log.seal(events)
    run(spark, store, events)
    log.add("reported", T0 + 500, **told, queued_ms=500, report="0000000000000001")
    log.deliver(T0 + 600)
    log.accept(T0 + 700)
    log.seal(events)

    run(spark, store, events)

    found = [(row["reports"], row["open"]) for row in rows(spark, store, "recipients", "spid")]
    assert found == [(1, False), (0, False), (0, False), (0, True)]


def test_the_time_zone_of_the_session_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    log, events = Log(), tmp_path / "events"
    log.deliver(T0 + 13 * HOUR)
    log.seal(events)
    found = []
    try:
        for zone in ("UTC", "Asia/Kathmandu"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            store = Store(tmp_path / zone.replace("/", "-"))
            run(spark, store, events)
            export(frames.read(spark, store, "sites"), tmp_path / "sites.csv")
            days = sorted(path.parent.name for path in map(Path, store.files("sites")))
            found.append((days, (tmp_path / "sites.csv").read_text()))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert found[0] == found[1]
    (row,) = csv.DictReader(found[0][1].splitlines())
    assert row["hour"] == "2026-11-19T00:00:00.000Z"


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
        assert (str(ARROW.field(name).type) == "timestamp[us, tz=UTC]") == (name in ("at", "due"))


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

"""Tables as people open them: before there are any, and after an older mqcd wrote them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mqcd.pipeline.batch.run import run
from mqcd.pipeline.export import export
from mqcd.pipeline.frames import TABLES
from mqcd.pipeline.notebook import open_tables
from mqcd.pipeline.spark.gateway import WorkFailed
from mqcd.pipeline.spark.session import running
from mqcd.pipeline.store.store import Store
from tests.pipeline.making import MINUTE, NOW, T0, Log

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.timeout(600)]


def test_tables_that_do_not_exist_yet_are_empty(spark: SparkSession, tmp_path: Path) -> None:
    """Before the first batch, and after one whose files hold nothing."""
    store, events = Store(tmp_path / "pipeline"), tmp_path / "events"
    events.mkdir()
    (events / "n1-0-0000000001.jsonl.gz").write_bytes(b"")
    tables = open_tables(tmp_path / "pipeline")
    with tables.still():
        assert [tables[name].count() for name in TABLES] == [0] * len(TABLES)
    assert run(spark, store, events, now=NOW).counts == {"files": 1, "events": 0, "damaged": 0}
    assert tables.taken == {"n1-0-": "1"}
    assert [tables[name].count() for name in TABLES] == [0] * len(TABLES)
    size = export(tables["sites"], tmp_path / "sites.csv")
    assert (tmp_path / "sites.csv").read_text().startswith("hour,site,")
    assert size == (tmp_path / "sites.csv").stat().st_size
    assert run(spark, store, events, now=NOW).counts == {"files": 0, "events": 0, "damaged": 0}
    with pytest.raises(WorkFailed, match=r"^Spark gave up: .*nobody"), running() as lent:
        lent.sql("SELECT nobody").collect()


def test_missing_columns_are_null_extra_ones_are_skipped(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables that an older mqcd wrote: a batch adds to them, and rewrites what it must."""
    store, events, log = Store(tmp_path / "pipeline"), tmp_path / "events", Log()
    slow = log.accept(T0)
    said = '  =1+1, "no"\r\nand\\ '
    log.verdict(slow, "deferred", T0 + 50, reply=said)
    log.seal(events)
    run(spark, store, events, now=NOW)
    for table, *lacks in (("events", "left_out"), ("recipients", "zone", "removed"), ("sites", "tls_share")):
        for path in map(Path, store.files(table)):
            older = spark.read.parquet(str(path)).drop(*lacks).selectExpr("*", "1 AS was_called_something")
            older.coalesce(1).write.parquet(str(tmp_path / "older"), mode="overwrite")
            (part,) = (tmp_path / "older").glob("*.parquet")
            part.replace(path)
    log.verdict(slow, "delivered", T0 + MINUTE, 2, zone="z1", left_out=3)
    log.seal(events)
    run(spark, store, events, now=NOW)
    tables = open_tables(tmp_path / "pipeline")
    with tables.still(), pytest.raises(KeyError, match="nonsense"):
        tables["nonsense"]
    found = tables["events"].orderBy("sequence").select("left_out").collect()
    assert [row["left_out"] for row in found] == [None, None, 3]
    (recipient,) = tables["recipients"].collect()
    assert (recipient["outcome"], recipient["deferrals"], recipient["zone"]) == ("delivered", 1, "z1")
    (site,) = tables["sites"].collect()
    assert (site["attempts"], site["tls_share"]) == (2, 1.0)
    assert "was_called_something" not in tables["sites"].columns
    # Not a scheme of a URI, and nothing that a server said is made tidy.
    monkeypatch.chdir(tmp_path)
    export(tables["events"].orderBy("sequence"), Path("e:f.csv"))
    with Path("e:f.csv").open(newline="") as file:
        assert [row["reply"] for row in csv.DictReader(file)] == ["", said, "ok"]

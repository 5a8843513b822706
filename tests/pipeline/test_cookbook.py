"""The cookbook in docs/pipeline.md: every snippet runs, and what it gives is about the mail there was."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mqcd.pipeline.batch.run import run
from mqcd.pipeline.notebook import open_tables
from mqcd.pipeline.store.store import Store
from tests.e2e.kit.server import ROOT
from tests.pipeline.making import MINUTE, NOW, T0, Log

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.timeout(600)]

PAGE = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
COOKBOOK = PAGE.partition("\n## Cookbook\n")[2].partition("\n## ")[0]
BLOCKS = [
    re.sub("^    ", "", block, flags=re.M)
    for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", COOKBOOK, re.M)
]
QUERIES = [block.strip() for block in BLOCKS if block.lstrip().startswith("SELECT")]
SCRIPTS = [block for block in BLOCKS if not block.lstrip().startswith("SELECT")]


def life(events: Path) -> str:
    """Mail that came through, waits, was refused, and maybe came twice; a damaged line. Gives a SPID."""
    log = Log()
    told = log.deliver(T0)
    for verb, recipient in (("deferred", "b@slow.example"), ("bounced", "c@dead.example")):
        shared = log.accept(T0 + MINUTE, recipient)
        log.attempt(shared, T0 + MINUTE)
        log.verdict(shared, verb, T0 + MINUTE + 50)
    twice = log.accept(T0, "d@site.example")
    log.add("outcome-unknown", T0 + 60, spid=twice["spid"], qid=1, attempt=1)
    log.verdict(twice, "delivered", T0 + MINUTE, 2, tls="")
    log.seal(events)
    (events / "x-bad.jsonl.gz").write_bytes(b"nonsense")
    return str(told["spid"])


def test_every_snippet_runs_and_finds_something(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    events = tmp_path / "events"
    spid = life(events)
    store = Store(tmp_path / "var" / "pipeline")
    run(spark, store, events, now=NOW)
    monkeypatch.chdir(tmp_path)
    tables = open_tables("var/pipeline")
    assert tables.taken == {"n1-0-": "1", "x-bad.jsonl.gz": "0"}
    assert len(QUERIES) > 8
    for query in QUERIES:
        assert tables.sql(query.replace("0" * 16, spid)).collect(), query
    (script,) = SCRIPTS
    exec(compile(script, "docs/pipeline.md", "exec"), {})
    assert "|delivered|" in re.sub(" ", "", capsys.readouterr().out)
    with pytest.raises(KeyError, match="queue_age"):
        tables["nonsense"]

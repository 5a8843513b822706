"""What `mqcd pipeline` asks of Spark, without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest

from mqcd.cli.main import main
from mqcd.pipeline.spark import session
from mqcd.pipeline.spark.gateway import WorkFailed
from mqcd.pipeline.store.store import Commit, Store


@pytest.mark.parametrize("batch", [0, 1])
def test_java_keeps_its_classes_once_the_tables_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], batch: int
) -> None:
    """A first run may be the only one: it does not pay for the next."""
    asked: list[dict[str, Any]] = []

    def running(**given: Any) -> NoReturn:
        asked.append(given)
        raise WorkFailed("no Spark today")

    monkeypatch.setattr(session, "running", running)
    conf, var = tmp_path / "mqcd.xml", tmp_path / "var"
    conf.write_text("<mailserver/>\n")
    store = Store(var / "pipeline")
    with store.writing():
        if batch:
            store.commit(Commit(batch=batch))
    (var / "events").mkdir()
    (var / "events/node-0-0000000001.jsonl.gz").write_bytes(b"")

    assert main(["pipeline", "run", "-c", str(conf), "--var", str(var)]) == 1
    assert "no Spark today" in capsys.readouterr().err
    (given,) = asked
    assert (given["classes"], given["keep"]) == (var / "pipeline/_java", batch > 0)

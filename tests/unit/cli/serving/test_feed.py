"""`feed`: what it shows of positions, and what it says of a webhook that does not answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqcd.cli import main
from mqcd.disk.durable import Disk
from mqcd.feeds.position import Position, Positions

CONF = """<mailserver><ops><feeds>
  <webhooks><webhook name="crm" url="http://127.0.0.1:1/x"/></webhooks>
  <traces endpoint="http://127.0.0.1:1/v1/traces"/>
</feeds></ops></mailserver>"""


def run(root: Path, *words: str) -> int:
    (root / "mqcd.xml").write_text(CONF)
    return main([*words, "-c", str(root / "mqcd.xml"), "--var", str(root)])


def test_each_feed_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failing = Position(sent=3, gaps=1, error="HTTP status 500", since=1_800_000_000_000)
    Positions(Disk(), tmp_path / "feeds").save("crm", failing)
    assert run(tmp_path, "feed", "ls", "--json") == 0
    crm, traces = map(json.loads, capsys.readouterr().out.splitlines())
    assert crm == {
        "feed": "crm", "sent": 3, "gaps": 1, "failing_since": "2027-01-15T08:00:00.000Z",
        "error": "HTTP status 500",
    }  # fmt: skip
    assert (traces["feed"], traces["sent"], traces["error"]) == ("traces", 0, None)
    assert run(tmp_path, "feed", "ls") == 0
    shown = capsys.readouterr().out
    assert "fails since 2027-01-15T08:00:00.000Z: HTTP status 500" in shown
    assert "traces: 0 events sent; has not begun" in shown


@pytest.mark.parametrize(("name", "text"), [("crm", "ConnectError"), ("x", "no webhook x")])
def test_a_trial_that_fails_is_refused(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "feed", "test", name) == 1
    assert text in capsys.readouterr().err

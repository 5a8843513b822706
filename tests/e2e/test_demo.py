"""`mqcd demo` as a newcomer runs it, and the receiver that it speaks of, each as a process of its own."""

from __future__ import annotations

import gzip
import json
import re
import signal
import smtplib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.kit.waiting import DEADLINE

pytestmark = pytest.mark.e2e

MQCD = [sys.executable, "-m", "mqcd"]


def test_the_demo_shows_everything_and_finds_it_good(tmp_path: Path) -> None:
    played = subprocess.run(
        [*MQCD, "demo", "--keep", str(tmp_path / "kept")],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=DEADLINE,
    )  # fmt: skip
    said = played.stdout
    assert played.returncode == 0, said + played.stderr
    assert played.stderr == ""
    assert "✗ " not in said.partition("Was it as it should be?")[2]
    for words in (
        "delivered in",
        "at the second try",
        "deferred, again in 60 min",
        "refused, and reported to you",
        "Final-Recipient: rfc822; ivy@reject.example",
        "451 4.3.2 Nobody has time for you",
        "mqcd_recipients_delivered_total 8",
        '"event":"accepted"',
        "10 accepted = 8 delivered + 1 bounced + 1 queued",
        "What to try next",
    ):
        assert words in said
    assert max(map(len, said.splitlines())) <= 80


def test_what_the_demo_keeps_can_be_looked_at(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    subprocess.run([*MQCD, "demo", "--keep", str(kept)], capture_output=True, check=True, timeout=DEADLINE)
    listed = subprocess.run(
        [*MQCD, "-c", str(kept / "conf" / "mqcd.xml"), "queue", "ls", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (row,) = [json.loads(line) for line in listed.stdout.splitlines()]
    assert (row["recipient"], row["attempts"], row["area"]) == ("hal@busy.example", 2, "deferred")
    events = [
        json.loads(line)
        for path in sorted((kept / "var" / "events").glob("*.jsonl.gz"))
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    verbs = [event["event"] for event in events]
    assert (verbs.count("accepted"), verbs.count("delivered"), verbs.count("reported")) == (10, 8, 1)
    assert len({event["id"] for event in events}) == len(events)


def test_the_sink_receives_refuses_stores_and_tells(tmp_path: Path) -> None:
    sink = subprocess.Popen(
        [*MQCD, "sink", "--port", "0", "--json", "--store", str(tmp_path / "mail"),
         "--rule", "no@*=550 5.1.1 no such user"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert sink.stdout is not None
    listening = json.loads(sink.stdout.readline())
    assert listening["event"] == "listening"
    with smtplib.SMTP("127.0.0.1", listening["port"], local_hostname="client.example") as client:
        refused = client.sendmail("me@here.example", ["yes@a.example", "no@a.example"], b"Hello\r\n")
    assert list(refused) == ["no@a.example"]
    sink.send_signal(signal.SIGTERM)
    said, _ = sink.communicate(timeout=DEADLINE)
    events = [json.loads(line) for line in said.splitlines()]
    assert [event["event"] for event in events] == ["refused", "message", "end"]
    assert (events[-1]["messages"], events[-1]["refused"]) == (1, 1)
    assert (tmp_path / "mail" / events[1]["file"]).read_bytes() == b"Hello\r\n"
    assert sink.returncode == 0


def test_a_port_that_is_taken_is_exit_code_1() -> None:
    first = subprocess.Popen([*MQCD, "sink", "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    found = re.search(r"port (\d+)", first.stdout.readline())
    assert found is not None
    second = subprocess.run(
        [*MQCD, "sink", "--port", found[1]], capture_output=True, text=True, check=False, timeout=DEADLINE
    )
    first.terminate()
    first.communicate(timeout=DEADLINE)
    assert second.returncode == 1
    assert second.stderr == f"127.0.0.1 port {found[1]}: Address already in use\n"

"""`mqcd trace` of a running server: sessions at its door and with its next hop, in every shard."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import DEADLINE


@contextmanager
def trace(server: Server, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command, once it is on."""
    command = [sys.executable, "-m", "mqcd", "-c", str(server.conf), "--var", str(server.var), "trace"]
    with subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True) as process:
        server.event("trace")
        yield process
        process.terminate()


@pytest.mark.parametrize("shards", [1, 2])
def test_both_sides_of_a_message_are_seen(make_server: MakeServer, receiver: Receiver, shards: int) -> None:
    server = make_server(Plan(relays=relay(receiver.port), queue={"shards": shards})).start()
    # A connection to the next hop is open, and kept, before the trace begins.
    mail.send(server.port, mail.message("first"), "to@b.test")
    receiver.to("to@b.test")
    with trace(server, "other@b.test", "--json") as process:
        assert process.stdout is not None
        mail.send(server.port, mail.message("nothing of it"), "unseen@b.test")
        mail.send(server.port, mail.message("secret"), "other@b.test")
        seen: list[dict[str, str]] = []
        while {("in", "content"), ("out", "content")} - {(row.get("side"), row["event"]) for row in seen}:
            seen += [json.loads(line) for line in [process.stdout.readline()] if line.strip()]
    for side in ("in", "out"):
        rows = [row for row in seen if row["side"] == side]
        texts = [row.get("text", row["event"]).lower() for row in rows]
        assert "rcpt to:<other@b.test>" in texts, side
    assert "secret" not in str(seen)
    assert "unseen" not in str(seen)
    assert server.stop() == 0


def test_a_trace_ends(make_server: MakeServer) -> None:
    server = make_server(Plan(relays=relay(1))).start()
    with trace(server, "127.0.0.1", "--limit", "3") as process:
        mail.send(server.port, mail.message("seen"), "a@b.test")
        shown, _ = process.communicate(timeout=DEADLINE)
    lines = shown.splitlines()
    assert lines[-1] == "(the trace is over: limit)"
    assert len(lines) == 4
    wrong = subprocess.run(
        [sys.executable, "-m", "mqcd", "-c", str(server.conf), "--var", str(server.var), "trace", "a b"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (wrong.returncode, wrong.stderr.startswith("q: expected")) == (1, True)
    assert server.stop() == 0

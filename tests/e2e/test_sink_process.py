"""`mqcd sink` as a process: what it stores is what was sent, and what it says can be read by scripts."""

from __future__ import annotations

import json
import signal
import smtplib
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.server import ROOT, Line
from tests.e2e.kit.waiting import DEADLINE, Board


class SinkProcess:
    """`mqcd sink --json --store DIR`."""

    def __init__(self, store: Path, *rules: str, flags: Sequence[str] = ()) -> None:
        self.lines: Board[Line] = Board()
        options = [*flags, *(word for rule in rules for word in ("--rule", rule))]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mqcd", "sink", "--port", "0", "--json", "--store", str(store), *options],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port: int = self.event("listening")["port"]

    def _read(self) -> None:
        if self.process.stdout is not None:
            for line in self.process.stdout:
                self.lines.put(json.loads(line))
        self.lines.close()

    def event(self, name: str) -> Line:
        return self.lines.first(lambda line: line["event"] == name, f"the sink's {name}")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[SinkProcess]:
    made = SinkProcess(tmp_path / "store", "no@*=550 5.1.1 No such user")
    yield made
    if made.process.poll() is None:
        made.stop()


def test_every_kind_of_message_through_to_its_files(
    make_server: MakeServer, sink: SinkProcess, tmp_path: Path
) -> None:
    server = make_server(Plan(relays=relay(sink.port))).start()
    contents = {
        f"s{n}@example.test": mail.with_crlf(path.read_bytes()) for n, path in enumerate(mail.sample_files())
    }
    contents["dots@example.test"] = b".\r\n..\r\n.a\r\n"
    contents["large@example.test"] = b"Subject: large\r\n\r\n" + b"x" * 998 + b"\r\n" * 100_000
    for recipient, content in contents.items():
        mail.send(server.port, content, recipient)
    mail.send(server.port, mail.message("no"), "no@example.test", sender="")
    sink.lines.several(lambda line: line["event"] == "message", len(contents), "stored messages")
    assert sink.event("refused")["reply"] == "550 5.1.1 No such user"
    assert server.stop() == 0
    assert sink.stop() == 0

    index = [json.loads(line) for line in (tmp_path / "store/index.jsonl").read_text().splitlines()]
    stored = {row["recipients"][0]: (tmp_path / "store" / row["file"]).read_bytes() for row in index}
    assert {recipient: mail.sent_part(arrived) for recipient, arrived in stored.items()} == contents
    assert sink.event("end")["messages"] == len(contents) == len(index)


def test_it_speaks_what_its_flags_say(tmp_path: Path) -> None:
    made = SinkProcess(tmp_path / "store", flags=["--lmtp", "--chunking", "--dsn"])
    try:
        with smtplib.LMTP("127.0.0.1", made.port) as client:
            client.ehlo()
            assert {"chunking", "dsn"} <= client.esmtp_features.keys()
            # smtplib reads one reply to a message, whatever it speaks.
            for name in ("a@b.test", "c@b.test"):
                assert client.sendmail("s@origin.test", [name], "x", ["RET=HDRS"], ["NOTIFY=DELAY"]) == {}
        for line in made.lines.several(lambda line: line["event"] == "message", 2, "messages"):
            assert (line["dsn"], line["recipient_dsn"]) == ("RET=HDRS", ["NOTIFY=DELAY"])
    finally:
        assert made.stop() == 0

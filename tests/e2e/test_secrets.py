"""What must be nowhere, even at level debug: passwords, keys, contents, in all that is written and shown."""

from __future__ import annotations

import base64
import gzip
import signal
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit.mail import Client
from tests.e2e.kit.plan import Plan
from tests.e2e.kit.server import Server
from tests.fakes.certificates import Authority

USER, PASSWORD = "relay-user", "Correct-Horse-47-Battery"
INWARD = "Wrong-Door-99-Staple"
MARKER = "the-content-says-XYZZY-6021"
KEY = "MIIEvKeyMaterialThatNobodyMaySee0815"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


PLAIN_OUT = encoded(f"\0{USER}\0{PASSWORD}")
PLAIN_IN = encoded(f"\0client\0{INWARD}")
SECRETS = [PASSWORD, encoded(PASSWORD), PLAIN_OUT, INWARD, encoded(INWARD), PLAIN_IN, MARKER, KEY]


class Checkpointer(socketserver.StreamRequestHandler):
    """A next hop that wants a login before it takes mail, and takes only the right one."""

    def handle(self) -> None:
        self.say("220 checkpointer.test ESMTP")
        content = False
        for line in self.rfile:
            word = line.strip().decode("latin-1")
            if content:
                if word == ".":
                    content = False
                    self.say("250 2.0.0 Taken")
            elif word.upper().startswith("EHLO"):
                self.say("250-checkpointer.test", "250 AUTH PLAIN")
            elif word.startswith("AUTH"):
                good = word == f"AUTH PLAIN {PLAIN_OUT}"
                self.say("235 2.7.0 Welcome" if good else "535 5.7.8 Who are you?")
            elif word == "DATA":
                content = True
                self.say("354 Go on")
            else:
                self.say("250 2.0.0 Ok")

    def say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


@pytest.fixture
def checkpointer() -> Iterator[int]:
    """Its port."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Checkpointer) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def plan(port: int, ssl: str = "") -> Plan:
    login = (
        '<auth enabled="Y" cleartext="Y" override="plain">'
        f"<username>{USER}</username><password>{PASSWORD}</password></auth>"
    )
    return Plan(
        relays=(("", f"127.0.0.1:{port}"),),
        relay_elements=login + ssl,
        deliver={"audit": "%DIRLOG%/audit/delivered.log"},
        report={"audit": "%DIRLOG%/audit/failed.log"},
        log_level="debug",
    )


def login_and_send(server: Server) -> None:
    """What a client does that believes it could log in, and then sends a message."""
    with Client(server.port) as client:
        client.greet()
        client.ask(f"AUTH PLAIN {PLAIN_IN}")
    with Client(server.port) as client:
        client.greet()
        client.ask("AUTH LOGIN")
        client.ask(encoded("client"))
        client.ask(encoded(INWARD))
    with Client(server.port) as client:
        client.greet()
        for command in ("MAIL FROM:<me@origin.test>", "RCPT TO:<you@ours.test>", "DATA"):
            assert client.ask(command)[0] in "23"
        text = f"Subject: {MARKER}\r\n\r\n{MARKER}\r\n{MARKER * 30}"
        assert client.ask(f"{text}\r\n.").startswith("250")


def processes(server: Server) -> Iterator[tuple[str, bytes]]:
    """What `ps` and whoever may read /proc see of the server and its helper."""
    for pid in (server.pid, server.helper()):
        for name in ("cmdline", "environ"):
            yield f"{pid}/{name}", Path(f"/proc/{pid}/{name}").read_bytes()


def pages(server: Server) -> Iterator[tuple[str, bytes]]:
    for path in ("/metrics", "/v1/lanes", "/v1/destinations", "/v1/stuck", "/v1/explain?q=you@ours.test"):
        yield path, server.page(path)[1].encode()


def files(server: Server) -> Iterator[tuple[str, bytes]]:
    """Everything below var but the queue and the spool themselves, which hold the mail."""
    for path in server.var.rglob("*"):
        if path.is_file() and path.relative_to(server.var).parts[0] not in ("queue", "spool"):
            octets = path.read_bytes()
            yield str(path), gzip.decompress(octets) if path.suffix == ".gz" else octets


def check(server: Server, seen: list[tuple[str, bytes]]) -> None:
    """Stop it, and look at everything that it has said and written."""
    assert server.stop() == 0
    everything = [*seen, *files(server), ("log", server.history(100_000).encode())]
    found = [(name, secret) for name, octets in everything for secret in SECRETS if secret.encode() in octets]
    assert found == []
    # The search finds what is there.
    hits = {Path(name).suffix for name, octets in everything if b"you@ours.test" in octets}
    assert {"", ".gz"} <= hits


def test_a_login_in_and_out_and_a_content_are_reported_nowhere(
    make_server: MakeServer, checkpointer: int
) -> None:
    server = make_server(plan(checkpointer)).start()
    login_and_send(server)
    told = server.event("delivered", recipient="you@ours.test")
    assert server.lines.first(lambda line: line.get("level") == "debug", "a line of level debug")
    assert server.lines.first(lambda line: "1 messages" in str(line.get("msg")), "the session's end")
    assert server.event("connected")["session"] == told["session"]
    server.signal(signal.SIGHUP)
    server.lines.first(lambda line: "SIGHUP" in line.get("msg", ""), "the reload")
    seen = [*processes(server), *pages(server)]
    check(server, seen)
    names = {Path(name).name for name, _ in files(server)}
    assert "delivered.log" in names
    assert any(name.endswith(".jsonl.gz") for name in names)


def test_a_key_that_cannot_be_used_is_reported_without_what_it_says(
    make_server: MakeServer, checkpointer: int, tmp_path: Path
) -> None:
    good = Authority(tmp_path).sign("mqcd", "DNS:mqcd.test")
    key = tmp_path / "broken.key"
    key.write_text(f"-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----\n")
    ssl = f'<ssl latent="N" certfile="{good}" keyfile="{{}}"/>'
    refused = make_server(plan(checkpointer, ssl.format(key)))
    refused.faults_expected = lambda line: f"{key}" in line["msg"]
    refused.launch()
    assert refused.ended() == 1
    assert KEY not in refused.history(100)
    spoilt = tmp_path / "spoilt.key"
    spoilt.write_bytes(good.read_bytes())
    server = make_server(plan(checkpointer, ssl.format(spoilt))).start()
    spoilt.write_bytes(key.read_bytes())
    login_and_send(server)
    told = server.event("deferred", recipient="you@ours.test")
    assert told["status"] == "4.3.5"
    check(server, [*processes(server), *pages(server)])

"""A webhook of a real server: signed, at least once over kills, and a receiver that is away costs nothing."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
import os
import signal
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server, children
from tests.e2e.kit.waiting import Board, poll

SECRET = "s" * 32


class Hook(ThreadingHTTPServer):
    """A receiver: what it was sent, and whether it takes it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 204
        self.asked: Board[tuple[str, bytes]] = Board()
        """Signature and body of each request."""
        self.taken: Board[str] = Board()
        """Ids of the events that it took, in their order."""


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        """Take a request, or not."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.status
        self.send_response(status)
        self.end_headers()
        self.server.asked.put((self.headers["X-mqcd-Signature"], body))
        if status < 300:
            for event in json.loads(body)["events"]:
                self.server.taken.put(event["id"])

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Nothing."""


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    thread = Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def feeds_process(server: Server) -> int:
    """The process id of the feeds."""

    def command(pid: int) -> bytes:
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes()
        except FileNotFoundError:
            return b""

    return poll(
        lambda: next((pid for pid in children(server.pid) if b"daemon.feeds" in command(pid)), None),
        "the feeds' process",
    )


def is_signed(field: str, body: bytes) -> bool:
    at, _, shown = field.removeprefix("t=").partition(",v1=")
    return hmac.new(SECRET.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest() == shown


def test_events_come_at_least_once_over_kills(
    make_server: MakeServer, receiver: Receiver, hook: Hook, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    url = f"http://127.0.0.1:{hook.server_address[1]}/"
    # Those of the time before its process runs, too.
    asked = 'events="accepted | delivered" from_start="Y"'
    webhook = f'<webhook name="crm" url="{url}" secretfile="{tmp_path}/secret" {asked}/>'
    server = make_server(
        Plan(
            relays=relay(receiver.port),
            journal={"seal_age": "1s"},
            ops=f"<feeds><webhooks>{webhook}</webhooks></feeds>",
        )
    ).start()
    hook.status = 503
    first = feeds_process(server)
    for number in range(3):
        mail.send(server.port, mail.message(f"away {number}"), f"a{number}@b.test")
    hook.asked.several(lambda _: True, 2, "two requests that are refused")
    assert len(hook.taken) == 0
    receiver.to("a2@b.test")
    os.kill(first, signal.SIGKILL)
    server.kill()
    hook.status = 204
    server.start()
    mail.send(server.port, mail.message("after"), "last@b.test")
    hook.taken.several(lambda _: True, 8, "each event of four messages")
    expected = {each["id"] for each in _events(server)}
    poll(lambda: expected <= set(hook.taken.all()), "every event of the log")
    assert all(is_signed(*each) for each in hook.asked.all())
    server.metric("mqcd_feed_failing_seconds{crm}", 0)
    # Counted when the answer has come, which may be after the receiver has shown what it took.
    poll(lambda: server.metrics()["mqcd_feed_events_total{crm}"] >= 8, "a count of all events")
    assert "crm" in server.command("feed", "ls")
    assert server.stop() == 0


def _events(server: Server) -> list[dict[str, str]]:
    """Those of the log that the webhook wants."""
    found = []
    for path in sorted((server.var / "events").glob("*.jsonl.gz")):
        found += [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    return [each for each in found if each["event"] in ("accepted", "delivered")]

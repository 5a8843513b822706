"""Asking a server for `mqcd top`: its pages, its silence, and what is kept of them."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from tempfile import TemporaryDirectory

import pytest

from mqcd.core.errors import ConfigError
from mqcd.net.control.client import NoAnswer
from mqcd.top.client import Server, Watching, as_json, look
from tests.fakes.clock import FakeClock
from tests.unit.top.test_screen import destination

Pages = dict[str, tuple[int, str]]


def pages(accepted: int) -> Pages:
    return {
        "/readyz": (200, "ok\n"),
        "/metrics": (
            200,
            f'mqcd_recipients_accepted_total {accepted}\nmqcd_queue_recipients{{area="held"}} 7\n',
        ),
        "/v1/destinations": (200, json.dumps([destination("a.example", oldest_ms=5)])),
        "/v1/stuck": (200, "[]\n"),
    }


def handler(shown: Pages) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = shown.get(self.path, (404, "no such page"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def address_string(self) -> str:
            return "peer"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing is printed."""

    return Handler


@contextmanager
def serving(shown: Pages) -> Iterator[Server]:
    """A server that shows these pages, which may change meanwhile, over its control socket."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "control.sock"
        with ThreadingUnixStreamServer(str(path), handler(shown)) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield Server("127.0.0.1", 0, path)
            finally:
                server.shutdown()
                thread.join()


@contextmanager
def serving_tcp(shown: Pages) -> Iterator[int]:
    """The port of one that shows them there."""
    with HTTPServer(("127.0.0.1", 0), handler(shown)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def nobody() -> Server:
    """A server on a port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return Server("127.0.0.1", taken.getsockname()[1])


def test_a_sample_has_every_page() -> None:
    with serving(pages(5)) as server:
        found = server.sample(FakeClock())
    assert found.count("mqcd_recipients_accepted_total") == 5
    assert [row["destination"] for row in found.destinations] == ["a.example"]
    assert found.against == ""


def test_two_looks_give_rates_and_one_json_object() -> None:
    shown, clock = pages(5), FakeClock()

    def sleep(seconds: float) -> None:
        clock.advance(int(seconds * 1000))
        shown.update(pages(25))

    with serving(shown) as server:
        found = as_json(look(server, clock, 2.0, sleep))
    assert json.loads(json.dumps(found)) == found
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
    told = next(part for part in page.split("\n\n") if part.startswith("`--json` is one object: `at`"))
    assert set(re.findall("`([a-z_]+)`", told)) == set(found)
    assert isinstance(found["rates"], dict)
    assert found["rates"]["accepted"] == 10.0
    assert found["areas"][3] == {"area": "held", "recipients": 7, "bytes": 0, "oldest_age": 0.0}  # type: ignore[index]


def test_a_server_that_starts_gives_its_reason_and_no_figures() -> None:
    starting = {"/readyz": (503, "starting: wait\n"), "/metrics": (503, "starting: wait\n")}
    with serving(starting) as server:
        found = server.sample(FakeClock())
    assert (found.against, found.metrics) == ("starting: wait", {})


def test_without_the_control_socket_destinations_are_hidden(tmp_path: Path) -> None:
    with serving_tcp(pages(5)) as port:
        found = Server.of("127.0.0.1", port, tmp_path / "control.sock").sample(FakeClock())
        by_url = Server.at(f"http://127.0.0.1:{port}").sample(FakeClock())
    assert found.count("mqcd_recipients_accepted_total") == 5
    assert (list(found.destinations), list(found.stuck)) == ([], [])
    assert "control.sock" in found.hidden
    assert by_url.hidden


def test_what_is_no_server_of_ours_is_told_so() -> None:
    with serving({}) as server, pytest.raises(NoAnswer, match="is no mqcd: /metrics gives 404"):
        server.sample(FakeClock())


def test_an_older_server_has_no_destinations() -> None:
    old = {**pages(1), "/v1/destinations": (404, "no"), "/v1/stuck": (200, "not json")}
    with serving(old) as server:
        found = server.sample(FakeClock())
    assert list(found.destinations) == list(found.stuck) == []


def test_silence_is_reported_with_its_reason() -> None:
    server = nobody()
    with pytest.raises(NoAnswer, match=f"no server answers at {server}: Connection refused"):
        server.sample(FakeClock())


def test_what_speaks_something_else_is_told_too() -> None:
    def greet(listening: socket.socket) -> None:
        with listening.accept()[0] as peer:
            peer.sendall(b"220 mail.example ESMTP\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=greet, args=(listening,), daemon=True)
        thread.start()
        server = Server("127.0.0.1", listening.getsockname()[1])
        with pytest.raises(NoAnswer, match="220 mail"):
            server.sample(FakeClock())
        thread.join()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://127.0.0.1:9125", "127.0.0.1:9125"),
        ("http://127.0.0.1:9125/metrics", "127.0.0.1:9125"),
        ("mail.example:9125", "mail.example:9125"),
        ("http://mail.example", "mail.example:80"),
        ("http://[::1]:9125", "[::1]:9125"),
    ],
)
def test_a_url_names_host_and_port(url: str, name: str) -> None:
    assert str(Server.at(url)) == name


@pytest.mark.parametrize("url", ["", "https://a:1", "http://", "http://a:port", "http://a:99999", "ftp://a"])
def test_a_url_that_names_none_is_an_error(url: str) -> None:
    with pytest.raises(ConfigError, match="names no server"):
        Server.at(url)


def test_the_configuration_names_it(tmp_path: Path) -> None:
    control = tmp_path / "control.sock"
    assert str(Server.of("0.0.0.0", 9125, control)) == "127.0.0.1:9125"
    assert str(Server.of("::", 9125, control)) == "[::1]:9125"
    assert str(Server.of("127.0.0.1", 0, control)) == f"{tmp_path.name}/control.sock"
    with pytest.raises(NoAnswer, match="no server runs at"):
        Server.of("127.0.0.1", 0, control).sample(FakeClock())


def test_top_keeps_its_last_picture_without_answers() -> None:
    clock, shown = FakeClock(), pages(0)
    with serving(shown) as server:
        watching = Watching(server, clock, 1.0)
        assert watching.look() == 1.0
        clock.advance(999)
        assert (watching.look(), watching.looks) == (0.001, 0)
        shown.update(pages(30))
        clock.advance(1)
        assert (watching.look(), watching.looks) == (1.0, 1)
        assert " in       30/s" in [line.plain[:15].rstrip() for line in watching.lines(80, 24)]
    clock.advance(5000)
    assert watching.look() == 0
    lines = [line.plain for line in watching.lines(80, 24)]
    assert lines[1].startswith(" no server runs at ")
    assert " in       30/s" in [line[:15].rstrip() for line in lines]


def test_it_starts_without_the_server() -> None:
    ours = ("mqcd.queue", "mqcd.daemon", "mqcd.deliver", "mqcd.submit", "mqcd.config")
    heavy = (*ours, "prometheus_client", "aiosmtpd", "dns", "uvloop", "lxml", "http.server")
    code = (
        "import sys, mqcd.cli.serving.top, mqcd.top.client, mqcd.top.screen;"
        f"print([name for name in sys.modules if name.startswith({heavy!r})])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"

"""Who may ask a running server what: a hostile page's name, idle sockets, the control socket's place."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Sequence
from contextlib import ExitStack

from tests.e2e.conftest import MakeServer
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import DEADLINE


def test_a_hostile_page_reads_nothing(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(Plan(relays=relay(receiver.port))).start()
    for path in ("/metrics", "/healthz", "/readyz", "/v1/lanes", "/v1/explain?q=a@b.test"):
        assert server.status_as(f"rebound.evil.test:{server.ports['ops']}", path) == 421
        assert server.status_as("127.0.0.1", path) == (404 if path.startswith("/v1/") else 200)
    assert server.status_as("mqcd.test:9125", "/metrics") == 200
    assert server.stop() == 0


def idle(server: Server, count: int, stack: ExitStack) -> Sequence[socket.socket]:
    """So many connections that ask for nothing."""
    address = ("127.0.0.1", server.ports["ops"])
    return [stack.enter_context(socket.create_connection(address, DEADLINE)) for _ in range(count)]


def test_idle_sockets_do_not_deafen_it(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(Plan(relays=relay(receiver.port))).start()
    with ExitStack() as stack:
        idle(server, 200, stack)
        for _ in range(3):
            assert server.page("/readyz") == (200, "ok\n")
        assert server.page("/metrics")[0] == 200
    assert server.stop() == 0


def test_the_control_socket_is_the_servers_own(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(Plan(relays=relay(receiver.port))).start()
    path = server.var / "control.sock"
    assert stat.S_ISSOCK(path.lstat().st_mode)
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert json.loads(server.page("/v1/lanes")[1]) == []
    server.kill()
    assert path.exists()
    server.start()
    assert json.loads(server.page("/v1/lanes")[1]) == []
    assert json.loads(server.command("top", "--json"))["hidden"] == ""
    assert server.stop() == 0
    assert not path.exists()

"""Out by LMTP to Postfix's own receiver for tests, which answers the content once for each recipient."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.waiting import DEADLINE, poll

pytestmark = pytest.mark.needs("smtp-sink")

MakeLmtp = Callable[..., int]
THREE = [f"box{number}@example.test" for number in range(3)]


@pytest.fixture
def make_lmtp(tmp_path: Path) -> Iterator[MakeLmtp]:
    """`make_lmtp(*options)` gives the port of a running smtp-sink; what it takes lies below dumped/."""
    (tmp_path / "dumped").mkdir()
    made: list[subprocess.Popen[bytes]] = []

    def make(*options: str) -> int:
        port = free_port()
        command = ["smtp-sink", *options, "-d", f"{tmp_path}/dumped/"]
        # It insists on being told whom to be in root's place; what it may write to is the test's own.
        user = ["-u", "root"] if os.geteuid() == 0 else []
        process = subprocess.Popen([*command, *user, f"127.0.0.1:{port}", "10"])
        made.append(process)
        poll(lambda: _answers(port) or process.poll() is not None, "smtp-sink's port")
        assert process.poll() is None
        return port

    yield make
    for process in made:
        process.terminate()
        process.wait(DEADLINE)


def _answers(port: int) -> bool:
    with suppress(ConnectionRefusedError), closing(socket.create_connection(("127.0.0.1", port), DEADLINE)):
        return True
    return False


def plan(port: int) -> Plan:
    return Plan(relays=relay(port), relay_attributes='lmtp="Y"', queue={"retry_delays": "1h"})


def test_each_recipient_is_delivered(make_server: MakeServer, make_lmtp: MakeLmtp, tmp_path: Path) -> None:
    server = make_server(plan(make_lmtp("-L"))).start()
    mail.send(server.port, mail.message("boxes"), THREE)
    for event in server.events("delivered", 3):
        assert (event["attempt"], event["code"], event["phase"]) == (1, 250, "dot")
    [dumped] = poll(lambda: list((tmp_path / "dumped").iterdir()), "the message")
    text = dumped.read_text()
    assert "X-Helo-Args: mqcd.test" in text
    assert [line.split()[1] for line in text.splitlines() if line.startswith("X-Rcpt-Args: ")] == [
        f"<{box}>" for box in THREE
    ]
    assert mail.message("boxes").decode().replace("\r\n", "\n") in text
    assert "X-Client-Proto: LMTP" in text


def test_what_it_does_not_take_waits(make_server: MakeServer, make_lmtp: MakeLmtp) -> None:
    server = make_server(plan(make_lmtp("-L", "-r", "."))).start()
    mail.send(server.port, mail.message("full"), THREE)
    for event in server.events("deferred", 3):
        assert (event["code"], event["phase"]) == (450, "dot")
    assert server.seen("delivered") == []


@pytest.mark.parametrize(("options", "lmtp"), [(["-L"], "N"), ([], "Y")], ids=["by SMTP", "of SMTP"])
def test_the_two_are_not_mistaken_for_each_other(
    make_server: MakeServer, make_lmtp: MakeLmtp, options: list[str], lmtp: str
) -> None:
    server = make_server(plan(make_lmtp(*options)).but(relay_attributes=f'lmtp="{lmtp}"')).start()
    mail.send(server.port, mail.message("other"), THREE)
    for event in server.events("deferred", 3):
        assert event["phase"] == "ehlo"
        assert "session refused: 50" in event["reply"]

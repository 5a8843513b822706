"""Mail held for domains that call for it: ETRN, over several shards too, and ATRN, also by fetchmail."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import DEADLINE, poll

MESSAGES = 20


@pytest.mark.parametrize("shards", [1, 2])
def test_etrn_starts_the_held_mail_of_all_shards(
    make_server: MakeServer, make_receiver: MakeReceiver, shards: int
) -> None:
    receiver = make_receiver()
    receiver.down()
    server = make_server(
        Plan(
            relays=(("office.test", f"127.0.0.1:{receiver.port}"),),
            held='<domain name="office.test" mode="etrn"/>',
            queue={"shards": shards, "retry_delays": "1h"},
            journal={"evacuate_age": "1s", "seal_age": "200ms"},
            door={"extETRN": "Y"},
        )
    ).start()
    for number in range(MESSAGES):
        mail.send(server.port, mail.message(f"held {number}"), f"m{number}@office.test")
    # One waits in each process for the next probe.
    poll(lambda: len(server.queue_ls("--area", "held")) >= MESSAGES - shards or None, "held mail")
    with mail.Client(server.port) as client:
        assert "ETRN" in client.greet()
        assert client.ask("ETRN other.test").startswith("459 ")
        receiver.follow()
        assert client.ask("ETRN office.test").startswith("250 ")
    for number in range(MESSAGES):
        receiver.to(f"m{number}@office.test")
    server.metric("mqcd_recipients_delivered_total", MESSAGES)
    assert server.queue_ls() == []
    with mail.Client(server.port) as client:
        client.greet()
        assert client.ask("ETRN @test").startswith("251 ")
    assert server.stop() == 0


USER, PASSWORD = "bob", "builder"
HOME = "home.test"


def odmr_server(make_server: MakeServer, receiver: Receiver, shards: int = 1) -> tuple[Server, int]:
    """A server with a listener for ODMR, and that one's port."""
    port = free_port()
    listener = f"""<listener name="odmr" interface="127.0.0.1" port="{port}" protocol="odmr">
<server><authtypes>plain | cram_md5</authtypes><authtypes_ssl>-</authtypes_ssl>
<users file="%DIRVAR%/users"/></server></listener>"""
    server = make_server(
        Plan(
            relays=relay(receiver.port),
            queue={"shards": shards},
            held=f'<domain name="{HOME}" mode="atrn" user="{USER}"/>',
            journal={"evacuate_age": "1s", "seal_age": "200ms"},
            more_listeners=listener,
        )
    )
    server.var.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "mqcd", "-c", str(server.conf), "--var", str(server.var), "user"]
    add = [*command, "add", USER, "--plain"]
    subprocess.run(add, input=f"{PASSWORD}\n", capture_output=True, text=True, check=True)
    return server.start(), port


def serve(client: mail.Client, refused: str) -> list[str]:
    """Be the server on a reversed connection until QUIT; gives the recipients of what was taken."""
    taken: list[str] = []
    client.send(b"220 customer.test\r\n")
    while not (line := client.reply()).startswith("QUIT"):
        if line.startswith("DATA"):
            client.send(b"354 go on\r\n")
            while client.reply() != ".":
                pass
            client.send(b"250 2.0.0 taken\r\n")
            continue
        denied = refused in line
        if line.startswith("RCPT") and not denied:
            taken.append(line)
        client.send(b"450 4.2.2 full\r\n" if denied else b"250 ok\r\n")
    client.send(b"221 bye\r\n")
    return taken


@pytest.mark.parametrize("shards", [1, 3])
def test_a_user_collects_mail_over_their_own_connection(
    make_server: MakeServer, make_receiver: MakeReceiver, shards: int
) -> None:
    receiver = make_receiver()
    server, port = odmr_server(make_server, receiver, shards)
    for number in range(MESSAGES):
        mail.send(server.port, mail.message(f"held {number}"), f"m{number}@{HOME}")
        mail.send(server.port, mail.message(f"other {number}"), f"o{number}@other.test")
    for number in range(MESSAGES):
        receiver.to(f"o{number}@other.test")
    login = base64.b64encode(f"\0{USER}\0{PASSWORD}".encode()).decode()
    with mail.Client(port) as client:
        assert "ATRN" in client.greet()
        assert client.ask("ATRN").startswith("530 5.7.0 ")
        assert client.ask(f"AUTH PLAIN {login}").startswith("235 ")
        assert client.ask("ATRN other.test").startswith("450 ")
        assert client.ask(f"ATRN {HOME}").startswith("250 ")
        assert len(serve(client, f"<m7@{HOME}>")) == MESSAGES - 1
    [left] = poll(lambda: [each for each in server.queue_ls() if not each["inflight"]] or None, "what stayed")
    assert (left["recipient"], left["area"], left["attempts"]) == (f"m7@{HOME}", "held", 1)
    with mail.Client(port) as client:
        client.greet()
        client.ask(f"AUTH PLAIN {login}")
        assert client.ask("ATRN").startswith("250 ")
        assert len(serve(client, "nobody")) == 1
    server.metric("mqcd_recipients_delivered_total", 2 * MESSAGES)
    with mail.Client(port) as client:
        client.greet()
        client.ask(f"AUTH PLAIN {login}")
        assert client.ask("ATRN").startswith("453 ")
    assert server.stop() == 0


@pytest.mark.needs("fetchmail")
def test_fetchmail_collects_held_mail(
    make_server: MakeServer, make_receiver: MakeReceiver, tmp_path: Path
) -> None:
    receiver, home = make_receiver(), make_receiver()
    server, port = odmr_server(make_server, receiver)
    for number in range(MESSAGES):
        mail.send(server.port, mail.message(f"held {number}"), f"m{number}@{HOME}")
    control = tmp_path / "fetchmailrc"
    control.write_text(
        f'poll 127.0.0.1 protocol odmr port {port} username "{USER}" password "{PASSWORD}"\n'
        f'smtphost "127.0.0.1/{home.port}" fetchdomains "{HOME}"\n'
    )
    control.chmod(0o600)
    command = ["fetchmail", "-v", "-f", str(control), "--pidfile", str(tmp_path / "pid")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE)
    for number in range(MESSAGES):
        assert mail.sent_part(home.to(f"m{number}@{HOME}").content) == mail.message(f"held {number}")
    assert server.queue_ls() == [], done.stdout + done.stderr
    assert server.stop() == 0

"""Clients that send a message again under its key, to a server of four shards: it arrives once."""

from __future__ import annotations

import os
import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.ledger import arrivals, stopped
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server, children
from tests.e2e.kit.waiting import DEADLINE, poll
from tests.e2e.test_shards import JOURNAL

SHARDS = 4
KEYS = [f"order-{number}" for number in range(24)]


def plan(port: int) -> Plan:
    return Plan(
        relays=relay(port),
        smtp_port=free_port(),
        journal=JOURNAL,
        queue={"shards": SHARDS, "retry_delays": "500ms"},
        door={"submission": "Y"},
    )


def submit(server: Server, key: str) -> str | None:
    """The queue id that the server gives; None when it gives none now."""
    content = f"X-mqcd-Key: {key}\r\n".encode() + mail.message(key, lines=600 if key.endswith("0") else 5)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE) as connection:
            lines = connection.makefile("rb")
            reply = lines.readline()
            for command in (
                "HELO client.test",
                "MAIL FROM:<sender@origin.test>",
                f"RCPT TO:<{key}@load.test>",
                "DATA",
            ):
                if reply[:1] not in b"23":
                    return None
                connection.sendall(f"{command}\r\n".encode())
                reply = lines.readline()
            if not reply.startswith(b"354"):
                return None
            connection.sendall(content + b".\r\n")
            reply = lines.readline()
    except OSError:
        return None
    if reply[:1] in b"4":
        return None
    found = re.fullmatch(rb"250 2\.0\.0 Ok: queued as ([0-9A-F]{16})\r\n", reply)
    assert found is not None, reply
    return found[1].decode()


def submit_all(server: Server, times: int) -> dict[str, set[str]]:
    """Each key so often, many at once, without an answer again until there is one: the ids for each."""

    def one(key: str) -> tuple[str, str]:
        return key, poll(lambda: submit(server, key), f"an answer for {key}")

    ids: dict[str, set[str]] = {key: set() for key in KEYS}
    with ThreadPoolExecutor(12) as pool:
        for key, given in pool.map(one, KEYS * times):
            ids[key].add(given)
    return ids


def kill_one(server: Server) -> None:
    os.kill(server.shards(SHARDS)[1], signal.SIGKILL)


def kill_all(server: Server) -> None:
    for pid in [server.pid, *children(server.pid)]:
        os.kill(pid, signal.SIGKILL)
    server.kill()
    server.start()


@pytest.mark.crash
@pytest.mark.parametrize("kill", [kill_one, kill_all], ids=lambda kill: kill.__name__)
def test_a_key_is_one_message_whoever_is_killed(
    make_server: MakeServer, receiver: Receiver, kill: object
) -> None:
    assert callable(kill)
    server = make_server(plan(receiver.port)).start()
    server.faults_expected = lambda line: any(
        word in str(line) for word in ("has ended", "helper", "supervisor", "does not answer")
    )
    before = submit_all(server, 3)
    kill(server)
    after = submit_all(server, 3)
    assert {key: len(before[key] | after[key]) for key in KEYS} == dict.fromkeys(KEYS, 1)
    for key in KEYS:
        arrived = receiver.to(f"{key}@load.test")
        assert mail.spid_of(arrived.content) in before[key]
        assert b"X-mqcd-Key" not in arrived.content
    server.shards(SHARDS)
    ledger = stopped(server)
    assert len({event["spid"] for event in ledger.events if event["event"] == "accepted"}) == len(KEYS)
    assert ledger.surprises(arrivals([receiver])) == {}


def test_repeats_and_keys_are_counted(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(plan(receiver.port)).start()
    submit_all(server, 3)
    server.metric("mqcd_idempotency_keys", len(KEYS))
    server.metric("mqcd_idempotent_repeats_total", 2 * len(KEYS))
    assert server.stop() == 0
    server.start()
    submit_all(server, 1)
    server.metric("mqcd_idempotency_keys", len(KEYS))
    server.metric("mqcd_recipients_accepted_total", 0)
    server.stop()

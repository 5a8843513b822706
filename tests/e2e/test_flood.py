"""Strangers that hold every connection they can get, at a server with few descriptors."""

from __future__ import annotations

import os
import selectors
import smtplib
import socket
from pathlib import Path

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import DEADLINE

DESCRIPTORS = 512
FLOOD = 600
OURS = "127.0.0.2"


def flood(port: int, networks: int = 1) -> list[socket.socket]:
    """Connections that are opened as fast as can be, and then held; from as many networks."""
    held = []
    for number in range(FLOOD):
        client = socket.socket()
        client.bind((f"127.0.{number % networks}.1", 0))
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", port))
        held.append(client)
    return held


def greetings(clients: list[socket.socket]) -> list[bytes]:
    """The code that each client reads first."""
    found: list[bytes] = []
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_READ)
        while len(found) < len(clients):
            ready = selector.select(timeout=DEADLINE)
            assert ready, f"{len(clients) - len(found)} clients hear nothing"
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                found.append(key.fileobj.recv(3))
                selector.unregister(key.fileobj)
    return found


def send_from(port: int, source: str, token: str) -> None:
    """A message from one of our addresses."""
    with smtplib.SMTP("127.0.0.1", port, source_address=(source, 0), timeout=DEADLINE) as client:
        client.sendmail("sender@origin.test", [f"{token}@ours.test"], mail.message(token))


def open_descriptors(server: Server) -> int:
    return len(os.listdir(Path(f"/proc/{server.pid}/fd")))


def test_a_flood_of_connections_leaves_room_for_mail(make_server: MakeServer, receiver: Receiver) -> None:
    plan = Plan(
        relays=relay(receiver.port),
        journal={"segmentsize": "64K", "inline_max": "16K", "seal_age": "200ms", "evacuate_age": "300ms"},
        door={"relay_clients": OURS, "maxpeerconnections": 0},
    )
    server = make_server(plan)
    server.descriptors = DESCRIPTORS
    server.start()
    held = flood(server.port, networks=20)
    try:
        codes = greetings(held)
        assert set(codes) == {b"220", b"421"}
        assert codes.count(b"220") >= 50
        assert open_descriptors(server) < DESCRIPTORS * 3 // 4
        for number in range(20):
            send_from(server.port, OURS, f"t{number}")
        for number in range(20):
            receiver.to(f"t{number}@ours.test")
    finally:
        for client in held:
            client.close()
    assert server.stop() == 0


def test_a_flood_from_one_network_leaves_room_for_others(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(
        Plan(relays=relay(receiver.port), door={"relay_clients": OURS, "maxpeerconnections": 0})
    )
    server.descriptors = DESCRIPTORS
    server.start()
    held = flood(server.port)
    try:
        assert 20 < greetings(held).count(b"220") < 50
        for source in ("127.0.1.1", "127.0.2.1"):
            other = smtplib.SMTP("127.0.0.1", server.port, source_address=(source, 0), timeout=DEADLINE)
            assert other.quit()[0] == 221
    finally:
        for client in held:
            client.close()
    assert server.stop() == 0


def test_one_stranger_has_few_connections(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(Plan(relays=relay(receiver.port), door={"relay_clients": OURS}))
    server.start()
    held = flood(server.port)
    try:
        assert greetings(held).count(b"220") == 50
        send_from(server.port, OURS, "t")
    finally:
        for client in held:
            client.close()
    assert server.stop() == 0

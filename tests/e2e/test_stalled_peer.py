"""A peer that stalls while the journal turns over several times still gets its own message, whole."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import MakePeer, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.load import Load
from tests.e2e.kit.plan import Plan, Values
from tests.e2e.kit.receivers import Receiver, Script
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import poll

SLOTS = 4
JOURNAL: Values = {
    "segmentsize": "256K",
    "segments": SLOTS,
    "inline_max": "64K",
    "seal_age": "200ms",
    "evacuate_age": "400ms",
}
TURNS = 3
"""How often every slot of the journal is used again while the peer stalls."""


def own(token: str, octets: int) -> bytes:
    """Content of which no two stretches are alike, so that none can take another's place."""
    lines = "".join(
        f"{token} {number:08d} {number * 2654435761 % 2**32:08x}\r\n" for number in range(octets // 30)
    )
    return f"Subject: {token}\r\n\r\n{lines}".encode()


def segments(server: Server) -> int:
    """How many segments have been sealed and exported."""
    return len(list((server.var / "events").glob("*.jsonl.gz")))


@pytest.mark.parametrize(
    ("script", "octets"),
    [
        pytest.param(Script(wait_at_data=True), 40_000, id="in-the-journal-before-354"),
        pytest.param(Script(wait_after=1000), 40_000, id="in-the-journal-in-content"),
        pytest.param(Script(wait_at_data=True), 8_000_000, id="in-the-spool-before-354"),
        pytest.param(Script(wait_after=1000), 8_000_000, id="in-the-spool-in-content"),
    ],
)
def test_a_stalled_peer_gets_its_message(
    make_server: MakeServer, make_peer: MakePeer, receiver: Receiver, script: Script, octets: int
) -> None:
    peer = make_peer(script)
    relays = (("slow.test", f"127.0.0.1:{peer.port}"), ("", f"127.0.0.1:{receiver.port}"))
    server = make_server(Plan(relays=relays, journal=JOURNAL, client={"timeout": "5m"})).start()
    content = own("slow", octets)
    mail.send(server.port, content, ["one@slow.test", "two@slow.test"])
    peer.stalled.first(lambda where: True, "the peer's stall")

    wanted = segments(server) + TURNS * SLOTS
    with Load(server.port, 2, lambda token: own(token, 20_000)) as load:
        poll(lambda: segments(server) >= wanted, "the journal's turning over")
    server.metric("mqcd_recipients_delivered_total", len(load.acknowledged))
    assert len(peer.contents) == 0

    peer.go_on()
    arrived = peer.contents.first(lambda _: True, "the stalled message")
    assert mail.sent_part(arrived) == content
    server.metric("mqcd_recipients_delivered_total", len(load.acknowledged) + 2)
    assert len(peer.contents) == 1
    for recipient in load.acknowledged.all():
        assert mail.sent_part(receiver.to(recipient).content) == own(
            recipient.removesuffix("@load.test"), 20_000
        )
    assert server.stop() == 0


def test_a_message_that_one_peer_has_and_another_waits_for(
    make_server: MakeServer, make_peer: MakePeer, receiver: Receiver
) -> None:
    """The content stays while anybody needs it, though the journal moves on and others are done."""
    peer = make_peer(Script(wait_at_data=True))
    relays = (("slow.test", f"127.0.0.1:{peer.port}"), ("", f"127.0.0.1:{receiver.port}"))
    server = make_server(Plan(relays=relays, journal=JOURNAL, client={"timeout": "5m"})).start()
    content = own("shared", 40_000)
    mail.send(server.port, content, ["quick@fast.test", "late@slow.test"])
    assert mail.sent_part(receiver.to("quick@fast.test").content) == content
    peer.stalled.first(lambda where: True, "the peer's stall")
    wanted = segments(server) + SLOTS + 1
    with Load(server.port, 2, lambda token: own(token, 20_000)):
        poll(lambda: segments(server) >= wanted, "the journal's turning over")
    # The next attempt reads it from wherever it lies by now.
    server.kill()
    peer.go_on()
    server.start()
    assert mail.sent_part(peer.contents.first(lambda _: True, "the shared message")) == content
    server.event("delivered", recipient="late@slow.test")
    assert receiver.count("quick@fast.test") == 1
    assert server.stop() == 0

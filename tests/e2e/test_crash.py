"""Kill -9 at any moment: what was acknowledged arrives, and whatever arrives twice had been announced."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from functools import partial

import pytest

from tests.e2e.conftest import MakePeer, MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.ledger import Ledger, arrivals, stopped
from tests.e2e.kit.load import Load, SmtpSource
from tests.e2e.kit.plan import Plan, Values, relay
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.receivers import Receiver, Script
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import DEADLINE, poll

KILLS = 8
BETWEEN = 120
"""Acknowledged messages between two kills."""
JOURNAL: Values = {
    "segmentsize": "256K",
    "segments": 6,
    "inline_max": "16K",
    "seal_age": "300ms",
    "evacuate_age": "1s",
}
"""Small and quick, so that segments are sealed, moved and used again while all this goes on."""


def some_content(token: str) -> bytes:
    """Mostly small, every tenth too large for the journal."""
    return mail.message(token, lines=600 if token.endswith("0") else 20)


@pytest.mark.needs("smtp-source")
@pytest.mark.crash
def test_killed_again_and_again_under_load(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(
        Plan(
            relays=relay(receiver.port),
            smtp_port=free_port(),
            journal=JOURNAL,
            queue={"retry_delays": "500ms"},
        )
    ).start()
    with Load(server.port, 4, some_content) as load, SmtpSource(server.port) as source:
        for _ in range(KILLS):
            load.more(BETWEEN)
            server.kill()
            server.start()
        load.more(BETWEEN)
    assert source.runs > 1

    for recipient in load.acknowledged.all():
        arrived = receiver.to(recipient)
        assert mail.sent_part(arrived.content) == some_content(recipient.removesuffix("@load.test"))
    for area in ("incoming", "deferred", "bounces"):
        server.metric(f"mqcd_queue_recipients{{{area}}}", 0)
    ledger = stopped(server)
    assert ledger.unfinished() == set()
    assert ledger.count("delivered") == ledger.count("accepted")
    came = arrivals([receiver])
    assert came.keys() == ledger.count("accepted").keys(), "what arrived is what was accepted"
    assert ledger.surprises(came) == {}, "arrived more often than the server owned up to"


ROUNDS = int(os.environ.get("MQCD_CRASH_ROUNDS", "6"))
VICTIMS = ("server", "helper", "both")


def at_evacuation(server: Server) -> int:
    """Stop the helper between the first cluster that it writes and the edit that lists it; its process id."""
    manifest = server.var / "queue" / "MANIFEST"

    def caught() -> int | None:
        pid = server.helper()
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            return None
        listed = manifest.read_text()
        for area in ("incoming", "deferred"):
            for path in (server.var / "queue" / area).rglob("M*"):
                if path.suffix == ".tmp" or str(path.relative_to(manifest.parent)) not in listed:
                    return pid
        os.kill(pid, signal.SIGCONT)
        return None

    return poll(caught, "an evacuation", seconds=2 * DEADLINE)


def _evacuations(server: Server) -> float:
    return server.metrics()["mqcd_evacuation_seconds_count"]


def _more_evacuations(server: Server, done: float) -> bool:
    return _evacuations(server) > done


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(120 + 60 * ROUNDS)
def test_kills_amid_evacuations_under_load(make_server: MakeServer, make_receiver: MakeReceiver) -> None:
    """The server, its helper, and both, in turn, while clients send and much of the mail has to wait."""
    busy = make_receiver("*=450 4.2.1 later")
    good = make_receiver()
    relays = (("load.test", f"127.0.0.1:{good.port}"), ("later.test", f"127.0.0.1:{busy.port}"))
    server = make_server(
        Plan(relays=relays, smtp_port=free_port(), journal=JOURNAL, queue={"retry_delays": "2s"})
    ).start()
    server.faults_expected = lambda line: (
        "helper" in str(line) or "evacuat" in str(line) or "emptied" in str(line)
    )
    moved = 0.0
    with (
        Load(server.port, 3, some_content) as load,
        Load(server.port, 2, some_content, domain="later.test") as later,
    ):
        for number in range(ROUNDS):
            load.more(40)
            later.more(20)
            victim = VICTIMS[number % len(VICTIMS)]
            helper = at_evacuation(server)
            moved += _evacuations(server)
            if victim != "server":
                os.kill(helper, signal.SIGKILL)
            if victim == "helper":
                # A new one goes on with what it left, and the server never stops.
                done = _evacuations(server)
                poll(partial(_more_evacuations, server, done), "evacuations by another helper")
                assert server.helper() != helper
                continue
            server.kill()
            server.start()
        load.more(40)
    assert moved > 0, "nothing was evacuated between the kills"
    busy.follow()
    for recipient in load.acknowledged.all():
        good.to(recipient)
    for recipient in later.acknowledged.all():
        busy.to(recipient)
    for area in ("incoming", "deferred", "bounces"):
        server.metric(f"mqcd_queue_recipients{{{area}}}", 0)
    ledger = stopped(server)
    assert ledger.unfinished() == set()
    assert ledger.count("delivered") == ledger.count("accepted")
    came = arrivals([good, busy])
    assert ledger.surprises(came) == {}


@pytest.mark.crash
def test_killed_behind_the_final_dot(make_server: MakeServer, make_peer: MakePeer) -> None:
    """The peer may have it: it is sent again, and the copy is announced; before the dot there is no doubt."""
    at_data, at_dot = make_peer(Script(wait_at_data=True)), make_peer(Script(wait_at_dot=True))
    relays = (("data.test", f"127.0.0.1:{at_data.port}"), ("dot.test", f"127.0.0.1:{at_dot.port}"))
    server = make_server(Plan(relays=relays, journal=JOURNAL)).start()
    mail.send(server.port, mail.message("data"), "a@data.test")
    mail.send(server.port, mail.message("dot"), "b@dot.test")
    at_data.stalled.first(lambda where: True, "a transaction that waits for its 354")
    at_dot.stalled.first(lambda where: True, "a transaction that waits for its last reply")
    server.kill()
    at_data.go_on()
    at_dot.go_on()
    server.start()
    server.event("outcome-unknown", recipient="b@dot.test", level="warning")
    server.metric("mqcd_recipients_delivered_total", 2)
    figures = server.metrics()
    assert figures["mqcd_outcome_unknown_total"] >= 1
    assert figures["mqcd_ledger_imbalance_recipients"] == 0
    ledger = stopped(server)
    assert [mail.sent_part(content) for content in at_dot.contents.all()] == [mail.message("dot")] * 2
    assert [mail.sent_part(content) for content in at_data.contents.all()] == [mail.message("data")]
    unknown = Counter(event["recipient"] for event in ledger.events if event["event"] == "outcome-unknown")
    assert unknown["b@dot.test"] == 1


@pytest.mark.crash
def test_a_message_of_three_crashes_is_listed_until_it_ends(
    make_server: MakeServer, make_peer: MakePeer
) -> None:
    peer = make_peer(Script(wait_at_dot=True))
    server = make_server(Plan(relays=relay(peer.port), journal=JOURNAL)).start()
    mail.send(server.port, mail.message("poison"), "a@poison.test")
    for crash in range(1, 4):
        peer.stalled.several(lambda where: True, crash, f"attempt {crash}")
        server.metric("mqcd_stuck_recipients", 0)
        server.kill()
        server.start()
    server.metric("mqcd_stuck_recipients", 1)
    [stuck] = json.loads(server.page("/v1/stuck")[1])
    assert (stuck["kind"], stuck["name"], stuck["recipients"]) == ("outcome", "poison.test", 1)
    peer.go_on()
    server.metric("mqcd_recipients_delivered_total", 1)
    server.metric("mqcd_stuck_recipients", 0)


@pytest.mark.needs("smtp-source")
def test_a_stop_under_load_loses_and_repeats_nothing(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(Plan(relays=relay(receiver.port), smtp_port=free_port(), journal=JOURNAL)).start()
    with Load(server.port, 4, some_content) as load, SmtpSource(server.port):
        for _ in range(3):
            load.more(BETWEEN)
            assert server.stop() == 0
            Ledger(server.var).check()
            server.start()
        load.more(BETWEEN)
    for recipient in load.acknowledged.all():
        receiver.to(recipient)
    server.metric("mqcd_queue_recipients{incoming}", 0)
    ledger = stopped(server)
    assert ledger.count("outcome-unknown") == {}
    assert ledger.unfinished() == set()
    assert set(arrivals([receiver]).values()) == {1}


def test_a_stop_with_silent_peers_is_quick_and_keeps_mail(
    make_server: MakeServer, make_peer: MakePeer
) -> None:
    at_data, at_dot = make_peer(Script(wait_at_data=True)), make_peer(Script(wait_at_dot=True))
    relays = (("data.test", f"127.0.0.1:{at_data.port}"), ("dot.test", f"127.0.0.1:{at_dot.port}"))
    server = make_server(Plan(relays=relays, journal=JOURNAL)).start()
    mail.send(server.port, mail.message("data"), "a@data.test")
    mail.send(server.port, mail.message("dot"), "b@dot.test")
    at_data.stalled.first(lambda where: True, "a transaction that waits for its 354")
    at_dot.stalled.first(lambda where: True, "a transaction that waits for its last reply")
    assert server.stop() == 0
    assert {row["recipient"] for row in server.queue_ls()} == {"a@data.test", "b@dot.test"}

    at_data.go_on()
    at_dot.go_on()
    server.start()
    server.metric("mqcd_recipients_delivered_total", 2)
    ledger = stopped(server)
    assert ledger.unfinished() == set()
    unknown = [event["recipient"] for event in ledger.events if event["event"] == "outcome-unknown"]
    assert unknown == ["b@dot.test"], "only what was past its final dot may have been delivered"
    assert [mail.sent_part(content) for content in at_data.contents.all()] == [mail.message("data")]
    assert [mail.sent_part(content) for content in at_dot.contents.all()] == [mail.message("dot")] * 2

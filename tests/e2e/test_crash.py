"""Kill -9 at any moment: what was acknowledged arrives, and whatever arrives twice had been announced."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.e2e.conftest import MakePeer, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.ledger import Ledger
from tests.e2e.kit.load import Load, SmtpSource
from tests.e2e.kit.plan import Plan, Values, relay
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.receivers import Receiver, Script

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
    assert server.stop() == 0

    ledger = Ledger(server.var)
    ledger.check()
    assert ledger.unfinished() == set()
    assert ledger.count("delivered") == ledger.count("accepted")
    came = Counter((mail.spid_of(each.content), 1) for each in receiver.mail.all())
    assert came.keys() == ledger.count("accepted").keys(), "what arrived is what was accepted"
    unknown = ledger.count("outcome-unknown")
    surprises = {key: times for key, times in came.items() if times - 1 > unknown[key]}
    assert surprises == {}, "arrived more often than the server owned up to"


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
    assert server.metrics()["mqcd_outcome_unknown_total"] >= 1
    assert server.stop() == 0
    ledger = Ledger(server.var)
    ledger.check()
    assert [mail.sent_part(content) for content in at_dot.contents.all()] == [mail.message("dot")] * 2
    assert [mail.sent_part(content) for content in at_data.contents.all()] == [mail.message("data")]
    unknown = Counter(event["recipient"] for event in ledger.events if event["event"] == "outcome-unknown")
    assert unknown["b@dot.test"] == 1


@pytest.mark.needs("smtp-source")
def test_an_orderly_stop_under_load_loses_nothing_and_repeats_nothing(
    make_server: MakeServer, receiver: Receiver
) -> None:
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
    assert server.stop() == 0
    ledger = Ledger(server.var)
    ledger.check()
    assert ledger.count("outcome-unknown") == {}
    assert ledger.unfinished() == set()
    assert max(Counter(mail.spid_of(each.content) for each in receiver.mail.all()).values()) == 1


def test_a_stop_with_silent_peers_ends_in_time_and_keeps_their_mail(
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
    assert server.stop() == 0
    ledger = Ledger(server.var)
    ledger.check()
    assert ledger.unfinished() == set()
    unknown = [event["recipient"] for event in ledger.events if event["event"] == "outcome-unknown"]
    assert unknown == ["b@dot.test"], "only what was past its final dot may have been delivered"
    assert [mail.sent_part(content) for content in at_data.contents.all()] == [mail.message("data")]
    assert [mail.sent_part(content) for content in at_dot.contents.all()] == [mail.message("dot")] * 2

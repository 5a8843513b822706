"""The event files of a real server: whole after every kind of end, and nobody named where a key is set."""

from __future__ import annotations

import os
import signal
import smtplib
from collections import Counter

import pytest

from mqcd.core.events import BEST_EFFORT, TRANSITIONS
from mqcd.eventlog.pseudonyms import Pseudonyms
from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.ledger import Event, Ledger, stopped
from tests.e2e.kit.load import Load
from tests.e2e.kit.plan import Plan, Values, relay
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.server import Server

LATE: Values = {"seal_age": "1h", "evacuate_age": "1h"}
"""Nothing is exported before the stop."""
KEY = b"0123456789abcdef0123456789abcdef"


@pytest.fixture
def server(make_server: MakeServer, make_receiver: MakeReceiver) -> Server:
    """One whose next hops take mail, refuse it, put it off, and are not there."""
    rules = ("*@later.test=450 4.2.1 later", "*@never.test=550 5.1.1 unknown")
    good = make_receiver(*rules)
    relays = (("", f"127.0.0.1:{good.port}"), ("gone.test", f"127.0.0.1:{free_port()}"))
    plan = Plan(relays=relays, journal=LATE, queue={"retry_delays": "1h"}, log_level="debug")
    return make_server(
        plan.but(door={"relay_clients": "", "relay_domains": "a.test | later.test | never.test | gone.test"})
    )


def one_of_each(server: Server) -> None:
    """Mail that comes to each kind of end, and a refusal."""
    for number, domain in enumerate(("a.test", "later.test", "never.test", "gone.test")):
        mail.send(server.port, mail.message(f"m{number}"), f"ann@{domain}", sender="bob@a.test")
    with smtplib.SMTP("127.0.0.1", server.port) as client, pytest.raises(smtplib.SMTPRecipientsRefused):
        client.sendmail("bob@a.test", ["eve@elsewhere.test"], b"no")
    server.events("delivered", 2)
    server.events("deferred", 2)
    server.event("reported")


def identity(event: Event) -> tuple[object, ...]:
    return event["event"], event["spid"], event["qid"], event.get("attempt")


def check_against_log(server: Server) -> Ledger:
    """The files have each transition that the log told, once, and nothing else."""
    ledger = Ledger(server.var)
    logged = Counter(identity(line) for line in server.lines.all() if line.get("event") in TRANSITIONS)
    written = Counter(identity(event) for event in ledger.events if event["event"] in TRANSITIONS)
    assert written == logged
    return ledger


def test_an_orderly_stop_closes_the_log(server: Server) -> None:
    server.start()
    one_of_each(server)
    assert list((server.var / "events").iterdir()) == []
    assert server.stop() == 0
    ledger = check_against_log(server)
    verbs = Counter(event["event"] for event in ledger.events)
    assert verbs["accepted"] == 5
    assert {"delivered", "deferred", "bounced", "reported", "attempted"} | BEST_EFFORT <= set(verbs)
    [refused] = [event for event in ledger.events if event["event"] == "refused"]
    assert (refused["recipient"], refused["listener"], refused["client"]) == (
        "eve@elsewhere.test",
        "in",
        "127.0.0.1",
    )
    assert not [path for path in (server.var / "events").iterdir() if path.suffix == ".tmp"]


def test_it_does_when_the_helper_has_died(server: Server) -> None:
    server.faults_expected = lambda line: "helper process has ended" in str(line)
    server.start()
    one_of_each(server)
    os.kill(server.helper(), signal.SIGKILL)
    assert server.stop() == 0
    check_against_log(server)


def test_a_stop_replaces_a_hanging_helper(server: Server) -> None:
    server.faults_expected = lambda line: "has given no sign" in str(line)
    server.start()
    one_of_each(server)
    os.kill(server.helper(), signal.SIGSTOP)
    server.signal(signal.SIGTERM)
    assert server.ended(6) == 0
    assert any("has given no sign" in str(line) for line in server.lines.all())
    check_against_log(server)


@pytest.mark.crash
def test_killed_under_load_with_hashed_addresses(
    make_server: MakeServer, make_receiver: MakeReceiver
) -> None:
    receiver = make_receiver()
    journal: Values = {"segmentsize": "256K", "segments": 6, "seal_age": "300ms", "evacuate_age": "1s"}
    plan = Plan(
        relays=relay(receiver.port),
        smtp_port=free_port(),
        journal=journal,
        queue={"retry_delays": "500ms"},
        events='<hashkey file="key"/>',
    )
    server = make_server(plan)
    (server.conf.parent / "key").write_bytes(KEY)
    (server.conf.parent / "key").chmod(0o600)
    server.start()
    with Load(server.port, 4, lambda token: mail.message(token, lines=20)) as load:
        for _ in range(3):
            load.more(60)
            server.kill()
            server.start()
        load.more(60)
    for recipient in load.acknowledged.all():
        receiver.to(recipient)
    server.metric("mqcd_queue_recipients{incoming}", 0)
    server.metric("mqcd_queue_recipients{deferred}", 0)
    ledger = stopped(server)
    assert ledger.unfinished() == set()
    names = Pseudonyms(KEY)
    accepted = {event["recipient"] for event in ledger.events if event["event"] == "accepted"}
    assert {names.address(recipient) for recipient in load.acknowledged.all()} <= accepted
    assert not [event for event in ledger.events if "@" in f"{event.get('sender')}{event.get('recipient')}"]
    assert KEY.decode() not in server.history(10_000)

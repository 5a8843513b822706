"""Delivery by MX, with a DNS server of the test's own and hosts on several loopback addresses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import pytest

from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.ledger import Ledger
from tests.e2e.kit.nameserver import NameServer
from tests.e2e.kit.plan import Plan
from tests.e2e.kit.receivers import LoopThread, Receiver
from tests.e2e.kit.server import Server

SENDER = "sender@origin.test"
NOBODY = "127.0.0.9"
"""An address on which nothing listens."""

ZONE: Mapping[str, Mapping[str, list[str]]] = {
    "origin.test": {"A": ["127.0.0.2"]},
    "first.test": {"A": ["127.0.0.2"]},
    "second.test": {"A": ["127.0.0.3"]},
    "dead.test": {"A": [NOBODY]},
    "preferred.test": {"MX": ["20 second.test.", "10 first.test."]},
    "next.test": {"MX": ["10 dead.test.", "20 second.test."]},
    "missing.test": {"MX": ["10 nowhere.test.", "20 second.test."]},
    "null.test": {"MX": ["0 ."], "A": ["127.0.0.2"]},
    "empty.test": {"TXT": ["nothing of use"]},
    "slow.test": {"MX": ["10 second.test."]},
    "broken.test": {"MX": ["10 second.test."]},
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """A server that asks our DNS, and the two hosts that exist."""

    server: Server
    names: NameServer
    first: Receiver
    second: Receiver


@pytest.fixture
def names(loop_thread: LoopThread) -> Iterator[NameServer]:
    made = NameServer(loop_thread, ZONE)
    yield made
    made.close()


@pytest.fixture
def world(make_server: MakeServer, make_receiver: MakeReceiver, names: NameServer) -> Iterator[World]:
    first = make_receiver(host="127.0.0.2")
    second = make_receiver(host="127.0.0.3", port=first.port)
    plan = Plan(
        deliver={"smtpport": first.port, "local_mx": "Y"},
        dns={"servers": f"127.0.0.1:{names.port}", "timeout": "500ms"},
    )
    world = World(server=make_server(plan).start(), names=names, first=first, second=second)
    yield world
    assert world.server.stop() == 0
    Ledger(world.server.var).check()


def test_the_most_preferred_host_gets_it(world: World) -> None:
    mail.send(world.server.port, mail.message("p"), "a@preferred.test")
    assert mail.sent_part(world.first.to("a@preferred.test").content) == mail.message("p")
    told = world.server.event("delivered", recipient="a@preferred.test")
    assert (told["remote_host"], told["remote_addr"]) == ("first.test", "127.0.0.2")
    assert len(world.second.mail) == 0


@pytest.mark.parametrize("domain", ["next.test", "missing.test"])
def test_the_next_host_stands_in(world: World, domain: str) -> None:
    mail.send(world.server.port, mail.message("n"), f"a@{domain}")
    assert mail.sent_part(world.second.to(f"a@{domain}").content) == mail.message("n")


@pytest.mark.parametrize(
    ("domain", "status"), [("null.test", "5.1.10"), ("no-such-domain.test", "5.1.2"), ("empty.test", "5.1.2")]
)
def test_domains_that_take_no_mail_bounce_at_once(world: World, domain: str, status: str) -> None:
    mail.send(world.server.port, mail.message("b"), f"a@{domain}", sender=SENDER)
    told = world.server.event("bounced", recipient=f"a@{domain}")
    assert (told["status"], told["phase"], told["attempt"]) == (status, "route", 1)
    report = world.first.to(SENDER)
    assert report.sender == ""
    assert f"Final-Recipient: rfc822; a@{domain}\r\n".encode() in report.content
    assert f"Status: {status}\r\n".encode() in report.content


@pytest.mark.parametrize("fault", ["silent", "failing"])
def test_dns_that_does_not_answer_defers(world: World, fault: str) -> None:
    domain = "slow.test" if fault == "silent" else "broken.test"
    setattr(world.names, fault, frozenset({domain}))
    mail.send(world.server.port, mail.message("d"), f"a@{domain}", sender=SENDER)
    told = world.server.event("deferred", recipient=f"a@{domain}")
    assert (told["status"], told["phase"]) == ("4.4.3", "route")
    setattr(world.names, fault, frozenset())
    assert mail.sent_part(world.second.to(f"a@{domain}").content) == mail.message("d")
    assert len(world.first.mail) == 0, "a deferral is not reported"

"""What a sender asked to hear (RFC 3461): passed on where the next hop takes it, else ours to report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mqcd.core.events import Verb
from mqcd.core.model import Envelope, Origin, Settlement, Submission
from tests.fakes.dialer import Peer
from tests.unit.deliver.kit import RELAYED, Kit

ASKED = ("NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;a@other.example", "NOTIFY=FAILURE", "")
ADDRESSES = ("a@example.com", "b@example.com", "c@example.com")


class Reporter:
    """`mqcd.core.ports.Notifier` that notes what it was asked for, and fails when so told."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], bool]] = []
        self.make: Callable[[], Submission] | None = None
        self.failure: Exception | None = None

    async def delivered(self, settlements: Sequence[Settlement], final: bool) -> Sequence[Submission]:
        self.asked.append(([each.recipient.address for each in settlements], final))
        if self.failure is not None:
            raise self.failure
        return [self.make()] if self.make is not None else []


def hosts(*extensions: str, **how: Any) -> dict[str, Callable[[], Peer] | str | None]:
    return {"192.0.2.1": lambda: Peer(extensions=("PIPELINING", *extensions), **how)}


async def test_a_hop_that_takes_dsn_is_told_and_answers_for_the_rest() -> None:
    reporter = Reporter()
    async with Kit(hosts=hosts("DSN"), notifier=reporter) as kit:
        await kit.submit(*ADDRESSES, dsn="RET=HDRS ENVID=abc", notify=ASKED)
        await kit.deliverer.drained()
        assert kit.dialer.peers[0].log[1:5] == [
            "MAIL FROM:<from@example.org> RET=HDRS ENVID=abc",
            "RCPT TO:<a@example.com> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;a@other.example",
            "RCPT TO:<b@example.com> NOTIFY=FAILURE",
            "RCPT TO:<c@example.com>",
        ]
        assert reporter.asked == []


async def test_where_the_hop_takes_none_success_is_reported_with_the_verdict() -> None:
    reporter = Reporter()
    async with Kit(hosts=hosts(), notifier=reporter) as kit:

        def report() -> Submission:
            envelope = Envelope(
                spid=kit.store.reserve(False), sender="", received=kit.clock.now(), origin=Origin.REPORT
            )
            return Submission(envelope=envelope, recipients=("from@example.org",), content=b"\r\n")

        reporter.make = report
        await kit.submit(*ADDRESSES, notify=ASKED)
        await kit.heard(Verb.DELIVERED, 4)
        assert reporter.asked == [(["a@example.com"], False)]
        assert [sender for sender, _, _ in kit.dialer.messages] == ["from@example.org", ""]


async def test_a_recipient_that_was_refused_is_no_success() -> None:
    reporter = Reporter()
    refusing = {"192.0.2.1": lambda: Peer(replies={"RCPT a@example.com": "450 4.2.1 later"})}
    async with Kit(hosts=refusing, notifier=reporter) as kit:
        await kit.submit(*ADDRESSES, notify=ASKED)
        await kit.deliverer.drained()
        assert kit.observer.count(Verb.DELIVERED) == 2
        assert reporter.asked == []


async def test_lmtp_is_final_delivery() -> None:
    reporter = Reporter()
    [usual] = RELAYED.relays
    settings = replace(RELAYED, relays=(replace(usual, lmtp=True),))
    async with Kit(settings, hosts=hosts(lmtp=True), notifier=reporter) as kit:
        await kit.submit("a@example.com", notify=("NOTIFY=SUCCESS",))
        await kit.deliverer.drained()
        assert reporter.asked == [(["a@example.com"], True)]


async def test_a_report_that_cannot_be_made_costs_no_verdict() -> None:
    reporter = Reporter()
    reporter.failure = ValueError("as the test wants it")
    async with Kit(hosts=hosts(), notifier=reporter) as kit:
        await kit.submit(*ADDRESSES, notify=ASKED)
        await kit.deliverer.drained()
        assert kit.observer.count(Verb.DELIVERED) == 3

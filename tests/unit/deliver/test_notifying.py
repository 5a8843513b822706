"""What a sender asked to hear (RFC 3461): passed on where the next hop takes it, else ours to report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from mqcd.core.events import Verb
from mqcd.core.model import Bounced, Deferred, Envelope, Origin, Recipient, Settlement, Submission
from mqcd.core.queueing.transition import speaker
from mqcd.core.selecting.selection import Selection
from tests.fakes.dialer import Peer
from tests.unit.deliver.kit import MINUTE, RELAYED, SCHEDULE, Kit

ASKED = ("NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;a@other.example", "NOTIFY=FAILURE", "")
ADDRESSES = ("a@example.com", "b@example.com", "c@example.com")


class Reporter:
    """`mqcd.core.ports.Notifier` that notes what it was asked for, and fails when so told."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], bool]] = []
        self.late: list[list[str]] = []
        self.make: Callable[[], Submission] | None = None
        self.failure: Exception | None = None

    async def delivered(self, settlements: Sequence[Settlement], final: bool) -> Sequence[Submission]:
        self.asked.append(([each.recipient.address for each in settlements], final))
        if self.failure is not None:
            raise self.failure
        return [self.make()] if self.make is not None else []

    async def delayed(self, settlements: Sequence[Settlement]) -> Sequence[Submission]:
        self.late.append([each.recipient.address for each in settlements])
        if self.failure is not None:
            raise self.failure
        return [self.make()] if self.make is not None else []


def hosts(*extensions: str, **how: Any) -> dict[str, Callable[[], Peer] | str | None]:
    return {"192.0.2.1": lambda: Peer(extensions=("PIPELINING", *extensions), **how)}


def report(kit: Kit) -> Submission:
    envelope = Envelope(
        spid=kit.store.reserve(False), sender="", received=kit.clock.now(), origin=Origin.REPORT
    )
    return Submission(envelope=envelope, recipients=("from@example.org",), content=b"\r\n")


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


async def test_success_is_reported_with_the_verdict_without_dsn() -> None:
    reporter = Reporter()
    async with Kit(hosts=hosts(), notifier=reporter) as kit:
        reporter.make = partial(report, kit)
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


@pytest.mark.parametrize(
    ("peer", "verb", "ours"),
    [
        (lambda: Peer(extensions=("SIZE 10",)), Verb.BOUNCED, True),
        (lambda: Peer(replies={"RCPT": "550 5.1.1 no"}), Verb.BOUNCED, False),
        (lambda: Peer(replies={"MAIL": ""}), Verb.DEFERRED, True),
        (lambda: Peer(replies={"MAIL": "250-"}), Verb.DEFERRED, True),
        (lambda: Peer(replies={"EHLO": "550 5.7.1 no", "HELO": "550 5.7.1 no"}), Verb.DEFERRED, True),
        (lambda: Peer(replies={"EHLO": "421 4.3.2 no", "HELO": "421 4.3.2 no"}), Verb.DEFERRED, False),
    ],
)
async def test_no_hop_is_quoted_with_our_words(peer: Callable[[], Peer], verb: Verb, ours: bool) -> None:
    async with Kit(hosts={"192.0.2.1": peer}) as kit:
        await kit.submit("a@example.com")
        await kit.heard(verb)
        verdict = kit.observer.of(verb)[0].verdict
        assert isinstance(verdict, Bounced | Deferred)
        assert speaker(verdict) == ("" if ours else "192.0.2.1")


DELAYS = ("NOTIFY=DELAY,FAILURE", "NOTIFY=DELAY", "NOTIFY=FAILURE")
WARNS = replace(SCHEDULE, warning=40 * MINUTE)


async def records(kit: Kit) -> dict[str, Recipient]:
    return {each.address: each async for each in kit.store.scan(Selection())}


async def test_a_requested_delay_report_comes_once_at_its_age() -> None:
    reporter = Reporter()
    greylisting = {"192.0.2.1": lambda: Peer(replies={"RCPT": "450 4.2.0 later"})}
    async with Kit(hosts=greylisting, notifier=reporter, schedule=WARNS) as kit:
        sent = kit.clock.now()
        await kit.submit(*ADDRESSES, notify=DELAYS)
        await kit.deliverer.drained()
        await kit.clock.run_for(39 * MINUTE)
        assert reporter.late == []
        await kit.clock.run_for(MINUTE)
        assert reporter.late == [["a@example.com", "b@example.com"]]
        assert kit.clock.now() == sent + 40 * MINUTE
        assert {name: each.warned for name, each in (await records(kit)).items()} == {
            "a@example.com": True,
            "b@example.com": True,
            "c@example.com": False,
        }
        await kit.clock.run_for(240 * MINUTE)
        assert len(reporter.late) == 1


async def test_the_report_on_a_delay_is_recorded_with_it() -> None:
    reporter = Reporter()
    refusing = {"192.0.2.1": lambda: Peer(replies={"RCPT a@example.com": "450 4.2.0 later"})}
    async with Kit(hosts=refusing, notifier=reporter, schedule=WARNS) as kit:
        reporter.make = partial(report, kit)
        await kit.submit("a@example.com", notify=DELAYS[:1])
        await kit.clock.run_for(40 * MINUTE)
        assert [sender for sender, _, _ in kit.dialer.messages] == [""]
        verbs = [heard.verb for heard in kit.observer.heard]
        told = verbs.index(Verb.ACCEPTED, 1)
        assert verbs[told : told + 2] == [Verb.ACCEPTED, Verb.DEFERRED]


async def test_a_failed_delay_report_costs_no_verdict() -> None:
    reporter = Reporter()
    reporter.failure = ValueError("as the test wants it")
    refusing = {"192.0.2.1": lambda: Peer(replies={"RCPT": "450 4.2.0 later"})}
    async with Kit(hosts=refusing, notifier=reporter, schedule=WARNS) as kit:
        await kit.submit("a@example.com", notify=DELAYS[:1])
        await kit.clock.run_for(45 * MINUTE)
        assert kit.observer.count(Verb.DEFERRED) == 3
        assert kit.deliverer.active == 0


async def test_untried_mail_gets_a_delay_report_and_waits_on() -> None:
    reporter = Reporter()
    # Most of them stay in the store, passed over by claims.
    few, refusing = replace(RELAYED, queuecache=2), {"192.0.2.1": "connection refused"}
    async with Kit(few, refusing, notifier=reporter, schedule=WARNS) as kit:
        for name in "abcd":
            await kit.submit(f"{name}@example.com", notify=DELAYS[:1])
        await kit.until(lambda: kit.deliverer.suspended == 1)
        await kit.clock.run_for(39 * MINUTE)
        assert reporter.late == []
        # Three hear after the next probe, the one that is kept for the probe after that one with it.
        await kit.clock.run_for(22 * MINUTE)
        assert sorted(name for [name] in reporter.late) == [f"{name}@example.com" for name in "abcd"]
        assert all(each.warned for each in (await records(kit)).values())
        await kit.clock.run_for(120 * MINUTE)
        assert len(reporter.late) == 4
        kit.dialer.hosts["192.0.2.1"] = Peer
        await kit.clock.run_for(40 * MINUTE)
        assert kit.observer.count(Verb.DELIVERED) == 4


@pytest.mark.parametrize("host", [lambda: Peer(replies={"RCPT": "450 4.2.0 later"}), "connection refused"])
async def test_nobody_is_told_by_a_clock_that_is_in_doubt(host: Callable[[], Peer] | str) -> None:
    reporter = Reporter()
    async with Kit(hosts={"192.0.2.1": host}, notifier=reporter, schedule=WARNS) as kit:
        for name in "abcd":
            await kit.submit(f"{name}@example.com", notify=DELAYS[:1])
        await kit.clock.run_for(MINUTE)
        kit.clock.leap(48 * 60 * MINUTE)
        await kit.clock.run_for(60 * MINUTE)
        assert kit.observer.count(Verb.DEFERRED) > 1
        assert reporter.late == []
        assert not any(each.warned for each in (await records(kit)).values())

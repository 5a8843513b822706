"""Delivery from claim to verdict, against servers in memory."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from mqcd.config.settings import (
    ClientSettings,
    DestinationSettings,
    HostPort,
    RelaySettings,
    Source,
    ZoneMatchSettings,
    ZoneSettings,
)
from mqcd.core.errors import ContentUnavailable, StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import (
    Area,
    Body,
    Bounced,
    Deferred,
    Envelope,
    Expired,
    Phase,
    Recipient,
    Verdict,
)
from mqcd.core.ports import Content, MxHost
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.queueing.spid import format_spid
from mqcd.deliver.claiming.loop import CLAIMED_AT_ONCE
from mqcd.deliver.connection.worker import SHORTAGE_MS
from mqcd.deliver.lanes.decisions import STUCK_MS
from mqcd.deliver.lanes.lane import TRIAL_MS
from mqcd.deliver.lanes.outside import FIRST_PROBE_MS
from mqcd.deliver.routing.policy import Hop
from mqcd.deliver.routing.routing import Destination
from mqcd.deliver.service import Deliverer
from mqcd.disk.waits import uncancellable
from tests.fakes.clock import FakeClock, turns
from tests.fakes.dialer import FakeDialer, Peer
from tests.fakes.observer import RecordingObserver
from tests.fakes.resolver import FakeResolver
from tests.fakes.store import MemoryStore
from tests.unit.deliver.kit import BY_DNS, CONTENT, MINUTE, RELAYED, SCHEDULE, Kit


def verdict_of(kit: Kit, verb: Verb, index: int = 0) -> Verdict:
    verdict = kit.observer.of(verb)[index].verdict
    assert verdict is not None
    return verdict


async def test_a_message_is_delivered_at_once() -> None:
    async with Kit() as kit:
        [recipient] = await kit.submit("to@example.com")
        await kit.deliverer.drained()
        assert kit.dialer.messages == [("from@example.org", ("to@example.com",), CONTENT)]
        assert kit.observer.verbs(recipient.key) == [Verb.ACCEPTED, Verb.ATTEMPTED, Verb.DELIVERED]
        verdict = await kit.delivered()
        assert verdict.reply.code == 250
        assert verdict.attempt.destination == "192.0.2.1:2525"
        assert verdict.attempt.phase is Phase.DOT
        assert verdict.attempt.remote_addr == "192.0.2.1"
        assert kit.observer.count(Verb.CONNECTED) == 1
        assert kit.deliverer.active == 0


async def test_each_recipient_has_its_own_verdict() -> None:
    replies = {
        "RCPT later@example.com": "450 4.2.1 busy",
        "RCPT never@example.com": "550 5.1.1 no such user",
    }
    async with Kit(hosts={"192.0.2.1": lambda: Peer(replies=replies)}) as kit:
        await kit.submit("to@example.com", "later@example.com", "never@example.com")
        await kit.deliverer.drained()
        deferred, bounced = verdict_of(kit, Verb.DEFERRED), verdict_of(kit, Verb.BOUNCED)
        assert kit.observer.count(Verb.DELIVERED) == 1
        assert isinstance(deferred, Deferred)
        assert deferred.due == kit.clock.now() + 15 * MINUTE
        assert deferred.attempt.phase is Phase.RCPT
        assert isinstance(bounced, Bounced)
        assert bounced.reply.status == "5.1.1"


async def test_deferred_mail_is_tried_again_when_due_and_not_before() -> None:
    peers = iter([Peer(replies={"RCPT": "450 4.2.1 later"}), Peer()])
    async with Kit(hosts={"192.0.2.1": lambda: next(peers)}) as kit:
        await kit.submit("to@example.com")
        await kit.heard(Verb.DEFERRED)
        await kit.clock.run_for(15 * MINUTE - 1)
        assert kit.observer.count(Verb.ATTEMPTED) == 1
        await kit.clock.run_for(1)
        await kit.heard(Verb.DELIVERED)


async def test_mail_that_is_too_old_expires_after_one_more_attempt() -> None:
    short = RetrySchedule(delays=(MINUTE,), maxtime=3 * MINUTE, maxtime_reports=MINUTE)
    refuses = {"192.0.2.1": lambda: Peer(replies={"MAIL": "451 4.3.0 not now"})}
    async with Kit(hosts=refuses, schedule=short) as kit:
        await kit.submit("to@example.com")
        for _ in range(4):
            await kit.clock.run_for(MINUTE)
        await kit.heard(Verb.EXPIRED)
        assert isinstance(verdict_of(kit, Verb.EXPIRED), Expired)
        assert kit.observer.count(Verb.ATTEMPTED) == 4
        assert kit.store.stats()[Area.BOUNCES].recipients == 1


async def test_mail_that_a_leap_has_made_too_old_is_tried_on() -> None:
    refuses = {"192.0.2.1": lambda: Peer(replies={"MAIL": "451 4.3.0 not now"})}
    async with Kit(hosts=refuses) as kit:
        await kit.submit("to@example.com")
        await kit.heard(Verb.DEFERRED)
        kit.clock.leap(3650 * 24 * 60 * MINUTE)
        await kit.clock.run_for(15 * MINUTE)
        await kit.heard(Verb.DEFERRED, 2)
        assert kit.observer.count(Verb.EXPIRED) == 0


@pytest.mark.parametrize(
    ("stage", "minutes"), [("connect", 5), ("EHLO", 5), ("MAIL", 5), ("RCPT to@example.com", 5), ("DATA", 2)]
)
async def test_a_stalling_server_is_given_up_as_rfc_5321_has_it(stage: str, minutes: int) -> None:
    async with Kit(hosts={"192.0.2.1": lambda: Peer(replies={stage: None})}) as kit:
        await kit.submit("to@example.com")
        await kit.clock.run_for(minutes * MINUTE - 2000)
        assert not kit.observer.of(Verb.DEFERRED)
        await kit.clock.run_for(5000)
        verdict = await kit.deferred()
        assert "no reply within" in verdict.reply.text
        assert not verdict.possibly_delivered


async def test_a_connection_that_is_never_made_times_out() -> None:
    async with Kit(hosts={"192.0.2.1": None}) as kit:
        await kit.submit("to@example.com")
        await kit.clock.run_for(MINUTE + 2000)
        await kit.heard(Verb.DEFERRED)
        assert kit.observer.of(Verb.CONNECT_FAILED)[0].reason == "connection timed out"
        verdict = await kit.deferred()
        assert verdict.attempt is not None
        # What-if needs it: so long nobody else tries that destination.
        assert MINUTE <= verdict.attempt.attempt_ms <= MINUTE + 2000


async def test_a_kept_connection_takes_the_next_message() -> None:
    async with Kit() as kit:
        await kit.submit("one@example.com")
        await kit.heard(Verb.DELIVERED)
        await kit.submit("two@example.com")
        await kit.heard(Verb.DELIVERED, 2)
        assert len(kit.dialer.dialled) == 1
        await kit.clock.run_for(5000)
        assert kit.dialer.peers[0].log[-1] == "QUIT"
        assert kit.deliverer.lanes()[0].connections == 0


async def test_a_kept_connection_closed_meanwhile_costs_no_attempt() -> None:
    async with Kit() as kit:
        await kit.submit("one@example.com")
        await kit.heard(Verb.DELIVERED)
        kit.dialer.peers[0]._connection.hang_up()
        [recipient] = await kit.submit("two@example.com")
        await kit.heard(Verb.DELIVERED, 2)
        assert kit.observer.verbs(recipient.key) == [Verb.ACCEPTED, Verb.ATTEMPTED, Verb.DELIVERED]
        assert len(kit.dialer.dialled) == 2


class Tired(Peer):
    """Says something else to the second MAIL of a connection."""

    says = ""

    def _mail(self, verb: str, text: str) -> None:
        if self.messages:
            self.replies = {**self.replies, "MAIL": self.says}
        super()._mail(verb, text)


@pytest.mark.parametrize("says", ["421 4.4.2 idle for too long", ""])
async def test_a_kept_connection_ending_in_use_costs_no_attempt(says: str) -> None:
    def tired() -> Peer:
        peer = Tired()
        peer.says = says
        return peer

    async with Kit(hosts={"192.0.2.1": tired}) as kit:
        await kit.submit("one@example.com")
        await kit.heard(Verb.DELIVERED)
        [recipient] = await kit.submit("two@example.com")
        await kit.heard(Verb.DELIVERED, 2)
        assert kit.observer.verbs(recipient.key) == [Verb.ACCEPTED, Verb.ATTEMPTED, Verb.DELIVERED]
        assert len(kit.dialer.dialled) == 2


async def test_refused_connections_leave_mail_to_working_ones() -> None:
    peers = iter([Peer(replies={"MAIL": None})])
    async with Kit() as kit:
        first = next(peers)
        kit.dialer.hosts["192.0.2.1"] = lambda: first
        await kit.submit("one@example.com")
        await kit.until(lambda: any(line.startswith("MAIL") for line in first.log))
        kit.dialer.hosts["192.0.2.1"] = "Connection refused"
        [second] = await kit.submit("two@example.com")
        await kit.until(lambda: len(kit.dialer.dialled) == 2)
        first.replies, first._silent = {}, False
        first._connection.say(b"250 2.1.0 ok\r\n")
        first.receive(b"")
        await kit.heard(Verb.DELIVERED, 2)
        assert kit.observer.verbs(second.key) == [Verb.ACCEPTED, Verb.ATTEMPTED, Verb.DELIVERED]
        assert kit.observer.count(Verb.DEFERRED) == 0


class SlowStore(MemoryStore):
    """Has not noted that an attempt begins until the test says so."""

    noted: asyncio.Event

    async def begin(self, recipients, destination):  # type: ignore[no-untyped-def]
        self.noted = asyncio.Event()
        await self.noted.wait()
        await super().begin(recipients, destination)


async def test_no_content_is_sent_before_begin_is_durable() -> None:
    async with Kit(store=SlowStore) as kit:
        await kit.submit("to@example.com")
        await kit.until(lambda: bool(kit.dialer.peers) and kit.dialer.peers[0].log[-1:] == ["DATA"])
        await turns(50)
        peer = kit.dialer.peers[0]
        assert [line.split()[0] for line in peer.log] == ["EHLO", "MAIL", "RCPT", "DATA"]
        assert len(peer._connection.writes) == 2, "hello and the envelope"
        assert isinstance(kit.store, SlowStore)
        kit.store.noted.set()
        await kit.heard(Verb.DELIVERED)


async def test_no_verdict_precedes_a_durable_begin() -> None:
    refusing = {"192.0.2.1": lambda: Peer(replies={"RCPT": "550 5.1.1 no"})}
    async with Kit(store=SlowStore, hosts=refusing) as kit:
        [recipient] = await kit.submit("to@example.com")
        await kit.until(lambda: bool(kit.dialer.peers) and kit.dialer.peers[0].log[-1:] == ["DATA"])
        await turns(50)
        assert kit.observer.verbs(recipient.key) == [Verb.ACCEPTED]
        assert isinstance(kit.store, SlowStore)
        kit.store.noted.set()
        await kit.heard(Verb.BOUNCED)
        assert kit.observer.verbs(recipient.key) == [Verb.ACCEPTED, Verb.ATTEMPTED, Verb.BOUNCED]


async def test_maxmessages_ends_a_connection_with_quit_behind_the_dot() -> None:
    async with Kit(replace(RELAYED, maxmessages=1, maxserverconnections=1)) as kit:
        await kit.submit("one@example.com")
        await kit.submit("two@example.com")
        await kit.heard(Verb.DELIVERED, 2)
        assert len(kit.dialer.peers) == 2
        assert kit.dialer.peers[0].log[-2:] == ["DATA", "QUIT"]


async def test_a_dead_destination_is_probed_with_one_recipient() -> None:
    async with Kit(hosts={"192.0.2.1": "Connection refused"}) as kit:
        for number in range(20):
            await kit.submit(f"to{number}@example.com")
        await kit.until(lambda: kit.deliverer.suspended == 1)
        await kit.clock.run_for(30_000)
        tried = kit.observer.count(Verb.ATTEMPTED)
        assert tried <= 5
        await kit.clock.run_for(30_000)
        await kit.heard(Verb.ATTEMPTED, tried + 1)
        assert kit.deliverer.suspended == 1
        kit.dialer.hosts["192.0.2.1"] = Peer
        await kit.clock.run_for(3 * MINUTE)
        await kit.heard(Verb.DELIVERED, 20 - tried - 1)
        assert kit.deliverer.suspended == 0
        assert kit.deliverer.active == 0
        await kit.clock.run_for(20 * MINUTE)
        await kit.heard(Verb.DELIVERED, 20)


async def test_a_dead_destination_delays_no_other() -> None:
    resolver = FakeResolver(addresses={"dead.example": ["192.0.2.9"], "alive.example": ["192.0.2.1"]})
    settings = replace(BY_DNS, queuecache=50)
    async with Kit(settings, {"192.0.2.9": None, "192.0.2.1": Peer}, resolver) as kit:
        for number in range(200):
            await kit.submit(f"to{number}@dead.example")
        for number in range(20):
            await kit.submit(f"to{number}@alive.example")
        await kit.clock.run_for(20_000)
        await kit.heard(Verb.DELIVERED, 20)
        assert kit.deliverer.active <= 50


async def test_hosts_are_tried_by_preference_until_one_takes_mail() -> None:
    resolver = FakeResolver(
        mx={"example.com": [(20, "backup.example.com"), (10, "best.example.com")]},
        addresses={"best.example.com": ["192.0.2.7", "192.0.2.8"], "backup.example.com": ["192.0.2.1"]},
    )
    hosts = {"192.0.2.8": lambda: Peer(replies={"connect": "554 5.3.2 go away"}), "192.0.2.1": Peer}
    async with Kit(BY_DNS, hosts, resolver) as kit:
        await kit.submit("to@example.com")
        await kit.deliverer.drained()
        assert [address for address, _ in kit.dialer.dialled] == ["192.0.2.7", "192.0.2.8", "192.0.2.1"]
        assert kit.observer.count(Verb.DELIVERED) == 1


async def test_no_more_than_five_addresses_are_tried_at_once() -> None:
    addresses = [f"192.0.2.{number}" for number in range(60, 70)]
    resolver = FakeResolver(addresses={"example.com": addresses})
    async with Kit(BY_DNS, {}, resolver) as kit:
        await kit.submit("to@example.com")
        await kit.heard(Verb.DEFERRED)
        assert [address for address, _ in kit.dialer.dialled] == addresses[:5]


async def test_a_refusal_outweighs_an_absent_server() -> None:
    resolver = FakeResolver(addresses={"example.com": ["192.0.2.1", "192.0.2.2"]})
    refusing = {"192.0.2.1": lambda: Peer(replies={"connect": "554 5.7.1 not you"})}
    async with Kit(BY_DNS, hosts=refusing, resolver=resolver) as kit:
        await kit.submit("to@example.com")
        verdict = await kit.deferred()
        assert verdict.attempt.remote_addr == "192.0.2.1"
        assert "not you" in verdict.reply.text


@pytest.mark.parametrize(
    ("resolver", "verb", "status"),
    [
        (FakeResolver(), Verb.BOUNCED, "5.1.2"),
        (FakeResolver(mx={"example.com": [(0, "")]}), Verb.BOUNCED, "5.1.10"),
        (FakeResolver(failing=["example.com"]), Verb.DEFERRED, "4.4.3"),
        (FakeResolver(mx={"example.com": [(10, "mx.example.com")]}), Verb.BOUNCED, "5.4.4"),
        (
            FakeResolver(mx={"example.com": [(10, "mx.example.com")]}, failing=["mx.example.com"]),
            Verb.DEFERRED,
            "4.4.3",
        ),
    ],
)
async def test_what_dns_says_decides(resolver: FakeResolver, verb: Verb, status: str) -> None:
    async with Kit(BY_DNS, {}, resolver) as kit:
        [recipient] = await kit.submit("to@example.com")
        await kit.heard(verb)
        verdict = verdict_of(kit, verb)
        assert isinstance(verdict, Bounced | Deferred)
        assert verdict.reply.status == status
        assert kit.observer.verbs(recipient.key) == [Verb.ACCEPTED, Verb.ATTEMPTED, verb]


async def test_a_relay_without_an_address_is_a_mistake_of_ours() -> None:
    relay = RelaySettings(address=HostPort(host="relay.example.org", port=25))
    async with Kit(replace(RELAYED, relays=(relay,)), resolver=FakeResolver()) as kit:
        await kit.submit("to@example.com")
        verdict = await kit.deferred()
        assert verdict.reply.status == "4.4.4"


async def test_an_address_literal_needs_no_dns() -> None:
    async with Kit(replace(BY_DNS, smtpport=2525)) as kit:
        await kit.submit("to@[192.0.2.1]")
        await kit.deliverer.drained()
        assert kit.dialer.dialled == [("192.0.2.1", 2525)]
        assert kit.observer.count(Verb.DELIVERED) == 1


async def test_eight_bit_content_is_not_downgraded_in_silence() -> None:
    async with Kit(hosts={"192.0.2.1": lambda: Peer(extensions=())}) as kit:
        await kit.submit("one@example.com", body=Body.EIGHT, content=b"\r\n\xc3\xa4\r\n")
        await kit.submit("two@example.com", body=Body.EIGHT)
        await kit.submit("three@example.com", smtputf8=True)
        await kit.submit("four@example.com", smtputf8=True, content=b"Subject: \xc3\xa4\r\n\r\n")
        await kit.deliverer.drained()
        statuses = sorted(
            verdict.reply.status
            for heard in kit.observer.of(Verb.BOUNCED)
            if isinstance(verdict := heard.verdict, Bounced)
        )
        assert statuses == ["5.6.3", "5.6.7"]
        taken = sorted(recipients[0] for _, recipients, _ in kit.dialer.messages)
        assert taken == ["three@example.com", "two@example.com"]


async def test_large_content_goes_in_chunks_and_arrives_whole() -> None:
    line = b".dotted line\r\n"
    content = b"Subject: large\r\n\r\n" + line * 30_000
    async with Kit() as kit:
        await kit.submit("to@example.com", content=content)
        await kit.deliverer.drained()
        [(_, _, wire)] = kit.dialer.messages
        assert wire.replace(b"\r\n..", b"\r\n.") == content
        assert max(len(data) for data in kit.dialer.peers[0]._connection.writes) < 128 * 1024


class FailingStore(MemoryStore):
    """Fails the calls that a test names, as often as it says."""

    failures: dict[str, int]

    def _maybe(self, call: str) -> None:
        left = self.__dict__.setdefault("failures", {}).get(call, 0)
        if left:
            self.failures[call] = left - 1
            why = ContentUnavailable if call == "content" else StoreUnavailable
            raise why(f"{call} fails as the test wants it")

    def begin(self, recipients, destination):  # type: ignore[no-untyped-def]
        self._maybe("begin")
        try:
            self._maybe("begun")
        except StoreUnavailable as error:
            # Before the server has answered anything.
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed
        return super().begin(recipients, destination)

    def settle(self, settlements, submissions=()):  # type: ignore[no-untyped-def]
        self._maybe("settle")
        return super().settle(settlements, submissions)

    async def claim(self, room, *rest):  # type: ignore[no-untyped-def]
        self._maybe("claim")
        return await super().claim(room, *rest)

    async def content(self, recipient):  # type: ignore[no-untyped-def]
        self._maybe("content")
        return await super().content(recipient)


class CountingStore(MemoryStore):
    """Notes how much it is asked for."""

    async def claim(self, room, *rest):  # type: ignore[no-untyped-def]
        self.__dict__.setdefault("rooms", []).append(room)
        return await super().claim(room, *rest)


async def test_a_backlog_is_claimed_in_parts() -> None:
    async with Kit(store=CountingStore) as kit:
        many = 3 * CLAIMED_AT_ONCE
        await kit.submit(*(f"u{number}@example.com" for number in range(many)))
        # What is beyond the share of a destination that is not known yet comes back soon.
        for _ in range(50):
            await asyncio.wait_for(kit.deliverer.drained(), 60)
            await kit.clock.run_for(100)
        assert kit.observer.count(Verb.DELIVERED) == many
        assert max(kit.store.__dict__["rooms"]) == CLAIMED_AT_ONCE


async def test_an_unavailable_content_is_retried_and_delays_none() -> None:
    async with Kit(store=FailingStore) as kit:
        assert isinstance(kit.store, FailingStore)
        failures = kit.store.failures = {"content": 1}
        [recipient] = await kit.submit("to@example.com")
        await kit.until(lambda: failures["content"] == 0)
        await kit.until(lambda: not kit.store.in_flight(recipient))
        assert not kit.deliverer.paused
        await kit.submit("second@example.com")
        await kit.heard(Verb.DELIVERED, 1)
        assert kit.observer.verbs(recipient.key).count(Verb.DELIVERED) == 0
        await kit.clock.run_for(SCHEDULE.delays[0])
        await kit.heard(Verb.DELIVERED, 2)
        assert not kit.observer.of(Verb.DEFERRED, Verb.BOUNCED)


@pytest.mark.parametrize("call", ["begin", "begun", "settle", "claim"])
async def test_a_failing_store_pauses_delivery_and_keeps_verdicts(call: str) -> None:
    async with Kit(store=FailingStore) as kit:
        assert isinstance(kit.store, FailingStore)
        kit.store.failures = {call: 2}
        [recipient] = await kit.submit("to@example.com")
        await kit.until(lambda: kit.deliverer.paused)
        await kit.submit("second@example.com")
        await kit.clock.run_for(5000)
        await kit.heard(Verb.DELIVERED, 2)
        assert not kit.deliverer.paused
        assert len(kit.dialer.messages) == 2
        assert kit.observer.verbs(recipient.key).count(Verb.DELIVERED) == 1


async def test_a_stop_parks_mail_that_has_not_sent_its_dot() -> None:
    async with Kit(replace(RELAYED, maxserverconnections=1)) as kit:
        kit.dialer.hosts["192.0.2.1"] = lambda: Peer(replies={"DATA": None})
        recipients = [(await kit.submit(f"to{number}@example.com"))[0] for number in range(3)]
        await kit.until(lambda: bool(kit.dialer.peers) and "DATA" in kit.dialer.peers[0].log)
        stop = asyncio.ensure_future(kit.deliverer.stop(8000))
        await kit.clock.run_for(8000)
        await stop
        assert not any(kit.store.in_flight(recipient) for recipient in recipients)
        assert not kit.observer.of(Verb.DEFERRED)


class Pondering(FakeResolver):
    """Never answers."""

    async def mx(self, domain: str) -> Sequence[MxHost]:
        self.asked[domain] += 1
        await asyncio.get_running_loop().create_future()
        return ()


async def test_an_orderly_stop_parks_who_waits_for_dns() -> None:
    resolver = Pondering()
    async with Kit(BY_DNS, resolver=resolver) as kit:
        [recipient] = await kit.submit("to@example.com")
        await kit.until(lambda: resolver.asked["example.com"] > 0)
        assert kit.store.in_flight(recipient)
        stop = asyncio.ensure_future(kit.deliverer.stop(8000))
        await kit.clock.run_for(8000)
        await stop
        assert not kit.store.in_flight(recipient)
        assert not kit.observer.of(Verb.DEFERRED)


async def test_a_stop_leaves_mail_past_its_dot_to_the_next_start() -> None:
    async with Kit(hosts={"192.0.2.1": lambda: Peer(replies={".": None})}) as kit:
        [recipient] = await kit.submit("to@example.com")
        await kit.until(lambda: bool(kit.dialer.peers) and "DATA" in kit.dialer.peers[0].log)
        stop = asyncio.ensure_future(kit.deliverer.stop(8000))
        await kit.clock.run_for(20_000)
        await stop
        assert kit.store.in_flight(recipient)
        await kit.store.close()
        await kit.store.open()
        assert kit.observer.verbs(recipient.key)[-1] is Verb.OUTCOME_UNKNOWN


class BrokenDialer(FakeDialer):
    async def dial(self, address: str, port: int, source: str):  # type: ignore[no-untyped-def]
        if not self.dialled:
            self.dialled.append((address, port))
            raise ZeroDivisionError("a bug of ours")
        return await super().dial(address, port, source)


async def test_an_error_of_our_own_costs_one_deferral_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kit = Kit()
    kit.deliverer._connector.dialer = BrokenDialer({"192.0.2.1": Peer})
    async with kit:
        [recipient] = await kit.submit("to@example.com")
        verdict = await kit.deferred()
        assert verdict.reply.status == "4.3.0"
        assert "a bug of ours" in caplog.text
        [told] = [record for record in caplog.records if "internal error" in record.message]
        assert getattr(told, "spid", "") == format_spid(recipient.spid)
        await kit.submit("second@example.com")
        await kit.heard(Verb.DELIVERED)


async def test_an_error_of_our_own_on_a_route_costs_one_recipient_of_many(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    resolver = FakeResolver(addresses={"example.com": ["192.0.2.1"]})
    async with Kit(BY_DNS, resolver=resolver) as kit:
        router = kit.deliverer._placing.router
        found = router.hop

        def fails(envelope: Envelope, domain: str, destination: Destination) -> Hop:
            if envelope.sender == "one@example.org":
                raise ZeroDivisionError("a bug of ours")
            return found(envelope, domain, destination)

        monkeypatch.setattr(router, "hop", fails)
        kit.deliverer.halt(True)
        await kit.submit("one@example.com", sender="one@example.org")
        await kit.submit("two@example.com")
        kit.deliverer.halt(False)
        await kit.heard(Verb.DELIVERED)
        verdict = await kit.deferred()
        assert verdict.reply.status == "4.3.0"
        assert "a bug of ours" in caplog.text
        assert kit.deliverer.active == 0


class UnreadablePeer(Peer):
    """Its reply to the final dot cannot be read."""

    def _take_message(self, content: bytes) -> None:
        super()._take_message(content)
        self._connection.read = fail_by_a_bug  # type: ignore[assignment]


def fail_by_a_bug(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a bug of ours")


@pytest.mark.parametrize("replied", [False, True])
async def test_an_error_of_our_own_behind_the_dot_is_possibly_delivered(
    replied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Kit(hosts={"192.0.2.1": Peer if replied else UnreadablePeer}) as kit:
        settling = kit.deliverer._settling

        def fail_once(*_: object, **__: object) -> None:
            monkeypatch.undo()
            fail_by_a_bug()

        if replied:
            monkeypatch.setattr(settling, "settle_each", fail_once)
        await kit.submit("to@example.com")
        verdict = await kit.deferred()
        assert (verdict.reply.status, verdict.possibly_delivered) == ("4.3.0", True)
        assert verdict.attempt is not None
        assert verdict.attempt.phase is Phase.DOT


async def test_an_error_of_our_own_before_the_next_message_is_no_delivery() -> None:
    async with Kit() as kit:
        await kit.submit("one@example.com")
        await kit.heard(Verb.DELIVERED)
        kept = kit.dialer.peers[0]._connection
        kept.say(b"unread")
        kept.read = fail_by_a_bug  # type: ignore[assignment]
        await kit.submit("two@example.com")
        verdict = await kit.deferred()
        assert (verdict.reply.status, verdict.possibly_delivered) == ("4.3.0", False)


async def test_the_active_set_is_bounded_and_everything_gets_through() -> None:
    async with Kit(replace(RELAYED, queuecache=10)) as kit:
        most = 0
        for number in range(100):
            await kit.submit(f"to{number}@example.com")
        while kit.observer.count(Verb.DELIVERED) < 100:
            await kit.clock.run_for(10, turns=1)
            most = max(most, kit.deliverer.active)
        assert most == 10
        assert len(kit.dialer.peers) <= RELAYED.maxserverconnections


async def test_nothing_ticks_while_nothing_is_to_be_done() -> None:
    async with Kit() as kit:
        await kit.submit("to@example.com")
        await kit.heard(Verb.DELIVERED)
        await kit.clock.run_for(MINUTE)
        assert (kit.clock.next_wake() or 0) > 10 * MINUTE


async def test_a_reload_changes_routes_manners_and_delays() -> None:
    hosts = {"192.0.2.1": Peer, "192.0.2.2": lambda: Peer(replies={"MAIL": "451 4.3.0 later"})}
    async with Kit(hosts=hosts) as kit:
        relay = RelaySettings(address=HostPort(host="192.0.2.2", port=25))
        settings = replace(RELAYED, relays=(relay,), client=ClientSettings(announcehost="new.example.org"))
        kit.deliverer.reload(settings, replace(SCHEDULE, delays=(MINUTE,)), ())
        await kit.submit("to@example.com")
        verdict = await kit.deferred()
        assert verdict.due == kit.clock.now() + MINUTE
        assert kit.dialer.dialled == [("192.0.2.2", 25)]
        assert kit.dialer.peers[0].log[0] == "EHLO new.example.org"


class GivingNothing(MemoryStore):
    """Has due mail, gives none of it, and notes how much it is asked for."""

    async def claim(self, room, *_):  # type: ignore[no-untyped-def]
        self.__dict__.setdefault("rooms", []).append(room)
        return ()


@pytest.mark.parametrize(
    "change",
    [
        lambda deliverer: deliverer.reload(RELAYED, SCHEDULE, ()),
        lambda deliverer: deliverer.suppress(None),
        lambda deliverer: deliverer.rule((), 0),
    ],
    ids=["reload", "suppress", "rule"],
)
async def test_a_change_of_settings_allows_a_claim_at_once(change: Callable[[Deliverer], object]) -> None:
    async with Kit(store=GivingNothing) as kit:
        asked = kit.store.__dict__.setdefault("rooms", [])
        await kit.submit("to@example.com")
        await kit.until(lambda: bool(asked))
        await turns(50)
        before = len(asked)
        change(kit.deliverer)
        await kit.until(lambda: len(asked) > before)


async def test_a_reload_changes_how_soon_a_timeout_is_noticed() -> None:
    async with Kit(hosts={"192.0.2.1": lambda: Peer(replies={"EHLO": None})}) as kit:
        client = replace(RELAYED.client, timeout=100)
        kit.deliverer.reload(replace(RELAYED, client=client), SCHEDULE, ())
        await kit.submit("to@example.com")
        await kit.clock.run_for(600)
        assert kit.observer.count(Verb.DEFERRED) == 1


async def test_a_zones_mail_uses_its_addresses_name_and_delays() -> None:
    zone = ZoneSettings(
        name="bulk",
        sources=(Source(address="192.0.2.66"),),
        helo="bulk.example.org",
        retry_delays=(MINUTE,),
        matches=(ZoneMatchSettings(sender=("lists.example",)),),
    )
    replies = {"RCPT": "450 4.2.1 busy"}
    settings = replace(RELAYED, zones=(zone,))
    async with Kit(settings, hosts={"192.0.2.1": lambda: Peer(replies=replies)}) as kit:
        await kit.submit("to@example.com", sender="news@lists.example")
        await kit.submit("to@example.com")
        await kit.heard(Verb.DEFERRED, 2)
        assert sorted(peer.log[0] for peer in kit.dialer.peers) == [
            "EHLO bulk.example.org",
            "EHLO mx.example.org",
        ]
        heard = kit.observer.of(Verb.DEFERRED)
        found = {each.recipient.envelope.sender: each.verdict for each in heard if each.recipient}
        bulk, plain = found["news@lists.example"], found["from@example.org"]
        assert isinstance(bulk, Deferred)
        assert isinstance(plain, Deferred)
        assert bulk.attempt.source_addr == "192.0.2.66"
        assert (bulk.attempt.zone, plain.attempt.zone) == ("bulk", "")
        assert plain.attempt.source_addr != "192.0.2.66"
        assert bulk.due == kit.clock.now() + MINUTE
        assert plain.due == kit.clock.now() + 15 * MINUTE


async def test_a_zone_without_an_address_of_the_family_waits() -> None:
    zone = ZoneSettings(name="six", sources=(Source(address="2001:db8::1"),), matches=(ZoneMatchSettings(),))
    async with Kit(replace(RELAYED, zones=(zone,))) as kit:
        await kit.submit("to@example.com")
        verdict = await kit.deferred()
        assert "zone six " in verdict.reply.text
        assert not kit.dialer.dialled


@pytest.mark.parametrize("missing", ["192.0.2.66", "192.0.2.67"])
async def test_an_unusable_source_address_is_no_fault_of_the_peer(missing: str) -> None:
    sources = (Source(address="192.0.2.66"), Source(address="192.0.2.67"))
    zone = ZoneSettings(name="two", sources=sources, matches=(ZoneMatchSettings(),))
    async with Kit(replace(RELAYED, zones=(zone,), maxserverconnections=1)) as kit:
        kit.dialer.missing.add(missing)
        for _ in range(2):
            await kit.submit("to@example.com")
        await kit.heard(Verb.DELIVERED, 2)
        assert not kit.observer.of(Verb.DEFERRED)
        verdict = await kit.delivered()
        assert {"192.0.2.66", "192.0.2.67"} - {missing} == {verdict.attempt.source_addr}


async def test_a_zone_none_of_whose_addresses_can_be_used_says_so() -> None:
    sources = (Source(address="192.0.2.66"), Source(address="192.0.2.67"))
    zone = ZoneSettings(name="two", sources=sources, matches=(ZoneMatchSettings(),))
    async with Kit(replace(RELAYED, zones=(zone,))) as kit:
        kit.dialer.missing.update(each.address for each in sources)
        await kit.submit("to@example.com")
        verdict = await kit.deferred()
        assert "is not on this machine" in verdict.reply.text
        assert len(kit.dialer.dialled) == 2, "each was tried once"


async def test_a_failed_connection_names_the_address_that_it_was_made_from() -> None:
    zone = ZoneSettings(name="one", sources=(Source(address="192.0.2.66"),), matches=(ZoneMatchSettings(),))
    async with Kit(replace(RELAYED, zones=(zone,)), hosts={"192.0.2.1": "Connection refused"}) as kit:
        await kit.submit("to@example.com")
        assert (await kit.deferred()).attempt.source_addr == "192.0.2.66"


async def test_a_zone_skips_addresses_of_a_family_it_lacks() -> None:
    zone = ZoneSettings(name="four", sources=(Source(address="192.0.2.66"),), matches=(ZoneMatchSettings(),))
    beyond = [f"2001:db8::{number}" for number in range(1, 9)]
    resolver = FakeResolver(addresses={"example.com": [*beyond, "192.0.2.1"]})
    async with Kit(replace(BY_DNS, zones=(zone,)), resolver=resolver) as kit:
        await kit.submit("to@example.com")
        await kit.heard(Verb.DELIVERED)


async def test_a_shortage_here_is_held_against_nobody() -> None:
    async with Kit() as kit:
        kit.dialer.shortage = "Too many open files"
        await kit.submit("a@example.com")
        await kit.submit("b@example.com")
        await kit.until(lambda: len(kit.dialer.dialled) >= 2)
        await kit.until(lambda: not kit.deliverer.active)
        assert kit.deliverer.suspended == 0
        assert kit.observer.count(Verb.DEFERRED) == 0
        assert kit.observer.count(Verb.CONNECT_FAILED) == 0
        kit.dialer.shortage = ""
        await kit.clock.run_for(SHORTAGE_MS + 1000)
        await kit.heard(Verb.DELIVERED, 2)


async def test_an_attempt_at_a_tarpit_is_taken_back_without_a_verdict() -> None:
    relays = tuple(
        RelaySettings(
            address=HostPort(host=f"192.0.2.{number}", port=25), destdomains=(f"d{number}.example",)
        )
        for number in (1, 2, 3)
    )
    hosts = {f"192.0.2.{number}": lambda: Peer(replies={"MAIL": None}) for number in (1, 2)}
    async with Kit(replace(RELAYED, relays=relays, maxconnections=2), {**hosts, "192.0.2.3": Peer}) as kit:
        for number in (1, 2, 3):
            await kit.submit(f"to@d{number}.example")
        await kit.until(lambda: len(kit.dialer.dialled) == 2)
        await kit.clock.run_for(TRIAL_MS + 1000)
        await kit.heard(Verb.DELIVERED)
        assert kit.observer.verbs().count(Verb.DEFERRED) == 0
        assert sorted(lane.waiting for lane in kit.deliverer.lanes()) == [0, 0, 1]


class HungDisk(MemoryStore):
    """Content cannot be read before `answers`; a cancelled read waits for that, as a thread's does."""

    def __init__(self, clock: FakeClock, observer: RecordingObserver) -> None:
        super().__init__(clock, observer)
        self.answers: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def content(self, recipient: Recipient) -> Content:
        content = await super().content(recipient)
        return content if recipient.domain == "d3.example" else HungContent(content, self.answers)


class HungContent:
    def __init__(self, content: Content, answers: asyncio.Future[None]) -> None:
        self.content = content
        self.answers = answers
        self.size = content.size
        self.close = content.close

    async def read(self, octets: int) -> bytes:
        try:
            await asyncio.shield(self.answers)
        except asyncio.CancelledError:
            await uncancellable(self.answers)
            raise
        return await self.content.read(octets)


async def test_an_attempt_that_a_hung_disk_keeps_is_taken_back_once(caplog: pytest.LogCaptureFixture) -> None:
    hosts = {f"192.0.2.{number}": Peer for number in (1, 2, 3)}
    relays = tuple(
        RelaySettings(address=HostPort(host=host, port=25), destdomains=(f"d{host[-1]}.example",))
        for host in hosts
    )
    async with Kit(replace(RELAYED, relays=relays, maxconnections=2), hosts, store=HungDisk) as kit:
        assert isinstance(kit.store, HungDisk)
        for number in (1, 2, 3):
            await kit.submit(f"to@d{number}.example")
        await kit.until(lambda: len(kit.dialer.dialled) == 2)
        await kit.clock.run_for(TRIAL_MS + 5 * STUCK_MS)
        assert not kit.dialer.messages
        kit.store.answers.set_result(None)
        await kit.clock.run_for(MINUTE)
        await kit.heard(Verb.DELIVERED, 3)
        assert not kit.observer.of(Verb.DEFERRED)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_an_attempt_after_one_whose_begin_failed_has_its_own() -> None:
    relays = tuple(
        RelaySettings(
            address=HostPort(host=f"192.0.2.{number}", port=25), destdomains=(f"d{number}.example",)
        )
        for number in (1, 2, 3)
    )
    hosts = {f"192.0.2.{number}": lambda: Peer(replies={"MAIL": None}) for number in (1, 2)}
    hosts["192.0.2.3"] = Peer
    async with Kit(replace(RELAYED, relays=relays, maxconnections=2), hosts, store=FailingStore) as kit:
        assert isinstance(kit.store, FailingStore)
        kit.store.failures = {"begun": 2}
        tried = [(await kit.submit(f"to@d{number}.example"))[0] for number in (1, 2)]
        await kit.until(lambda: len(kit.dialer.dialled) == 2)
        await kit.submit("to@d3.example")
        await kit.clock.run_for(TRIAL_MS + 1000)
        await kit.heard(Verb.DELIVERED)
        kit.dialer.hosts.update({"192.0.2.1": Peer, "192.0.2.2": Peer})
        await kit.clock.run_for(10 * MINUTE)
        for recipient in tried:
            assert kit.observer.verbs(recipient.key) == [Verb.ACCEPTED, Verb.ATTEMPTED, Verb.DELIVERED]


@pytest.mark.parametrize("lmtp", [False, True])
async def test_recipients_of_many_domains_travel_together_to_a_relay(lmtp: bool) -> None:
    [relay] = RELAYED.relays
    settings = replace(RELAYED, relays=(replace(relay, lmtp=lmtp),), maxrecips=50)
    refused = {"RCPT to@d7.example": "550 5.1.1 no such user"}
    async with Kit(settings, {"192.0.2.1": lambda: Peer(lmtp=lmtp, replies=refused)}) as kit:
        await kit.submit(*[f"to@d{number}.example" for number in range(100)])
        await kit.deliverer.drained()
        assert sorted(len(to) for _, to, _ in kit.dialer.messages) == [49, 50]
        assert kit.observer.count(Verb.DELIVERED) == 99
        [bounced] = kit.observer.of(Verb.BOUNCED)
        assert bounced.recipient is not None
        assert bounced.recipient.address == "to@d7.example"


async def test_recipients_of_many_domains_of_one_site_travel_together() -> None:
    domains = [f"d{number}.example" for number in range(100)]
    resolver = FakeResolver(
        mx={domain: [(1, "mx.example.com")] for domain in domains},
        addresses={"mx.example.com": ["192.0.2.1"]},
    )
    async with Kit(BY_DNS, resolver=resolver) as kit:
        await kit.submit(*[f"to@{domain}" for domain in domains])
        await kit.deliverer.drained()
        assert kit.observer.count(Verb.DELIVERED) == 100
        assert len(kit.dialer.messages) <= 7


async def test_domains_that_a_relay_treats_apart_travel_apart() -> None:
    strict = DestinationSettings(match="d1.example", maxserverconnections=1)
    async with Kit(replace(RELAYED, destinations=(strict,))) as kit:
        await kit.submit(*[f"to@d{number}.example" for number in range(4)])
        await kit.deliverer.drained()
        assert sorted(len(to) for _, to, _ in kit.dialer.messages) == [1, 3]


async def test_a_dead_destination_is_probed_with_mail_not_yet_due() -> None:
    hosts: dict[str, Callable[[], Peer] | str | None] = {"192.0.2.1": "Connection refused"}
    async with Kit(hosts=hosts) as kit:
        [recipient] = await kit.submit("to@example.com")
        await kit.heard(Verb.DEFERRED)
        about = await kit.deliverer.explainer().why(kit.deliverer.waiting(recipient))
        assert "in 60 s" in str(about["waiting_for"])
        await kit.clock.run_for(FIRST_PROBE_MS + 3000)
        await kit.heard(Verb.DEFERRED, 2)
        assert kit.deliverer.suspended == 1
        kit.dialer.hosts["192.0.2.1"] = Peer
        await kit.clock.run_for(2 * FIRST_PROBE_MS + 3000)
        await kit.heard(Verb.DELIVERED)
        assert kit.deliverer.suspended == 0


async def test_a_suspended_lane_without_mail_is_forgotten() -> None:
    brief = replace(SCHEDULE, maxtime=MINUTE // 2)
    async with Kit(hosts={"192.0.2.1": "Connection refused"}, schedule=brief) as kit:
        await kit.submit("to@example.com")
        await kit.heard(Verb.DEFERRED)
        await kit.clock.run_for(2 * FIRST_PROBE_MS)
        await kit.heard(Verb.EXPIRED)
        await kit.clock.run_for(10 * MINUTE)
        assert (kit.deliverer.suspended, list(kit.deliverer.lanes())) == (0, [])


async def test_a_shortage_at_a_lookup_is_held_against_nobody() -> None:
    resolver = FakeResolver(addresses={"relay.example": ["192.0.2.1"]})
    resolver.short = True
    relay = RelaySettings(address=HostPort(host="relay.example", port=2525))
    async with Kit(replace(RELAYED, relays=(relay,)), resolver=resolver) as kit:
        await kit.submit("a@example.com")
        await kit.until(lambda: bool(resolver.asked) and not kit.deliverer.active)
        assert kit.deliverer.suspended == 0
        assert kit.observer.count(Verb.DEFERRED) == 0
        resolver.short = False
        await kit.clock.run_for(SHORTAGE_MS + 1000)
        await kit.heard(Verb.DELIVERED)


class SlowPeer(Peer):
    """Replies to each message after a second."""

    clock: FakeClock

    def _answer(self, key: str, usual: str | None) -> str:
        if key != "." or usual is None:
            return super()._answer(key, usual)
        self._later = asyncio.ensure_future(self._reply(usual))
        return usual

    async def _reply(self, text: str) -> None:
        await self.clock.sleep(1000)
        self._connection.say(text.encode() + b"\r\n")


async def test_a_backlog_of_one_tenant_delays_no_other() -> None:
    settings = replace(RELAYED, queuecache=160, maxserverconnections=5)

    def slow() -> SlowPeer:
        peer = SlowPeer()
        peer.clock = kit.clock
        return peer

    async with Kit(settings, {"192.0.2.1": slow}) as kit:
        for number in range(600):
            await kit.submit(f"to{number}@example.com", listener="bulk")
        await kit.clock.run_for(20_000)
        await kit.heard(Verb.DELIVERED, 10)
        [single] = await kit.submit("to@example.com", listener="other")
        await kit.clock.run_for(2000)
        assert Verb.DELIVERED in kit.observer.verbs(single.key)


async def test_an_active_set_full_of_one_tenant_has_room_for_others() -> None:
    silent = {f"d{number}.example": ["192.0.2.9"] for number in range(400)}
    resolver = FakeResolver(addresses={"quick.example": ["192.0.2.1"], **silent})
    hosts = {"192.0.2.9": lambda: Peer(replies={"connect": None}), "192.0.2.1": Peer}
    async with Kit(replace(BY_DNS, queuecache=160, maxconnections=40), hosts, resolver) as kit:
        await kit.submit("to@quick.example", listener="other")
        await kit.heard(Verb.DELIVERED)
        for domain in silent:
            await kit.submit(f"to@{domain}", listener="bulk")
        await kit.clock.run_for(1000)
        assert kit.deliverer.active == 160
        [single] = await kit.submit("to@quick.example", listener="other")
        await kit.clock.run_for(1000)
        assert Verb.DELIVERED in kit.observer.verbs(single.key)

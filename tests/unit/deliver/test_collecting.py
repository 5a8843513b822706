"""Mail that a user collects: over their own connection, message by message, and what of it stays held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Action, Area, Phase, Recipient, Settlement, Submission
from mqcd.core.queueing.holding import HeldDomain, Holding, HoldMode
from mqcd.core.selecting.rules import StandingRule
from mqcd.core.selecting.selection import Selection
from mqcd.deliver.collecting import AT_ONCE, PATIENCE_MS
from mqcd.deliver.routing.policy import Hop
from tests.fakes.clock import turns
from tests.fakes.dialer import FakeConnection, Peer
from tests.fakes.store import MemoryStore
from tests.unit.core.selecting.test_rules import rule
from tests.unit.deliver.kit import BY_DNS, MINUTE, SCHEDULE, Kit
from tests.unit.deliver.test_reaching import act
from tests.unit.deliver.test_service import fail_by_a_bug

DOMAIN = "a.example"
HOLDING = Holding(
    domains=(HeldDomain(DOMAIN, HoldMode.ATRN, ("bob",)), HeldDomain("b.example", HoldMode.ATRN))
)
HELD = replace(SCHEDULE, holding=HOLDING)


def kit(store: type[MemoryStore] = MemoryStore) -> Kit:
    return Kit(BY_DNS, {}, schedule=HELD, store=lambda clock, observer: store(clock, observer, schedule=HELD))


async def collect(made: Kit, peer: Peer, stops: Callable[[], bool] = lambda: False) -> None:
    """The user calls, and `peer` is their server."""
    connection = FakeConnection(peer, "192.0.2.77", "")
    await made.deliverer.collecting.collect(connection, DOMAIN.__eq__, "bob", "odmr-1", stops)


def held(made: Kit) -> int:
    return made.store.stats()[Area.HELD].recipients


async def test_all_mail_of_the_domain_goes_over_the_connection() -> None:
    async with kit() as made:
        for number in range(250):
            await made.submit(f"x{number}@a.example")
        await made.submit("y@a.example", "z@a.example", "other@b.example")
        peer = Peer()
        assert made.deliverer.collecting.waiting(DOMAIN.__eq__)
        await collect(made, peer)
        await made.heard(Verb.DELIVERED, 252)
        assert len(peer.messages) == 251
        assert peer.messages[-1][1] == ("y@a.example", "z@a.example")
        assert (peer.log[-1], held(made)) == ("QUIT", 1)
        assert not made.deliverer.collecting.waiting(DOMAIN.__eq__)
        assert made.deliverer.active == 0


async def test_what_is_refused_for_now_stays_held() -> None:
    async with kit() as made:
        for name in ("full", "good", "gone"):
            await made.submit(f"{name}@a.example")
        await collect(
            made,
            Peer({"RCPT full@a.example": "450 4.2.2 full", "RCPT gone@a.example": "550 5.1.1 no"}),
        )
        await made.until(lambda: held(made) == 1)
        assert [made.observer.count(each) for each in (Verb.DELIVERED, Verb.BOUNCED, Verb.DEFERRED)] == [
            1,
            1,
            1,
        ]
        assert made.store.next_due() == made.clock.now() + HOLDING.maxtime
        await made.clock.run_for(5 * MINUTE)
        peer = Peer()
        await collect(made, peer)
        await made.heard(Verb.DELIVERED, 2)
        assert [message[1] for message in peer.messages] == [("full@a.example",)]


async def test_a_suspended_session_suspends_no_domain() -> None:
    async with kit() as made:
        await made.submit("x@a.example")
        made.deliverer.rule([rule("suspend", "site = atrn:bob")], MINUTE)
        await collect(made, Peer())
        await made.until(lambda: held(made) == 1 and not made.deliverer.active)
        assert made.deliverer.standing.applied == {"suspend-1": 1}
        assert made.deliverer.standing.suspended() == {}


async def test_a_connection_that_breaks_leaves_the_rest_held() -> None:
    async with kit() as made:
        for number in range(5):
            await made.submit(f"x{number}@a.example")
        await collect(made, Peer({"RCPT x2@a.example": ""}))
        await made.until(lambda: held(made) == 3 and not made.deliverer.active)
        assert made.observer.count(Verb.DELIVERED) == 2


async def test_a_user_whose_server_does_not_greet_gets_nothing() -> None:
    async with kit() as made:
        await made.submit("x@a.example")
        await collect(made, Peer({"EHLO": "421 4.3.2 no", "HELO": "421 4.3.2 no"}))
        assert (held(made), made.observer.count(Verb.ATTEMPTED)) == (1, 0)


async def test_a_stop_ends_the_session_between_two_messages() -> None:
    async with kit() as made:
        for number in range(5):
            await made.submit(f"x{number}@a.example")
        peer = Peer()
        await collect(made, peer, lambda: len(peer.messages) == 2)
        await made.until(lambda: held(made) == 3)
        assert (len(peer.messages), peer.log[-1]) == (2, "QUIT")


@pytest.mark.parametrize("sent", [0, 2])
async def test_an_action_reaches_what_the_session_has_not_sent(sent: int) -> None:
    """Before its claim, and behind it."""
    async with kit() as made:
        mail = [(await made.submit(f"x{number}@a.example"))[0] for number in range(4)]
        peer = Peer()

        def removes() -> bool:
            if len(peer.messages) == sent:
                made.deliverer.act([each.key for each in mail], act(Action.REMOVE), Selection())
            return False

        await collect(made, peer, removes)
        await made.until(lambda: not made.deliverer.active)
        assert (len(peer.messages), made.observer.count(Verb.REMOVED)) == (sent, 4 - sent)


async def test_a_rule_reaches_what_the_session_has_not_sent() -> None:
    async with kit() as made:
        for number in range(4):
            await made.submit(f"x{number}@a.example")
        peer = Peer()

        def suspends() -> bool:
            if len(peer.messages) == 2:
                made.deliverer.rule([rule("suspend", "domain = a.example")], MINUTE)
            return False

        await collect(made, peer, suspends)
        await made.until(lambda: not made.deliverer.active)
        assert (len(peer.messages), held(made)) == (2, 2)


async def test_a_cancelled_session_gives_its_mail_back() -> None:
    async with kit() as made:
        for number in range(5):
            await made.submit(f"x{number}@a.example")
        task = asyncio.ensure_future(collect(made, Peer({"RCPT x2@a.example": None})))
        await made.heard(Verb.DELIVERED, 2)
        await turns()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await made.until(lambda: held(made) == 3 and not made.deliverer.active)


@pytest.mark.parametrize("sent", [0, 1])
async def test_an_error_of_our_own_about_one_recipient_leaves_that_one_held(
    sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An action reaches the others, before a claim and behind it."""
    async with kit() as made:
        mail = [(await made.submit(f"{name}@a.example"))[0] for name in ("ok", "gone", "bad")]
        peer, find = Peer(), made.deliverer.standing.find

        def finds(recipient: Recipient, hop: Hop | None) -> StandingRule | None:
            if recipient.address == "bad@a.example" and len(peer.messages) == sent:
                fail_by_a_bug()
            return find(recipient, hop)

        monkeypatch.setattr(made.deliverer.standing, "find", finds)

        def removes() -> bool:
            if len(peer.messages) == sent:
                made.deliverer.act([mail[1].key], act(Action.REMOVE), Selection())
            return False

        await collect(made, peer, removes)
        await made.heard(Verb.REMOVED)
        await made.until(lambda: not made.deliverer.active)
        assert [message[1] for message in peer.messages] == [("ok@a.example",)]
        assert held(made) == 1


async def test_an_error_of_our_own_behind_the_dot_is_possibly_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with kit() as made:
        for number in range(3):
            await made.submit(f"x{number}@a.example")
        settling = made.deliverer._settling

        def fail_once(*_: object, **__: object) -> None:
            monkeypatch.undo()
            raise ZeroDivisionError("a bug of ours")

        monkeypatch.setattr(settling, "settle_each", fail_once)
        peer = Peer()
        with pytest.raises(ZeroDivisionError):
            await collect(made, peer)
        verdict = await made.deferred()
        assert (verdict.reply.status, verdict.possibly_delivered) == ("4.3.0", True)
        assert verdict.attempt is not None
        assert verdict.attempt.phase is Phase.DOT
        await made.until(lambda: not made.deliverer.active)
        assert (held(made), len(peer.messages), made.observer.count(Verb.DEFERRED)) == (3, 1, 1)


async def test_an_error_of_our_own_about_verdicts_leaves_held_what_was_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with kit() as made:
        await made.submit("x@a.example")
        await made.submit("full@a.example")
        monkeypatch.setattr("mqcd.deliver.settling.verdict_on", fail_by_a_bug)
        await collect(made, Peer({"RCPT full@a.example": "450 4.2.2 full"}))
        await made.heard(Verb.DELIVERED)
        assert (await made.deferred()).reply.status == "4.3.0"
        await made.until(lambda: not made.deliverer.active)
        assert held(made) == 1
        await made.clock.run_for(HOLDING.maxtime + MINUTE)
        await made.heard(Verb.EXPIRED)
        assert made.dialer.dialled == []


async def test_a_session_cancelled_behind_the_dot_leaves_that_message_in_flight() -> None:
    async with kit() as made:
        sent = [(await made.submit(f"x{number}@a.example"))[0] for number in range(3)]
        peer = Peer({".": None})
        task = asyncio.ensure_future(collect(made, peer))
        await made.until(lambda: "DATA" in peer.log and peer._silent)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await made.until(lambda: [made.store.in_flight(each) for each in sent] == [True, False, False])


@pytest.mark.parametrize("action", ["suspend", "hold", "bounce"])
async def test_a_standing_rule_counts_in_a_session(action: str) -> None:
    async with kit() as made:
        for number in range(AT_ONCE):
            await made.submit(f"x{number}@a.example", sender="bad@example.org")
        await made.submit("good@a.example")
        made.deliverer.rule([rule(action, "sender = bad@example.org")], 60 * MINUTE)
        peer = Peer()
        await collect(made, peer)
        await made.heard(Verb.DELIVERED)
        await made.until(lambda: not made.deliverer.active)
        assert [message[1] for message in peer.messages] == [("good@a.example",)]
        assert held(made) == (0 if action == "bounce" else AT_ONCE)


async def test_a_pause_ends_the_session_between_two_messages() -> None:
    async with kit() as made:
        for number in range(5):
            await made.submit(f"x{number}@a.example")
        peer = Peer()

        def stops() -> bool:
            made.deliverer.halt(len(peer.messages) == 2)
            return False

        await collect(made, peer, stops)
        await made.until(lambda: held(made) == 3)
        assert (len(peer.messages), peer.log[-1]) == (2, "QUIT")


async def test_nothing_is_collected_while_delivery_is_paused() -> None:
    async with kit() as made:
        await made.submit("x@a.example")
        made.deliverer.halt(True)
        peer = Peer()
        await collect(made, peer)
        assert (peer.messages, held(made)) == ([], 1)


async def test_a_domain_that_gives_nothing_new_ends_no_session() -> None:
    async with kit() as made:
        full = [f"full{number}@a.example" for number in range(AT_ONCE)]
        await made.submit(*full)
        await made.submit("x@b.example")
        peer = Peer({f"RCPT {address}": "450 4.2.2 full" for address in full})
        connection = FakeConnection(peer, "192.0.2.77", "")
        await made.deliverer.collecting.collect(connection, bool, "bob", "odmr-1", lambda: False)
        await made.until(lambda: held(made) == AT_ONCE and not made.deliverer.active)
        assert [message[1] for message in peer.messages] == [("x@b.example",)]


class Full(MemoryStore):
    """Records no verdict."""

    async def settle(self, settlements: Sequence[Settlement], submissions: Sequence[Submission] = ()) -> None:
        raise StoreUnavailable("as the test wants it")


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_session_does_not_outlast_a_store_that_cannot_record(leaves: bool) -> None:
    async with kit(Full) as made:
        await made.submit("x@a.example")
        await collect(made, Peer())
        await made.until(lambda: made.deliverer.paused)
        await made.submit("y@a.example")
        peer, left = Peer(), asyncio.Event()
        session = asyncio.create_task(collect(made, peer, left.is_set))
        await made.clock.run_for(PATIENCE_MS - 1000)
        assert not session.done()
        if leaves:
            left.set()
        await made.clock.run_for(100 if leaves else 2000)
        assert session.done()
        assert (peer.messages, peer.log[-1]) == ([], "QUIT")


class Moving(MemoryStore):
    """What it holds cannot be claimed for `refusals` claims."""

    refusals = 0

    async def claim_held(self, domain: str, room: int) -> Sequence[Recipient]:
        self.refusals -= 1
        return await super().claim_held(domain, room) if self.refusals < 0 else ()


@pytest.mark.parametrize(("refusals", "sent"), [(3, 1), (1_000_000, 0)])
async def test_mail_that_cannot_be_claimed_now_is_waited_for(refusals: int, sent: int) -> None:
    async with kit(Moving) as made:
        assert isinstance(made.store, Moving)
        made.store.refusals = refusals
        await made.submit("x@a.example")
        peer = Peer()
        session = asyncio.create_task(collect(made, peer))
        await made.clock.run_for(2 * PATIENCE_MS)
        await session
        assert (len(peer.messages), peer.log[-1], held(made)) == (sent, "QUIT", 1 - sent)

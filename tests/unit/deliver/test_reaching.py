"""Operators' batches on mail in flight: in lanes, in attempts, after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from mqcd.core.events import Verb
from mqcd.core.model import Action, Amended, Area, Batch, Recipient
from mqcd.core.queueing.amendment import amended_by, batch_of
from mqcd.core.selecting.selection import Selection
from mqcd.deliver.reaching import KEPT_MS, RECALLED_MS, Reaching
from tests.fakes.clock import START_MS
from tests.fakes.dialer import Peer
from tests.fakes.store import MemoryStore
from tests.unit.core.selecting.test_rules import rule
from tests.unit.deliver.kit import RELAYED, SCHEDULE, Kit
from tests.unit.deliver.test_standing import GRACE, stand


def act(action: Action, **changes: object) -> Batch:
    made = Batch(id=f"{action}-9", action=action, at=START_MS, by="uid:7", until=START_MS + GRACE)
    return replace(made, **changes)  # type: ignore[arg-type]


async def test_an_action_reaches_what_waits_in_a_lane_at_once() -> None:
    settings = replace(RELAYED, maxserverconnections=1)
    async with Kit(settings, {"192.0.2.1": lambda: Peer({"DATA": None})}) as kit:
        await kit.submit("first@example.com")
        await kit.heard(Verb.ATTEMPTED)
        sent = await kit.submit("a@example.com", "b@example.com")
        await kit.until(lambda: kit.deliverer.lanes()[0].waiting == 2)
        kit.deliverer.act([each.key for each in sent], act(Action.HOLD), Selection())
        await kit.heard(Verb.HELD, 2)
        assert kit.deliverer.lanes()[0].waiting == 0


async def test_an_action_reaches_a_job_that_connects() -> None:
    peer = Peer(tls_first=True)
    async with Kit(hosts={"192.0.2.1": lambda: peer}) as kit:
        [sent] = await kit.submit("a@example.com")
        await kit.until(lambda: peer.open)
        kit.deliverer.act([sent.key], act(Action.HOLD), Selection())
        peer.greet()
        await kit.heard(Verb.HELD)
        assert kit.observer.count(Verb.ATTEMPTED) == 0


@pytest.mark.parametrize(
    ("action", "area"),
    [(Action.HOLD, Area.HELD), (Action.REMOVE, Area.REMOVED), (Action.BOUNCE, Area.REMOVED)],
)
async def test_an_action_reaches_a_deferral_before_its_next_attempt(action: Action, area: Area) -> None:
    async with Kit(hosts={"192.0.2.1": lambda: Peer({"DATA": None})}) as kit:
        [sent] = await kit.submit("a@example.com")
        await kit.heard(Verb.ATTEMPTED)
        kit.deliverer.act([sent.key], act(action), Selection())
        # The peer's silence ends the attempt.
        await kit.clock.run_for(3 * GRACE)
        assert kit.observer.count(Verb.DEFERRED)
        [left] = [each async for each in kit.store.scan(Selection())]
        assert (left.area, batch_of(left), left.attempts) == (area, f"{action}-9", 1)
        # It can be undone for as long as any other.
        assert action is Action.HOLD or left.due > START_MS + GRACE


async def test_an_undo_ends_what_has_not_followed() -> None:
    async with Kit(hosts={"192.0.2.1": lambda: Peer({"DATA": None})}) as kit:
        [sent] = await kit.submit("a@example.com")
        await kit.heard(Verb.ATTEMPTED)
        kit.deliverer.act([sent.key], act(Action.HOLD), Selection())
        kit.deliverer.act([], act(Action.UNDO, target="hold-9"), Selection(domain="example.com"))
        # The peer's silence ends the attempt.
        await kit.clock.run_for(3 * GRACE)
        assert kit.observer.count(Verb.DEFERRED)
        assert kit.observer.count(Verb.ATTEMPTED) > 1
        assert kit.observer.count(Verb.HELD) == 0


async def under_way(kit: Kit) -> Recipient:
    """Of an attempt at a peer that is silent."""
    [sent] = await kit.submit("a@example.com")
    await kit.heard(Verb.ATTEMPTED)
    return sent


async def left_by(kit: Kit) -> Recipient:
    """What the silence of the peer, and what follows, leave."""
    await kit.clock.run_for(GRACE)
    assert kit.observer.count(Verb.DEFERRED) == 1
    [left] = [each async for each in kit.store.scan(Selection())]
    return left


@pytest.mark.parametrize(
    "undone", [Selection(domain="example.net"), Selection(area=Area.INCOMING), Selection(sender="")]
)
async def test_an_undo_of_other_mail_ends_nothing(undone: Selection) -> None:
    async with Kit(hosts={"192.0.2.1": lambda: Peer({"DATA": None})}) as kit:
        sent = await under_way(kit)
        kit.deliverer.act([sent.key], act(Action.HOLD), Selection())
        kit.deliverer.act([], act(Action.UNDO, target="hold-9"), undone)
        assert (await left_by(kit)).area is Area.HELD


ACTIONS_IN_ORDER = [
    ((Action.HOLD, Action.RESCHEDULE), Area.HELD, (Verb.HELD,)),
    ((Action.HOLD, Action.REDIRECT), Area.HELD, (Verb.HELD, Verb.REDIRECTED)),
    ((Action.REDIRECT, Action.HOLD), Area.HELD, (Verb.REDIRECTED, Verb.HELD)),
    ((Action.REMOVE, Action.HOLD), Area.REMOVED, (Verb.REMOVED,)),
    ((Action.HOLD, Action.REMOVE), Area.REMOVED, (Verb.HELD, Verb.REMOVED)),
    ((Action.RESCHEDULE, Action.BOUNCE), Area.REMOVED, (Verb.RESCHEDULED, Verb.REMOVED)),
]


@pytest.mark.parametrize(("actions", "area", "verbs"), ACTIONS_IN_ORDER)
async def test_actions_follow_in_their_order(
    actions: Sequence[Action], area: Area, verbs: Sequence[Verb]
) -> None:
    async with Kit(hosts={"192.0.2.1": lambda: Peer({"DATA": None})}) as kit:
        sent = await under_way(kit)
        for action in actions:
            target = "other.example:25" if action is Action.REDIRECT else ""
            kit.deliverer.act([sent.key], act(action, target=target), Selection())
        left = await left_by(kit)
        assert (left.area, left.route != "") == (area, Action.REDIRECT in actions)
        heard = kit.observer.verbs(sent.key)
        assert tuple(heard[heard.index(Verb.DEFERRED) + 1 :]) == verbs


@pytest.mark.parametrize("undone", ["redirect-9", "hold-9"])
async def test_an_undo_takes_back_the_last_action_alone(undone: str) -> None:
    """As of mail at rest."""
    async with Kit(hosts={"192.0.2.1": lambda: Peer({"DATA": None})}) as kit:
        sent = await under_way(kit)
        kit.deliverer.act([sent.key], act(Action.HOLD), Selection())
        kit.deliverer.act([sent.key], act(Action.REDIRECT, target="other.example:25"), Selection())
        kit.deliverer.act([], act(Action.UNDO, target=undone), Selection())
        left = await left_by(kit)
        assert (left.area, left.route != "") == (Area.HELD, undone == "hold-9")


@pytest.mark.parametrize(("domain", "held"), [("example.com", 0), ("example.net", 1)])
async def test_a_release_ends_the_hold_of_what_it_selects(domain: str, held: int) -> None:
    async with Kit(hosts={"192.0.2.1": lambda: Peer({"DATA": None})}) as kit:
        [sent] = await kit.submit("a@example.com")
        await kit.heard(Verb.ATTEMPTED)
        kit.deliverer.act([sent.key], act(Action.HOLD), Selection())
        kit.deliverer.act([], act(Action.RELEASE), Selection(area=Area.HELD, domain=domain))
        # The peer's silence ends the attempt.
        await kit.clock.run_for(3 * GRACE)
        assert kit.observer.count(Verb.DEFERRED)
        assert kit.observer.count(Verb.HELD) == held


async def test_what_a_rule_has_not_reached_it_does_not_reach_when_it_has_ended() -> None:
    async with Kit(hosts={"192.0.2.1": lambda: Peer({"DATA": None})}) as kit:
        [sent] = await kit.submit("a@example.com")
        await kit.heard(Verb.ATTEMPTED)
        standing = rule("hold", "domain = example.com", until=START_MS + GRACE)
        stand(kit, standing)
        batch = standing.batch(START_MS, GRACE)
        assert batch is not None
        kit.deliverer.act([sent.key], batch, Selection())
        stand(kit)
        # The peer's silence ends the attempt.
        await kit.clock.run_for(3 * GRACE)
        assert kit.observer.count(Verb.DEFERRED)
        assert kit.observer.count(Verb.HELD) == 0


async def test_what_has_not_followed_goes_on_elsewhere() -> None:
    """With a release that came after it, and without what rules do: they stand there too."""
    async with Kit(hosts={"192.0.2.1": lambda: Peer({"DATA": None})}) as kit:
        sent = [(await kit.submit(f"{name}@{name}.example"))[0] for name in "abc"]
        before, after = kit.deliverer.reaching, Reaching(kit.clock)
        before.act([each.key for each in sent[:2]], act(Action.HOLD), Selection())
        before.act([], act(Action.RELEASE, id="release-9"), Selection(domain="b.example"))
        standing = rule("hold", "domain = c.example", until=START_MS + GRACE)
        stand(kit, standing)
        batch = standing.batch(START_MS, GRACE)
        assert batch is not None
        before.act([sent[2].key], batch, Selection())
        for pending in before.pending():
            after.act(pending[2], pending[0], pending[1])
        assert [after.take_amendment(each) is not None for each in sent] == [True, False, False]
        assert after.pending() == []


async def test_an_old_batch_counts_for_an_hour_after_a_start() -> None:
    async with Kit() as kit:
        first, second = await kit.submit("a@example.com", "b@example.com")
        reaching = Reaching(kit.clock)
        kit.clock.leap(2 * KEPT_MS)
        reaching.act([first.key], act(Action.HOLD), Selection())
        reaching.act([second.key], act(Action.REMOVE), Selection())
        kit.clock.advance(RECALLED_MS - 1)
        reaching.act([], act(Action.REDIRECT), Selection())
        assert reaching.take_amendment(first) == Amended(batch=act(Action.HOLD))
        kit.clock.advance(1)
        reaching.act([], act(Action.REDIRECT), Selection())
        assert reaching.take_amendment(second) is None


async def test_an_action_reaches_a_deferral_of_days() -> None:
    schedule = replace(SCHEDULE, delays=(2 * KEPT_MS,), maxtime=9 * KEPT_MS)
    store = partial(MemoryStore, schedule=schedule)
    async with Kit(hosts={"192.0.2.1": lambda: Peer({"DATA": None})}, schedule=schedule, store=store) as kit:
        sent = await under_way(kit)
        kit.deliverer.act([sent.key], act(Action.HOLD), Selection())
        await left_by(kit)
        await kit.clock.run_for(KEPT_MS)
        kit.deliverer.act([], act(Action.REMOVE), Selection())
        await kit.clock.run_for(KEPT_MS + GRACE)
        assert kit.observer.verbs(sent.key)[-2:] == [Verb.DEFERRED, Verb.HELD]


@pytest.mark.parametrize(("recorded", "left"), [(0, 2), (1, 1), (2, 0)])
async def test_what_was_recorded_before_a_restart_does_not_follow_again(recorded: int, left: int) -> None:
    async with Kit() as kit:
        [sent] = await kit.submit("a@example.com")
        reaching = Reaching(kit.clock)
        batches = [act(Action.REDIRECT, id=f"redirect-{n}", target=f"{n}.example:25") for n in range(2)]
        for batch in batches:
            reaching.act([sent.key], batch, Selection())
        made = reaching.take_amendment(amended_by(sent, batches[:recorded]))
        assert (0 if made is None else len(made.earlier) + 1) == left


@pytest.mark.parametrize("recorded", [False, True])
async def test_what_was_taken_back_does_not_follow(recorded: bool) -> None:
    """The example of `reaching`."""
    async with Kit() as kit:
        sent, other = await kit.submit("a@example.com", "b@example.com")
        reaching = Reaching(kit.clock)
        redirect = act(Action.REDIRECT, target="other.example:25")
        reaching.act([sent.key], redirect, Selection())
        reaching.act([sent.key], act(Action.HOLD, id="hold-2"), Selection())
        reaching.act([], act(Action.RELEASE), Selection(area=Area.HELD))
        reaching.act([other.key], act(Action.REMOVE), Selection())
        reaching.act([sent.key], act(Action.HOLD, id="hold-5"), Selection())
        reaching.act([], act(Action.UNDO, target="hold-5"), Selection(area=Area.HELD))
        made = reaching.take_amendment(amended_by(sent, [redirect][:recorded]))
        assert made == (None if recorded else Amended(batch=redirect))


async def test_a_fault_does_not_lose_what_is_to_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Kit() as kit:
        [sent] = await kit.submit("a@example.com")
        reaching = Reaching(kit.clock)
        reaching.act([sent.key], act(Action.HOLD), Selection())
        with monkeypatch.context() as patch:
            patch.setattr("mqcd.deliver.reaching.amended_by", lambda *_: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                reaching.take_amendment(sent)
        assert reaching.take_amendment(sent) == Amended(batch=act(Action.HOLD))
        assert not reaching.awaited

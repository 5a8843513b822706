"""Operators' actions: what each makes of a recipient, what takes it back, and what a restart leaves of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mqcd.core.events import Verb
from mqcd.core.model import Action, Amended, Area, Purged, Recipient, Settlement
from mqcd.core.ports import QueueStore
from mqcd.core.selecting.selection import Selection
from tests.contract.harness import HOUR, Harness, Restart
from tests.contract.mail import Post, batch, carry_out, deferred, delivered, read_all, where

UNDONE = "undo-1"


async def records(store: QueueStore) -> Sequence[Recipient]:
    found = [replace(each, linked=False) async for each in store.scan(Selection())]
    return sorted(found, key=lambda each: each.key)


async def put_in(post: Post) -> None:
    """New mail of one and of several recipients, and deferred mail."""
    await post.send("a@x.example")
    await post.settle(deferred(post.clock.now() + HOUR), *await post.claim_all())
    await post.send("b@x.example", "c@y.example", content=b"Subject: two\r\n\r\n" + b"x" * 100_000)
    await post.send("d@z.example")


CHANGES = [
    (Action.HOLD, {}, Verb.HELD),
    (Action.REMOVE, {}, Verb.REMOVED),
    (Action.BOUNCE, {"report": True, "reason": "spam"}, Verb.REMOVED),
    (Action.REDIRECT, {"target": "other@w.example"}, Verb.REDIRECTED),
    (Action.REDIRECT, {"target": "relay.example:26"}, Verb.REDIRECTED),
    (Action.RESCHEDULE, {}, Verb.RESCHEDULED),
    (Action.RETRY, {}, Verb.RESCHEDULED),
]


@pytest.mark.parametrize(("action", "changes", "verb"), CHANGES)
async def test_an_undo_restores_every_record(
    restarting: tuple[Harness, Restart], action: Action, changes: dict[str, object], verb: Verb
) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await put_in(post)
    before = await records(post.store)
    post = Post(await harness.restart(how), harness.clock)
    order = batch(action, post, **changes)
    assert await carry_out(post.store, order) == (4, 0)
    assert harness.observer.count(verb) == 4
    assert await records(post.store) != before
    post = Post(await harness.restart(how), harness.clock)
    assert await carry_out(post.store, batch(Action.UNDO, post, id=UNDONE, target=order.id)) == (4, 0)
    assert harness.observer.count(Verb.RESTORED) == 4
    assert await records(post.store) == before
    post = Post(await harness.restart(how), harness.clock)
    assert await records(post.store) == before


async def test_held_mail_is_not_tried_until_released(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await put_in(post)
    await carry_out(post.store, batch(Action.HOLD, post), Selection(domain="x.example"))
    post = Post(await harness.restart(how), harness.clock)
    harness.clock.advance(9 * HOUR)
    assert {each.domain for each in await post.claim_all()} == {"y.example", "z.example"}
    assert post.store.stats()[Area.HELD].recipients == 2
    assert await carry_out(post.store, batch(Action.RELEASE, post)) == (2, 0)
    assert {each.address for each in await post.claim_all()} == {"a@x.example", "b@x.example"}
    assert post.store.stats()[Area.HELD].recipients == 0


async def test_removed_mail_ends_with_its_grace(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await put_in(post)
    await carry_out(post.store, batch(Action.REMOVE, post), Selection(domain="x.example"))
    await carry_out(post.store, batch(Action.BOUNCE, post, report=True), Selection(domain="y.example"))
    post = Post(await harness.restart(how), harness.clock)
    assert await post.store.claim_removed(9) == []
    harness.clock.advance(HOUR + 1)
    found = await post.store.claim_removed(9)
    assert len(found) == 3
    await post.store.settle([Settlement(recipient=each, verdict=Purged()) for each in found])
    assert post.store.stats()[Area.REMOVED].recipients == 0
    (bounce,) = await post.store.claim_bounces(9)
    assert (bounce.address, bounce.code, bounce.status) == ("c@y.example", 550, "5.7.1")
    assert harness.observer.count(Verb.REMOVED) == 3
    assert harness.observer.count(Verb.BOUNCED) == 0


async def test_a_long_grace_outlives_a_start(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await put_in(post)
    order = batch(Action.REMOVE, post, until=post.clock.now() + 1000 * HOUR)
    assert await carry_out(post.store, order) == (4, 0)
    for _ in range(2):
        post = Post(await harness.restart(how), harness.clock)
    harness.clock.advance(999 * HOUR)
    assert await post.store.claim_removed(9) == []
    harness.clock.advance(HOUR)
    assert len(await post.store.claim_removed(9)) == 4


async def test_a_reschedule_lies_no_further_ahead_than_a_retry(store: QueueStore, post: Post) -> None:
    await post.send("a@x.example")
    await carry_out(store, batch(Action.RESCHEDULE, post, until=post.clock.now() + 1000 * HOUR))
    due = store.next_due()
    assert due is not None
    assert due < post.clock.now() + 100 * HOUR


async def test_a_retry_makes_mail_due_and_an_undo_restores_its_time(store: QueueStore, post: Post) -> None:
    await post.send("a@x.example")
    due = post.clock.now() + HOUR
    await post.settle(deferred(due), *await post.claim_all())
    order = batch(Action.RETRY, post, until=post.clock.now())
    assert await carry_out(store, order) == (1, 0)
    assert store.next_due() == post.clock.now()
    assert await carry_out(store, batch(Action.UNDO, post, id=UNDONE, target=order.id)) == (1, 0)
    assert await post.claim_all() == []
    assert store.next_due() == due
    assert await carry_out(store, replace(order, id="retry-2")) == (1, 0)
    [claimed] = await post.claim_all()
    assert (claimed.due, claimed.area) == (post.clock.now(), Area.DEFERRED)
    # It is still under way when its mail is deferred again.
    await post.settle(deferred(due), claimed)
    assert await carry_out(store, replace(order, id="retry-2")) == (0, 0)
    assert await carry_out(store, batch(Action.UNDO, post, id=UNDONE, target="retry-2")) == (0, 0)
    assert await carry_out(store, replace(order, id="retry-3")) == (1, 0)


async def put_off(post: Post, *addresses: str, sender: str = "sender@example.com") -> None:
    """Each in an hour."""
    for address in addresses:
        await post.send(address, sender=sender)
    await post.settle(deferred(post.clock.now() + HOUR), *await post.claim_all())


async def retried(post: Post, selection: Selection, number: int = 1) -> set[str]:
    """What is due now because it was selected."""
    order = batch(Action.RETRY, post, id=f"retry-{number}", until=post.clock.now())
    changed = await carry_out(post.store, order, selection)
    claimed = await post.claim_all()
    assert changed == (len(claimed), 0)
    await post.settle(deferred(post.clock.now() + HOUR), *claimed)
    return {each.address for each in claimed}


SELECTIONS = [
    (Selection(), {"a@x.example", "b@x.example", "c@z.example"}),
    (Selection(domain="x.example"), {"a@x.example", "b@x.example"}),
    (Selection(domain="*.example", recipient="b*"), {"b@x.example"}),
    (Selection(sender="LIST@*"), {"c@z.example"}),
    (Selection(sender=""), set()),
    (Selection(area=Area.DEFERRED), {"a@x.example", "b@x.example", "c@z.example"}),
    (Selection(area=Area.BOUNCES), set()),
    (Selection(received_before=1), set()),
    (where("domain = x.example and not recipient ~ b*"), {"a@x.example"}),
    (where("sender ~ list@* or recipient = b@x.example"), {"b@x.example", "c@z.example"}),
    (where("class = mailbox and due > 30m and code < 500"), {"a@x.example", "b@x.example", "c@z.example"}),
    (where("age > 1h or area = bounces"), set()),
]


async def test_only_what_is_selected_is_changed(post: Post) -> None:
    await put_off(post, "a@x.example", "b@x.example")
    await put_off(post, "c@z.example", sender="list@here.example")
    for number, (selection, expected) in enumerate(SELECTIONS):
        assert await retried(post, selection, number) == expected, selection


async def test_after_a_restart_only_what_is_selected_is_changed(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await put_off(post, *[f"{name}{n}@{name}.example" for n in range(9) for name in "xy"])
    post = Post(await harness.restart(how), harness.clock)
    selection = where("recipient ~ x* and not domain = y.example and attempts = 1")
    assert await retried(post, selection) == {f"x{n}@x.example" for n in range(9)}


async def test_a_retry_ends_the_suspension_of_what_it_selects(store: QueueStore, post: Post) -> None:
    await put_off(post, "a@x.example")
    await post.send("b@x.example", "c@y.example")
    skip = {"x.example": post.clock.now() + HOUR}
    assert [each.address for each in await store.claim(9, post.clock.now(), skip)] == ["c@y.example"]
    assert await retried(post, Selection(domain="x.example")) == {"a@x.example", "b@x.example"}


@pytest.mark.parametrize(
    ("action", "target"),
    [(Action.RESCHEDULE, ""), (Action.REDIRECT, "relay.example:25"), (Action.RELEASE, "")],
)
async def test_what_is_deferred_meanwhile_is_not_changed_twice(
    store: QueueStore, post: Post, action: Action, target: str
) -> None:
    await post.send("a@x.example")
    if action is Action.RELEASE:
        await carry_out(store, batch(Action.HOLD, post))
    order = batch(action, post, id="again", target=target, until=post.clock.now())
    assert await carry_out(store, order) == (1, 0)
    [claimed] = await post.claim_all()
    await post.settle(deferred(post.clock.now() + HOUR), claimed)
    assert await carry_out(store, order) == (0, 0)


async def test_what_is_in_flight_is_passed_over(store: QueueStore, post: Post) -> None:
    await post.send("a@x.example")
    (busy,) = await post.claim_all()
    await post.send("b@x.example")
    assert await carry_out(store, batch(Action.HOLD, post)) == (1, 1)
    await post.settle(delivered(), busy)
    assert [each.address for each in await records(store)] == ["b@x.example"]


@pytest.mark.parametrize(("action", "area"), [(Action.HOLD, Area.HELD), (Action.BOUNCE, Area.REMOVED)])
async def test_what_was_claimed_comes_under_a_rule(
    restarting: tuple[Harness, Restart], action: Action, area: Area
) -> None:
    """As standing rules settle it: claimed, not begun, and undone by the rule's name."""
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await put_in(post)
    before = await records(post.store)
    order = batch(action, post, report=action is Action.BOUNCE)
    harness.clock.advance(HOUR)
    claimed = await post.claim_all()
    assert len(claimed) == 4
    await post.settle(Amended(batch=replace(order, until=harness.clock.now() + HOUR)), *claimed)
    post = Post(await harness.restart(how), harness.clock)
    assert {each.area for each in await records(post.store)} == {area}
    assert await post.claim_all() == []
    undo = batch(Action.UNDO, post, id=UNDONE, target=order.id)
    assert await carry_out(post.store, undo) == (4, 0)
    assert await records(post.store) == before


async def test_several_batches_come_in_one_verdict(store: QueueStore, post: Post) -> None:
    for name in "ab":
        await post.send(f"{name}@x.example")
    before = await records(store)
    hold, removal = batch(Action.HOLD, post), batch(Action.REMOVE, post, id="remove-2")
    await post.settle(Amended(batch=removal, earlier=(hold,)), *await post.claim_all())
    for target, area in (("remove-2", Area.HELD), (hold.id, Area.INCOMING)):
        undo = batch(Action.UNDO, post, id=f"undo-{target}", target=target)
        assert await carry_out(store, undo) == (2, 0)
        assert {each.area for each in await records(store)} == {area}
    assert await records(store) == before


async def test_a_verdict_ends_what_can_be_undone(store: QueueStore, post: Post) -> None:
    await post.send("a@x.example")
    order = batch(Action.REDIRECT, post, target="b@y.example")
    await carry_out(store, order)
    (each,) = await post.claim_all()
    assert each.address == "b@y.example"
    await post.settle(deferred(post.clock.now() + HOUR), each)
    assert await carry_out(store, batch(Action.UNDO, post, id=UNDONE, target=order.id)) == (0, 0)


async def test_a_batch_changes_nobody_twice_and_nothing_new(store: QueueStore, post: Post) -> None:
    await post.send("a@x.example")
    order = batch(Action.RESCHEDULE, post)
    post.clock.advance(1)
    await post.send("late@x.example")
    assert await carry_out(store, order) == (1, 0)
    assert await carry_out(store, order) == (0, 0)


async def test_a_limit_counts(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    for n in range(9):
        await post.send(f"r{n}@x.example")
    post = Post(await harness.restart(how), harness.clock)
    assert await carry_out(post.store, batch(Action.HOLD, post), Selection(limit=4)) == (4, 0)
    assert len(await post.claim_all()) == 5


async def test_a_limit_does_not_count_what_is_in_flight(store: QueueStore, post: Post) -> None:
    for name in "abc":
        await post.send(f"{name}@x.example")
    in_flight = await post.store.claim(2, post.clock.now())
    assert await carry_out(store, batch(Action.HOLD, post), Selection(limit=2)) == (1, 2)
    held = [each.address for each in await records(store) if each.area is Area.HELD]
    assert len(held) == 1
    assert held[0] not in {each.address for each in in_flight}


async def test_batches_are_undone_from_the_last_to_the_first(store: QueueStore, post: Post) -> None:
    await post.send("a@x.example")
    before = await records(store)
    hold, target = batch(Action.HOLD, post), batch(Action.REDIRECT, post, target="b@y.example")
    await carry_out(store, hold)
    await carry_out(store, target)
    undo_hold = batch(Action.UNDO, post, id="undo-2", target=hold.id)
    assert await carry_out(store, undo_hold) == (0, 0)
    await carry_out(store, batch(Action.UNDO, post, id=UNDONE, target=target.id))
    assert await carry_out(store, undo_hold) == (1, 0)
    assert await records(store) == before


async def test_a_retry_leaves_an_earlier_batch_undoable(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await put_in(post)
    before = await records(post.store)
    order = batch(Action.REDIRECT, post, target="relay.example:26")
    await carry_out(post.store, order)
    post = Post(await harness.restart(how), harness.clock)
    assert await carry_out(post.store, batch(Action.RETRY, post, until=post.clock.now())) == (4, 0)
    assert await carry_out(post.store, batch(Action.UNDO, post, id=UNDONE, target=order.id)) == (4, 0)
    restored = await records(post.store)
    assert [replace(each, due=was.due) for each, was in zip(restored, before, strict=True)] == before
    assert all(each.due <= post.clock.now() for each in restored)


async def test_redirected_content_is_the_same(store: QueueStore, post: Post) -> None:
    (sent,) = await post.send("a@x.example", content=b"Subject: x\r\n\r\nbody\r\n")
    await carry_out(store, batch(Action.REDIRECT, post, target="b@y.example"))
    (each,) = await post.claim_all()
    assert (each.key, await read_all(await store.content(each))) == (sent.key, b"Subject: x\r\n\r\nbody\r\n")

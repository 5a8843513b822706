"""Claims: who gets what, in which order, and what is passed over."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from mqcd.core.model import Area, Recipient
from mqcd.core.ports import QueueStore
from tests.contract.harness import HOUR, MINUTE, Harness
from tests.contract.mail import Post, bounced, deferred, delivered


async def test_a_claimed_recipient_is_given_to_nobody_else(store: QueueStore, post: Post) -> None:
    [recipient] = await post.send("a@example.org")
    assert not store.in_flight(recipient)
    assert await post.claim_all() == [recipient]
    assert store.in_flight(recipient)
    assert await post.claim_all() == []


async def test_an_empty_store_has_nothing_to_claim(store: QueueStore, post: Post) -> None:
    assert await post.claim_all() == []
    assert await post.claim_bounces() == []
    assert store.next_due() is None


async def test_room_is_never_exceeded(store: QueueStore, post: Post) -> None:
    await post.send(*[f"r{n}@example.org" for n in range(9)])
    for room in (0, 1, 3):
        assert len(await store.claim(room, post.clock.now())) <= room


async def test_every_recipient_is_claimed_exactly_once(post: Post) -> None:
    sent = [each for n in range(40) for each in await post.send(f"a@d{n}.example", f"b@d{n}.example")]
    claimed = await post.claim_all(step=7)
    assert sorted(each.key for each in claimed) == sorted(each.key for each in sent)


async def test_new_mail_comes_oldest_first(post: Post) -> None:
    sent: list[Recipient] = []
    for n in range(5):
        sent += await post.send(f"r{n}@example.org")
        post.clock.advance(MINUTE)
    assert [each.key for each in await post.claim_all(step=2)] == [each.key for each in sent]


async def send_with(post: Post, priority: int, address: str) -> None:
    given = post.submission(address)
    envelope = dataclasses.replace(given.envelope, priority=priority)
    await post.store.enqueue(dataclasses.replace(given, envelope=envelope))


@pytest.mark.parametrize("step", [1, 16])
async def test_urgent_mail_overtakes_and_starves_nobody(post: Post, step: int) -> None:
    for n in range(6):
        await send_with(post, -n, f"bulk{n}@example.org")
    for n in range(16):
        await send_with(post, 5, f"urgent{n}@example.org")
    bulk = [each.address.startswith("bulk") for each in await post.claim_all(step=step)]
    assert sum(bulk[:16]) == 2
    assert sum(bulk) == 6


async def test_deferred_mail_waits_for_its_time(store: QueueStore, post: Post) -> None:
    due = post.clock.now() + 15 * MINUTE
    recipient = await post.defer_new("a@example.org", due)
    assert await post.claim_all(due - 1) == []
    assert store.next_due() == due
    [claimed] = await post.claim_all(due)
    assert (claimed.key, claimed.area, claimed.attempts) == (recipient.key, Area.DEFERRED, 1)


async def test_due_mail_comes_longest_overdue_first(post: Post) -> None:
    now = post.clock.now()
    waits = [5 * HOUR, HOUR, 3 * HOUR]
    keys = [(await post.defer_new(f"r{wait}@example.org", now + wait)).key for wait in waits]
    claimed = await post.claim_all(now + 6 * HOUR, step=1)
    assert [each.key for each in claimed] == [keys[1], keys[2], keys[0]]


async def _new_and_due(post: Post, each: int) -> int:
    """`each` recipients of both kinds; gives the time at which all are due."""
    due = post.clock.now() + MINUTE
    for n in range(each):
        await post.defer_new(f"old{n}@example.org", due)
    for n in range(each):
        await post.send(f"new{n}@example.org")
    return due


def _imbalance(claimed: list[Recipient]) -> int:
    return abs(sum(1 if each.attempts else -1 for each in claimed))


async def test_new_and_due_mail_alternate_within_a_claim(store: QueueStore, post: Post) -> None:
    due = await _new_and_due(post, 10)
    claimed = list(await store.claim(6, due))
    assert claimed
    assert _imbalance(claimed) <= 1


async def test_new_and_due_mail_alternate_from_claim_to_claim(store: QueueStore, post: Post) -> None:
    due = await _new_and_due(post, 5)
    claimed: list[Recipient] = []
    for _ in range(10):
        claimed += await store.claim(1, due)
        assert _imbalance(claimed) <= 1
    assert len(claimed) == 10


async def test_one_kind_alone_uses_all_the_room(post: Post) -> None:
    due = post.clock.now() + MINUTE
    for n in range(6):
        await post.defer_new(f"old{n}@example.org", due)
    assert len(await post.claim_all(due, step=4)) == 6


async def test_suspended_domains_are_passed_over(store: QueueStore, post: Post) -> None:
    now = post.clock.now()
    sent = await post.send("a@Slow.Example", "b@quick.example", "c@slow.example", "d@quick.example")
    claimed: list[Recipient] = []
    while found := await store.claim(10, now, {"slow.example": now + HOUR}):
        claimed += found
    assert sorted(each.key for each in claimed) == [sent[1].key, sent[3].key]
    assert not store.in_flight(sent[0])


async def test_skipped_mail_comes_untried_when_due(store: QueueStore, post: Post) -> None:
    now = post.clock.now()
    until = now + HOUR
    sent = await post.send("a@slow.example", "b@slow.example")
    assert await store.claim(10, now, {"slow.example": until}) == []
    claimed = await post.claim_all(until)
    assert sorted(each.key for each in claimed) == [each.key for each in sent]
    assert {each.attempts for each in claimed} == {0}


async def test_next_due_counts_the_passed_over_from_their_time(store: QueueStore, post: Post) -> None:
    now = post.clock.now()
    await post.send("a@slow.example")
    assert store.next_due() == 0
    await store.claim(10, now, {"slow.example": now + HOUR})
    assert store.next_due() == now + HOUR


async def test_a_suspension_that_has_ended_holds_nothing_back(store: QueueStore, post: Post) -> None:
    now = post.clock.now()
    [recipient] = await post.send("a@slow.example")
    claimed = await store.claim(10, now, {"slow.example": now})
    assert [each.key for each in claimed] == [recipient.key]


async def test_deferred_mail_of_a_suspended_domain_is_passed_over_too(store: QueueStore, post: Post) -> None:
    due = post.clock.now() + MINUTE
    recipient = await post.defer_new("a@slow.example", due)
    assert await store.claim(10, due, {"slow.example": due + HOUR}) == []
    assert [each.key for each in await post.claim_all(due + HOUR)] == [recipient.key]


async def test_who_is_overdue_is_passed_over_no_longer(store: QueueStore, post: Post) -> None:
    now = post.clock.now()
    old, young = await post.send("old@slow.example", "young@slow.example")
    skip = {"slow.example": now + HOUR}
    assert await store.claim(10, now, skip) == []
    skip = {"slow.example": now + 2 * HOUR}
    claimed = await store.claim(10, now + HOUR, skip, lambda each: each.key == old.key)
    assert [each.key for each in claimed] == [old.key]
    assert [each.key for each in await post.claim_all(now + 2 * HOUR)] == [young.key]


async def test_new_mail_does_not_keep_who_is_overdue_waiting(store: QueueStore, post: Post) -> None:
    now = post.clock.now()
    await post.send(*[f"old{number}@slow.example" for number in range(8)])
    assert await store.claim(10, now, {"slow.example": now + HOUR}) == []
    skip = {"slow.example": now + 2 * HOUR}
    claimed: list[Recipient] = []
    for number in range(16):
        await post.send(*[f"new{number}.{each}@quick.example" for each in range(4)])
        claimed += await store.claim(4, now + HOUR, skip, lambda _: True)
    assert sum(each.domain == "slow.example" for each in claimed) == 8


async def test_recipients_newer_than_the_tables_are_not_overdue(store: QueueStore, post: Post) -> None:
    begun = post.clock.now()
    [old] = await post.send("old@slow.example")
    post.clock.advance(10 * MINUTE)
    [young] = await post.send("young@slow.example")
    skip = {"slow.example": begun + HOUR}
    assert await store.claim(10, post.clock.now(), skip) == []
    skip = {"slow.example": begun + 2 * HOUR}
    asked: list[Recipient] = []

    def overdue(each: Recipient) -> bool:
        asked.append(each)
        return True

    claimed = await store.claim(10, begun + HOUR, skip, overdue, begun + MINUTE)
    assert [each.key for each in claimed] == [each.key for each in asked] == [old.key]
    assert [each.key for each in await post.claim_all(begun + 2 * HOUR)] == [young.key]


async def test_new_mail_of_a_revived_domain_passes_the_old(store: QueueStore, post: Post) -> None:
    until = post.clock.now() + HOUR
    await post.send("old@slow.example")
    assert await store.claim(10, post.clock.now(), {"slow.example": until}) == []
    [new] = await post.send("new@slow.example")
    assert [each.key for each in await post.claim_all()] == [new.key]


async def test_parked_mail_comes_back_untried(store: QueueStore, post: Post, harness: Harness) -> None:
    [recipient] = await post.send("a@example.org")
    [claimed] = await post.claim_all()
    until = post.clock.now() + 5 * MINUTE
    harness.observer.heard.clear()
    await store.park([claimed], until)
    assert not store.in_flight(recipient)
    assert store.next_due() == until
    assert await post.claim_all(until - 1) == []
    [again] = await post.claim_all(until)
    assert (again.key, again.attempts, again.due) == (recipient.key, 0, until)
    assert harness.observer.heard == []


async def test_parking_until_nought_is_at_once(store: QueueStore, post: Post) -> None:
    sent = await post.send("a@example.org", "b@example.org")
    await store.park(await post.claim_all(), 0)
    assert len(await post.claim_all()) == len(sent)


async def test_parking_wakes_the_watchers(store: QueueStore, post: Post) -> None:
    await post.send("a@example.org")
    claimed = await post.claim_all()
    woken: list[int] = []
    store.watch(lambda: woken.append(1))
    await store.park(claimed, 0)
    assert woken


async def test_an_attempt_that_was_begun_may_be_parked(store: QueueStore, post: Post) -> None:
    await post.send("a@example.org")
    claimed = await post.claim_all()
    await store.begin(claimed, "example.org")
    await store.park(claimed, 0)
    [again] = await post.claim_all()
    assert (again.attempts, again.unknowns) == (0, 0)


async def test_what_is_not_claimed_cannot_be_parked(store: QueueStore, post: Post) -> None:
    sent = await post.send("a@example.org")
    with pytest.raises(ValueError, match="not claimed"):
        await store.park(sent, 0)


async def test_one_park_names_a_recipient_once(store: QueueStore, post: Post) -> None:
    await post.send("a@example.org")
    [claimed] = await post.claim_all()
    with pytest.raises(ValueError, match="twice"):
        await store.park([claimed, claimed], 0)
    assert store.in_flight(claimed)
    await post.settle(delivered(), claimed)
    assert await post.scan() == {}


async def test_bounces_are_claimed_apart(store: QueueStore, post: Post) -> None:
    await post.send("a@example.org")
    [claimed] = await post.claim_all()
    await post.settle(bounced(), claimed)
    assert await post.claim_all(post.clock.now() + 100 * HOUR) == []
    assert store.next_due() is None
    [bounce] = await post.claim_bounces()
    assert (bounce.key, bounce.area) == (claimed.key, Area.BOUNCES)
    assert store.in_flight(bounce)
    assert await post.claim_bounces() == []


async def test_no_more_bounces_than_there_is_room_for(store: QueueStore, post: Post) -> None:
    await post.send("a@example.org", "b@example.org", "c@example.org")
    await post.settle(bounced(), *await post.claim_all())
    assert len(await store.claim_bounces(2)) <= 2
    assert await store.claim_bounces(0) == []


async def test_a_parked_bounce_can_be_claimed_again(store: QueueStore, post: Post) -> None:
    await post.send("a@example.org")
    await post.settle(bounced(), *await post.claim_all())
    first = await post.claim_bounces()
    await store.park(first, 0)
    assert await post.claim_bounces() == first


async def test_settled_mail_is_not_due_before_its_verdict_says(store: QueueStore, post: Post) -> None:
    await post.send("a@example.org", "b@example.org")
    first, second = await post.claim_all()
    now = post.clock.now()
    await post.settle(deferred(now + 2 * HOUR), first)
    await post.settle(deferred(now + HOUR), second)
    assert store.next_due() == now + HOUR


async def send_of(post: Post, tenant: str, count: int, domain: str = "x.example") -> None:
    for n in range(count):
        given = post.submission(f"{tenant}{n}@{domain}")
        envelope = dataclasses.replace(given.envelope, listener=tenant)
        await post.store.enqueue(dataclasses.replace(given, envelope=envelope))


class Some:
    """Places for some tenants' new mail beyond the room of a claim."""

    def __init__(self, extra: int = 0, take: str = "", passes: str = "") -> None:
        self.extra = extra
        self._take = take
        self._passes = passes

    def take(self, tenant: str) -> bool:
        return tenant in self._take.split()

    def passes(self, tenant: str, domain: str) -> bool:
        return (tenant, domain) == (self._passes, "slow.example")


def names(recipients: Sequence[Recipient]) -> list[str]:
    return [each.address.partition("@")[0] for each in recipients]


async def test_new_mail_of_tenants_takes_turns(post: Post) -> None:
    await send_of(post, "a", 6)
    await send_of(post, "b", 2)
    assert names(await post.claim_all(step=3)) == ["a0", "b0", "a1", "b1", "a2", "a3", "a4", "a5"]


async def test_due_mail_of_tenants_takes_turns(post: Post) -> None:
    await send_of(post, "a", 6)
    await send_of(post, "b", 2)
    now = post.clock.now()
    for number, each in enumerate(sorted(await post.claim_all(), key=lambda each: each.address)):
        await post.settle(deferred(now + HOUR + number), each)
    await send_of(post, "c", 2)
    post.clock.advance(2 * HOUR)
    found = names(await post.claim_all(step=1))
    assert set(found[:6]) == {"a0", "a1", "b0", "b1", "c0", "c1"}
    assert found[6:] == ["a2", "a3", "a4", "a5"]


async def test_places_beyond_the_room_are_for_some(store: QueueStore, post: Post) -> None:
    await send_of(post, "a", 6)
    await send_of(post, "b", 3)
    await send_of(post, "c", 1)
    now = post.clock.now()
    assert names(await store.claim(0, now, places=Some(3, "b c"))) == ["b0", "c0", "b1"]
    assert names(await store.claim(1, now, places=Some(3, "b"))) == ["a0", "b2"]
    assert names(await store.claim(0, now, places=Some(3, "b"))) == []
    assert names(await post.claim_all()) == ["a1", "a2", "a3", "a4", "a5"]


async def test_some_pass_a_domain_that_is_passed_over(store: QueueStore, post: Post) -> None:
    for tenant in "ab":
        await send_of(post, tenant, 2, "slow.example")
    now = post.clock.now()
    skip = {"slow.example": now + HOUR}
    assert names(await store.claim(9, now, skip, places=Some(passes="b"))) == ["b0", "b1"]
    assert names(await store.claim(9, now + HOUR)) == ["a0", "a1"]


async def test_tenants_take_turns_after_a_restart(harness: Harness, post: Post) -> None:
    await send_of(post, "a", 4)
    given = post.submission("b0@x.example")
    envelope = dataclasses.replace(given.envelope, listener="a", labels="tag=x tenant=b%20c")
    await post.store.enqueue(dataclasses.replace(given, envelope=envelope))
    after = Post(await harness.restart(harness.restarts[-1]), post.clock)
    found: list[Recipient] = []
    while len(found) < 5:
        found.append((await after.claim_next())[1])
    assert names(found)[:2] == ["a0", "b0"]
    assert {each.envelope.tenant for each in found} == {"a", "b c"}

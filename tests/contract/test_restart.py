"""Restarts: nothing is lost, nothing is doubled, and each hidden outcome is counted."""

from __future__ import annotations

from dataclasses import replace

from mqcd.core.events import Verb
from mqcd.core.model import Area
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp.marks import Marks
from tests.contract.harness import HOUR, SCHEDULE, Harness, Restart
from tests.contract.mail import BODY, Post, bounced, chunks, deferred, delivered

Restarting = tuple[Harness, Restart]


async def test_the_queue_comes_back_as_it_was(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await post.send("a@example.org", "b@example.org", "c@example.org", "d@example.org")
    first, second, third, _ = await post.claim_all()
    await post.settle(delivered(), first)
    await post.settle(deferred(post.clock.now() + HOUR, "wait"), second)
    await post.settle(bounced("gone"), third)
    before, figures = await post.scan(), dict(post.store.stats())

    post = Post(await harness.restart(how), harness.clock)
    assert await post.scan() == before
    assert dict(post.store.stats()) == figures
    for record in before.values():
        assert await post.read(record) == BODY


async def test_labels_come_back(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    labels = Marks(message_id="<a@b.example>", tag="100 % |").labels("acme")
    await post.store.enqueue(post.submission("a@example.org", labels=labels))
    post = Post(await harness.restart(how), harness.clock)
    assert [each.envelope.labels for each in await post.claim_all()] == [labels]


async def test_held_mail_stays_held(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    given = post.submission("a@example.org")
    envelope = replace(given.envelope, release=post.clock.now() + HOUR, priority=9)
    await post.store.enqueue(replace(given, envelope=envelope))
    post = Post(await harness.restart(how), harness.clock)
    assert await post.claim_all() == []
    post.clock.advance(HOUR)
    assert [each.envelope for each in await post.claim_all()] == [envelope]


async def test_what_was_claimed_and_not_begun_is_claimed_again(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    sent = await post.send("a@example.org", "b@example.org")
    await post.claim_all()
    post = Post(await harness.restart(how), harness.clock)
    claimed = await post.claim_all()
    assert sorted(each.key for each in claimed) == [each.key for each in sent]
    assert {each.attempts for each in claimed} == {0}
    assert harness.observer.count(Verb.OUTCOME_UNKNOWN) == 0


async def test_an_attempt_without_a_verdict_is_outcome_unknown(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await post.send("a@example.org")
    claimed = await post.claim_all()
    await post.store.begin(claimed, "mx.example.org")
    post = Post(await harness.restart(how), harness.clock)
    [heard] = harness.observer.of(Verb.OUTCOME_UNKNOWN)
    assert heard.recipient is not None
    assert heard.recipient.key == claimed[0].key
    [again] = await post.claim_all()
    assert (again.area, again.attempts, again.unknowns) == (Area.DEFERRED, 1, 1)


async def test_unknown_outcomes_wait_ever_longer(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await post.send("a@example.org")
    waits = []
    for _ in range(4):
        before = harness.clock.now()
        due, claimed = await post.claim_next()
        waits.append(max(due - before, 0))
        await post.store.begin([claimed], "mx.example.org")
        post = Post(await harness.restart(how), harness.clock)
    await post.send("never-hidden@example.org")
    [record] = (await post.scan(Selection(unknowns=4))).values()
    assert record.unknowns == 4
    assert len(await post.scan()) == 2
    assert not await post.scan(Selection(unknowns=5))
    assert waits == [0, 0, SCHEDULE.delays[0], SCHEDULE.delays[-1]]


async def test_a_verdict_ends_the_attempt(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await post.send("a@example.org", "b@example.org")
    first, second = await post.claim_all()
    await post.store.begin([first, second], "mx.example.org")
    await post.settle(delivered(), first)
    await post.store.park([second], 0)
    post = Post(await harness.restart(how), harness.clock)
    assert harness.observer.count(Verb.OUTCOME_UNKNOWN) == 0
    assert [each.key for each in await post.claim_all()] == [second.key]


async def test_claimed_bounces_are_claimed_again(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await post.send("a@example.org")
    await post.settle(bounced(), *await post.claim_all())
    first = await post.claim_bounces()
    post = Post(await harness.restart(how), harness.clock)
    assert await post.claim_bounces() == first


async def test_parked_mail_keeps_its_time(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await post.send("a@example.org")
    until = harness.clock.now() + HOUR
    await post.store.park(await post.claim_all(), until)
    post = Post(await harness.restart(how), harness.clock)
    assert post.store.next_due() == until
    assert await post.claim_all() == []
    assert len(await post.claim_all(until)) == 1


async def test_names_are_never_used_again(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await post.send("a@example.org")
    await post.settle(delivered(), *await post.claim_all())
    last = post.store.reserve(False)
    harness.clock.leap(-HOUR)
    post = Post(await harness.restart(how), harness.clock)
    [recipient] = await post.send("b@example.org")
    assert recipient.spid > last


async def test_big_content_comes_back(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    octets = bytes(range(256)) * 4000
    await post.store.enqueue(post.submission("a@example.org", "b@example.org", content=chunks(octets)))
    first, second = await post.claim_all()
    await post.settle(delivered(), first)
    post = Post(await harness.restart(how), harness.clock)
    assert set(await post.scan()) == {second.key}
    assert await post.read(second) == octets


async def test_transitions_are_not_observed_again(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await post.send("a@example.org")
    await post.settle(deferred(0), *await post.claim_all())
    heard = list(harness.observer.heard)
    await harness.restart(how)
    assert harness.observer.heard == heard

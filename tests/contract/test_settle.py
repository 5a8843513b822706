"""Verdicts: what each makes of a record, and that a call is recorded whole or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from mqcd.core.errors import ConnectFailed
from mqcd.core.events import Verb
from mqcd.core.model import (
    MAX_LAST_WORDS,
    MAX_STORED_REPLY,
    Area,
    Bounced,
    Deferred,
    Discarded,
    Expired,
    Origin,
    Recipient,
    Reported,
    Settlement,
    Verdict,
)
from mqcd.core.ports import QueueStore
from mqcd.core.queueing.transition import LastAttempt, ended_as, last_attempt
from mqcd.core.smtp.reply import Reply
from tests.contract.harness import HOUR, SCHEDULE, Harness, Restart
from tests.contract.mail import ATTEMPT, BODY, Post, bounced, chunks, deferred, delivered, expired

Restarting = tuple[Harness, Restart]


async def _claimed(post: Post, *addresses: str, sender: str = "sender@example.com") -> list[Recipient]:
    await post.send(*addresses or ("a@example.org",), sender=sender)
    return sorted(await post.claim_all(), key=lambda each: each.key)


async def _bounces(post: Post, *addresses: str) -> list[Recipient]:
    await post.settle(bounced(), *await _claimed(post, *addresses))
    return sorted(await post.claim_bounces(), key=lambda each: each.key)


async def test_beginning_is_observed(store: QueueStore, post: Post, harness: Harness) -> None:
    claimed = await _claimed(post, "a@example.org", "b@example.org")
    await store.begin(claimed, "mx.example.org")
    heard = harness.observer.of(Verb.ATTEMPTED)
    assert [each.recipient and each.recipient.key for each in heard] == [each.key for each in claimed]
    assert {each.destination for each in heard} == {"mx.example.org"}


async def test_what_is_not_claimed_cannot_begin(store: QueueStore, post: Post) -> None:
    sent = await post.send("a@example.org")
    with pytest.raises(ValueError, match="not claimed"):
        await store.begin(sent, "mx.example.org")


async def test_the_delivered_leave_the_queue(store: QueueStore, post: Post, harness: Harness) -> None:
    [claimed] = await _claimed(post)
    await store.begin([claimed], "mx.example.org")
    post.clock.advance(700)
    await post.settle(delivered(), claimed)
    assert await post.scan() == {}
    assert not store.in_flight(claimed)
    assert store.next_due() is None
    [heard] = harness.observer.of(Verb.DELIVERED)
    assert heard.recipient is not None
    assert (heard.recipient.key, heard.verdict, heard.at) == (claimed.key, delivered(), post.clock.now())


async def test_the_deferred_keep_what_was_said(store: QueueStore, post: Post, harness: Harness) -> None:
    [claimed] = await _claimed(post)
    due = post.clock.now() + HOUR
    await post.settle(deferred(due, "try later"), claimed)
    [record] = (await post.scan()).values()
    assert (record.area, record.due, record.attempts) == (Area.DEFERRED, due, 1)
    assert (record.code, record.status, record.reply) == (450, "4.2.1", "try later")
    assert record.remote == "mx.example.org"
    assert record.envelope == claimed.envelope
    assert harness.observer.count(Verb.DEFERRED) == 1


async def test_nobody_is_due_later_than_after_the_longest_delay(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    store = await harness.start()
    post = Post(store, harness.clock)
    latest = harness.clock.now() + SCHEDULE.longest
    for name in "abcd":
        await post.send(f"{name}@example.org")
    first, second, third, fourth = await post.claim_all()
    await post.settle(deferred(latest + 1), first)
    await post.settle(deferred(latest), second)
    await store.park([third], latest + 1)
    await store.park([fourth], latest)
    assert [each.due for each in (await post.scan()).values()] == 4 * [latest]
    told = [heard.verdict for heard in harness.observer.of(Verb.DEFERRED)]
    assert [verdict.due for verdict in told if isinstance(verdict, Deferred)] == 2 * [latest]
    post.store = await harness.restart(how)
    assert post.store.next_due() == latest
    assert len(await post.claim_all(latest)) == 4


async def test_observers_hear_of_the_record_that_was_attempted(post: Post, harness: Harness) -> None:
    [claimed] = await _claimed(post)
    due = post.clock.now() + HOUR
    await post.settle(deferred(due), claimed)
    [again] = await post.claim_all(due)
    await post.settle(delivered(), again)
    heard = harness.observer.of(Verb.DEFERRED, Verb.DELIVERED)
    assert [each.recipient and each.recipient.attempts for each in heard] == [0, 1]


async def test_a_stored_reply_is_cut_between_characters(post: Post) -> None:
    await post.send("a@example.org")
    for text in ("x" * 500, "ü" * 300, "a" + "\U0001f4ec" * 100):
        [claimed] = await post.claim_all()
        await post.settle(deferred(0, text), claimed)
        [record] = (await post.scan()).values()
        assert text.startswith(record.reply)
        assert MAX_STORED_REPLY - 4 < len(record.reply.encode()) <= MAX_STORED_REPLY


async def test_attempts_are_counted(post: Post) -> None:
    await post.send("a@example.org")
    for attempts in range(4):
        [claimed] = await post.claim_all()
        assert claimed.attempts == attempts
        await post.settle(deferred(post.clock.now()), claimed)


@pytest.mark.parametrize(("verdict", "verb"), [(bounced, Verb.BOUNCED), (expired, Verb.EXPIRED)])
async def test_the_failed_wait_for_their_report(
    store: QueueStore, post: Post, harness: Harness, verdict: Callable[[], Verdict], verb: Verb
) -> None:
    [claimed] = await _claimed(post)
    woken: list[int] = []
    store.watch(lambda: woken.append(1))
    await post.settle(verdict(), claimed)
    [record] = (await post.scan()).values()
    assert (record.area, record.attempts, record.due) == (Area.BOUNCES, 1, 0)
    assert record.reply
    assert harness.observer.count(verb) == 1
    assert woken
    assert await post.read(record) == BODY


@pytest.mark.parametrize(("verdict", "verb"), [(bounced, Verb.BOUNCED), (expired, Verb.EXPIRED)])
async def test_a_report_that_fails_ends_at_once(
    post: Post, harness: Harness, verdict: Callable[[], Verdict], verb: Verb
) -> None:
    [claimed] = await _claimed(post, sender="")
    await post.settle(verdict(), claimed)
    assert await post.scan() == {}
    assert await post.claim_bounces() == []
    assert [each.verb for each in harness.observer.heard] == [Verb.ACCEPTED, verb]


async def test_recipients_of_one_message_have_verdicts_of_their_own(store: QueueStore, post: Post) -> None:
    first, second, third, fourth = await _claimed(
        post, "a@example.org", "b@example.org", "c@example.org", "d@example.org"
    )
    due = post.clock.now() + HOUR
    await store.settle(
        [
            Settlement(recipient=third, verdict=bounced()),
            Settlement(recipient=first, verdict=delivered()),
            Settlement(recipient=second, verdict=deferred(due)),
        ]
    )
    assert {key: each.area for key, each in (await post.scan()).items()} == {
        second.key: Area.DEFERRED,
        third.key: Area.BOUNCES,
        fourth.key: Area.INCOMING,
    }
    assert store.in_flight(fourth)


async def test_what_is_not_claimed_cannot_be_settled(store: QueueStore, post: Post, harness: Harness) -> None:
    [sent] = await post.send("a@example.org")
    with pytest.raises(ValueError, match="not claimed"):
        await post.settle(delivered(), sent)
    assert set(await post.scan()) == {sent.key}
    assert harness.observer.verbs() == [Verb.ACCEPTED]


async def test_nothing_is_settled_twice(post: Post) -> None:
    [claimed] = await _claimed(post)
    await post.settle(delivered(), claimed)
    with pytest.raises(ValueError, match="not claimed"):
        await post.settle(delivered(), claimed)


async def test_one_call_names_a_recipient_once(store: QueueStore, post: Post) -> None:
    [claimed] = await _claimed(post)
    with pytest.raises(ValueError, match="twice"):
        await post.settle(delivered(), claimed, claimed)
    assert store.in_flight(claimed)


async def test_a_fault_in_one_settlement_spoils_none_of_the_others(
    store: QueueStore, post: Post, harness: Harness
) -> None:
    [claimed] = await _claimed(post)
    [other] = await post.send("b@example.org")
    with pytest.raises(ValueError, match="not claimed"):
        await post.settle(delivered(), claimed, other)
    assert store.in_flight(claimed)
    assert harness.observer.count(Verb.DELIVERED) == 0
    await post.settle(delivered(), claimed)
    assert set(await post.scan()) == {other.key}


async def test_what_has_not_failed_cannot_be_reported(store: QueueStore, post: Post) -> None:
    [claimed] = await _claimed(post)
    for verdict in (Reported(report_spid=1), Discarded(reason="setting")):
        with pytest.raises(ValueError, match="area incoming"):
            await post.settle(verdict, claimed)
        assert store.in_flight(claimed)


async def test_a_bounce_is_not_attempted(store: QueueStore, post: Post) -> None:
    [bounce] = await _bounces(post)
    for verdict in (delivered(), deferred(0), bounced(), expired()):
        with pytest.raises(ValueError, match="area bounces"):
            await post.settle(verdict, bounce)
        assert store.in_flight(bounce)


async def test_a_report_and_the_end_of_its_bounces_are_one(
    store: QueueStore, post: Post, harness: Harness
) -> None:
    bounces = await _bounces(post, "a@example.org", "b@example.org")
    harness.observer.heard.clear()
    report = post.submission("sender@example.com", sender="", origin=Origin.REPORT)
    verdict = Reported(report_spid=report.envelope.spid)
    await store.settle([Settlement(recipient=each, verdict=verdict) for each in bounces], [report])
    [record] = (await post.scan()).values()
    assert (record.spid, record.qid, record.area) == (report.envelope.spid, 1, Area.INCOMING)
    assert record.envelope == report.envelope
    assert await post.read(record) == BODY
    assert sorted(harness.observer.verbs()) == [Verb.ACCEPTED, Verb.REPORTED, Verb.REPORTED]
    assert {each.report_spid for each in harness.observer.of(Verb.REPORTED)} == {record.spid}
    assert [each.key for each in await post.claim_all()] == [record.key]


async def test_a_delay_report_is_committed_with_its_mark(
    restarting: Restarting,
) -> None:
    harness, how = restarting
    store = await harness.start()
    post = Post(store, harness.clock)
    [claimed] = await _claimed(post)
    report = post.submission("sender@example.com", sender="", origin=Origin.REPORT)
    told = replace(deferred(post.clock.now() + HOUR), warning=post.clock.now() + 9 * HOUR)
    await store.settle([Settlement(recipient=claimed, verdict=told)], [report])
    assert {each.address: each.warned for each in (await post.scan()).values()} == {
        "a@example.org": True,
        "sender@example.com": False,
    }
    post = Post(await harness.restart(how), harness.clock)
    again = {each.address: each for each in (await post.scan()).values()}
    assert again["a@example.org"].warned
    assert again["sender@example.com"].envelope.origin is Origin.REPORT
    harness.clock.advance(HOUR)
    claimed_again = [each for each in await post.claim_all() if each.address == "a@example.org"]
    await post.settle(deferred(harness.clock.now() + HOUR), *claimed_again)
    assert (await post.scan())[claimed.key].warned


async def test_a_delivery_and_the_report_on_it_are_one(restarting: Restarting) -> None:
    harness, how = restarting
    store = await harness.start()
    post = Post(store, harness.clock)
    [claimed] = await _claimed(post)
    report = post.submission("sender@example.com", sender="", origin=Origin.REPORT)
    await store.settle([Settlement(recipient=claimed, verdict=delivered())], [report])
    assert harness.observer.count(Verb.DELIVERED) == 1
    post = Post(await harness.restart(how), harness.clock)
    [record] = (await post.scan()).values()
    assert (record.spid, record.area) == (report.envelope.spid, Area.INCOMING)
    assert await post.read(record) == BODY


@pytest.mark.parametrize("make", [bounced, expired])
async def test_a_bounce_keeps_the_last_words_for_its_report(
    restarting: Restarting, make: Callable[[], Bounced | Expired]
) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    [claimed] = await _claimed(post)
    at = harness.clock.now() + 1
    words = "no | such % user; " + "x" * 2000
    reply = Reply(code=550, status="5.1.1", text=words)
    verdict = replace(make(), reply=reply, attempt=replace(ATTEMPT, at=at))
    await post.settle(verdict, claimed)
    post = Post(await harness.restart(how), harness.clock)
    [bounce] = await post.claim_bounces()
    assert last_attempt(bounce) == LastAttempt("mx.example.org", "dot", at, ended_as(bounce))
    assert ended_as(bounce) is (Verb.BOUNCED if isinstance(verdict, Bounced) else Verb.EXPIRED)
    assert bounce.reply == words[:MAX_LAST_WORDS]


async def test_a_settle_takes_several_messages_streamed_or_whole(store: QueueStore, post: Post) -> None:
    [bounce] = await _bounces(post)
    octets = bytes(range(256)) * 3000
    reports = [
        post.submission("a@example.com", sender=""),
        post.submission("b@example.com", "c@example.com", sender="", content=chunks(octets)),
    ]
    verdict = Reported(report_spid=reports[0].envelope.spid)
    await store.settle([Settlement(recipient=bounce, verdict=verdict)], reports)
    records = await post.scan()
    assert {spid for spid, _ in records} == {each.envelope.spid for each in reports}
    assert await post.read(records[reports[1].envelope.spid, 2]) == octets


async def test_a_bounce_stays_when_its_report_cannot_be_taken(
    store: QueueStore, post: Post, harness: Harness
) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * 100_000
        raise ConnectFailed("no more of it")

    [bounce] = await _bounces(post)
    harness.observer.heard.clear()
    report = post.submission("sender@example.com", sender="", content=broken())
    verdict = Reported(report_spid=report.envelope.spid)
    with pytest.raises(ConnectFailed):
        await store.settle([Settlement(recipient=bounce, verdict=verdict)], [report])
    assert set(await post.scan()) == {bounce.key}
    assert store.in_flight(bounce)
    assert harness.observer.heard == []


async def test_a_bounce_may_be_discarded(post: Post, harness: Harness) -> None:
    bounces = await _bounces(post, "a@example.org", "b@example.org")
    await post.settle(Discarded(reason="generate_ndr"), *bounces)
    assert await post.scan() == {}
    assert {each.reason for each in harness.observer.of(Verb.DISCARDED)} == {"generate_ndr"}
    assert harness.observer.count(Verb.DISCARDED) == 2


async def test_possibly_delivered_is_told_to_observers(post: Post, harness: Harness) -> None:
    [claimed] = await _claimed(post)
    verdict = Deferred(reply=deferred(0).reply, attempt=ATTEMPT, due=0, possibly_delivered=True)
    await post.settle(verdict, claimed)
    [heard] = harness.observer.of(Verb.DEFERRED)
    assert heard.verdict == verdict


async def test_calls_take_effect_in_order_when_awaited_later(store: QueueStore, post: Post) -> None:
    first, second = await _claimed(post, "a@example.org", "b@example.org")
    begun = store.begin([first, second], "mx.example.org")
    settled = [
        store.settle([Settlement(recipient=first, verdict=delivered())]),
        store.settle([Settlement(recipient=second, verdict=delivered())]),
    ]
    for each in reversed([begun, *settled]):
        await each
    assert await post.scan() == {}

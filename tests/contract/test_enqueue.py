"""Mail in: what a store takes, how it numbers it, and that it keeps all of it or nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest

from mqcd.core.errors import ConnectFailed, StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Area, Body, Envelope, Origin, Submission
from mqcd.core.ports import QueueStore
from mqcd.core.queueing.spid import is_several
from tests.contract.harness import HOUR, Harness
from tests.contract.mail import BODY, Post, chunks, delivered


async def test_recipients_are_numbered_from_one_in_the_order_given(post: Post) -> None:
    recipients = await post.send("b@example.org", "a@example.org", "b@example.org")
    assert [(each.qid, each.address) for each in recipients] == [
        (1, "b@example.org"),
        (2, "a@example.org"),
        (3, "b@example.org"),
    ]


async def test_a_new_recipient_is_incoming_and_due_at_once(post: Post) -> None:
    [recipient] = await post.send("a@example.org")
    assert recipient.area is Area.INCOMING
    assert (recipient.due, recipient.attempts, recipient.unknowns) == (0, 0, 0)
    assert recipient.size == len(BODY)
    assert await post.scan() == {recipient.key: recipient}


async def test_the_envelope_comes_back_as_it_was_given(store: QueueStore, post: Post) -> None:
    envelope = Envelope(
        spid=store.reserve(True),
        sender='"a|b\\ c"@exämple.org',
        received=post.clock.now(),
        origin=Origin.IMPORT,
        body=Body.EIGHT,
        smtputf8=True,
        zone="bulk",
        listener="SMTP",
        client="2001:db8::1",
        user="someone",
        tls="TLSv1.3",
        dsn="RET=HDRS ENVID=a+20b",
    )
    dsns = ("NOTIFY=FAILURE", "ORCPT=rfc822;a|b")
    await store.enqueue(
        Submission(
            envelope=envelope,
            recipients=["ü|1@example.org", "x@[192.0.2.1]"],
            content=BODY,
            recipient_dsn=dsns,
        )
    )
    claimed = await post.claim_all()
    assert [each.envelope for each in claimed] == [envelope, envelope]
    assert sorted((each.address, each.dsn) for each in claimed) == [
        ("x@[192.0.2.1]", dsns[1]),
        ("ü|1@example.org", dsns[0]),
    ]


def test_a_spid_says_whether_there_are_several_recipients(store: QueueStore) -> None:
    assert is_several(store.reserve(True))
    assert not is_several(store.reserve(False))


def test_spids_grow_also_when_the_clock_goes_back(store: QueueStore, harness: Harness) -> None:
    spids = [store.reserve(False), store.reserve(True)]
    harness.clock.leap(-3_600_000)
    spids += [store.reserve(True), store.reserve(False)]
    assert spids == sorted(set(spids))


async def test_a_reserved_spid_that_is_not_used_never_appears(store: QueueStore, post: Post) -> None:
    unused = store.reserve(False)
    [recipient] = await post.send("a@example.org")
    assert {spid for spid, _ in await post.scan()} == {recipient.spid}
    assert recipient.spid != unused


async def test_acceptance_is_observed_once_for_each_recipient(harness: Harness, post: Post) -> None:
    recipients = await post.send("a@example.org", "b@example.org")
    heard = harness.observer.heard
    assert [each.verb for each in heard] == [Verb.ACCEPTED, Verb.ACCEPTED]
    assert [each.recipient for each in heard] == list(recipients)
    assert {each.at for each in heard} == {harness.clock.now()}


async def test_streamed_content_is_kept_whole(store: QueueStore, post: Post) -> None:
    octets = bytes(range(256)) * 20_000
    [recipient] = await store.enqueue(post.submission("a@example.org", content=chunks(octets, 60_001)))
    assert recipient.size == len(octets)
    assert await post.read(recipient) == octets


async def test_empty_content_is_content(post: Post) -> None:
    [recipient] = await post.send("a@example.org", content=b"")
    assert recipient.size == 0
    assert await post.read(recipient) == b""


@pytest.mark.parametrize("size", [1, 300_000])
async def test_an_iterator_that_breaks_leaves_nothing(
    store: QueueStore, post: Post, harness: Harness, size: int
) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * size
        raise ConnectFailed("the client went away")

    woken: list[int] = []
    store.watch(lambda: woken.append(1))
    with pytest.raises(ConnectFailed, match="went away"):
        await store.enqueue(post.submission("a@example.org", content=broken()))
    assert await post.scan() == {}
    assert await post.claim_all() == []
    assert store.stats()[Area.INCOMING].recipients == 0
    assert harness.observer.heard == []
    assert woken == []


async def test_a_store_that_failed_a_message_takes_the_next(store: QueueStore, post: Post) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * 200_000
        raise ConnectFailed("the client went away")

    with pytest.raises(ConnectFailed):
        await store.enqueue(post.submission("a@example.org", content=broken()))
    [recipient] = await post.send("b@example.org")
    assert await post.read(recipient) == BODY


async def test_a_message_without_recipients_is_a_fault(store: QueueStore, post: Post) -> None:
    with pytest.raises(ValueError, match="recipient"):
        await store.enqueue(post.submission())


async def test_a_spid_that_contradicts_the_recipients_is_a_fault(store: QueueStore, post: Post) -> None:
    envelope = Envelope(spid=store.reserve(False), sender="", received=post.clock.now())
    submission = Submission(envelope=envelope, recipients=["a@example.org", "b@example.org"], content=BODY)
    with pytest.raises(ValueError, match="SPID"):
        await store.enqueue(submission)


async def test_a_closed_store_takes_nothing(store: QueueStore, post: Post) -> None:
    submission = post.submission("a@example.org")
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.enqueue(submission)


async def test_new_mail_wakes_the_watchers(store: QueueStore, post: Post) -> None:
    first: list[int] = []
    second: list[int] = []
    store.watch(lambda: first.append(1))
    store.watch(lambda: second.append(1))
    await post.send("a@example.org")
    assert first
    assert second


async def test_mail_is_held_until_its_release(post: Post) -> None:
    release = post.clock.now() + HOUR
    given = post.submission("a@example.org", "b@example.org", content=chunks(BODY))
    envelope = dataclasses.replace(given.envelope, release=release, priority=-4)
    await post.store.enqueue(dataclasses.replace(given, envelope=envelope))
    assert await post.claim_all() == []
    assert post.store.next_due() == release
    waiting = (await post.scan()).values()
    assert {(each.area, each.due, each.attempts) for each in waiting} == {(Area.DEFERRED, release, 0)}
    post.clock.advance(HOUR)
    assert [each.envelope for each in await post.claim_all()] == [envelope, envelope]


async def test_a_release_that_has_passed_holds_nothing(post: Post) -> None:
    given = post.submission("a@example.org")
    envelope = dataclasses.replace(given.envelope, release=post.clock.now())
    await post.store.enqueue(dataclasses.replace(given, envelope=envelope))
    assert [(each.area, each.due) for each in await post.claim_all()] == [(Area.INCOMING, 0)]


@pytest.mark.parametrize("content", [BODY, BODY * 5000])
async def test_a_spid_names_one_message_for_ever(store: QueueStore, post: Post, content: bytes) -> None:
    first = post.submission("a@example.org", content=content)
    [recipient] = await store.enqueue(first)
    with pytest.raises(ValueError, match="SPID"):
        await store.enqueue(dataclasses.replace(first, content=b"x" * len(content)))
    [claimed] = await post.claim_all()
    assert claimed.key == recipient.key
    assert await post.read(claimed) == content
    await post.settle(delivered(), claimed)
    with pytest.raises(ValueError, match="SPID"):
        await store.enqueue(first)
    assert await post.claim_all() == []


async def test_a_spid_that_was_not_reserved_is_refused(store: QueueStore, post: Post) -> None:
    envelope = Envelope(spid=store.reserve(False) + 64, sender="", received=post.clock.now())
    with pytest.raises(ValueError, match="SPID"):
        await store.enqueue(Submission(envelope=envelope, recipients=["a@example.org"], content=BODY))
    assert await post.claim_all() == []


async def test_a_message_that_failed_may_come_again(store: QueueStore, post: Post) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield BODY
        raise ConnectionResetError

    submission = post.submission("a@example.org", content=broken())
    with pytest.raises(ConnectionResetError):
        await store.enqueue(submission)
    [recipient] = await store.enqueue(dataclasses.replace(submission, content=BODY))
    assert await post.read((await post.claim_all())[0]) == BODY
    assert recipient.spid == submission.envelope.spid

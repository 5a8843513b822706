"""The memory store's own matters; all else is the contract's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Area, Envelope, Recipient, Reported, Settlement
from mqcd.stores.memory import MemoryStore
from mqcd.stores.tally import Tally
from tests.contract.mail import Post, bounced, chunks, delivered
from tests.fakes.clock import FakeClock
from tests.fakes.observer import RecordingObserver


@pytest.fixture
def observer() -> RecordingObserver:
    return RecordingObserver()


@pytest.fixture
async def post(observer: RecordingObserver) -> Post:
    clock = FakeClock()
    store = MemoryStore(clock, observer, max_octets=100)
    await store.open()
    return Post(store, clock)


async def test_a_full_store_accepts_again_when_mail_has_left(post: Post, observer: RecordingObserver) -> None:
    await post.send("a@example.org", content=b"x" * 60)
    with pytest.raises(StoreUnavailable, match="100 octets"):
        await post.send("b@example.org", content=b"x" * 41)
    assert observer.count(Verb.ACCEPTED) == 1
    await post.settle(delivered(), *await post.claim_all())
    await post.send("b@example.org", content=b"x" * 100)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_report_that_does_not_fit_leaves_its_bounce(
    post: Post, observer: RecordingObserver, streamed: bool
) -> None:
    await post.send("a@example.org", content=b"x" * 60)
    await post.settle(bounced(), *await post.claim_all())
    [bounce] = await post.claim_bounces()
    content = chunks(b"y" * 41) if streamed else b"y" * 41
    report = post.submission("sender@example.com", sender="", content=content)
    settlement = Settlement(recipient=bounce, verdict=Reported(report_spid=report.envelope.spid))
    with pytest.raises(StoreUnavailable):
        await post.store.settle([settlement], [report])
    assert post.store.in_flight(bounce)
    assert observer.count(Verb.REPORTED) == 0


async def test_a_store_closed_while_content_arrives_keeps_none_of_it(post: Post) -> None:
    async def closing() -> AsyncIterator[bytes]:
        yield b"x"
        await post.store.close()
        yield b"y"

    with pytest.raises(StoreUnavailable, match="closed"):
        await post.store.enqueue(post.submission("a@example.org", content=closing()))
    await post.store.open()
    assert post.store.stats()[Area.INCOMING].recipients == 0


async def test_dsn_parameters_come_for_all_recipients_or_none(post: Post) -> None:
    submission = post.submission("a@example.org", "b@example.org", dsn=["NOTIFY=NEVER"])
    with pytest.raises(ValueError, match="DSN"):
        await post.store.enqueue(submission)


async def test_a_closed_handle_gives_nothing(post: Post) -> None:
    [recipient] = await post.send("a@example.org")
    content = await post.store.content(recipient)
    content.close()
    with pytest.raises(ValueError, match="closed"):
        await content.read(1)


async def test_opening_an_open_store_changes_nothing(post: Post) -> None:
    [recipient] = await post.send("a@example.org")
    await post.claim_all()
    await post.store.open()
    assert post.store.in_flight(recipient)


def test_a_tally_forgets_mail_passing_an_old_recipient() -> None:
    def record(spid: int) -> Recipient:
        envelope = Envelope(spid=spid, sender="", received=spid)
        return Recipient(envelope=envelope, size=1, qid=1, address="a@example.org")

    tally = Tally()
    tally.add(record(1))
    for spid in range(2, 1000):
        tally.add(record(spid))
        tally.remove(record(spid))
    assert tally.stats().oldest == 1
    assert len(tally._oldest) < 100


async def test_content_of_a_message_that_left_cannot_be_had(post: Post) -> None:
    [recipient] = await post.send("a@example.org", content=b"x")
    await post.settle(delivered(), *await post.claim_all())
    with pytest.raises(StoreUnavailable, match="not in the queue"):
        await post.store.content(recipient)

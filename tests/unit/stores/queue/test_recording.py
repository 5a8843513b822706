"""Verdicts of several messages of which another node has one, in a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Origin, Recipient, Settlement, Submission
from mqcd.stores.queue.stored_queue import StoredQueue
from tests.contract.harness import SCHEDULE
from tests.contract.mail import BODY, Post, chunks, delivered
from tests.fakes.clock import FakeClock
from tests.fakes.observer import RecordingObserver
from tests.fakes.shared_store import LEASE_MS, SharedStore, SharedWorld

OTHER = 77
"""The session of another node."""


class Node:
    """A server with two messages under way: it reports to their sender that they were delivered."""

    def __init__(self) -> None:
        self.world = SharedWorld()
        self.world.leases[OTHER] = 9, 1 << 60
        self.clock, self.observer = FakeClock(), RecordingObserver()
        self.queue = StoredQueue(SharedStore(self.world), self.clock, self.observer, SCHEDULE)
        self.post = Post(self.queue, self.clock)
        self.sent: list[Recipient] = []

    def lose(self) -> None:
        """Another node has the first message now."""
        self.world.messages[self.sent[0].spid].owner = OTHER

    async def start(self) -> None:
        await self.queue.open()
        await self.queue.recovered()
        for addresses in (("lost@example.org", "lost@example.net"), ("own@example.org",)):
            self.sent += await self.post.send(*addresses)
        await self.queue.begin(await self.post.claim_all(), "mx.example.org")

    def report(self, content: bytes | AsyncIterator[bytes] = BODY) -> Submission:
        return self.post.submission("sender@example.com", sender="", origin=Origin.REPORT, content=content)

    async def settle(self, sent: Sequence[Recipient], *reports: Submission) -> None:
        await self.queue.settle([Settlement(recipient=each, verdict=delivered()) for each in sent], reports)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    made = Node()
    await made.start()
    yield made
    await made.queue.close()


@pytest.mark.parametrize("streamed", [False, True])
async def test_verdicts_count_without_those_of_a_lost_message(node: Node, streamed: bool) -> None:
    lost, _, own = node.sent
    node.lose()
    report = node.report(chunks(BODY, 9) if streamed else BODY)
    await node.settle(node.sent, report)
    assert [heard.recipient for heard in node.observer.of(Verb.DELIVERED)] == [own]
    assert node.world.messages.keys() == {lost.spid, report.envelope.spid}
    assert [each.spid for each in await node.post.claim_all()] == [report.envelope.spid]


@pytest.mark.parametrize("alone", [False, True])
async def test_a_message_may_be_lost_while_a_report_is_staged(node: Node, alone: bool) -> None:
    lost, second, own = node.sent
    staged, lost_now = asyncio.Event(), asyncio.Event()

    async def content() -> AsyncIterator[bytes]:
        staged.set()
        await lost_now.wait()
        yield BODY

    report = node.report(content())
    settling = asyncio.ensure_future(node.settle([lost] if alone else [lost, own], report))
    await staged.wait()
    node.lose()
    await node.settle([second])
    lost_now.set()
    await settling
    assert [heard.recipient for heard in node.observer.of(Verb.DELIVERED)] == ([] if alone else [own])
    assert (report.envelope.spid in node.world.contents) is not alone
    assert not node.queue.in_flight(lost)


async def test_a_report_goes_that_replaces_lost_messages_alone(node: Node) -> None:
    lost, second, own = node.sent
    node.lose()
    with pytest.raises(StoreUnavailable):
        await node.settle([lost, second], node.report())
    await node.settle([lost, second], node.report())
    await node.settle([own])
    assert node.world.messages.keys() == {lost.spid}


async def test_nothing_ends_without_the_report_on_it(node: Node) -> None:
    node.world.now += LEASE_MS
    with pytest.raises(StoreUnavailable):
        await node.settle(node.sent, node.report())
    await node.settle(node.sent, node.report())
    await node.clock.run_for(LEASE_MS)
    assert set(await node.post.scan()) == {each.key for each in node.sent}
    assert node.observer.count(Verb.DELIVERED) == 0

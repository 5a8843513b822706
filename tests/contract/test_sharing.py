"""Several nodes on one store, their clocks an hour apart, killed and cut off at any moment.

Each history is checked: a message has one owner at a time, a recipient is attempted by one node at a time, a
second delivery follows an outcome-unknown, and nothing is lost.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Recipient, Settlement
from mqcd.stores.queue.stored_queue import StoredQueue
from mqcd.stores.queue.taking import POLL_MS
from tests.contract.harness import HOUR, SCHEDULE
from tests.contract.mail import Post, deferred, delivered
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.observer import RecordingObserver
from tests.fakes.shared_store import LEASE_MS, SharedStore, SharedWorld

NODES, STEPS = 3, 1500
WEIGHTS = (12, 20, 20, 32, 4, 10, 1)
"""How often each step of a history comes."""
SPANS = (POLL_MS, LEASE_MS // 2, LEASE_MS + 10 * POLL_MS)
Key = tuple[int, int]


class Node:
    """One server, with a clock of its own."""

    def __init__(self, world: SharedWorld, skew: int) -> None:
        self.clock = FakeClock(START_MS + skew)
        self.observer = RecordingObserver()
        self.store = SharedStore(world)
        self.queue = StoredQueue(self.store, self.clock, self.observer, SCHEDULE)
        self.post = Post(self.queue, self.clock)
        self.claimed: list[Recipient] = []
        self.begun: dict[Key, Recipient] = {}
        self.accepted: set[Key] = set()

    async def start(self) -> None:
        await self.queue.open()
        await self.queue.recovered()

    async def enqueue(self, domain: str) -> None:
        try:
            taken = await self.post.send(f"a@{domain}", f"b@{domain}")
        except StoreUnavailable:
            return
        self.accepted |= {each.key for each in taken}

    async def claim(self) -> None:
        self.claimed += await self.queue.claim(2, self.clock.now())

    async def begin(self) -> None:
        """The attempts of what was claimed, perhaps long ago."""
        claimed, self.claimed = self.claimed, []
        if not claimed:
            return
        try:
            await self.queue.begin(claimed, "mx.example")
        except StoreUnavailable:
            await self._give_back(claimed)
            return
        self.begun |= {each.key: each for each in claimed}

    async def _give_back(self, claimed: Sequence[Recipient]) -> None:
        try:
            await self.queue.park(claimed, 0)
        except StoreUnavailable:
            self.claimed += claimed

    async def settle(self, good: bool) -> None:
        if not self.begun:
            return
        key, recipient = next(iter(self.begun.items()))
        verdict = delivered() if good else deferred(self.clock.now() + HOUR)
        try:
            await self.queue.settle([Settlement(recipient=recipient, verdict=verdict)])
        except StoreUnavailable:
            return
        del self.begun[key]


async def pass_time(world: SharedWorld, ms: int, *nodes: Node) -> None:
    """For the server and these nodes alike."""
    for _ in range(ms // POLL_MS):
        world.now += POLL_MS
        for node in nodes:
            await node.clock.run_for(POLL_MS)


class History:
    """What was seen of all nodes, dead ones included."""

    def __init__(self) -> None:
        self.accepted: set[Key] = set()
        self.observers: list[RecordingObserver] = []

    def keep(self, node: Node) -> None:
        self.accepted |= node.accepted
        self.observers.append(node.observer)

    def count(self, *verbs: Verb) -> dict[Key, int]:
        found: dict[Key, int] = {}
        for observer in self.observers:
            for heard in observer.of(*verbs):
                if heard.recipient is not None:
                    found[heard.recipient.key] = found.get(heard.recipient.key, 0) + 1
        return found


class Cluster:
    """Nodes that come and go."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world, self.history = SharedWorld(), History()
        self.nodes: list[Node] = []

    async def fresh(self) -> Node:
        node = Node(self.world, self.chance.choice([-HOUR, 0, HOUR]))
        await node.start()
        return node

    async def step(self) -> None:
        """Something happens to a node, or time passes."""
        at = self.chance.randrange(NODES)
        node = self.nodes[at]
        match self.chance.choices(("enqueue", "claim", "begin", "settle", "time", "cut", "kill"), WEIGHTS)[0]:
            case "enqueue":
                await node.enqueue(f"d{self.chance.randrange(4)}.example")
            case "claim":
                await node.claim()
            case "begin":
                await node.begin()
            case "settle":
                await node.settle(self.chance.random() < 0.8)
            case "time":
                await pass_time(self.world, self.chance.choice(SPANS), *self.nodes)
            case "cut":
                node.store.cut = not node.store.cut
            case "kill":
                self.kill(node)
                self.nodes[at] = await self.fresh()

    def kill(self, node: Node) -> None:
        node.store.cut = True
        self.history.keep(node)


@pytest.mark.parametrize("seed", range(12))
async def test_nodes_share_a_queue(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.nodes = [await cluster.fresh() for _ in range(NODES)]
    for _ in range(STEPS):
        await cluster.step()
    for node in cluster.nodes:
        cluster.kill(node)
    cluster.world.now += LEASE_MS
    last = await cluster.fresh()
    cluster.history.keep(last)
    left = set(await last.post.scan())
    await last.queue.close()

    history = cluster.history
    accepted, seen = history.accepted, history.count(Verb.DELIVERED)
    unknown = history.count(Verb.OUTCOME_UNKNOWN)
    ends = history.count(Verb.DELIVERED, Verb.DEFERRED, Verb.OUTCOME_UNKNOWN)
    assert history.count(Verb.ATTEMPTED) == ends
    assert accepted - set(seen) <= left
    assert {key for key, times in seen.items() if times > 1 + unknown.get(key, 0)} == set()
    assert {key for key in left if key in seen and key not in unknown} == set()
    assert len(accepted) > STEPS // 20


async def test_a_node_that_closes_leaves_its_mail_at_once() -> None:
    world = SharedWorld()
    first, second = Node(world, 0), Node(world, HOUR)
    await first.start()
    await second.start()
    await first.enqueue("example.org")
    await first.queue.close()
    await pass_time(world, POLL_MS, second)
    assert set(await second.post.scan()) == first.accepted
    await second.queue.close()


async def test_a_live_nodes_mail_is_its_own() -> None:
    world = SharedWorld()
    first, second = Node(world, 0), Node(world, 0)
    await first.start()
    await second.start()
    await first.enqueue("example.org")
    await pass_time(world, 2 * LEASE_MS, first, second)
    assert await second.post.scan() == {}
    assert set(await first.post.scan()) == first.accepted
    assert first.store.node != second.store.node
    for node in (first, second):
        await node.queue.close()


async def test_a_verdict_after_the_lease_counts_for_nothing() -> None:
    world = SharedWorld()
    first, second = Node(world, 0), Node(world, 0)
    await first.start()
    await second.start()
    await first.enqueue("example.org")
    await first.claim()
    await first.begin()
    first.store.cut = True
    await pass_time(world, 2 * LEASE_MS, second)
    assert second.observer.count(Verb.OUTCOME_UNKNOWN) == 2
    first.store.cut = False
    await first.settle(good=True)
    assert first.observer.count(Verb.DELIVERED) == 0
    assert await first.post.scan() == {}
    assert len(await second.post.scan()) == 2
    await second.claim()
    await second.begin()
    await second.settle(good=True)
    assert second.observer.count(Verb.DELIVERED) == 1
    for node in (first, second):
        await node.queue.close()


async def test_a_begin_after_the_lease_is_refused() -> None:
    world = SharedWorld()
    first, second = Node(world, 0), Node(world, 0)
    await first.start()
    await second.start()
    await first.enqueue("example.org")
    claimed = await first.queue.claim(2, first.clock.now())
    first.store.cut = True
    await pass_time(world, 2 * LEASE_MS, second)
    first.store.cut = False
    with pytest.raises(StoreUnavailable):
        await first.queue.begin(claimed, "mx.example")
    await first.queue.park(claimed, 0)
    assert await first.queue.claim(2, first.clock.now()) == []
    for node in (first, second):
        await node.queue.close()

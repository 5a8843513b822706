"""Several nodes on one store, their clocks an hour apart, killed and cut off at any moment.

Each history is checked: a message has one owner at a time, a recipient is attempted by one node at a time, a
second delivery follows an outcome-unknown, nothing is lost, and no recipient ends without the report on it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Origin, Recipient, Settlement
from mqcd.core.selecting.selection import Selection
from mqcd.stores.queue.state import TRY_AGAIN_MS
from mqcd.stores.queue.stored_queue import StoredQueue
from mqcd.stores.queue.taking import POLL_MS
from tests.contract.harness import HOUR, SCHEDULE
from tests.contract.mail import Post, deferred, delivered
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.observer import RecordingObserver
from tests.fakes.shared_store import LEASE_MS, SharedStore, SharedWorld

NODES, STEPS = 3, 1500
LOOPS = 4
"""Turns of the event loop in which a step does what it can."""
ENDS_S = 60
WEIGHTS = {"enqueue": 12, "claim": 20, "begin": 20, "settle": 32, "time": 4, "cut": 10, "kill": 1}
"""How often each step of a history comes."""
LATE_WEIGHTS = {**WEIGHTS, "slow": 4, "arrive": 15, "answer": 15}
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
        self.sent: set[Key] = set()
        """The next hop has them."""
        self.reports: dict[int, Sequence[Key]] = {}
        """Which recipients each report is about, also one that the store refused."""
        self.steps: set[asyncio.Future[None]] = set()

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

    def start_step(self, step: Coroutine[None, None, None]) -> None:
        self.steps = {each for each in self.steps if not each.done()} | {asyncio.ensure_future(step)}

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

    async def settle(self, good: bool, report: bool = False) -> None:
        """One recipient; or two, with a report on them."""
        keys = list(self.begun)[: 2 if report else 1]
        if not keys:
            return
        begun = {key: self.begun.pop(key) for key in keys}
        if good:
            self.sent.update(keys)
        verdict = delivered() if good else deferred(self.clock.now() + HOUR)
        made = [self.post.submission("r@d0.example", sender="", origin=Origin.REPORT)] if report else []
        self.reports |= {each.envelope.spid: keys for each in made}
        try:
            await self.queue.settle([Settlement(recipient=begun[key], verdict=verdict) for key in keys], made)
        except StoreUnavailable:
            self.begun |= begun

    async def come_to_rest(self) -> None:
        """The network is well again: end all attempts, and give back what else is claimed."""
        self.store.cut = self.store.slow = False
        self.store.answer()
        await asyncio.wait_for(asyncio.gather(*self.steps), ENDS_S)
        while self.begun:
            await self.settle(good=False)
        await self.queue.park(self.claimed, 0)
        self.claimed = []


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
        self.sent: set[Key] = set()
        self.reports: dict[int, Sequence[Key]] = {}
        self.observers: list[RecordingObserver] = []

    def keep(self, node: Node) -> None:
        self.accepted |= node.accepted
        self.sent |= node.sent
        self.reports |= node.reports
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

    def __init__(self, seed: int, weights: Mapping[str, int]) -> None:
        self.weights = weights
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
        node, store = self.nodes[at], self.nodes[at].store
        match self.chance.choices(list(self.weights), list(self.weights.values()))[0]:
            case "time":
                await pass_time(self.world, self.chance.choice(SPANS), *self.nodes)
            case "kill":
                self.kill(node)
                self.nodes[at] = await self.fresh()
            case "cut":
                store.cut = not store.cut
            case "slow":
                store.slow = not store.slow
            case "arrive":
                store.arrive()
            case "answer":
                store.answer()
            case step:
                node.start_step(self.work(node, step))
        for _ in range(LOOPS):
            await asyncio.sleep(0)

    def work(self, node: Node, step: str) -> Coroutine[None, None, None]:
        match step:
            case "enqueue":
                return node.enqueue(f"d{self.chance.randrange(4)}.example")
            case "claim":
                return node.claim()
            case "begin":
                return node.begin()
            case _:
                good = self.chance.random() < 0.8
                return node.settle(good, report=good)

    async def come_to_rest(self) -> None:
        """No node has anything in flight, and each takes mail."""
        for node in self.nodes:
            await node.come_to_rest()
        await pass_time(self.world, 2 * LEASE_MS, *self.nodes)
        for node in self.nodes:
            assert [each async for each in node.queue.scan(Selection()) if node.queue.in_flight(each)] == []
            before = len(node.accepted)
            await node.enqueue("d.example")
            assert len(node.accepted) == before + 2

    def kill(self, node: Node) -> None:
        node.store.cut = True
        self.history.keep(node)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("seed", range(6))
async def test_nodes_share_a_queue(seed: int, late: bool) -> None:
    """`late`: writes come late to the server, and their answers to the node."""
    cluster = Cluster(seed, LATE_WEIGHTS if late else WEIGHTS)
    cluster.nodes = [await cluster.fresh() for _ in range(NODES)]
    for _ in range(STEPS):
        await cluster.step()
    await cluster.come_to_rest()
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
    # A node whose answer comes too late does not hear of an attempt, or of its end, that the server has.
    assert late or history.count(Verb.ATTEMPTED) == ends
    assert accepted - (history.sent if late else set(seen)) <= left
    assert {key for key, times in seen.items() if times > 1 + unknown.get(key, 0)} == set()
    assert {key for key in left if key in seen and key not in unknown} == set()
    known = {spid for spid, _ in [*left, *history.count(*Verb)]}
    reported = {key for spid, keys in history.reports.items() if spid in known for key in keys}
    assert {key for keys in history.reports.values() for key in keys} <= reported | left
    assert len(accepted) > STEPS // (25 if late else 20)


@pytest.fixture
def world() -> SharedWorld:
    return SharedWorld()


@pytest.fixture
async def first(world: SharedWorld) -> AsyncIterator[Node]:
    node = Node(world, 0)
    await node.start()
    yield node
    await node.queue.close()


@pytest.fixture
async def second(world: SharedWorld, first: Node) -> AsyncIterator[Node]:
    node = Node(world, 0)
    await node.start()
    yield node
    await node.queue.close()


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


async def test_a_live_nodes_mail_is_its_own(world: SharedWorld, first: Node, second: Node) -> None:
    await first.enqueue("example.org")
    await pass_time(world, 2 * LEASE_MS, first, second)
    assert await second.post.scan() == {}
    assert set(await first.post.scan()) == first.accepted
    assert first.store.node != second.store.node


async def test_a_verdict_after_the_lease_counts_for_nothing(
    world: SharedWorld, first: Node, second: Node
) -> None:
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


async def test_a_begin_after_the_lease_is_refused(world: SharedWorld, first: Node, second: Node) -> None:
    await first.enqueue("example.org")
    claimed = await first.queue.claim(2, first.clock.now())
    first.store.cut = True
    await pass_time(world, 2 * LEASE_MS, second)
    first.store.cut = False
    with pytest.raises(StoreUnavailable):
        await first.queue.begin(claimed, "mx.example")
    await first.queue.park(claimed, 0)
    assert await first.queue.claim(2, first.clock.now()) == []


async def test_verdicts_that_wait_when_the_lease_is_lost_end(
    world: SharedWorld, first: Node, second: Node
) -> None:
    await first.enqueue("example.org")
    await first.claim()
    await first.begin()
    first.store.slow = True
    first.start_step(first.settle(good=True))
    first.start_step(first.settle(good=True))
    await asyncio.sleep(0)
    first.store.cut = True
    await pass_time(world, 2 * LEASE_MS, second)
    await first.come_to_rest()
    assert first.observer.count(Verb.DELIVERED) == 0
    assert second.observer.count(Verb.OUTCOME_UNKNOWN) == 2
    await pass_time(world, LEASE_MS, first, second)
    await first.enqueue("example.org")
    assert len(await first.post.scan()) == 2


async def test_mail_that_comes_back_waits_for_the_end_of_its_old_claim() -> None:
    world = SharedWorld()
    node = Node(world, 0)
    await node.start()
    await node.enqueue("example.org")
    await node.claim()
    await node.begin()
    world.now += 2 * LEASE_MS
    await node.clock.run_for(LEASE_MS)
    assert node.observer.count(Verb.OUTCOME_UNKNOWN) == 2
    later = node.clock.now() + HOUR
    assert await node.queue.claim(2, later) == []
    await node.settle(good=True)
    await node.settle(good=True)
    assert node.observer.count(Verb.DELIVERED) == 0
    assert len(await node.queue.claim(2, later)) == 2
    await node.queue.close()


async def test_attempts_of_a_dead_node_end_once_that_can_be_written(
    world: SharedWorld, first: Node, second: Node
) -> None:
    await first.enqueue("example.org")
    await first.claim()
    await first.begin()
    first.store.cut = second.store.slow = True
    await pass_time(world, 2 * LEASE_MS, second)
    assert second.observer.count(Verb.OUTCOME_UNKNOWN) == 0
    second.store.cut = True
    second.store.answer()
    await asyncio.sleep(0)
    second.store.cut = second.store.slow = False
    await pass_time(world, LEASE_MS, second)
    assert second.observer.count(Verb.OUTCOME_UNKNOWN) == 2


async def refused(node: Node) -> None:
    """A message of which the server has all, and the client no answer."""
    node.store.slow = True
    node.start_step(node.enqueue("example.org"))
    await asyncio.sleep(0)
    node.store.arrive()
    node.store.cut, node.store.slow = True, False
    node.store.answer()
    await asyncio.gather(*node.steps)
    assert not node.accepted
    node.store.cut = False


@pytest.mark.parametrize("cut_off_ms", [0, LEASE_MS + POLL_MS])
async def test_refused_mail_is_removed_when_the_network_is_back(cut_off_ms: int) -> None:
    world = SharedWorld()
    node = Node(world, 0)
    await node.start()
    await refused(node)
    assert world.messages
    # With its lease it loses what it has, and takes it again.
    world.now += cut_off_ms
    await pass_time(world, 2 * TRY_AGAIN_MS + LEASE_MS, node)
    assert not world.messages
    await node.queue.close()


async def test_refused_mail_that_arrives_late_is_removed() -> None:
    world = SharedWorld()
    node = Node(world, 0)
    await node.start()
    await refused(node)
    late = dict(world.messages)
    await pass_time(world, TRY_AGAIN_MS, node)
    assert not world.messages
    world.messages.update(late)
    await pass_time(world, TRY_AGAIN_MS, node)
    assert not world.messages
    await node.queue.close()

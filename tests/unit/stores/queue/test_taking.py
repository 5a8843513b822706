"""A node that takes mail: for longer than its lease lasts, mail that is damaged, when it must begin again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from mqcd.core.errors import StoreBusy, StoreDamaged, StoreUnavailable
from mqcd.stores.backend import Marks, Stored
from mqcd.stores.queue.message import KEY_SLOT
from mqcd.stores.queue.taking import POLL_MS
from tests.fakes.shared_store import LEASE_MS, SharedStore, SharedWorld
from tests.unit.stores.node import StoreNode

MESSAGES = 6


class Large(SharedStore):
    """Each message takes a third of a lease, as do some that belong to living nodes."""

    def __init__(self, world: SharedWorld, others: int = 0, failures: int = 0) -> None:
        super().__init__(world)
        self.node_of_test: StoreNode[Large] | None = None
        self.others = others
        self.failures = failures
        """So often its lease cannot be renewed."""

    async def take(self, most: int) -> Sequence[Stored] | None:
        self.others -= 1
        taken = await super().take(1) if self.others < 0 else None
        if self.node_of_test is not None and (taken is None or taken):
            self._world.now += LEASE_MS // 3
            self.node_of_test.clock.advance(LEASE_MS // 3)
        return taken

    async def renew(self) -> Marks | None:
        self.failures -= 1
        if self.failures >= 0:
            raise StoreUnavailable("503 SlowDown")
        return await super().renew()


@dataclass(frozen=True, kw_only=True)
class Left:
    """What a killed node has left, and the node that takes it."""

    killed: StoreNode[SharedStore]
    sent: set[tuple[int, int]]
    node: StoreNode[Large]

    async def close(self) -> None:
        for each in (self.node, self.killed):
            await each.queue.close()


async def leave(others: int, failures: int) -> Left:
    world = SharedWorld()
    killed = StoreNode(SharedStore(world))
    post = await killed.start()
    sent = {each.key for _ in range(MESSAGES) for each in await post.send("a@example.org")}
    killed.store.cut = True
    world.now += 2 * LEASE_MS
    node = StoreNode(Large(world, others, failures))
    node.store.node_of_test = node
    return Left(killed=killed, sent=sent, node=node)


@pytest.mark.parametrize("others", [0, MESSAGES])
@pytest.mark.parametrize("failures", [0, 1])
async def test_a_node_keeps_its_lease_while_it_reads_the_queue(
    others: int, failures: int, caplog: pytest.LogCaptureFixture
) -> None:
    left = await leave(others, failures)
    post = await left.node.start()
    assert set(await post.scan()) == left.sent
    await left.node.clock.run_for(LEASE_MS)
    assert len(caplog.records) == failures
    await left.close()


async def test_a_start_fails_whose_lease_is_over() -> None:
    left = await leave(0, MESSAGES)
    with pytest.raises(StoreUnavailable):
        await left.node.start()
    await left.close()


async def test_a_start_fails_that_must_begin_again_where_no_number_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def renew() -> Marks | None:
        raise StoreBusy("256 nodes use this store")

    left = await leave(0, 0)
    monkeypatch.setattr(left.node.store, "renew", renew)
    with pytest.raises(StoreUnavailable, match="256"):
        await left.node.start()
    await left.close()


@pytest.mark.parametrize("number", [1, KEY_SLOT])
async def test_a_damaged_message_does_not_end_a_node(number: int, caplog: pytest.LogCaptureFixture) -> None:
    world = SharedWorld()
    killed, node = StoreNode(SharedStore(world)), StoreNode(SharedStore(world))
    post = await killed.start()
    await node.start()
    [damaged] = await post.send("a@example.org")
    [whole] = await post.send("b@example.org")
    world.messages[damaged.spid].values = {number: b"-nonsense\n"}
    killed.store.cut = True
    world.leases.clear()
    await node.clock.run_for(LEASE_MS + POLL_MS)
    assert {record.levelname for record in caplog.records} == {"WARNING", "ERROR"}
    assert f"{damaged.spid:016X}" in caplog.text
    assert set(await node.post.scan()) == {whole.key}
    await node.post.send("new@example.org")
    assert damaged.spid in world.messages
    with pytest.raises(StoreDamaged):
        await StoreNode(SharedStore(SharedWorld(messages=world.messages))).start()
    await node.queue.close()
    await killed.queue.close()


async def test_a_node_without_a_free_number_begins_later() -> None:
    world = SharedWorld()
    node = StoreNode(SharedStore(world))
    await node.start()
    world.leases = {-1 - number: (number, 2 * LEASE_MS) for number in range(256)}
    await node.clock.run_for(LEASE_MS)
    world.leases.clear()
    await node.clock.run_for(POLL_MS)
    await node.post.send("a@example.org")
    await node.queue.close()

"""A node that takes mail: for longer than its lease lasts, mail that is damaged, when it must begin again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mqcd.core.errors import StoreDamaged
from mqcd.stores.backend import Stored
from mqcd.stores.queue.message import KEY_SLOT
from mqcd.stores.queue.taking import POLL_MS
from tests.fakes.shared_store import LEASE_MS, SharedStore, SharedWorld
from tests.unit.stores.node import StoreNode

MESSAGES = 6


class Large(SharedStore):
    """Each message takes half a lease."""

    def __init__(self, world: SharedWorld) -> None:
        super().__init__(world)
        self.node_of_test: StoreNode[Large] | None = None

    async def take(self, most: int) -> Sequence[Stored]:
        taken = await super().take(1)
        if taken and self.node_of_test is not None:
            self._world.now += LEASE_MS // 2
            self.node_of_test.clock.advance(LEASE_MS // 2)
        return taken


async def test_a_node_keeps_its_lease_while_it_reads_the_queue(caplog: pytest.LogCaptureFixture) -> None:
    world = SharedWorld()
    killed = StoreNode(SharedStore(world))
    post = await killed.start()
    sent = [key for _ in range(MESSAGES) for key in await post.send("a@example.org")]
    killed.store.cut = True
    world.now += 2 * LEASE_MS
    node = StoreNode(Large(world))
    node.store.node_of_test = node
    post = await node.start()
    assert set(await post.scan()) == {each.key for each in sent}
    await node.clock.run_for(LEASE_MS)
    assert not caplog.records
    await node.queue.close()
    await killed.queue.close()


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

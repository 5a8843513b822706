"""A node that takes mail for longer than its lease lasts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mqcd.stores.backend import Stored
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

"""The cluster index beside threads that read clusters."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from mqcd.queue.clusters.reading import Taken
from mqcd.queue.manifest.state import ClusterState
from tests.contract.harness import HOUR
from tests.contract.mail import deferred
from tests.unit.queue.support import Rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = await Rig(tmp_path / "queue").open()
    yield rig
    await rig.close()


async def put_off(rig: Rig, *, hours: int = 1) -> str:
    """Two recipients in a cluster; its name."""
    await rig.post.send("a@example.org", "b@example.org")
    now = rig.clock.now()
    for number, recipient in enumerate(await rig.post.claim_all()):
        await rig.post.settle(deferred(now + hours * HOUR + number), recipient)
    await rig.evacuate()
    (name,) = rig.shard.cluster_index.clusters
    return name


async def test_a_read_does_not_undo_a_due_time_brought_forward(rig: Rig) -> None:
    name = await put_off(rig)
    index, now = rig.shard.cluster_index, rig.clock.now()
    taken = index.reader.read(*index.to_read(name), 1, now + HOUR, 1 << 16)
    assert len(taken.lines) == 1
    index.bring_forward(now + 1000, index.clusters.values())
    index.advance(taken.state)
    assert index.offers.next_due() == now + 1000


async def test_a_cancelled_claim_waits_for_its_thread(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await put_off(rig)
    reader = rig.shard.cluster_index.reader
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    read = reader.read

    def slow(state: ClusterState, latest: int, room: int, now: int, most: int) -> Taken:
        began.set()
        go_on.wait(10)
        taken = read(state, latest, room, now, most)
        ended.set()
        return taken

    monkeypatch.setattr(reader, "read", slow)
    claiming = asyncio.ensure_future(rig.store.claim(10, rig.clock.now() + 2 * HOUR))
    await asyncio.get_running_loop().run_in_executor(None, began.wait, 10)
    claiming.cancel()
    await asyncio.sleep(0)
    assert not claiming.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    assert ended.is_set()


async def test_a_replaced_cluster_ends_and_no_rest_is_due_later(rig: Rig) -> None:
    name = await put_off(rig)
    index, now = rig.shard.cluster_index, rig.clock.now()
    index.bring_forward(now, index.clusters.values())
    old = index.clusters[name]
    held = replace(old, name=f"held/+/{name.rpartition('/')[2]}", due=0)
    rest = replace(old, name=f"{name}-rest", due=old.due_last)
    index.replaced(name, [held], [rest], 1)
    assert index.clusters[name].left == 0
    assert (index.clusters[held.name].due, index.clusters[rest.name].due) == (0, now)
    assert index.unrecorded == {name, held.name, rest.name}
    assert index.offers.first_due(now) == rest.name


async def test_an_unreadable_cluster_is_offered_no_more(rig: Rig) -> None:
    name = await put_off(rig)
    index, now = rig.shard.cluster_index, rig.clock.now()
    (rig.queue / name).unlink()
    assert await rig.store.claim(10, now + 2 * HOUR) == []
    index.bring_forward(now + 1000, index.clusters.values())
    assert index.offers.next_due() is None
    index.offers.reserve([name])
    index.offers.give_back([name])
    assert index.offers.next_due() is None
    index.offers.bring_back(name)
    assert index.offers.next_due() == now + 1000

"""Spool files go with their last recipient, not before, and not under a reader."""

from __future__ import annotations

import asyncio

import pytest

from mqcd.queue.reaper import PIN_MS
from tests.contract.harness import MINUTE
from tests.contract.mail import BODY, deferred, delivered
from tests.unit.queue.support import Rig


async def turns() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def later(rig: Rig, *minutes: int) -> None:
    """A message whose recipients become due after so many minutes each, at rest in a cluster."""
    now = rig.clock.now()
    await rig.post.send(*(f"u{n}@example.org" for n in minutes))
    for n, each in zip(minutes, await rig.post.claim_all(), strict=True):
        await rig.post.settle(deferred(now + n * MINUTE), each)
    await rig.evacuate()
    assert len(rig.spooled()) == 1


async def deliver_due(rig: Rig) -> None:
    [claimed] = await rig.post.claim_all()
    assert await rig.post.read(claimed) == BODY
    await rig.post.settle(delivered(), claimed)
    if rig.shard.references.batch:
        await rig.store._live.keeper.counting.run()
    await rig.shard.reaper.settled()


async def test_a_spool_file_goes_with_the_last_recipient(rig: Rig) -> None:
    await later(rig, 1, 2, 3)
    for left in (2, 1, 0):
        rig.clock.advance(MINUTE)
        await deliver_due(rig)
        assert len(rig.spooled()) == bool(left)


@pytest.mark.parametrize("kill", [True, False])
async def test_also_after_restarts_without_a_count(rig: Rig, kill: bool) -> None:
    await later(rig, 1, 2, 3)
    for left in (2, 1, 0):
        rig = await (rig.killed() if kill else rig.reopened())
        await turns()
        rig.clock.advance(MINUTE)
        await deliver_due(rig)
        assert len(rig.spooled()) == bool(left)


async def test_a_cluster_that_cannot_be_read_keeps_all_files(rig: Rig) -> None:
    await later(rig, 1, 2)
    rig = await rig.reopened()
    await turns()
    rig.clock.advance(MINUTE)
    [claimed] = await rig.post.claim_all()
    await rig.post.settle(delivered(), claimed)
    [name] = rig.clusters()
    rig.disk.fail("open", f"*/{name}", times=None)
    await rig.store._live.keeper.counting.run()
    await rig.shard.reaper.settled()
    assert len(rig.spooled()) == 1


async def test_a_snapshots_pin_delays_removal(rig: Rig) -> None:
    await later(rig, 1)
    rig.clock.advance(MINUTE)
    [claimed] = await rig.post.claim_all()
    snapshot = rig.snapshot()
    await rig.post.settle(delivered(), claimed)
    await rig.clock.run_for(1000)
    assert b"".join(snapshot.content(claimed.spid)) == BODY
    assert len(rig.spooled()) == 1
    snapshot.close()
    await rig.clock.run_for(1000)
    await rig.shard.reaper.settled()
    assert rig.spooled() == []


async def test_a_pin_ends_after_its_time(rig: Rig) -> None:
    await later(rig, 1)
    rig.clock.advance(MINUTE)
    snapshot = rig.snapshot()
    await rig.post.settle(delivered(), *await rig.post.claim_all())
    await rig.clock.run_for(PIN_MS + 1000)
    await rig.shard.reaper.settled()
    assert rig.spooled() == []
    snapshot.close()

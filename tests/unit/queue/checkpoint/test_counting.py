"""Scans that count references: at most one percent of the time, or a low disk; none forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqcd.core.model import Recipient
from mqcd.disk.durable import Disk
from mqcd.queue.checkpoint.counting import Counting
from mqcd.queue.helper import jobs
from mqcd.queue.manifest import log as manifests
from mqcd.queue.manifest.log import ManifestState
from tests.contract.harness import HOUR, MINUTE
from tests.contract.mail import deferred, delivered
from tests.fakes.workers import InlineHelper
from tests.unit.queue.support import Rig

SCAN_MS = 1000


class SlowHelper(InlineHelper):
    """Each scan takes a second of the clock."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig.disk)
        self._clock = rig.clock

    async def run(self, task: jobs.Task) -> jobs.Result:
        if isinstance(task, jobs.Resolve):
            self._clock.advance(SCAN_MS)
        return await super().run(task)


async def opened(root: Path) -> Rig:
    rig = await Rig(root, minfree=0, mininodes=0).open()
    rig.shard.helper = SlowHelper(rig)
    return rig


async def other_mail(rig: Rig) -> None:
    """So that there is a cluster to read."""
    await rig.post.defer_new("rests@example.org", rig.clock.now() + 4 * HOUR)
    await rig.evacuate()


async def message(rig: Rig) -> None:
    """One with two recipients that rests in a cluster and whose count is not known."""
    await rig.post.send("a@example.org", "b@example.org")
    rig.shard.references._counts.clear()
    for each in await rig.post.claim_all():
        await rig.post.settle(deferred(rig.clock.now() + MINUTE), each)
    await rig.evacuate()


async def all_due(rig: Rig, messages: int) -> list[Recipient]:
    """The recipients of so many messages, claimed an hour later; those of the first are delivered."""
    for _ in range(messages):
        await message(rig)
    await other_mail(rig)
    rig.clock.advance(HOUR)
    due = await rig.post.claim_all()
    await rig.post.settle(delivered(), *due[:2])
    return due


async def run(rig: Rig) -> int:
    """Ask for a scan; how many there were in all."""
    await rig.store._live.checkpointer.counting.run()
    await rig.shard.reaper.settled()
    return rig.shard.figures.reference_scans


def recorded(rig: Rig) -> ManifestState:
    state = manifests.read(Disk(), rig.queue / "MANIFEST")
    assert state is not None
    return state


async def test_scans_take_one_percent_of_the_time(tmp_path: Path) -> None:
    rig = await opened(tmp_path / "q")
    due = await all_due(rig, 3)
    kept = len(rig.spooled()) - 3
    assert await run(rig) == 1
    assert len(rig.spooled()) == kept + 2
    await rig.post.settle(delivered(), *due[2:])
    assert rig.store._live.checkpointer.counting.wait() == 10_000
    rig.clock.advance(99 * SCAN_MS - 1)
    assert await run(rig) == 1
    assert len(rig.spooled()) == kept + 2
    assert rig.store._live.checkpointer.counting.wait() == 1
    rig.clock.advance(1)
    assert await run(rig) == 2
    assert len(rig.spooled()) == kept
    assert rig.store._live.checkpointer.counting.wait() is None
    assert rig.store.engine().reference_scan_seconds.total == 2 * SCAN_MS / 1000
    await rig.close()


@pytest.mark.parametrize("short", ["minfree", "mininodes"])
async def test_on_a_low_disk_a_scan_is_made_at_once(tmp_path: Path, short: str) -> None:
    rig = await opened(tmp_path / "q")
    due = await all_due(rig, 2)
    assert await run(rig) == 1
    await rig.post.settle(delivered(), *due[2:])
    assert await run(rig) == 1
    octets, inodes = Disk().free(rig.spool)
    limit = {"minfree": octets, "mininodes": inodes}[short]
    changes: Any = {short: limit}
    settings = replace(rig.options.settings, **changes)
    rig.shard.options = replace(rig.options, settings=settings)
    assert await run(rig) == 2
    assert len(rig.spooled()) == 1
    await rig.close()


async def test_a_large_batch_is_resolved_at_once(tmp_path: Path) -> None:
    rig = await opened(tmp_path / "q")
    rig.store._live.checkpointer.counting = Counting(rig.shard, full=2)
    due = await all_due(rig, 3)
    assert await run(rig) == 1
    await rig.post.settle(delivered(), *due[2:4])
    assert await run(rig) == 1
    await rig.post.settle(delivered(), *due[4:])
    assert await run(rig) == 2
    await rig.close()


async def test_a_batch_that_waits_outlives_the_frames_that_made_it(tmp_path: Path) -> None:
    rig = await opened(tmp_path / "q")
    due = await all_due(rig, 2)
    assert await run(rig) == 1
    await rig.post.settle(delivered(), *due[2:])
    await rig.evacuate()
    assert not rig.shard.ring.segments
    assert rig.shard.figures.reference_scans == 1
    assert recorded(rig).doubtful == {due[2].spid}
    again = await rig.killed()
    for _ in range(30):
        await asyncio.sleep(0)
    await again.shard.reaper.settled()
    assert len(again.spooled()) == 1
    assert again.shard.references.batch == set()
    await again.post.send("c@example.org")
    await again.evacuate()
    assert recorded(again).doubtful == frozenset()
    await rig.close()


async def test_an_edit_names_only_what_is_new_in_the_batch(tmp_path: Path) -> None:
    rig = await opened(tmp_path / "q")
    due = await all_due(rig, 3)
    assert await run(rig) == 1
    await rig.post.settle(delivered(), *due[2:4])
    await rig.evacuate()
    await rig.post.settle(delivered(), *due[4:])
    edit = rig.store._live.checkpointer.counting.to_record()
    assert (edit.counted, edit.doubtful) == (None, (due[4].spid,))
    await rig.evacuate()
    assert recorded(rig).doubtful == {due[2].spid, due[4].spid}
    rig.clock.advance(HOUR)
    await run(rig)
    edit = rig.store._live.checkpointer.counting.to_record()
    assert (edit.counted, edit.doubtful) == (1, ())
    await rig.close()


async def test_without_a_cluster_to_read_nothing_has_to_wait(tmp_path: Path) -> None:
    rig = await opened(tmp_path / "q")
    for _ in range(2):
        await message(rig)
    rig.clock.advance(HOUR)
    due = await rig.post.claim_all()
    await rig.post.settle(delivered(), *due[:2])
    assert await run(rig) == 1
    await rig.post.settle(delivered(), *due[2:])
    await rig.store.close()
    assert rig.spooled() == []

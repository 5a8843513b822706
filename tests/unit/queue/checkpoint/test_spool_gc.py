"""The spool's mark-and-sweep: files that no recipient needs go; what may have an owner stays."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Recipient
from mqcd.core.queueing.spid import spid_at
from mqcd.disk.durable import Disk
from mqcd.queue.checkpoint.spool_gc import REST
from mqcd.queue.helper import jobs
from mqcd.queue.helper.sweep import FindOrphans
from tests.contract.harness import HOUR, MINUTE
from tests.contract.mail import BODY, chunks, deferred, delivered
from tests.fakes.clock import START_MS, turns
from tests.fakes.workers import InlineHelper
from tests.unit.queue.support import Rig, spool_path

GRACE = 7 * 24 * HOUR
OLD = START_MS - GRACE - 2 * HOUR
"""Just old enough for the first look."""
OLD_SPID = spid_at(OLD)
SWEEP_MS = 2000


async def looked(rig: Rig) -> None:
    """Wake the checkpointer, and wait for what it removes."""
    rig.store._live.checkpointer.wake()
    await turns()
    await rig.shard.deleter.settled()


async def next_look(rig: Rig) -> None:
    rig.clock.advance(HOUR)
    await looked(rig)


def put(path: Path, written: int = OLD, data: bytes = b"x") -> Path:
    path.write_bytes(data)
    os.utime(path, (written / 1000, written / 1000))
    return path


async def rested(rig: Rig, *addresses: str) -> list[Path]:
    """Deferred mail in a cluster; its spool files are made old."""
    await rig.post.send(*addresses)
    await rig.post.settle(deferred(rig.clock.now() + 30 * GRACE), *await rig.post.claim_all())
    await rig.evacuate()
    files = list(rig.spool.glob("s??/*.msg"))
    for path in files:
        os.utime(path, (OLD / 1000, OLD / 1000))
    return files


@pytest.mark.parametrize(
    "name", ["README", "0123456789ABCDE0", "{spid}.eml", "{spid}.msg", "{spid}-7.msg", "{spid}.tmp"]
)
async def test_an_old_file_without_an_owner_goes(
    rig: Rig, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await looked(rig)
    rig.store.reserve(False)
    path = put(spool_path(rig.spool, OLD_SPID).parent / name.format(spid=f"{OLD_SPID:016X}"))
    with caplog.at_level(logging.INFO, "mqcd.queue.checkpoint.spool_gc"):
        await next_look(rig)
    assert not path.exists()
    [logged] = caplog.records
    if "msg" in name or "tmp" in name:
        assert logged.args == (1,)
    else:
        assert logged.args == (1, f"s01/{path.name}")


async def test_the_first_look_is_at_the_start(rig: Rig) -> None:
    path = put(rig.spool / "s05" / "README")
    again = await rig.reopened()
    await looked(again)
    assert not path.exists()


async def test_there_is_one_look_an_hour(rig: Rig) -> None:
    await looked(rig)
    path = put(rig.spool / "s05" / "README")
    rig.clock.advance(HOUR - 1)
    await looked(rig)
    assert path.exists()
    rig.clock.advance(1)
    await looked(rig)
    assert not path.exists()


@pytest.mark.parametrize("name", ["README", "{spid}.msg"])
async def test_a_file_stays_for_the_whole_period_by_each_of_its_times(rig: Rig, name: str) -> None:
    await looked(rig)
    path = put(
        spool_path(rig.spool, OLD_SPID).parent / name.format(spid=f"{OLD_SPID:016X}"), START_MS - GRACE + HOUR
    )
    await next_look(rig)
    assert path.exists()
    rig.clock.advance(1)
    await next_look(rig)
    assert not path.exists()


async def test_a_young_message_with_an_old_file_stays(rig: Rig) -> None:
    await looked(rig)
    path = put(spool_path(rig.spool, spid_at(START_MS)))
    await next_look(rig)
    assert path.exists()


async def test_the_period_is_a_setting(tmp_path: Path) -> None:
    rig = await Rig(tmp_path / "q", prune_graceperiod=MINUTE).open()
    await looked(rig)
    path = put(rig.spool / "s05" / "README", START_MS)
    await next_look(rig)
    assert not path.exists()
    await rig.close()


@pytest.mark.parametrize("restart", [False, True])
async def test_mail_in_a_cluster_keeps_its_file(rig: Rig, restart: bool) -> None:
    files = await rested(rig, "a@example.org")
    files += await rested(rig, "b@example.org", "c@example.org")
    rig = await rig.reopened() if restart else rig
    stray = put(spool_path(rig.spool, OLD_SPID))
    rig.clock.advance(GRACE)
    await next_look(rig)
    assert all(path.exists() for path in files)
    assert not stray.exists()


async def test_mail_in_the_journal_keeps_its_file(rig: Rig) -> None:
    large = rig.post.submission("large@example.org", content=chunks(BODY * 1000))
    await rig.store.enqueue(large)
    path = spool_path(rig.spool, large.envelope.spid)
    os.utime(path, (OLD / 1000, OLD / 1000))
    rig.clock.advance(2 * GRACE)
    await next_look(rig)
    assert path.exists()


async def test_a_message_that_is_still_arriving_keeps_its_file(rig: Rig) -> None:
    spid = rig.store.reserve(False)
    path = put(spool_path(rig.spool, spid).with_suffix(".tmp"))
    rig.shard.entries.arriving.add(spid)
    rig.clock.advance(2 * GRACE)
    await next_look(rig)
    assert path.exists()


async def test_nothing_goes_while_the_quarantine_holds_anything(rig: Rig) -> None:
    await looked(rig)
    paths = [put(spool_path(rig.spool, OLD_SPID)), put(rig.spool / "s05" / "README")]
    (rig.queue / "quarantine").mkdir()
    put(rig.queue / "quarantine" / "incoming-M1-0.mqc.bad")
    await next_look(rig)
    assert all(path.exists() for path in paths)


@pytest.mark.parametrize("damage", ["gone", "cut off", "line"])
async def test_an_unreadable_cluster_keeps_all_message_files(rig: Rig, damage: str) -> None:
    await rested(rig, "a@example.org", "b@example.org")
    [name] = rig.clusters()
    cluster = rig.queue / name
    data = cluster.read_bytes()
    if damage == "gone":
        cluster.unlink()
    elif damage == "cut off":
        cluster.write_bytes(b"".join(data.splitlines(keepends=True)[:-1]))
    else:
        cluster.write_bytes(data.replace(b"a@example.org", b"A@example.org"))
    path = put(spool_path(rig.spool, OLD_SPID))
    await next_look(rig)
    assert path.exists()


async def test_directories_and_links_are_left_alone(rig: Rig) -> None:
    await looked(rig)
    directory, link = rig.spool / "s05" / "mine", rig.spool / "s05" / "elsewhere"
    directory.mkdir()
    link.symlink_to(rig.queue)
    rig.clock.advance(30 * GRACE)
    await next_look(rig)
    assert directory.is_dir()
    assert link.is_symlink()


async def test_a_failure_is_reported_and_tried_again_at_the_next_look(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await looked(rig)
    path = put(spool_path(rig.spool, OLD_SPID))
    await rested(rig, "a@example.org")
    rig.disk.fail("unlink", f"*/{path.name}", times=None)
    await next_look(rig)
    assert path.exists()
    assert "could not be removed" in caplog.text
    rig.disk.mend()
    await next_look(rig)
    assert not path.exists()


async def test_a_reader_is_waited_for(rig: Rig) -> None:
    await looked(rig)
    path = put(spool_path(rig.spool, OLD_SPID))
    snapshot = rig.snapshot()
    rig.clock.advance(HOUR)
    rig.store._live.checkpointer.wake()
    await rig.clock.run_for(1000)
    assert path.exists()
    snapshot.close()
    await rig.clock.run_for(1000)
    await rig.shard.deleter.settled()
    assert not path.exists()


# ---------------------------------------------------------------- the queue's own files


class Sweeping(InlineHelper):
    """Each mark-and-sweep takes `SWEEP_MS` of the clock; `after` runs when its list is made."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig.disk)
        self._clock = rig.clock
        self.after: Callable[[], Awaitable[object]] | None = None

    async def run(self, task: jobs.Task) -> jobs.Result:
        result = await super().run(task)
        if isinstance(task, FindOrphans):
            self._clock.advance(SWEEP_MS)
            if self.after is not None:
                await self.after()
        return result


async def uncounted(rig: Rig, messages: int) -> list[Recipient]:
    """Recipients of messages in clusters, two each, all due, whose counts are not known, and other mail."""
    for _ in range(messages):
        await rig.post.send("a@example.org", "b@example.org")
        rig.shard.references._counts.clear()
        for each in await rig.post.claim_all():
            await rig.post.settle(deferred(rig.clock.now() + MINUTE), each)
        await rig.evacuate()
    await rig.post.defer_new("rests@example.org", rig.clock.now() + 9 * HOUR)
    await rig.evacuate()
    rig.clock.advance(2 * MINUTE)
    return await rig.post.claim_all()


async def sweeps(rig: Rig) -> int:
    """Let the collector run if it is time; how many sweeps there were in all."""
    await rig.store._live.checkpointer.spool_gc.run()
    await rig.shard.deleter.settled()
    return rig.shard.figures.reference_scans


async def sweeping(root: Path, **changes: Any) -> Rig:
    rig = await Rig(root, **{"minfree": 0, "mininodes": 0, **changes}).open()
    await looked(rig)
    rig.shard.helper = Sweeping(rig)
    return rig


async def test_a_message_without_count_goes_within_the_hour(tmp_path: Path) -> None:
    rig = await sweeping(tmp_path / "q")
    due = await uncounted(rig, 2)
    await rig.post.settle(delivered(), *due[:2])
    assert await sweeps(rig) == 1
    assert len(rig.spooled()) == 3
    assert rig.store.engine().reference_batch == 1
    rig.clock.advance(HOUR)
    assert await sweeps(rig) == 2
    assert rig.store.engine().reference_batch == 0
    assert len(rig.spooled()) == 2
    await rig.close()


async def test_a_restart_forgets_no_message_without_count(tmp_path: Path) -> None:
    rig = await sweeping(tmp_path / "q")
    due = await uncounted(rig, 2)
    await rig.post.settle(delivered(), *due[:2])
    await rig.evacuate()
    again = await rig.killed()
    await looked(again)
    assert len(again.spooled()) == 2
    await rig.close()


@pytest.mark.parametrize("short", ["minfree", "mininodes"])
async def test_a_low_disk_is_swept_for_at_once(tmp_path: Path, short: str) -> None:
    rig = await sweeping(tmp_path / "q")
    due = await uncounted(rig, 2)
    await rig.post.settle(delivered(), *due[2:])
    assert await sweeps(rig) == 1
    octets, inodes = Disk().free(rig.spool)
    changes: Any = {short: {"minfree": octets, "mininodes": inodes}[short]}
    rig.shard.options = replace(rig.options, settings=replace(rig.options.settings, **changes))
    assert await sweeps(rig) == 2
    await rig.post.settle(delivered(), *due[:2])
    assert await sweeps(rig) == 2
    assert rig.store._live.checkpointer.spool_gc.wait() == max(REST * SWEEP_MS, 10_000)
    rig.clock.advance(REST * SWEEP_MS)
    assert await sweeps(rig) == 3
    assert len(rig.spooled()) == 1
    assert rig.store._live.checkpointer.spool_gc.wait() is None
    await rig.close()


async def test_a_large_batch_is_swept_for_at_once(tmp_path: Path) -> None:
    rig = await sweeping(tmp_path / "q")
    rig.store._live.checkpointer.spool_gc._full = 2
    due = await uncounted(rig, 2)
    await rig.post.settle(delivered(), *due[:2])
    assert await sweeps(rig) == 1
    await rig.post.settle(delivered(), *due[2:])
    assert await sweeps(rig) == 2
    await rig.close()


async def test_a_message_accepted_during_a_sweep_keeps_its_file(rig: Rig) -> None:
    await looked(rig)
    going_on = asyncio.Event()

    async def content() -> AsyncIterator[bytes]:
        yield b"x" * 40_000
        await going_on.wait()

    large = rig.post.submission("a@example.org", content=content())
    sending = asyncio.ensure_future(rig.store.enqueue(large))
    while not rig.spooled():
        await asyncio.sleep(0)
    rig.shard.helper = helper = Sweeping(rig)

    async def arrive() -> None:
        going_on.set()
        await sending

    helper.after = arrive
    await rig.sweep()
    [recipient] = await rig.post.claim_all()
    assert await rig.post.read(recipient) == b"x" * 40_000


async def test_mail_claimed_during_a_sweep_keeps_its_file(rig: Rig) -> None:
    files = await rested(rig, "a@example.org")
    rig.clock.advance(60 * GRACE)
    rig.shard.helper = helper = Sweeping(rig)
    helper.after = rig.post.claim_all
    await rig.sweep()
    assert all(path.exists() for path in files)


async def test_mail_of_a_lost_frame_keeps_its_file(rig: Rig) -> None:
    """A frame whose sync failed counts if a kill brings it to light."""
    await looked(rig)
    rig.disk.fail("datasync", "*/journal/*", times=2)
    with pytest.raises(StoreUnavailable):
        await rig.post.send("a@example.org", content=b"x" * 40_000)
    await rig.sweep()
    assert len(rig.spooled()) == 1

"""Old files in the silos that nobody owns go; what has an owner, or may have one, stays."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from mqcd.core.spid import spid_at
from tests.contract.harness import HOUR, MINUTE
from tests.contract.mail import BODY, chunks, deferred
from tests.fakes.clock import START_MS
from tests.unit.queue.support import Rig, spool_path

GRACE = 7 * 24 * HOUR
OLD = START_MS - GRACE - 2 * HOUR
"""Just old enough for the first look."""
OLD_SPID = spid_at(OLD)


async def looked(rig: Rig) -> None:
    """Wake the checkpointer, and wait for what it removes."""
    rig.store._live.checkpointer.wake()
    for _ in range(30):
        await asyncio.sleep(0)
    await rig.shard.reaper.settled()


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
    path = put(spool_path(rig.spool, OLD_SPID).parent / name.format(spid=f"{OLD_SPID:016X}"))
    with caplog.at_level(logging.WARNING, "mqcd.queue.checkpoint.spool_gc"):
        await next_look(rig)
    assert not path.exists()
    assert f"1 old files in the spool belong to nobody and are removed: s01/{path.name}" in caplog.text


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
    rig.shard.drafts.begin(spid)
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


async def test_a_failure_is_told_and_tried_again_at_the_next_look(
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
    await rig.shard.reaper.settled()
    assert not path.exists()

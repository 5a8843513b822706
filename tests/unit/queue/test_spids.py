"""No SPID is handed out twice while a file may bear it, whatever the clock does and whatever is cut off."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mqcd.config.settings import SpoolSettings
from mqcd.core.errors import StoreUnavailable
from mqcd.core.progress import no_progress
from mqcd.core.queueing.spid import time_of
from mqcd.disk.durable import Disk
from mqcd.queue.admin.ownership import owned
from mqcd.queue.admin.transfer import admission
from mqcd.queue.manifest import log as manifest
from tests.contract.harness import HOUR
from tests.contract.mail import BODY, deferred
from tests.fakes.clock import START_MS
from tests.fakes.disk import FaultyDisk
from tests.fakes.observer import RecordingObserver
from tests.unit.queue.admin.trees import made, read, record
from tests.unit.queue.support import Rig, spool_path

LARGE = b"B" * 40_000


async def _half_accepted(rig: Rig) -> int:
    """A large message whose file is durable and whose frame will never be; gives its SPID."""
    large = rig.post.submission("large@example.org", content=LARGE)
    await rig.store._live.admission._staging.stage(large)
    return large.envelope.spid


@pytest.mark.parametrize("later", [-30_000, 0, 1000, 20_000])
@pytest.mark.parametrize("leap", [0, -2 * HOUR, 3650 * 24 * HOUR])
async def test_a_name_that_was_given_to_a_file_is_not_given_again(rig: Rig, leap: int, later: int) -> None:
    await rig.post.send("a@example.org")
    rig.clock.leap(leap)
    # Its SPIDs may be ahead of the clock by now.
    again = await rig.killed()
    spid = await _half_accepted(again)
    assert len(again.spooled()) == 1
    again.clock.leap(later)
    last = await again.killed()
    assert last.store.reserve(False) > spid
    await last.sweep()
    assert last.spooled() == []


async def test_a_start_in_doubt_gives_no_name_again(rig: Rig) -> None:
    rig.clock.leap(3650 * 24 * HOUR)
    assert not rig.store.may_expire()
    rig.clock.advance(HOUR)
    spid = await _half_accepted(rig)
    again = await rig.killed()
    assert again.store.reserve(False) > spid


async def test_restarts_under_a_wrong_clock_do_not_drive_spids_away(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    rig.clock.leap(-30 * 24 * HOUR)
    for _ in range(5):
        await _half_accepted(rig)
        rig = await rig.killed()
    assert time_of(rig.store.reserve(False)) <= START_MS + HOUR + 10_000


async def test_reserving_takes_few_edits(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.enrolled()
    before = rig.shard.manifest.state.edit
    for _ in range(20):
        await rig.store.enqueue(rig.post.submission("a@example.org", content=LARGE))
        rig.clock.advance(500)
    assert rig.shard.manifest.state.edit == before + 1
    rig.clock.advance(1000)
    await asyncio.gather(
        *(rig.store.enqueue(rig.post.submission("a@example.org", content=LARGE)) for _ in range(20))
    )
    assert rig.shard.manifest.state.edit == before + 2


async def test_an_evacuation_does_not_take_back_what_is_reserved(rig: Rig) -> None:
    await _half_accepted(rig)
    reserved = rig.shard.manifest.state.spid
    await rig.post.send("a@example.org")
    await rig.evacuate()
    assert rig.shard.manifest.state.spid == reserved


async def test_without_a_reserved_name_no_file_is_written(rig: Rig) -> None:
    rig.disk.fail("datasync", "*/MANIFEST*", times=None)
    with pytest.raises(StoreUnavailable, match="MANIFEST"):
        await rig.store.enqueue(rig.post.submission("a@example.org", content=LARGE))
    assert rig.spooled() == []
    assert not rig.shard.entries.arriving
    rig.disk.mend()
    await rig.store.enqueue(rig.post.submission("a@example.org", content=LARGE))


async def test_an_aborted_import_gives_no_name_away(tmp_path: Path) -> None:
    tree = made(tmp_path)
    tree.cluster("incoming", record())
    tree.content()
    rig = Rig(tmp_path / "q")
    disk = FaultyDisk()
    async with owned(rig.options, rig.clock, RecordingObserver(), disk) as ours:
        disk.fail("sync_filesystem", "*")
        with ours.disk.watching(rig.spool) as watch:
            letters = admission._Admission(ours, "mailismus", watch)
            with pytest.raises(OSError, match="error"):
                letters.run(read(tree.var).letters, no_progress, lambda: None)
        [spid] = letters._written
    state = manifest.read(Disk(), rig.queue / "MANIFEST")
    assert state is not None
    assert state.spid >= spid
    await rig.open()
    assert rig.store.reserve(False) > spid
    await rig.close()


@pytest.mark.parametrize("there", [LARGE, BODY[:-1] + b"X", b""])
@pytest.mark.parametrize("hardlinks", [False, True])
async def test_a_file_of_other_octets_is_not_taken_for_the_content(
    tmp_path: Path, there: bytes, hardlinks: bool
) -> None:
    spool = SpoolSettings(rootpath=tmp_path / "q" / "spool", hardlinks=hardlinks)
    rig = await Rig(tmp_path / "q", spool=spool).open()
    first, _ = await rig.post.send("a@example.org", "b@example.org")
    await rig.post.settle(deferred(rig.clock.now() + HOUR), *await rig.post.claim_all())
    path = spool_path(rig.spool, first.spid, first.qid if hardlinks else 0)
    path.write_bytes(there)
    await rig.evacuate()
    rig.clock.advance(HOUR)
    for each in await rig.post.claim_all():
        assert await rig.post.read(each) == BODY
    assert len(rig.spooled()) == (2 if hardlinks else 1)
    await rig.close()

"""The sweep at a start: what nobody lists goes, what is needed or strange stays."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from mqcd.queue.spool import spool_path
from tests.contract.harness import MINUTE
from tests.contract.mail import BODY, chunks, deferred, delivered
from tests.fakes.clock import START_MS
from tests.unit.queue.support import Rig, tally


async def swept(rig: Rig) -> Rig:
    """The same queue after a kill and the sweep that follows."""
    again = await rig.killed()
    for _ in range(30):
        await asyncio.sleep(0)
    await again.shard.reaper.settled()
    return again


def put(path: Path, data: bytes = b"x", written: int = START_MS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (written / 1000, written / 1000))
    return path


async def rested(rig: Rig, *addresses: str) -> None:
    """Deferred mail in a cluster."""
    await rig.post.send(*addresses)
    await rig.post.settle(deferred(rig.clock.now() + MINUTE), *await rig.post.claim_all())
    await rig.evacuate()


async def test_nothing_that_is_needed_is_removed(rig: Rig) -> None:
    await rested(rig, "a@example.org", "b@example.org")
    await rested(rig, "c@example.org")
    large = rig.post.submission("large@example.org", content=chunks(b"x" * 40_000))
    await rig.store.enqueue(large)
    await rig.post.send("small@example.org")
    before = rig.listed()
    clusters, files = rig.clusters(), rig.spooled()
    assert len(files) == 3
    again = await swept(rig)
    assert (again.clusters(), again.spooled()) == (clusters, files)
    assert tally(again.listed()) == tally(before)
    again.clock.advance(MINUTE)
    claimed = await again.post.claim_all()
    assert len(claimed) == 5
    for each in claimed:
        assert await again.post.read(each) == (b"x" * 40_000 if "large" in each.address else BODY)


@pytest.mark.parametrize(
    "name",
    [
        "incoming/M7-0.mqc",
        "bounces/M7-3.mqc",
        "deferred/T60/M7-0.mqc",
        "deferred/T60/M7-0.tmp",
        "incoming/M7-0.tmp",
        "journal/07.tmp",
    ],
)
async def test_unlisted_clusters_and_temporary_files_go(rig: Rig, name: str) -> None:
    await rested(rig, "a@example.org")
    put(rig.queue / name)
    again = await swept(rig)
    assert not (again.queue / name).exists()
    assert not (again.queue / "deferred/T60").exists()
    assert len(again.clusters()) == 1


@pytest.mark.parametrize("ending", ["tmp", "msg"])
async def test_a_message_that_was_never_accepted_leaves_the_spool(rig: Rig, ending: str) -> None:
    await rested(rig, "a@example.org")
    rig.clock.advance(1000)
    spid = rig.store.reserve(False)
    path = put(spool_path(rig.spool, spid).with_suffix(f".{ending}"))
    rig.clock.advance(1000)
    again = await swept(rig)
    assert len(again.spooled()) == 1
    assert not (again.spool / path.relative_to(rig.spool)).exists()


async def test_a_copy_of_content_that_is_still_in_the_journal_goes(rig: Rig) -> None:
    [recipient] = await rig.post.send("a@example.org")
    put(spool_path(rig.spool, recipient.spid), b"half an evacuation")
    again = await swept(rig)
    assert again.spooled() == []
    assert await again.post.read(recipient) == BODY


async def test_the_file_of_a_message_whose_end_was_not_swept_goes(rig: Rig) -> None:
    await rested(rig, "a@example.org")
    await rested(rig, "b@example.org", "c@example.org")
    rig.clock.advance(MINUTE)
    claimed = await rig.post.claim_all()
    files = {path: path.read_bytes() for path in rig.spool.glob("s??/*.msg")}
    assert len(files) == 2
    await rig.post.settle(delivered(), *claimed)
    await rig.shard.reaper.settled()
    assert rig.spooled() == []
    for path, data in files.items():
        path.write_bytes(data)
    again = await swept(rig)
    assert again.spooled() == []


@pytest.mark.parametrize(
    "name",
    [
        "queue/incoming/notes.txt",
        "queue/incoming/Mine.mqc",
        "queue/deferred/T60/README",
        "queue/journal/notes.txt",
        "queue/other/M1-0.mqc",
        "spool/s01/README",
        "spool/s01/{spid}.eml",
        "spool/s01/{spid}.msg.bak",
        "spool/s01/{spid}",
        "spool/ndrdiag/0123456789ABCDE0-1.ndr",
        "spool/s99/0123456789ABCDE0.msg",
    ],
)
async def test_strays_stay(rig: Rig, name: str) -> None:
    await rested(rig, "a@example.org")
    rig.clock.advance(1000)
    path = put(rig.root / name.format(spid=f"{rig.store.reserve(False):016X}"))
    rig.clock.advance(1000)
    again = await swept(rig)
    assert (again.root / path.relative_to(rig.root)).exists()


async def test_strays_are_told_of_at_the_start(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    await rested(rig, "a@example.org")
    put(rig.queue / "incoming/notes.txt")
    put(rig.spool / "s01/README")
    (rig.spool / "s01/lost+found").mkdir()
    again = await swept(rig)
    told = [record.getMessage() for record in caplog.records if "none of the queue's" in record.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("2 files")
    assert str(again.queue / "incoming/notes.txt") in told[0]


@pytest.mark.parametrize(
    "name",
    ["queue/incoming/M1-0.mqc", "queue/journal/77", "queue/journal/x.tmp", "spool/s01/0000000000000002.msg"],
)
async def test_a_directory_with_a_name_of_ours_stays_and_stops_nothing(rig: Rig, name: str) -> None:
    await rig.post.send("a@example.org")
    (rig.root / name).mkdir(parents=True)
    again = await swept(rig)
    assert (again.root / name).is_dir()
    await again.evacuate()
    assert [each.address for each in await again.post.claim_all()] == ["a@example.org"]


async def test_content_whose_record_was_damaged_stays(rig: Rig) -> None:
    await rested(rig, "a@example.org")
    rig.clock.advance(1000)
    large = rig.post.submission("large@example.org", content=chunks(b"x" * 40_000))
    await rig.store.enqueue(large)
    await rig.post.send("later@example.org")
    [segment] = rig.shard.ring
    data = segment.path.read_bytes()
    segment.path.write_bytes(data.replace(b"large@example", b"LARGE@example"))
    rig.clock.advance(1000)
    again = await swept(rig)
    assert [each.address for each in again.listed()] == ["a@example.org", "later@example.org"]
    assert spool_path(again.spool, large.envelope.spid).exists()
    assert list((again.queue / "quarantine").iterdir())


async def test_a_stop_that_comes_before_the_sweep_sweeps(rig: Rig) -> None:
    await rested(rig, "a@example.org")
    rig.clock.advance(MINUTE)
    [claimed] = await rig.post.claim_all()
    [path] = rig.spool.glob("s??/*.msg")
    data = path.read_bytes()
    await rig.post.settle(delivered(), claimed)
    await rig.shard.reaper.settled()
    path.write_bytes(data)
    again = await rig.killed()
    await again.close()
    assert again.spooled() == []


async def test_a_message_that_is_arriving_is_left_alone(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    again = await rig.killed()
    spid = again.store.reserve(False)
    arriving = put(spool_path(again.spool, spid).with_suffix(".tmp"))
    for _ in range(30):
        await asyncio.sleep(0)
    assert arriving.exists()

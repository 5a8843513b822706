"""The sweep at a start: what nobody lists goes, what is needed or strange stays."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest

from mqcd.core.errors import StoreUnavailable
from tests.contract.harness import MINUTE
from tests.contract.mail import BODY, chunks, deferred, delivered
from tests.fakes.clock import START_MS, turns
from tests.fakes.killed import copy_as_killed
from tests.unit.queue.support import SEGMENT_SIZE, Rig, spool_path, tally


async def swept(rig: Rig) -> Rig:
    """The same queue after a kill and the sweep that follows."""
    again = await rig.killed()
    await turns()
    await again.shard.deleter.settled()
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
        "quarantine/segment-7-96+1.bad.tmp",
    ],
)
async def test_unlisted_clusters_and_temporary_files_go(rig: Rig, name: str) -> None:
    await rested(rig, "a@example.org")
    put(rig.queue / name)
    again = await swept(rig)
    assert not (again.queue / name).exists()
    assert not (again.queue / "deferred/T60").exists()
    assert len(again.clusters()) == 1


async def test_leftovers_are_not_what_a_claim_writes_to_quarantine(rig: Rig) -> None:
    await turns()
    path = put(rig.queue / "quarantine/incoming-M1-0.mqc-96+1.bad.tmp")
    rig.shard.tidy.clear()
    await rig.store._live.checkpointer._remove_leftovers()
    assert rig.shard.tidy.is_set()
    assert path.exists()


@pytest.mark.parametrize("name", ["M999-0.mqc", "../Tsaved/M1-0.mqc", None])
async def test_an_unlisted_cluster_stays_while_one_is_missing(
    rig: Rig, name: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    await rested(rig, "a@example.org")
    await rested(rig, "b@example.org")
    [missing, _] = rig.clusters()
    path = rig.queue / missing
    if name is None:
        path.unlink()
        elsewhere = put(rig.queue / "incoming/M7-0.mqc")
    else:
        elsewhere = path.parent / name
        elsewhere.parent.mkdir(exist_ok=True)
        path.rename(elsewhere)
    half = put(rig.queue / "incoming/M7-0.tmp")
    again = await swept(rig)
    assert (again.root / elsewhere.resolve().relative_to(rig.root.resolve())).exists()
    assert not (again.root / half.relative_to(rig.root)).exists()
    [told] = [each.getMessage() for each in caplog.records if "does not list" in each.getMessage()]
    assert missing in told
    assert elsewhere.name in told


@pytest.mark.parametrize("ending", ["tmp", "msg"])
async def test_a_message_that_was_never_accepted_leaves_the_spool(rig: Rig, ending: str) -> None:
    await rested(rig, "a@example.org")
    rig.clock.advance(1000)
    spid = rig.store.reserve(False)
    await rig.shard.editing.reserve(spid, spid)
    path = put(spool_path(rig.spool, spid).with_suffix(f".{ending}"))
    rig.clock.advance(1000)
    again = await swept(rig)
    assert len(again.spooled()) == 1
    assert not (again.spool / path.relative_to(rig.spool)).exists()


async def test_half_an_evacuation_goes_with_its_message(rig: Rig) -> None:
    [recipient] = await rig.post.send("a@example.org")
    put(spool_path(rig.spool, recipient.spid), b"half an evacuation")
    again = await swept(rig)
    assert len(again.spooled()) == 1
    assert await again.post.read(recipient) == BODY
    await again.post.settle(delivered(), *await again.post.claim_all())
    await again.sweep()
    assert again.spooled() == []


async def test_the_file_of_a_message_whose_end_was_not_swept_goes(rig: Rig) -> None:
    await rested(rig, "a@example.org")
    await rested(rig, "b@example.org", "c@example.org")
    rig.clock.advance(MINUTE)
    claimed = await rig.post.claim_all()
    files = {path: path.read_bytes() for path in rig.spool.glob("s??/*.msg")}
    assert len(files) == 2
    await rig.post.settle(delivered(), *claimed)
    await rig.shard.deleter.settled()
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


async def test_strays_are_reported_at_the_start(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
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
    [
        "queue/incoming/M1-0.mqc",
        "queue/journal/x.tmp",
        "spool/s01/0000000000000002.msg",
    ],
)
async def test_a_directory_with_a_queue_name_is_left_alone(rig: Rig, name: str) -> None:
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
    await rig.shard.deleter.settled()
    path.write_bytes(data)
    again = await rig.killed()
    await again.close()
    assert again.spooled() == []


@pytest.mark.parametrize("accepted", [True, False])
async def test_only_an_accepted_message_keeps_its_file(rig: Rig, accepted: bool) -> None:
    await rig.post.send("a@example.org")
    large = rig.post.submission("large@example.org", content=chunks(b"x" * 40_000))
    await rig.evacuate()
    gate = rig.disk.block("pwritev", "*/journal/*")
    arriving = asyncio.ensure_future(rig.store.enqueue(large))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    if accepted:
        gate.release()
        await arriving
        await rig.evacuate()
    again = await swept(rig)
    gate.release()
    await arriving
    assert spool_path(again.spool, large.envelope.spid).exists() is accepted
    assert ("large@example.org" in [each.address for each in again.listed()]) is accepted


async def test_what_was_refused_or_never_came_is_not_waited_for(rig: Rig) -> None:
    arriving = rig.shard.entries.arriving
    await rig.post.send("taken@example.org")
    await rig.post.send("taken@example.org", content=b"x" * 40_000)
    assert not arriving
    rig.disk.fail("open", "*/s??/*")
    rig.disk.fail("datasync", "*/journal/*", times=2)
    for octets in (40_000, 40_000, 100):
        with pytest.raises(StoreUnavailable):
            await rig.post.send("refused@example.org", content=b"x" * octets)
    # The second frame may still come to light, and must then find its content.
    assert len(arriving) == 1
    while rig.shard.journal.trouble.failing:
        rig.clock.advance(1000)
        await asyncio.to_thread(lambda: None)
    assert not arriving


# ---------------------------------------------------------------- journal files


def journal_files(rig: Rig) -> list[str]:
    return sorted(path.name for path in (rig.queue / "journal").iterdir())


async def with_a_failed_file(rig: Rig) -> tuple[Rig, str]:
    """A killed queue with a journal file that had failed and could not be removed; and its name."""
    await rig.post.send("a@example.org")
    await rig.enrolled()
    assert rig.shard.ring.current is not None
    failed = rig.shard.ring.current.path.name
    rig.disk.fail("datasync", "*/journal/*")
    with suppress(StoreUnavailable):
        await rig.post.send("b@example.org")
    await rig.post.send("c@example.org")
    rig.disk.fail("unlink", f"*/{failed}", times=None)
    await rig.evacuate()
    left = Rig(rig.root.with_name("left"), rig.clock)
    copy_as_killed(rig.root, left.root)
    return left, failed


async def test_a_failed_journal_file_is_not_reused(rig: Rig) -> None:
    left, failed = await with_a_failed_file(rig)
    assert failed not in {path.name for path in rig.shard.ring.free}
    with (left.queue / "journal" / failed).open("rb") as file:
        await left.open()
        assert failed not in journal_files(left)
        await left.post.send("d@example.org")
        segment = left.shard.ring.current
        assert segment is not None
        assert not os.path.sameopenfile(segment.fd, file.fileno())
        await left.close()


async def test_a_journal_file_that_cannot_be_removed_stays(rig: Rig) -> None:
    left, failed = await with_a_failed_file(rig)
    path = left.queue / "journal" / failed
    before = path.read_bytes()
    left.disk.fail("unlink", f"*/{failed}")
    await left.open()
    await left.post.send("d@example.org")
    assert path.read_bytes() == before
    await left.close()


async def test_a_start_keeps_the_journal_files_with_mail_alone(rig: Rig) -> None:
    for number in range(3):
        await rig.post.send(f"u{number}@example.org")
        await rig.seal()
    live = {segment.path.name for segment in rig.shard.ring}
    left = Rig(rig.root.with_name("left"), rig.clock)
    copy_as_killed(rig.root, left.root)
    others = {"5.wal", "ready-7.wal"}
    for name in others:
        put(left.queue / "journal" / name, bytes(SEGMENT_SIZE))
    # By the MANIFEST as it was found: after a kill its last edit may be gone with the next power cut.
    left.disk.fail("rename", "*/MANIFEST*")
    with pytest.raises(StoreUnavailable):
        await left.open()
    assert set(journal_files(left)) >= live | others
    await left.open()
    assert set(journal_files(left)) >= live
    assert "5.wal" not in journal_files(left)
    assert len(left.listed()) == 3
    await left.close()

"""A journal file that is taken away, emptied or cut off from outside is missed, whichever it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcd.core.errors import StoreDamaged
from mqcd.core.events import Verb
from mqcd.disk.durable import Disk
from mqcd.queue.admin.findings import Kind as Trouble
from mqcd.queue.admin.fsck.survey import survey
from mqcd.queue.format.frame import Kind
from mqcd.queue.format.segment_header import HEADER_SIZE
from mqcd.queue.manifest import log as manifest
from mqcd.queue.manifest.state import Edit
from tests.fakes.clock import turns
from tests.fakes.killed import copy_as_killed
from tests.unit.queue.support import Rig


async def _killed(rig: Rig) -> Rig:
    """What a kill leaves, not opened yet: three segments, of which the newest is the third."""
    for name in "abc":
        await rig.post.send(f"{name}@example.org")
        if name != "c":
            await rig.seal()
    await rig.enrolled()
    return _copy(rig)


def _copy(rig: Rig) -> Rig:
    root = rig.root.with_name(f"{rig.root.name}k")
    copy_as_killed(rig.root, root)
    return Rig(root, rig.clock, **rig.changes)


def _newest(rig: Rig) -> Path:
    """The slot that is used last, found by the only mail in it."""
    [path] = (path for path in (rig.queue / "journal").iterdir() if b"c@example" in path.read_bytes())
    return path


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _headless(path: Path) -> None:
    path.write_bytes(bytes(HEADER_SIZE) + path.read_bytes()[HEADER_SIZE:])


def _overwritten(path: Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


@pytest.mark.parametrize("harm", [Path.unlink, _emptied, _headless, _overwritten])
async def test_the_newest_file_is_missed(rig: Rig, harm: Callable[[Path], None]) -> None:
    left = await _killed(rig)
    harm(_newest(left))
    found = survey(Disk(), left.options)
    [problem] = found.problems
    assert problem.kind is Trouble.JOURNAL
    number = max(rig.shard.ring.segments)
    assert f"journal segment {number} is missing" in problem.text
    with pytest.raises(StoreDamaged, match=f"journal segment {number} is missing"):
        await left.open()


async def test_the_first_file_of_a_run_is_missed(rig: Rig) -> None:
    await rig.post.send("c@example.org")
    await rig.enrolled()
    left = _copy(rig)
    _newest(left).unlink()
    with pytest.raises(StoreDamaged, match="is missing"):
        await left.open()


@pytest.mark.parametrize("left_over", [HEADER_SIZE, HEADER_SIZE + 20, None], ids=["header", "some", "frames"])
async def test_a_newest_file_that_is_cut_off_counts_as_damage(
    rig: Rig, left_over: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    left = await _killed(rig)
    path = _newest(left)
    end = rig.shard.ring.segments[max(rig.shard.ring.segments)].end
    path.write_bytes(path.read_bytes()[: end if left_over is None else left_over])
    [problem] = survey(Disk(), left.options).problems
    assert (problem.kind, problem.path) == (Trouble.FRAME, path)
    await left.open()
    assert left.shard.figures.quarantined == 1
    assert f"{path} ends at octet {path.stat().st_size}" in caplog.text
    kept = {each.address for each in await left.post.claim_all()}
    assert kept == {"a@example.org", "b@example.org"} | ({"c@example.org"} if left_over is None else set())
    await left.close()
    [aside] = (left.queue / "quarantine").iterdir()
    assert len(aside.read_bytes()) <= 20
    assert survey(Disk(), left.options).quarantined == 1


async def test_a_durable_last_frame_is_no_torn_tail(rig: Rig) -> None:
    left = await _killed(rig)
    path = _newest(left)
    path.write_bytes(path.read_bytes().replace(b"c@example.org", b"X@example.org"))
    [problem] = survey(Disk(), left.options).problems
    assert problem.kind is Trouble.FRAME
    await left.open()
    [aside] = (left.queue / "quarantine").iterdir()
    assert b"X@example.org" in aside.read_bytes()
    assert len(aside.read_bytes()) < 4096
    await left.close()


async def test_a_bad_frame_without_entries_spares_later_groups(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.enrolled()
    await rig.shard.journal.append(Kind.CARRY, [b""], 0, rig.clock.now(), lambda *_: None)
    segment = rig.shard.ring.current
    assert segment is not None
    end = segment.end
    await rig.post.send("c@example.org")
    left = _copy(rig)
    path = _newest(left)
    data = bytearray(path.read_bytes())
    data[end - 1] ^= 1
    path.write_bytes(data)
    [problem] = survey(Disk(), left.options).problems
    assert problem.kind is Trouble.FRAME
    await left.open()
    assert left.shard.figures.quarantined == 1
    assert [each.address for each in await left.post.claim_all()] == ["a@example.org", "c@example.org"]
    assert [each.recipient and each.recipient.address for each in left.observer.of(Verb.OUTCOME_UNKNOWN)] == [
        "a@example.org"
    ]
    await left.close()


async def test_a_last_frame_without_entries_is_no_damage(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.shard.journal.append(Kind.CARRY, [b""], 0, rig.clock.now(), lambda *_: None)
    await rig.shard.editing.commit(Edit())
    again = await rig.killed()
    assert again.shard.figures.quarantined == 0
    assert again.shard.journal.sequence == rig.shard.journal.sequence


async def test_a_segment_is_announced_after_its_first_durable_group(rig: Rig) -> None:
    gate = rig.disk.block("datasync", "*/journal/*")
    sending = asyncio.create_task(rig.post.send("a@example.org"))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    await turns(50)
    before = rig.shard.manifest.state
    assert before.last_segment == 0
    gate.release()
    await sending
    await rig.enrolled()
    after = rig.shard.manifest.state
    assert after.edit == before.edit + 1
    assert (after.last_segment, after.last_size) == (
        max(rig.shard.ring.segments),
        rig.shard.journal.capacity,
    )
    assert after.sequence == rig.shard.journal.sequence


async def test_only_a_new_segment_makes_an_edit(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.enrolled()
    edits = rig.shard.manifest.state.edit
    for name in "bc":
        await rig.post.send(f"{name}@example.org")
    await turns(50)
    assert rig.shard.manifest.state.edit == edits
    await rig.seal()
    await rig.post.send("d@example.org")
    await rig.enrolled()
    assert rig.shard.manifest.state.edit == edits + 1


async def test_an_edit_that_fails_is_made_ten_seconds_later(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.disk.fail("datasync", "*/MANIFEST")
    await rig.post.send("a@example.org")
    while not rig.clock.sleepers:
        await asyncio.sleep(0)
    assert "newest segment" in caplog.text
    assert rig.shard.manifest.state.last_segment == 0
    rig.clock.advance(10_000)
    await rig.enrolled()
    state = manifest.read(Disk(), rig.queue / "MANIFEST")
    assert state is not None
    assert state.last_segment == max(rig.shard.ring.segments)


async def test_a_segment_begun_during_an_edit_does_not_wait(rig: Rig) -> None:
    gate = rig.disk.block("datasync", "*/MANIFEST")
    await rig.post.send("a@example.org")
    assert await asyncio.to_thread(gate.reached.wait, 30)
    await rig.seal()
    await rig.post.send("b@example.org")
    gate.release()
    # The clock stands still.
    await rig.enrolled()

"""Getting mail out of a queue whose MANIFEST cannot be read."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from mqcd.core.errors import StoreDamaged, StoreUnavailable
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk
from mqcd.queue.admin.transfer import index
from mqcd.queue.admin.transfer.export import Exported, export
from mqcd.queue.admin.transfer.guess import Guess, guess
from tests.contract.mail import deferred, delivered
from tests.fakes.disk import FaultyDisk
from tests.unit.queue.admin.kit import DUE, LARGE, addresses, cluster_of, fill
from tests.unit.queue.support import Rig


async def at_work(rig: Rig) -> list[str]:
    """A queue as a kill leaves it: clusters, one of them half taken, and a journal; who waits in it."""
    await fill(rig)
    await rig.evacuate()
    await rig.post.send("gone@d.example", "stays@d.example", content=b"for two\r\n")
    claimed = {each.address: each for each in await rig.post.claim_all()}
    await rig.post.settle(delivered(), claimed["gone@d.example"])
    await rig.post.settle(deferred(DUE), claimed["stays@d.example"], claimed["new@c.example"])
    await rig.evacuate()
    rig.clock.advance(DUE)
    [one, other] = await rig.store.claim(2, rig.clock.now())
    await rig.post.settle(delivered(), one)
    await rig.post.settle(deferred(rig.clock.now() + DUE), other)
    await rig.post.send("late@d.example", content=b"in the journal\r\n")
    await rig.enrolled()
    return addresses(rig.listed())


def out(rig: Rig, target: Path, guessed: Guess) -> Exported:
    return export(Disk(), (rig.queue, rig.spool), Selection(), target, state=guessed.state)


def exported(target: Path) -> list[str]:
    """Who is in an export, each as often as it says."""
    lines = [json.loads(line) for line in (target / index.NAME).read_text().splitlines()]
    return sorted(each["recipient"] for line in lines for each in line["recipients"])


def flip(path: Path, line: int) -> None:
    """Turn one bit of a line of the MANIFEST over."""
    lines = path.read_bytes().splitlines(keepends=True)
    raw = bytearray(lines[line])
    raw[len(raw) // 2] ^= 1
    lines[line] = bytes(raw)
    path.write_bytes(b"".join(lines))


async def test_with_a_damaged_line_all_who_wait_are_found(rig: Rig, tmp_path: Path) -> None:
    waiting = await at_work(rig)
    path = rig.queue / "MANIFEST"
    data = path.read_bytes()
    ended: list[int] = []
    for line in range(data.count(b"\n") - 1):
        flip(path, line)
        with pytest.raises(StoreDamaged):
            rig.listed()
        guessed = guess(Disk(), rig.queue, rig.spool)
        done = out(rig, tmp_path / str(line), guessed)
        assert guessed.damaged == 1
        # Whether one that is gone had ended by the damaged line, nobody knows.
        assert (done.damaged > 0) == (guessed.gone > 0)
        assert guessed.lost == ""
        found = exported(tmp_path / str(line))
        assert set(waiting) <= set(found)
        assert len(found) == len(set(found))
        path.write_bytes(data)
        ended.append(guessed.gone)
    assert sorted(ended) == [0] * line + [1]
    assert line > 2


@pytest.mark.parametrize("left", [None, b"", b"\0" * 4096])
async def test_without_any_line_all_who_wait_are_found(rig: Rig, tmp_path: Path, left: bytes | None) -> None:
    waiting = await at_work(rig)
    path = rig.queue / "MANIFEST"
    data = path.read_bytes()
    if left is None:
        path.unlink()
    else:
        path.write_bytes(left)
    guessed = guess(Disk(), rig.queue, rig.spool)
    assert guessed.unlisted == len(rig.clusters())
    out(rig, tmp_path / "out", guessed)
    found = exported(tmp_path / "out")
    assert set(waiting) <= set(found)
    assert len(found) == len(set(found))
    assert LARGE in [each.read_bytes() for each in (tmp_path / "out").glob("*.eml")]
    path.write_bytes(data)


async def test_what_ended_by_a_line_that_checks_is_not_read(rig: Rig, tmp_path: Path) -> None:
    await rig.post.send("done@d.example", "waits@e.example")
    await rig.evacuate()
    path = cluster_of(rig, "incoming")
    data = path.read_bytes()
    done, waits = sorted(await rig.post.claim_all(), key=lambda each: each.address)
    await rig.post.settle(delivered(), done)
    await rig.post.settle(deferred(rig.clock.now() + DUE), waits)
    await rig.evacuate()
    await rig.close()
    path.write_bytes(data)
    with (rig.queue / "MANIFEST").open("ab") as manifest:
        manifest.write(b"nonsense\n" * 2)
    guessed = guess(Disk(), rig.queue, rig.spool)
    assert (guessed.damaged, guessed.unlisted, guessed.gone) == (2, 0, 0)
    out(rig, tmp_path / "out", guessed)
    assert exported(tmp_path / "out") == ["waits@e.example"]


async def test_clusters_that_are_reported_and_not_there_are_counted(rig: Rig, tmp_path: Path) -> None:
    await fill(rig)
    await rig.close()
    cluster_of(rig, "deferred").unlink()
    with (rig.queue / "MANIFEST").open("ab") as manifest:
        manifest.write(b"nonsense\n" * 2)
    guessed = guess(Disk(), rig.queue, rig.spool)
    assert (guessed.unlisted, guessed.gone, guessed.lost) == (0, 1, "")
    assert out(rig, tmp_path / "out", guessed).damaged == 3
    assert exported(tmp_path / "out") == ["bounces@a.example", "new@c.example"]


async def test_what_a_missing_segment_leaves_is_found(rig: Rig, tmp_path: Path) -> None:
    await at_work(rig)
    await rig.seal()
    await rig.post.send("last@d.example")
    newest = rig.shard.ring.current
    assert newest is not None
    aside = tmp_path / "aside"
    await rig.enrolled()
    newest.path.rename(aside)
    with pytest.raises(StoreDamaged, match="is missing"):
        rig.listed()
    guessed = guess(Disk(), rig.queue, rig.spool)
    assert (guessed.damaged, guessed.unlisted, guessed.gone) == (0, 0, 0)
    assert f"journal segment {newest.number} is missing" in guessed.lost
    assert "fsck" not in guessed.lost
    out(rig, tmp_path / "out", guessed)
    aside.rename(newest.path)
    waiting = set(addresses(rig.listed()))
    assert waiting - set(exported(tmp_path / "out")) == {"last@d.example"}


async def test_nothing_is_guessed_where_the_manifest_can_be_read(rig: Rig) -> None:
    await fill(rig)
    with pytest.raises(StoreUnavailable, match="MANIFEST can be read, and so can the journal"):
        guess(Disk(), rig.queue, rig.spool)


async def test_a_named_segment_is_missed_beside_a_damaged_line(rig: Rig) -> None:
    await at_work(rig)
    newest = rig.shard.ring.current
    assert newest is not None
    with (rig.queue / "MANIFEST").open("ab") as manifest:
        manifest.write(b"nonsense\n" * 2)
    assert guess(Disk(), rig.queue, rig.spool).lost == ""
    newest.path.unlink()
    assert f"journal segment {newest.number} is missing" in guess(Disk(), rig.queue, rig.spool).lost


def test_where_there_is_no_queue_nothing_is_guessed(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StoreUnavailable, match="holds no queue"):
            guess(Disk(), root, root)


async def test_an_unlisted_cluster_that_cannot_be_read_stops_nothing(rig: Rig, tmp_path: Path) -> None:
    await fill(rig)
    await rig.close()
    (rig.queue / "MANIFEST").unlink()
    shutil.rmtree(rig.queue / "journal")
    path = cluster_of(rig, "deferred")
    for operation, told in (("open", [f"{path}: {os.strerror(errno.EIO)}"]), ("pread", [])):
        disk = FaultyDisk()
        disk.fail(operation, str(path), times=None)
        guessed = guess(disk, rig.queue, rig.spool)
        assert guessed.unread == told
        target = tmp_path / operation
        done = export(disk, (rig.queue, rig.spool), Selection(), target, state=guessed.state)
        assert done.damaged == 1
        assert exported(target) == ["bounces@a.example", "new@c.example"]


async def test_a_manifest_that_cannot_be_read_is_as_good_as_none(rig: Rig, tmp_path: Path) -> None:
    waiting = await at_work(rig)
    disk = FaultyDisk()
    disk.fail("*", f"{rig.queue}/MANIFEST", code=errno.EACCES, times=None)
    guessed = guess(disk, rig.queue, rig.spool)
    assert guessed.unread == [f"{rig.queue}/MANIFEST: {os.strerror(errno.EACCES)}"]
    done = export(disk, (rig.queue, rig.spool), Selection(), tmp_path / "out", state=guessed.state)
    assert done.damaged == 0
    assert set(waiting) <= set(exported(tmp_path / "out"))

"""Whose queue it is: one owner, and roots that belong together."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from mqcd.core.errors import StoreBusy, StoreDamaged, StoreUnavailable
from mqcd.disk.durable import Disk
from mqcd.queue.disk import owner_lock as identity
from tests.fakes.clock import turns
from tests.fakes.disk import FaultyDisk
from tests.fakes.killed import copy_as_killed
from tests.unit.queue.support import Rig


async def test_a_second_owner_is_refused_and_told_who_has_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It waits for a killed owner's helper; here nobody is about to let go.
    monkeypatch.setattr(identity, "_WAITS", 1)
    with pytest.raises(StoreBusy, match=f"in use by process {os.getpid()}; stop that server"):
        await Rig(rig.root).open()
    await rig.post.send("a@example.org")


async def test_the_helper_of_an_owner_that_has_ended_is_waited_for_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_WAITS", 1)
    monkeypatch.setattr(identity, "_WAIT_SECONDS", 0)
    disk, owner = FaultyDisk(), await asyncio.create_subprocess_exec("true")
    await owner.wait()
    held = await identity.take_lock(disk, tmp_path)
    (tmp_path / "lock").write_text(str(owner.pid))
    taking = asyncio.ensure_future(identity.take_lock(disk, tmp_path))
    await turns(20)
    assert not taking.done()
    given_up = asyncio.ensure_future(identity.take_lock(disk, tmp_path))
    await turns(3)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    disk.close(held)
    disk.close(await taking)
    assert disk._paths == {}


async def test_the_lock_is_free_after_a_close(rig: Rig) -> None:
    again = await rig.reopened()
    assert (again.queue / "lock").read_text().split() == [str(os.getpid())]


def test_new_roots_get_one_name(tmp_path: Path) -> None:
    roots = roots_at(tmp_path)
    identity.check_roots(Disk(), roots, new=True)
    names = {(root / "uuid").read_text() for root in roots}
    assert len(names) == 1
    identity.check_roots(Disk(), roots, new=False)


def roots_at(path: Path) -> list[Path]:
    roots = [path / "queue", path / "spool"]
    for root in roots:
        root.mkdir()
    return roots


def test_a_naming_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    roots = roots_at(tmp_path)
    (roots[0] / "uuid").write_text("one\n")
    identity.check_roots(Disk(), roots, new=True)
    assert (roots[1] / "uuid").read_text() == "one\n"


@pytest.mark.parametrize("name", ["queue", "spool"])
@pytest.mark.parametrize("change", ["missing", "other", "empty"])
async def test_roots_that_do_not_belong_together_are_refused(rig: Rig, name: str, change: str) -> None:
    await rig.post.send("a@example.org")
    await rig.close()
    path = rig.root / name / "uuid"
    if change == "missing":
        path.unlink()
    else:
        path.write_text("another\n" if change == "other" else "")
    with pytest.raises(StoreDamaged, match=r"do not belong together .*Is the right disk mounted"):
        await Rig(rig.root).open()


async def test_a_spool_that_is_not_mounted_is_refused(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.evacuate()
    await rig.close()
    rig.spool.rename(rig.root / "elsewhere")
    with pytest.raises(StoreDamaged, match="do not belong together"):
        await Rig(rig.root).open()


@pytest.mark.parametrize("rest", ["journal", "clusters"])
async def test_a_missing_manifest_beside_mail_is_refused(rig: Rig, rest: str) -> None:
    await rig.post.send("a@example.org")
    if rest == "clusters":
        await rig.evacuate()
    await rig.close()
    (rig.queue / "MANIFEST").unlink()
    if rest == "clusters":
        for path in (rig.queue / "journal").iterdir():
            path.unlink()
    with pytest.raises(StoreDamaged, match=r"MANIFEST is missing though the queue holds files.*mqcd fsck"):
        await Rig(rig.root).open()


async def test_a_queue_of_mailismus_is_refused_with_what_to_do(tmp_path: Path) -> None:
    cluster = tmp_path / "q" / "queue" / "deferred" / "T1795187940" / "M000001A1F97BB4C6-1-p782.mqc"
    cluster.parent.mkdir(parents=True)
    cluster.write_text("")
    with pytest.raises(StoreUnavailable, match=r"is a queue of Mailismus.*--var.*import mailismus"):
        await Rig(tmp_path / "q").open()


async def test_a_missing_segment_is_refused(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    again = await rig.killed()
    [first] = again.shard.ring
    root = again.root.with_name("copy")
    copy_as_killed(again.root, root)
    (root / "queue" / "journal" / first.path.name).unlink()
    with pytest.raises(StoreDamaged, match=f"journal segment {first.number} is missing"):
        await Rig(root).open()


async def test_a_refused_start_lets_go_of_the_lock(rig: Rig) -> None:
    await rig.close()
    (rig.spool / "uuid").rename(rig.spool / "kept")
    with pytest.raises(StoreDamaged):
        await Rig(rig.root).open()
    (rig.spool / "kept").rename(rig.spool / "uuid")
    again = await Rig(rig.root).open()
    await again.close()


async def test_files_are_for_the_owner_alone(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.evacuate()
    for path in rig.root.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path

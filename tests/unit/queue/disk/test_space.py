"""The door closes before a file system is full, and opens by itself."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.disk.durable import Disk
from mqcd.queue.disk.space import Space
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FaultyDisk
from tests.unit.queue.support import Rig

ROOTS = (Path("queue"), Path("spool"), Path("events"))


class Filling(Disk):
    """A disk that says what a test tells it to say."""

    def __init__(self) -> None:
        self.left: dict[Path, tuple[int, int] | OSError] = dict.fromkeys(ROOTS, (1000, 1000))
        self.looks = 0

    def free(self, path: Path) -> tuple[int, int]:
        self.looks += 1
        left = self.left[path]
        if isinstance(left, OSError):
            raise left
        return left


def space(disk: Filling, clock: FakeClock) -> Space:
    return Space(disk, clock, {root.name: root for root in ROOTS}, octets=100, inodes=10)


def test_nothing_is_short_while_every_root_has_room() -> None:
    assert space(Filling(), FakeClock()).short() == ""


def test_each_root_counts_by_itself_and_is_named() -> None:
    for root in ROOTS:
        disk = Filling()
        disk.left[root] = (99, 1000)
        assert space(disk, FakeClock()).short() == f"{root}: 99 octets are free, minfree is 100"
        disk.left[root] = (1000, 9)
        assert space(disk, FakeClock()).short() == f"{root}: 9 inodes are free, mininodes is 10"


def test_a_file_system_without_a_number_of_inodes_is_not_short() -> None:
    disk = Filling()
    disk.left[ROOTS[0]] = (1000, 0)
    assert space(disk, FakeClock()).short() == ""


def test_a_root_that_cannot_be_asked_is_short() -> None:
    disk = Filling()
    disk.left[ROOTS[1]] = OSError(5, "Input/output error", "spool")
    assert space(disk, FakeClock()).short() == "spool: Input/output error"


def test_a_file_system_that_has_become_read_only_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel makes it so after an error of its disk; room is still told of."""
    clock = FakeClock()
    watched = Space(Disk(), clock, {"spool": tmp_path}, octets=0, inodes=0)
    assert watched.short() == ""
    values = list(os.statvfs(tmp_path))
    values[8] |= os.ST_RDONLY
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(values))
    clock.advance(1000)
    assert watched.short() == f"{tmp_path}: {os.strerror(errno.EROFS)}"


def test_streams_take_nothing_of_what_is_to_stay_free() -> None:
    disk, clock = Filling(), FakeClock()
    watched = space(disk, clock)
    assert [watched.short_for("spool", 300) for _ in range(3)] == ["", "", ""]
    disk.left[ROOTS[1]] = (100, 1000)
    assert " 300 octets" in watched.short_for("spool", 300)
    disk.left[ROOTS[1]] = (401, 1000)
    assert watched.short_for("spool", 300) == ""
    disk.left[ROOTS[1]] = (99, 1000)
    clock.advance(1000)
    assert watched.short_for("spool", 1) == f"{ROOTS[1]}: 99 octets are free, minfree is 100"


def test_what_was_freed_is_seen_before_a_stream_is_refused() -> None:
    disk = Filling()
    watched = space(disk, FakeClock())
    assert watched.short_for("spool", 900) == ""
    assert watched.short_for("spool", 900) == ""
    assert disk.looks == 6


class Shrinking(FaultyDisk):
    """A disk on which others write, too."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 1 << 40

    def free(self, path: Path) -> tuple[int, int]:
        return self.left, 1 << 20


@pytest.mark.parametrize("drips", [False, True])
async def test_a_stream_ends_where_the_room_does(tmp_path: Path, drips: bool) -> None:
    disk = Shrinking()
    rig = await Rig(tmp_path / "q", disk=disk, minfree=1 << 20).open()

    async def stream() -> AsyncIterator[bytes]:
        for number in range(100):
            if drips:
                rig.clock.advance(1000)
            if number == 50:
                disk.left = (1 << 20) + 1
            yield bytes(1 << 16)
        raise AssertionError("nobody looked")

    if not drips:
        disk.left = (1 << 20) + 50 * (1 << 16)
    with pytest.raises(StoreUnavailable, match="minfree is"):
        await rig.store.enqueue(rig.post.submission("a@example.org", content=stream()))
    assert [path for path in rig.shard.spool_root.rglob("*") if path.suffix in (".msg", ".tmp")] == []
    disk.left = 1 << 40
    rig.clock.advance(1000)
    await rig.post.send("b@example.org")
    await rig.close()


def test_it_looks_once_a_second_and_opens_by_itself() -> None:
    disk, clock = Filling(), FakeClock()
    watched = space(disk, clock)
    disk.left[ROOTS[0]] = (0, 1000)
    assert watched.short()
    disk.left[ROOTS[0]] = (1000, 1000)
    clock.advance(999)
    assert watched.short()
    clock.advance(1)
    assert watched.short() == ""
    assert disk.looks == 4

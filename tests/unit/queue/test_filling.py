"""No frame lies in space that was not written and synced before: an ext4 that aborts its journal loses it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from mqcd.disk.durable import Buffer, Disk
from mqcd.queue.helper.jobs import Prepare, prepare
from tests.fakes.disk import FaultyDisk
from tests.unit.queue.wal.test_group_commit import Bench

CAPACITY = 1 << 20


class Sparse(FaultyDisk):
    """Notes what is written where nothing was written and synced before, but for zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.early: list[tuple[str, int]] = []
        self._written: dict[int, int] = {}
        self._synced: dict[int, int] = {}

    def known(self, path: Path) -> None:
        """All of the file has been written and synced."""
        self._synced[path.stat().st_ino] = path.stat().st_size

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        inode, data = os.fstat(fd).st_ino, b"".join(buffers)
        end = offset + len(data)
        if data.strip(b"\0") and end > self._synced.get(inode, 0):
            self.early.append((self._path(fd).name, offset))
        self._written[inode] = max(end, self._written.get(inode, 0))
        return super().pwritev(fd, buffers, offset)

    def datasync(self, fd: int) -> None:
        super().datasync(fd)
        inode = os.fstat(fd).st_ino
        self._synced[inode] = max(self._written.get(inode, 0), self._synced.get(inode, 0))


@pytest.fixture
def disk() -> Sparse:
    return Sparse()


@pytest.fixture
async def bench(tmp_path: Path, disk: Sparse) -> AsyncIterator[Bench]:
    made = Bench(tmp_path / "journal", disk=disk, capacity=CAPACITY)
    yield made
    disk.mend()
    await made.journal.stop()


async def test_new_slots_are_filled_ahead_of_their_frames(bench: Bench, disk: Sparse) -> None:
    for _ in range(20):
        await bench.append(b"x" * 100_000)
    assert len(bench.sealed) == 1
    assert not disk.early


async def test_one_group_larger_than_a_stretch_is_filled_for(bench: Bench, disk: Sparse) -> None:
    await bench.append(b"x" * (CAPACITY // 2))
    assert not disk.early


async def test_the_first_mail_waits_for_a_short_stretch(bench: Bench, disk: Sparse) -> None:
    await bench.append(b"x")
    assert (bench.directory / "1.wal").stat().st_size == CAPACITY
    assert disk._written[(bench.directory / "1.wal").stat().st_ino] < CAPACITY


async def test_the_file_after_a_failed_one_is_filled(bench: Bench, disk: Sparse) -> None:
    await bench.append(b"one")
    disk.fail("datasync", "*/journal/*", passes=1)
    await bench.append(b"two")
    await bench.append(b"three")
    assert not disk.early


async def test_a_file_that_was_only_reserved_is_filled(bench: Bench, disk: Sparse) -> None:
    path = bench.ring.path_of(0)
    bench.ring.free.append(path)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, CAPACITY)
        file.write(b"an earlier use of the slot" * 1000)
        os.fsync(file.fileno())
    for _ in range(5):
        await bench.append(b"x" * 100_000)
    assert len(bench.sealed) == 0
    assert not disk.early


async def test_a_file_that_was_made_ready_is_not_filled_again(bench: Bench, disk: Sparse) -> None:
    path = bench.ring.next_ready()
    assert path is not None
    prepare(Disk(), Prepare(path, CAPACITY))
    bench.ring.free.append(path)
    disk.known(path)
    await bench.append(b"one")
    assert disk.count("pwritev") == 1
    assert not disk.early


def test_a_file_is_filled_in_parts_that_are_synced_one_by_one(tmp_path: Path) -> None:
    disk = Sparse()
    prepare(disk, Prepare(tmp_path / "00", 9 << 20))
    assert (tmp_path / "00").read_bytes() == bytes(9 << 20)
    assert disk.count("datasync") == 3
    assert Disk.filled(disk, os.open(tmp_path / "00", os.O_RDONLY)) == 9 << 20

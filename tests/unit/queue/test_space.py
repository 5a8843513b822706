"""The door closes before a file system is full, and opens by itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mqcd.queue.durable import Disk
from mqcd.queue.space import Space
from tests.fakes.clock import FakeClock

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

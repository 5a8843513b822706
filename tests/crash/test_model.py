"""The persistence model says of a disk what it should, and the disk in memory is like the real one."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcd.disk.durable import Disk, Measure
from tests.crash.matrix import Baseline, Cut, all_cuts
from tests.crash.memory import MemoryDisk, Trace
from tests.crash.model import LENGTH, SECTOR, Choice, State

ROOT = Path("/")
A, B = ROOT / "a", ROOT / "b"


def _left(disk: MemoryDisk, choice: Choice) -> dict[str, bytes]:
    """The files in the root that a cut leaves."""
    after = MemoryDisk(disk.state.image(choice).state())
    return {name: after.read_file(ROOT / name) for name in after.names(ROOT) if not after.is_dir(ROOT / name)}


def _all_left(disk: MemoryDisk) -> list[dict[str, bytes]]:
    units = disk.state.undecided()
    return [_left(disk, cut.choice(units)) for cut in all_cuts(0, units)]


def _durable(octets: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    disk.write_temp(A, [octets])
    disk.sync_dir(ROOT)
    return disk


def test_what_was_synced_with_its_name_is_in_every_image() -> None:
    disk = _durable(b"x" * 2000)
    assert not disk.state.undecided()
    assert _all_left(disk) == [{"a": b"x" * 2000}] * 4


def test_names_and_octets_may_survive_apart() -> None:
    disk = MemoryDisk()
    disk.write_temp(A, [b"x" * 600])
    assert {} in _all_left(disk)
    disk = MemoryDisk()
    disk.write_temp(A, [b"x" * 600], sync=False)
    disk.sync_dir(ROOT)
    assert {"a": b""} in _all_left(disk)
    assert {"a": bytes(600)} in _all_left(disk)
    assert {"a": bytes(SECTOR) + b"x" * 88} in _all_left(disk)
    assert {"a": b"x" * SECTOR + bytes(88)} in _all_left(disk)


def test_each_sector_is_old_or_new_or_in_between() -> None:
    disk = _durable(b"-" * 1024)
    fd = disk.open(A, os.O_RDWR)
    disk.pwritev(fd, [b"1" * 1024], 0)
    disk.pwritev(fd, [b"2" * 10], 0)
    found = {each["a"] for each in _all_left(disk)}
    assert {content[:10] for content in found} == {b"-" * 10, b"1" * 10, b"2" * 10}
    assert {(content[:1], content[-1:]) for content in found} >= {(b"2", b"-"), (b"-", b"1")}
    assert not any(content.startswith(b"2" * 10 + b"-") for content in found)


def test_a_length_is_ahead_of_its_octets_or_behind() -> None:
    disk = _durable(b"")
    fd = disk.open(A, os.O_RDWR)
    disk.pwritev(fd, [b"x" * 700], 0)
    [(node, _)] = [unit for unit in disk.state.undecided() if unit[1] == LENGTH]
    assert _left(disk, {(node, LENGTH): 1}) == {"a": bytes(700)}
    assert _left(disk, {(node, 0): 1, (node, 1): 1}) == {"a": b""}


def test_the_halves_of_a_rename_come_apart() -> None:
    disk = _durable(b"x")
    disk.rename(A, B)
    assert {frozenset(each) for each in _all_left(disk)} == {
        frozenset("a"),
        frozenset("b"),
        frozenset("ab"),
        frozenset(),
    }
    disk.sync_dir(ROOT)
    assert _all_left(disk) == [{"b": b"x"}] * 4


def test_a_name_that_is_used_again_is_any_of_its_files() -> None:
    disk = _durable(b"old")
    disk.make_dir(ROOT / "d")
    disk.unlink(A)
    disk.write_temp(A, [b"new"])
    disk.sync_dir(ROOT / "d")
    assert {each.get("a") for each in _all_left(disk)} == {b"old", None, b"new"}


def test_a_removed_name_may_return_before_the_directory_sync() -> None:
    disk = _durable(b"x")
    disk.unlink(A)
    assert {"a": b"x"} in _all_left(disk)
    disk.sync_dir(ROOT)
    assert _all_left(disk) == [{}] * 4


def test_what_lies_in_a_directory_without_a_name_is_gone() -> None:
    disk = MemoryDisk()
    disk.make_dir(A)
    disk.write_temp(A / "x", [b"x"])
    disk.sync_dir(A)
    [unit] = disk.state.undecided()
    assert disk.state.image({}).state().find(A / "x") is None
    assert disk.state.image({unit: 1}).state().find(A / "x") is not None


def test_unsynced_space_may_be_lost_by_its_first_sync() -> None:
    disk = _durable(b"")
    fd = disk.open(A, os.O_RDWR)
    disk.reserve(fd, 2 * SECTOR)
    disk.datasync(fd)
    disk.pwritev(fd, [b"x" * SECTOR], 0)
    disk.datasync(fd)
    assert {"a": bytes(2 * SECTOR)} in _all_left(disk)
    # What comes after it tells that nothing has been aborted.
    disk.pwritev(fd, [b"y"], SECTOR)
    assert {"a": bytes(2 * SECTOR)} in _all_left(disk)
    disk.datasync(fd)
    assert all(each["a"].startswith(b"x" * SECTOR) for each in _all_left(disk))


@pytest.mark.parametrize("ahead", [False, True], ids=["sure sync", "zeros"])
def test_space_that_was_synced_before_is_kept_by_each_sync(ahead: bool) -> None:
    disk = _durable(b"")
    fd = disk.open(A, os.O_RDWR)
    if ahead:
        disk.zero_fill(fd, 0, SECTOR)
        assert disk.filled(fd) == SECTOR
    disk.pwritev(fd, [b"x" * SECTOR], 0)
    (disk.datasync if ahead else disk.sync_appended)(fd)
    assert _all_left(disk) == [{"a": b"x" * SECTOR}] * 4


def test_a_file_system_is_synced_and_no_other() -> None:
    disk = MemoryDisk(roots=(A, B))
    for root in (A, B):
        disk.make_dir(root)
    disk.sync_dir(ROOT)
    for root in (A, B):
        disk.write_temp(root / "x", [b"x"], sync=False)
    disk.sync_filesystem(A)
    after = disk.state.image({}).state()
    assert after.find(A / "x") is not None
    assert after.find(B / "x") is None
    disk.sync_filesystem(ROOT)
    assert disk.state.image({}).state().find(B / "x") is None


def test_octets_that_go_bad_do_so_at_once() -> None:
    disk = _durable(b"good")
    disk.damage(A, 0, b"b")
    assert _all_left(disk) == [{"a": b"bood"}] * 4


def test_a_killed_process_leaves_what_was_written_undecided() -> None:
    disk = MemoryDisk()
    disk.write_temp(A, [b"x"], sync=False)
    twin = MemoryDisk(disk.state.clone())
    assert twin.read_file(A) == b"x"
    assert {} in _all_left(twin)
    twin.sync_filesystem(ROOT)
    twin.sync_dir(ROOT)
    assert _all_left(twin) == [{"a": b"x"}] * 4
    assert {} in _all_left(disk)


def test_images_are_equal_when_they_hold_the_same() -> None:
    disk = _durable(b"x" * 600)
    fd = disk.open(A, os.O_RDWR)
    disk.pwritev(fd, [b"y" * 600], 0)
    units = disk.state.undecided()
    keys = {disk.state.image(cut.choice(units)).key() for cut in all_cuts(0, units)}
    assert len(keys) == 4
    assert (
        disk.state.image(Cut(0, Baseline.NOTHING).choice(units)).key()
        == _durable(b"x" * 600).state.image({}).key()
    )


def test_a_trace_makes_the_same_disk_again() -> None:
    disk = MemoryDisk()
    disk.trace = Trace(State())
    chance = random.Random(5)
    for _ in range(300):
        _step(disk, ROOT, chance)
    state = State()
    for op in disk.trace.ops:
        state.apply(op)
    assert state.undecided() == disk.state.undecided()
    for baseline in Baseline:
        choice = Cut(0, baseline).choice(state.undecided())
        assert state.image(choice).key() == disk.state.image(choice).key()


@pytest.mark.parametrize("seed", range(8))
def test_a_disk_in_memory_is_like_the_real_one(tmp_path: Path, seed: int) -> None:
    real, memory = Disk(), MemoryDisk()
    for number in range(250):
        ours, theirs = random.Random((seed << 16) + number), random.Random((seed << 16) + number)
        assert _step(real, tmp_path, ours) == _step(memory, ROOT, theirs)
        assert _tree(real, tmp_path) == _tree(memory, ROOT)


def _tree(disk: Disk, top: Path) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name in disk.names(top):
        path = top / name
        found[name] = None if disk.is_dir(path) else disk.read_file(path)
        found |= {f"{name}/{below}": content for below, content in _tree(disk, path).items()}
    return found


def _step(disk: Disk, top: Path, chance: random.Random) -> object:
    """One call by chance, with what it gives or how it fails."""
    path, other = (top / chance.choice(("x", "y", "d", "d/x", "d/e/y", "e")) for _ in range(2))
    octets = chance.randbytes(chance.choice((0, 3, 600, 1500)))
    at = chance.randrange(1200)
    calls: list[Callable[[], object]] = [
        lambda: disk.write_temp(path, [octets, b"end"]),
        lambda: disk.replace_file(path, [octets]),
        lambda: _patch(disk, path, octets, at),
        lambda: disk.read_file(path),
        lambda: disk.rename(path, other) if not disk.is_dir(path) and not disk.is_dir(other) else None,
        lambda: disk.link(path, other) if not disk.is_dir(path) else None,
        lambda: disk.unlink(path) if not disk.is_dir(path) else None,
        lambda: disk.rmdir(path) if not disk.exists(path) or disk.is_dir(path) else None,
        lambda: disk.mkdir(path) if not disk.exists(path) or disk.is_dir(path) else None,
        lambda: disk.exists(path),
        lambda: disk.sync_dir(path) if not disk.exists(path) or disk.is_dir(path) else None,
        lambda: _octets(disk.measure(path)),
        lambda: disk.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) > 0 if disk.exists(path) else None,
    ]
    try:
        return chance.choice(calls)()
    except OSError as error:
        # A path through a file, and a directory where a file is meant, are told in more than one way.
        return errno.errorcode[error.errno or 0] if error.errno not in _SAME else "no such thing"


def _octets(found: Measure | None) -> int | None:
    return found.octets if found is not None else None


_SAME = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)


def _patch(disk: Disk, path: Path, octets: bytes, at: int) -> tuple[int, bytes]:
    fd = disk.open(path, os.O_RDWR | os.O_CREAT)
    try:
        disk.pwritev(fd, [octets], at)
        if at % 3 == 0:
            disk.reserve(fd, at * 2 + 1)
        disk.datasync(fd)
        return disk.size(fd), disk.pread(fd, 700, at // 2)
    finally:
        disk.close(fd)

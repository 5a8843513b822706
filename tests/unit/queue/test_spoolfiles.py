"""Spool files go with their last recipient, not before, and not under a reader."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mqcd.core.errors import ContentUnavailable, StoreUnavailable
from mqcd.disk.durable import Disk
from mqcd.queue.spool.deleter import PIN_MS
from mqcd.queue.spool.files import SpoolContent
from tests.contract.harness import MINUTE
from tests.contract.mail import BODY, deferred, delivered
from tests.fakes.clock import turns
from tests.fakes.disk import FaultyDisk
from tests.unit.queue.support import Rig


async def later(rig: Rig, *minutes: int) -> None:
    """A message whose recipients become due after so many minutes each, at rest in a cluster."""
    now = rig.clock.now()
    await rig.post.send(*(f"u{n}@example.org" for n in minutes))
    for n, each in zip(minutes, await rig.post.claim_all(), strict=True):
        await rig.post.settle(deferred(now + n * MINUTE), each)
    await rig.evacuate()
    assert len(rig.spooled()) == 1


async def deliver_due(rig: Rig) -> None:
    [claimed] = await rig.post.claim_all()
    assert await rig.post.read(claimed) == BODY
    await rig.post.settle(delivered(), claimed)
    await rig.sweep()


async def test_a_spool_file_goes_with_the_last_recipient(rig: Rig) -> None:
    await later(rig, 1, 2, 3)
    for left in (2, 1, 0):
        rig.clock.advance(MINUTE)
        await deliver_due(rig)
        assert len(rig.spooled()) == bool(left)


@pytest.mark.parametrize("kill", [True, False])
async def test_also_after_restarts_without_a_count(rig: Rig, kill: bool) -> None:
    await later(rig, 1, 2, 3)
    for left in (2, 1, 0):
        rig = await (rig.killed() if kill else rig.reopened())
        await turns()
        rig.clock.advance(MINUTE)
        await deliver_due(rig)
        assert len(rig.spooled()) == bool(left)


async def test_a_cluster_that_cannot_be_read_keeps_all_files(rig: Rig) -> None:
    await later(rig, 1, 2)
    rig = await rig.reopened()
    await turns()
    rig.clock.advance(MINUTE)
    [claimed] = await rig.post.claim_all()
    await rig.post.settle(delivered(), claimed)
    [name] = rig.clusters()
    rig.disk.fail("open", f"*/{name}", times=None)
    await rig.sweep()
    assert len(rig.spooled()) == 1


async def test_a_quarantined_record_keeps_its_content(rig: Rig) -> None:
    await later(rig, 1, 1)
    rig = await rig.reopened()
    await turns()
    [name] = rig.clusters()
    path = rig.queue / name
    path.write_bytes(path.read_bytes().replace(b"u1@example.org", b"U1@example.org", 1))
    rig.clock.advance(MINUTE)
    await deliver_due(rig)
    assert rig.shard.figures.quarantined == 1
    assert rig.shard.cluster_index.left() == []
    assert len(rig.spooled()) == 1


async def test_a_scan_that_failed_is_made_again(rig: Rig) -> None:
    await later(rig, 1, 2)
    rig = await rig.reopened()
    await turns()
    rig.clock.advance(2 * MINUTE)
    for each in await rig.post.claim_all():
        await rig.post.settle(delivered(), each)
    rig.disk.fail("names", "*/quarantine")
    await rig.sweep()
    assert len(rig.spooled()) == len(rig.shard.references.batch) == 1
    await rig.sweep()
    assert rig.spooled() == []


async def test_a_snapshots_pin_delays_removal(rig: Rig) -> None:
    await later(rig, 1)
    rig.clock.advance(MINUTE)
    [claimed] = await rig.post.claim_all()
    snapshot = rig.snapshot()
    await rig.post.settle(delivered(), claimed)
    await rig.clock.run_for(1000)
    assert b"".join(snapshot.content(claimed.spid)) == BODY
    assert len(rig.spooled()) == 1
    snapshot.close()
    await rig.clock.run_for(1000)
    await rig.shard.deleter.settled()
    assert rig.spooled() == []


async def test_a_pin_ends_after_its_time(rig: Rig) -> None:
    await later(rig, 1)
    rig.clock.advance(MINUTE)
    snapshot = rig.snapshot()
    await rig.post.settle(delivered(), *await rig.post.claim_all())
    await rig.clock.run_for(PIN_MS + 1000)
    await rig.shard.deleter.settled()
    assert rig.spooled() == []
    snapshot.close()


# ---------------------------------------------------------------- reading large contents


class Remembering(Disk):
    """A disk of which the kernel has everything in memory, or nothing."""

    def __init__(self, everything: bool, code: int = 0) -> None:
        self.everything = everything
        self.code = code
        self.threads: set[int] = set()

    def pread_cached(self, fd: int, octets: int, offset: int) -> bytes | None:
        if self.code:
            raise OSError(self.code, os.strerror(self.code))
        return super().pread(fd, octets, offset) if self.everything else None

    def pread(self, fd: int, octets: int, offset: int) -> bytes:
        self.threads.add(threading.get_ident())
        return super().pread(fd, octets, offset)


async def read_through(disk: Disk, path: Path) -> bytes:
    with ThreadPoolExecutor(1) as executor:
        content = SpoolContent(disk, executor, path, path.stat().st_size)
        try:
            parts = []
            while part := await content.read(1000):
                parts.append(part)
            return b"".join(parts)
        finally:
            content.close()


@pytest.mark.parametrize("in_memory", [True, False])
async def test_a_thread_reads_only_what_is_not_in_memory(tmp_path: Path, in_memory: bool) -> None:
    path = tmp_path / "content"
    path.write_bytes(bytes(range(256)) * 10)
    disk = Remembering(in_memory)
    assert await read_through(disk, path) == path.read_bytes()
    assert len(disk.threads) == (not in_memory)
    assert threading.get_ident() not in disk.threads


class FailsToClose(FaultyDisk):
    """A disk that reports a write error when a file of the spool is closed, as network file systems do."""

    def close(self, fd: int) -> None:
        path = self._path(fd)
        super().close(fd)
        if path.match("s??/*"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


async def test_a_draft_that_fails_to_close_closes_no_other_file(tmp_path: Path) -> None:
    rig = await Rig(tmp_path / "q", disk=FailsToClose()).open()
    with pytest.raises(StoreUnavailable, match="Input/output error"):
        await rig.post.send("a@example.org", content=b"x" * 20_000)
    assert rig.disk.count("close", "*/s??/*") == 1
    assert rig.disk.count("close", "unknown") == 0
    assert rig.spooled() == []
    await rig.close()


async def test_a_content_that_fails_to_close_closes_no_other_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s01" / "content"
    path.parent.mkdir()
    path.write_bytes(b"x" * 2000)
    disk = FailsToClose()
    assert await read_through(disk, path) == b"x" * 2000
    assert disk.count("close") == 1
    assert str(path) in caplog.text


async def test_a_failed_read_without_wait_is_no_end_of_content(tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_bytes(b"x" * 2000)
    with pytest.raises(ContentUnavailable, match="Input/output error"):
        await read_through(Remembering(True, errno.EIO), path)


def test_what_the_kernel_has_in_memory_is_what_the_file_holds(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "content"
    path.write_bytes(b"0123456789")
    fd = disk.open(path, os.O_RDONLY)
    assert disk.pread_cached(fd, 4, 3) in (b"3456", None)
    assert disk.pread_cached(fd, 4, 8) in (b"89", None)
    disk.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.pread_cached(fd, 4, 3)

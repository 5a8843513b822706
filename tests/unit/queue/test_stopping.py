"""A stop after an internal error or on a disk that hangs; descriptors after a stop or a failed start."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Key, Recipient
from mqcd.disk.waits import HUNG_MS
from mqcd.queue import store
from mqcd.queue.helper import pipe
from mqcd.queue.manifest.state import Edit
from mqcd.queue.wal.segments import SegmentEvent
from tests.contract.mail import BODY, delivered
from tests.fakes.clock import turns
from tests.fakes.disk import Gate
from tests.fakes.killed import copy_as_killed
from tests.fakes.observer import RecordingObserver
from tests.unit.queue.support import Rig


class Faulty(RecordingObserver):
    """Fails in the call that tells of an acceptance, while memory follows the journal."""

    def accepted(self, at: int, recipients: Sequence[Recipient]) -> None:
        raise ZeroDivisionError


async def test_a_stop_after_an_internal_error_evacuates_nothing(rig: Rig) -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    await rig.post.send("a@example.org")
    rig.shard.observer = Faulty()
    with pytest.raises(StoreUnavailable, match="internal error"):
        await rig.post.send("b@example.org")
    assert isinstance(faults[0]["exception"], ZeroDivisionError)
    with pytest.raises(StoreUnavailable, match="internal error"):
        await rig.post.send("c@example.org")
    [segment] = rig.shard.ring
    segment.on(SegmentEvent.SEAL)
    with pytest.raises(StoreUnavailable, match="internal error"):
        await rig.store._live.checkpointer.evacuate(segment)
    async with asyncio.timeout(30):
        again = await rig.reopened()
    assert again.shard.manifest.state.first_live <= segment.number
    assert [each.address for each in again.listed()] == ["a@example.org", "b@example.org"]


async def test_an_internal_error_removes_no_content_of_a_durable_frame(rig: Rig) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    rig.shard.observer = Faulty()
    content = BODY * (1 + (rig.options.settings.journal.inline_max // len(BODY)))
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="internal error"):
            await rig.post.send("a@example.org", content=content)
    assert len(rig.spooled()) == 1
    after = await rig.killed()
    [recipient] = await after.post.claim_all()
    assert await after.post.read(recipient) == content


async def test_a_disk_that_hangs_does_not_hold_up_the_stop(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    gate = rig.disk.block("datasync", "*/journal/*")
    sending = asyncio.ensure_future(rig.post.send("a@example.org"))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    closing = asyncio.ensure_future(rig.close())
    await turns(100)
    assert not closing.done()
    rig.clock.advance(HUNG_MS)
    await turns(100)
    rig.clock.advance(HUNG_MS)
    async with asyncio.timeout(30):
        await closing
    assert [each.levelno for each in caplog.records][-1] == logging.CRITICAL
    # The lock lasts: the thread may still write.
    assert rig.queue / "lock" in rig.disk._paths.values()
    gate.release()
    await asyncio.wait([sending])


async def test_who_waits_for_a_start_that_a_stop_breaks_off_is_not_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(store, "replay_chain", hangs)
    rig = Rig(tmp_path / "q")
    await rig.store.open()
    keyed = rig.post.submission("a@example.org", key=Key(b"k" * 16, b"d" * 8))
    waits = [asyncio.ensure_future(each) for each in (rig.store.recovered(), rig.store.enqueue(keyed))]
    closing = asyncio.ensure_future(rig.store.close())
    await turns()
    closing.cancel()
    await asyncio.wait([closing, *waits])
    for wait in waits:
        with pytest.raises(StoreUnavailable):
            wait.result()


async def test_a_large_content_on_a_disk_that_hangs_does_not_hold_up_the_stop(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    gate = rig.disk.block("pwritev", f"{rig.spool}/*")
    content = BODY * (1 + (rig.options.settings.journal.inline_max // len(BODY)))
    sending = asyncio.ensure_future(rig.post.send("a@example.org", content=content))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    closing = asyncio.ensure_future(rig.close())
    await turns(100)
    assert not closing.done()
    rig.clock.advance(HUNG_MS)
    async with asyncio.timeout(30):
        await closing
    assert [each.levelno for each in caplog.records][-1] == logging.CRITICAL
    assert rig.queue / "lock" in rig.disk._paths.values()
    gate.release()
    await asyncio.wait([sending])


async def left_to_hang(rig: Rig, gate: Gate) -> None:
    """Close the store on a disk that hangs at a gate."""
    rig._open = False
    closing = asyncio.ensure_future(rig.store.close())
    assert await asyncio.to_thread(gate.reached.wait, 30)
    for _ in range(4):
        await turns(100)
        await asyncio.to_thread(lambda: None)
        rig.clock.advance(HUNG_MS)
    async with asyncio.timeout(30):
        await closing
    assert rig.queue / "lock" in rig.disk._paths.values()


@pytest.mark.parametrize(("operation", "pattern"), [("unlink", "*.msg"), ("datasync", "*/MANIFEST")])
async def test_an_evacuation_on_a_disk_that_hangs_does_not_hold_up_the_stop(
    rig: Rig, caplog: pytest.LogCaptureFixture, operation: str, pattern: str
) -> None:
    await rig.post.send("a@example.org", content=BODY * 2000)
    await rig.post.send("b@example.org")
    await rig.enrolled()
    [first] = await rig.store.claim(1, rig.clock.now())
    gate = rig.disk.block(operation, pattern)
    await rig.post.settle(delivered(), first)
    await left_to_hang(rig, gate)
    assert [each.levelno for each in caplog.records][-2:] == [logging.ERROR, logging.CRITICAL]
    gate.release()
    await asyncio.to_thread(lambda: None)


async def test_a_start_on_a_disk_that_hangs_does_not_hold_up_the_stop(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    again = Rig(rig.root.with_name("hung"), rig.clock)
    copy_as_killed(rig.root, again.root)
    await again.store.open()
    await again.store.close()
    again = Rig(again.root, rig.clock)
    gate = again.disk.block("open", "*.mqc")
    await again.store.open()
    await left_to_hang(again, gate)
    gate.release()
    await asyncio.to_thread(lambda: None)


async def test_after_the_stop_no_descriptor_of_a_segment_is_used(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    shard = rig.shard
    [segment] = shard.ring
    [entry] = segment.entries.values()
    entry.raw = b""
    await rig.close()
    with pytest.raises(RuntimeError, match="after shutdown"):
        await shard.raw_line(entry)
    assert (segment.fd, segment.readers) == (-1, 0)


async def test_a_stop_closes_all_though_each_close_reports_an_error(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.post.send("a@example.org")
    close = rig.disk.close

    def fails(fd: int) -> None:
        close(fd)
        raise OSError(errno.EIO, "a write was lost")

    monkeypatch.setattr(rig.disk, "close", fails)
    await rig.post.claim_all()
    async with asyncio.timeout(30):
        await rig.close()
    assert rig.disk._paths == {}
    assert "a write was lost" in caplog.text


async def test_an_internal_error_of_the_last_removal_leaves_no_descriptor(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.disk.fail("unlink", "*/kept")
    rig.shard.deleter.remove(rig.queue / "kept")
    await rig.shard.deleter.settled()

    def fails(_: Path) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(rig.disk, "unlink", fails)
    with pytest.raises(ZeroDivisionError):
        await rig.close()
    assert rig.disk._paths == {}


async def test_a_manifest_that_fails_to_close_is_written_anew(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.post.send("a@example.org")
    await rig.enrolled()
    manifest, close, closed = rig.shard.manifest, rig.disk.close, []

    def fails(fd: int) -> None:
        if fd == manifest._fd:
            closed.append(fd)
            close(fd)
            raise OSError(errno.EIO, "a write was lost")
        close(fd)

    monkeypatch.setattr(rig.disk, "close", fails)
    rig.disk.fail("datasync", "*/MANIFEST")
    with pytest.raises(OSError, match="error"):
        manifest.commit(Edit())
    assert len(closed) == 1
    assert not manifest.uncertain


async def test_a_reader_of_a_segment_may_close_after_the_stop(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    [claimed] = await rig.post.claim_all()
    content = await rig.store.content(claimed)
    assert await content.read(10) == BODY[:10]
    await rig.close()
    assert [path.parent.name for path in rig.disk._paths.values()] == ["journal"]
    content.close()
    assert rig.disk._paths == {}


@pytest.mark.parametrize(("operation", "pattern"), [("rename", "*/MANIFEST"), ("datasync", "*/journal/*")])
async def test_a_cancelled_start_leaves_no_descriptor(tmp_path: Path, operation: str, pattern: str) -> None:
    first = await Rig(tmp_path / "q").open()
    await first.post.send("a@example.org")
    await first.post.claim_all()
    await first.close()
    rig = Rig(tmp_path / "q")
    gate = rig.disk.block(operation, pattern)
    opening = asyncio.ensure_future(rig.store.open())
    assert await asyncio.to_thread(gate.reached.wait, 30)
    opening.cancel()
    await asyncio.sleep(0)
    gate.release()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert rig.disk._paths == {}


async def test_a_child_that_cannot_be_started_leaves_no_socket() -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match="fds_to_keep"):
        await pipe.start("mqcd.queue.helper.helper", -1, buffer=1)
    assert set(os.listdir("/proc/self/fd")) == before

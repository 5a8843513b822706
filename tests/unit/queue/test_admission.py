"""A journal that is full because its evacuation is behind slows the door down before it refuses."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from mqcd.config.settings import JournalSettings
from mqcd.core.errors import StoreUnavailable
from mqcd.queue.wal.segments import KEPT_BACK
from tests.fakes.clock import turns
from tests.fakes.disk import Gate
from tests.unit.queue.support import SEGMENT_SIZE, Rig

EDIT = "*/MANIFEST*"


async def fill(rig: Rig, free: int) -> None:
    """Use slots until so many are free."""
    while rig.shard.ring.free_slots > free:
        await rig.post.send("full@example.org")
        await rig.seal()


async def held_up(rig: Rig, free: int = KEPT_BACK) -> Gate:
    """A full journal whose oldest segment is being evacuated, up to the edit that would commit it."""
    gate = rig.disk.block("datasync", EDIT)
    await fill(rig, free)
    while not gate.reached.is_set():
        await asyncio.sleep(0)
    return gate


async def test_mail_waits_for_an_evacuation_that_is_merely_behind(rig: Rig) -> None:
    gate = await held_up(rig)
    assert rig.shard.ring.full
    sending = asyncio.ensure_future(rig.post.send("new@example.org"))
    await turns(100)
    assert not sending.done()
    gate.release()
    [sent] = await sending
    assert sent.address == "new@example.org"


async def test_mail_without_room_in_the_last_segment_waits(rig: Rig) -> None:
    gate = await held_up(rig, KEPT_BACK + 1)
    ring = rig.shard.ring
    # They do not fit into one segment together, and no other may be begun.
    content = b"x" * 15_000
    count = SEGMENT_SIZE // len(content) + 2
    sending = [asyncio.ensure_future(rig.post.send("new@example.org", content=content)) for _ in range(count)]
    while not (ring.full and any(each.done() for each in sending)):
        await asyncio.sleep(0)
    assert not all(each.done() for each in sending)
    gate.release()
    await asyncio.gather(*sending)
    assert len(rig.listed(recipient="new@example.org")) == count


async def test_mail_is_refused_when_its_patience_is_over(rig: Rig) -> None:
    gate = await held_up(rig)
    rig.store._live.admission.pressure.patience_ms = 0
    with pytest.raises(StoreUnavailable, match="journal is full"):
        await rig.post.send("new@example.org")
    gate.release()


async def test_who_waits_is_refused_as_soon_as_the_evacuation_fails(rig: Rig) -> None:
    gate = await held_up(rig)
    sending = asyncio.ensure_future(rig.post.send("new@example.org"))
    await turns(100)
    rig.store._live.checkpointer._failed(OSError(errno.EIO, "Input/output error", "MANIFEST"))
    with pytest.raises(StoreUnavailable, match=r"journal is full.*MANIFEST"):
        await sending
    gate.release()


async def test_a_free_segment_wakes_waiting_accepts(rig: Rig) -> None:
    gate = await held_up(rig)
    rig.store._live.admission.pressure.patience_ms = 600_000
    sending = asyncio.ensure_future(rig.post.send("new@example.org"))
    await turns(100)
    gate.release()
    await asyncio.wait_for(sending, 60)


async def test_mail_waits_also_in_the_smallest_journal(tmp_path: Path) -> None:
    journal = JournalSettings(segmentsize=SEGMENT_SIZE, segments=4, inline_max=16 << 10)
    rig = await Rig(tmp_path / "small", journal=journal).open()
    gate = await held_up(rig)
    sending = asyncio.ensure_future(rig.post.send("new@example.org"))
    await turns(100)
    assert not sending.done()
    gate.release()
    [sent] = await sending
    assert sent.address == "new@example.org"
    await rig.close()


async def test_store_reports_a_full_journal_once_a_wait_was_in_vain(rig: Rig) -> None:
    gate = await held_up(rig)
    assert rig.store.refusing() == ""
    pressure = rig.store._live.admission.pressure
    pressure.patience_ms = 0
    with pytest.raises(StoreUnavailable):
        await rig.post.send("new@example.org")
    assert "journal is full" in rig.store.refusing()
    pressure.patience_ms = 600_000
    sending = asyncio.ensure_future(rig.post.send("new@example.org"))
    gate.release()
    await asyncio.wait_for(sending, 60)
    assert rig.store.refusing() == ""

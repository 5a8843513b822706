"""Settings of the queue block that have no other place for their tests."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mqcd.config.settings import JournalSettings, SpoolSettings
from mqcd.core.errors import StoreUnavailable
from tests.contract.harness import HOUR, MINUTE
from tests.contract.mail import chunks, deferred, delivered
from tests.fakes.clock import turns
from tests.unit.queue.support import SEGMENT_SIZE, Rig


async def opened(root: Path, **changes: Any) -> Rig:
    """A queue with other settings of spool and journal."""
    spool = {each.name for each in dataclasses.fields(SpoolSettings)}
    journal: dict[str, Any] = {"segmentsize": SEGMENT_SIZE, "segments": 8, "inline_max": 16 << 10}
    journal |= {name: value for name, value in changes.items() if name not in spool}
    return await Rig(
        root,
        spool=SpoolSettings(rootpath=root / "spool", **{n: v for n, v in changes.items() if n in spool}),
        journal=JournalSettings(**journal),
    ).open()


@pytest.mark.parametrize(("bufsize", "writes"), [(1000, 35), (25_000, 3), (100_000, 2)])
async def test_bufsize_is_what_is_written_at_once(tmp_path: Path, bufsize: int, writes: int) -> None:
    rig = await opened(tmp_path / "q", bufsize=bufsize)
    await rig.store.enqueue(rig.post.submission("a@example.org", content=chunks(b"x" * 50_000, 500)))
    # The first write is what was held back until the message was known to be large.
    assert rig.disk.count("pwritev", "*/s??/*") == writes
    await rig.close()


@pytest.mark.parametrize(("limit", "entries"), [(1, 1), (2, 2), (0, 3)])
async def test_maxspidcache_bounds_the_counts(tmp_path: Path, limit: int, entries: int) -> None:
    rig = await opened(tmp_path / "q", maxspidcache=limit)
    for _ in range(3):
        await rig.post.send("a@example.org", "b@example.org")
    assert rig.store.engine().spid_cache_entries == entries
    claimed = await rig.post.claim_all()
    await rig.post.settle(deferred(rig.clock.now() + MINUTE), *claimed)
    await rig.evacuate()
    rig.clock.advance(MINUTE)
    await rig.post.settle(delivered(), *await rig.post.claim_all())
    assert rig.store.engine().spid_cache_misses == 2 * (3 - entries)
    await rig.evacuate()
    assert rig.spooled() == []
    await rig.close()


@pytest.mark.parametrize("granularity", [1000, MINUTE, HOUR])
async def test_retry_granularity_moves_no_due_time(tmp_path: Path, granularity: int) -> None:
    rig = await Rig(tmp_path / "q", retry_granularity=granularity).open()
    due = rig.clock.now() + 10 * MINUTE + 1234
    await rig.post.defer_new("a@example.org", due)
    await rig.evacuate()
    [name] = rig.clusters()
    assert name.split("/")[1] == f"T{due // granularity * granularity // 1000}"
    assert rig.store.next_due() == due
    assert await rig.post.claim_all(due - 1) == []
    [claimed] = await rig.post.claim_all(due)
    assert claimed.due == due
    await rig.close()


@pytest.mark.parametrize("inline_max", [1000, 5000])
async def test_inline_max_decides_where_content_lies(tmp_path: Path, inline_max: int) -> None:
    rig = await opened(tmp_path / "q", inline_max=inline_max)
    await rig.post.send("a@example.org", content=b"x" * inline_max)
    assert rig.spooled() == []
    await rig.post.send("b@example.org", content=b"x" * (inline_max + 1))
    assert len(rig.spooled()) == 1
    await rig.close()


@pytest.mark.parametrize("age", [MINUTE, HOUR])
async def test_evacuate_age_is_when_a_closed_segment_moves(tmp_path: Path, age: int) -> None:
    rig = await opened(tmp_path / "q", evacuate_age=age, seal_age=HOUR)
    await rig.post.send("a@example.org")
    await rig.seal()
    for passes, moved in ((age - 1, 0), (1, 1)):
        rig.clock.advance(passes)
        rig.store._live.checkpointer.wake()
        await turns(100)
        await asyncio.wait_for(_idle(rig), 60)
        assert len(rig.clusters()) == moved
    await rig.close()


async def _idle(rig: Rig) -> None:
    """Return once what the shard's threads were given is done."""
    loop = asyncio.get_running_loop()
    for _ in range(20):
        await loop.run_in_executor(rig.shard.executor, int)
        await turns(20)


@pytest.mark.parametrize(("size", "segments"), [(SEGMENT_SIZE, 4), (SEGMENT_SIZE, 6), (2 * SEGMENT_SIZE, 4)])
async def test_the_journal_has_so_many_segments_of_such_a_size(
    tmp_path: Path, size: int, segments: int
) -> None:
    rig = await opened(tmp_path / "q", segmentsize=size, segments=segments)
    rig.disk.fail("rename", "*.mqc", times=None)
    octets = 0
    with suppress(StoreUnavailable):
        while octets < 2 * size * segments:
            await rig.post.send("a@example.org", content=b"x" * 8000)
            octets += 8000
    # The last one is for verdicts, and the evacuations that fail have begun another.
    room = size * (segments - 2)
    assert 0.9 * room < octets < room
    assert {path.stat().st_size for path in (rig.queue / "journal").iterdir()} == {size}
    rig.disk.mend()
    await rig.close()

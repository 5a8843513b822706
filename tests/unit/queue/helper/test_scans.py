"""Scans in processes of their own: they wait for who reads, end with who stops, and tell what went wrong."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from mqcd.config.settings import JournalSettings
from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Recipient
from mqcd.core.selecting.selection import Selection
from mqcd.queue.helper.pipe import Child
from mqcd.queue.helper.scanner import Request
from mqcd.queue.helper.scans import REST, Precedence, Process, Scans, next_turn
from mqcd.queue.manifest.log import encode
from mqcd.queue.manifest.state import Edit
from tests.fakes.workers import InlineScans
from tests.unit.queue.support import Rig

MANY = 5000
"""Recipients whose records fit in no buffer between two processes: what is sent and not asked for, in both
processes and in the kernel, may be 600 KB, and a scan that is not held up opens its last cluster at once."""
DOMAIN = ".".join(("long" * 15,) * 3) + ".example.org"


@pytest.fixture
async def big(tmp_path: Path) -> AsyncIterator[Rig]:
    journal = JournalSettings(segmentsize=8 << 20, segments=8, inline_max=16 << 10)
    rig = await Rig(tmp_path / "q", journal=journal).open()
    for n in range(10):
        await rig.post.send(*[f"r{n}-{m}@{DOMAIN}" for m in range(MANY // 10)])
    await rig.evacuate()
    yield rig
    await rig.close()


def request_of(rig: Rig, selection: Selection | None = None) -> Request:
    return rig.queue, rig.spool, selection or Selection()


def pinned(rig: Rig) -> bool:
    with (rig.queue / "pin").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def only(scans: Scans) -> Child:
    [process] = scans._running
    assert isinstance(process, Child)
    return process


def test_its_process_loads_no_more_than_reading_takes() -> None:
    probe = (
        "import sys, mqcd.queue.helper.scanner;"
        "print([name for name in ('asyncio', 'uvloop', 'lxml', 'dns', 'rich') if name in sys.modules])"
    )
    asked = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert asked.stdout == "[]\n"


async def test_it_waits_for_who_reads_and_holds_its_pin_until_the_end(big: Rig) -> None:
    scans = Scans()
    stream = scans.run(request_of(big))
    found = await anext(stream)
    assert 0 < len(found) <= 100
    assert pinned(big)
    process = only(scans)
    async for batch in stream:
        assert len(batch) <= 100
        found += batch
    assert len({each.key for each in found}) == MANY
    assert found == big.listed()
    assert not pinned(big)
    assert process.pid is None


async def test_whoever_commits_goes_first() -> None:
    commits, rests = 0, list[float]()

    async def sleep(seconds: float) -> None:
        rests.append(seconds)

    pause = Precedence(lambda: commits, sleep)
    await pause()
    commits += 1
    await pause()
    await pause()
    assert rests == [0, REST, 0]


async def test_a_scan_pauses_after_each_batch(big: Rig) -> None:
    pauses = 0

    async def pause() -> None:
        nonlocal pauses
        pauses += 1

    batches = [batch async for batch in Scans().run(request_of(big), pause)]
    assert pauses == len(batches) >= MANY // 100


class Overheard(InlineScans):
    """Keeps what the store gives to its scans."""

    async def run(
        self, request: Request, pause: Callable[[], Awaitable[None]] = next_turn
    ) -> AsyncGenerator[list[Recipient], None]:
        self.pause = pause
        async for batch in super().run(request, pause):
            yield batch


async def test_the_store_lets_its_commits_go_before_its_scans(big: Rig) -> None:
    scans = big.shard.scans = Overheard(big.disk)
    assert len([each async for each in big.store.scan(Selection())]) == MANY
    pause = scans.pause
    assert isinstance(pause, Precedence)
    before = pause.commits()
    await big.post.send("new@example.org")
    assert pause.commits() == before + 1


async def test_it_ends_when_nobody_wants_more(big: Rig) -> None:
    scans = Scans()
    async with aclosing(scans.run(request_of(big))) as stream:
        await anext(stream)
        process = only(scans)
    assert process.pid is None
    assert not pinned(big)


async def test_a_process_that_dies_is_no_end_of_the_queue(big: Rig) -> None:
    scans = Scans()
    stream = scans.run(request_of(big))
    await anext(stream)
    pid = only(scans).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(StoreUnavailable, match="cut off"):
        async for _ in stream:
            pass


async def test_those_under_way_end_with_the_queue(big: Rig) -> None:
    scans = Scans()
    stream = scans.run(request_of(big))
    await anext(stream)
    await scans.stop()
    assert not pinned(big)
    with pytest.raises(StoreUnavailable, match="cut off"):
        async for _ in stream:
            pass


async def test_a_store_that_closes_cuts_its_scans_off(big: Rig) -> None:
    store, big.shard.scans = big.store, Scans()
    stream = store.scan(Selection())
    await anext(stream)
    process = only(big.shard.scans)
    await big.close()
    assert process.pid is None
    assert not pinned(big)
    with pytest.raises(StoreUnavailable, match="cut off"):
        async for _ in stream:
            pass


async def test_a_scan_that_begins_as_the_queue_closes_does_not_outlive_it(big: Rig) -> None:
    scans = Scans()
    asking = asyncio.ensure_future(anext(scans.run(request_of(big))))
    await asyncio.sleep(0)
    await scans.stop()
    with pytest.raises(StoreUnavailable, match="not open"):
        await asking
    assert not scans._running


async def test_a_queue_that_has_moved_on_is_reported(big: Rig) -> None:
    stream = Scans().run(request_of(big))
    await anext(stream)
    names = big.clusters()
    manifest = big.queue / "MANIFEST"
    listed = manifest.read_bytes()
    manifest.write_bytes(listed + encode(Edit(end=tuple(names))))
    for name in names:
        (big.queue / name).rename(big.queue / f"{name}.away")
    with pytest.raises(StoreUnavailable, match="try again"):
        async for _ in stream:
            pass
    manifest.write_bytes(listed)
    for name in names:
        (big.queue / f"{name}.away").rename(big.queue / name)


async def test_damaged_records_are_reported_in_the_log(big: Rig, caplog: pytest.LogCaptureFixture) -> None:
    path = big.queue / big.clusters()[0]
    data = path.read_bytes()
    path.write_bytes(data.replace(b"r0-0@", b"R0-0@"))
    found = [each async for batch in Scans().run(request_of(big)) for each in batch]
    path.write_bytes(data)
    assert len(found) == MANY - 1
    assert "1 damaged records" in caplog.text


async def test_where_there_is_no_queue_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="holds no queue"):
        await anext(Scans().run((tmp_path, tmp_path, Selection())))


async def test_what_cannot_be_read_now_is_not_the_callers_fault(big: Rig) -> None:
    big.disk.fail("pread", "*.mqc")
    with pytest.raises(StoreUnavailable, match="could not be read"):
        await big.post.scan()
    assert len(await big.post.scan()) == MANY


class CountingScans(InlineScans):
    """Counts the scans that were begun."""

    begun = 0

    async def _start(self) -> Process:
        self.begun += 1
        return await super()._start()


async def hidden(rig: Rig) -> tuple[int, int]:
    """How many have an outcome that a crash has hidden, and how many scans it took to find out."""
    scans = rig.store._live.shard.scans = CountingScans(rig.disk)
    return len(await rig.post.scan(Selection(unknowns=1))), scans.begun


async def test_whom_no_crash_has_hidden_nobody_looks_for(rig: Rig) -> None:
    await rig.post.send("a@example.org", "b@example.org")
    await rig.evacuate()
    assert await hidden(rig) == (0, 0)
    await rig.store.begin((await rig.post.claim_all())[:1], "mx.example.org")
    after = await rig.killed()
    assert await hidden(after) == (1, 1), "as soon as one was"
    assert await hidden(await after.killed()) == (1, 1), "and the journal tells of it"
    await after.evacuate()
    assert await hidden(await after.reopened()) == (1, 1), "and what became of the journal"

"""A feed: each event at least once and in order, whatever ends in between."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from mqcd.disk.durable import Buffer, Disk
from mqcd.feeds.feed import FIRST_WAIT_MS, LONGEST_WAIT_MS, LOOK_MS, Feed
from mqcd.feeds.position import SIGN_MS
from tests.unit.feeds.support import Bench, event, write


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@asynccontextmanager
async def running(feed: Feed) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.ensure_future(feed.run())
    yield task
    task.cancel()
    await asyncio.wait([task])


def ids(numbers: Iterable[int]) -> list[str]:
    return [f"n/0/{number}" for number in numbers]


async def test_events_come_in_order_and_in_portions(bench: Bench) -> None:
    bench.most = 3
    write(bench.events, 1_000_000_001, [event(number) for number in range(5)])
    write(bench.events, 1_000_000_002, [event(number) for number in range(5, 7)])
    async with running(bench.feed()):
        await bench.until(lambda: len(bench.taken.ids) == 7)
        write(bench.events, 1_000_000_003, [event(7)])
        await bench.until(lambda: len(bench.taken.ids) == 8)
    assert bench.taken.ids == ids(range(8))
    assert max(map(len, bench.taken.portions)) == 3
    assert bench.taken.closed


async def test_a_new_feed_begins_with_the_next_event(bench: Bench) -> None:
    write(bench.events, 1_000_000_001, [event(1)])
    async with running(bench.feed(from_start=False)):
        await bench.until(lambda: bench.positions.load("crm") is not None)
        write(bench.events, 1_000_000_002, [event(2)])
        await bench.until(lambda: bool(bench.taken.ids))
    assert bench.taken.ids == ids([2])


async def test_a_restart_goes_on_where_it_was(bench: Bench) -> None:
    bench.most = 2
    write(bench.events, 1_000_000_001, [event(number) for number in range(5)])
    for number in (1, 3, 4):
        last = f"n/0/{number}"
        async with running(bench.feed()):
            await bench.until(partial(lambda wanted: wanted in bench.taken.ids, last))
    assert list(dict.fromkeys(bench.taken.ids)) == ids(range(5))


class Killed(Disk):
    """Ends the process in the moment before a position is saved, as far as the file shows."""

    def __init__(self) -> None:
        self.saves = 0

    def replace_file(self, path: Path, chunks: Iterable[Buffer]) -> int:
        self.saves += 1
        return super().replace_file(path, chunks) if self.saves == 1 else 0


async def test_a_kill_before_the_position_repeats_a_portion(bench: Bench) -> None:
    write(bench.events, 1_000_000_001, [event(1), event(2)])
    async with running(bench.feed(disk=Killed())):
        await bench.until(lambda: len(bench.taken.ids) == 2)
    async with running(bench.feed()):
        await bench.until(lambda: len(bench.taken.ids) == 4)
    assert bench.taken.portions == [ids([1, 2])] * 2


async def test_a_receiver_that_is_away_for_days_misses_nothing(bench: Bench) -> None:
    bench.taken.refusing = "HTTP status 503"
    write(bench.events, 1_000_000_001, [event(1)])
    async with running(bench.feed()):
        await bench.until(lambda: bench.taken.refused >= 12, LONGEST_WAIT_MS)
        write(bench.events, 1_000_000_002, [event(2)])
        found = bench.positions.load("crm")
        assert found is not None
        assert (found.sent, found.error, found.since > 0) == (0, "HTTP status 503", True)
        bench.taken.refusing = ""
        await bench.until(lambda: len(bench.taken.ids) == 2, LONGEST_WAIT_MS)
        await bench.until(lambda: (now := bench.positions.load("crm")) is not None and now.sent == 2)
    found = bench.positions.load("crm")
    assert found is not None
    assert (bench.taken.ids, found.error, found.since) == (ids([1, 2]), "", 0)


async def test_waits_grow_and_heed_the_receiver(bench: Bench) -> None:
    bench.taken.refusing, bench.taken.wait_ms = "HTTP status 429", 10 * FIRST_WAIT_MS
    write(bench.events, 1_000_000_001, [event(1)])
    async with running(bench.feed()):
        await bench.until(lambda: bench.taken.refused == 1, 0)
        await bench.until(lambda: bench.clock.sleepers == 1, 0)
        assert bench.clock.next_wake() == 10 * FIRST_WAIT_MS
        bench.taken.wait_ms = 0
        await bench.until(lambda: bench.taken.refused == 2, 10 * FIRST_WAIT_MS)
        await bench.until(lambda: bench.clock.sleepers == 1, 0)
        assert bench.clock.next_wake() == 2 * FIRST_WAIT_MS


async def test_only_selected_events_are_sent(bench: Bench) -> None:
    write(bench.events, 1_000_000_001, [event(1, "accepted"), event(2, "bounced"), event(3)])
    async with running(bench.feed(verbs=["bounced"])):
        await bench.until(lambda: bool(bench.taken.ids))
        await bench.until(lambda: (now := bench.positions.load("crm")) is not None and now.sent == 1)
    assert bench.taken.ids == ids([2])


async def test_files_removed_unsent_are_a_gap(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.most = bench.taken.first = 1
    bench.taken.refusing = "HTTP status 500"
    lost = write(bench.events, 1_000_000_001, [event(1), event(2)])
    async with running(bench.feed()):
        await bench.until(lambda: bench.taken.refused > 0)
    assert bench.taken.ids == ids([1])
    lost.unlink()
    write(bench.events, 1_000_000_002, [event(3)])
    bench.taken.refusing = ""
    async with running(bench.feed()):
        await bench.until(lambda: bench.taken.ids[-1] == "n/0/3")
        await bench.until(lambda: (now := bench.positions.load("crm")) is not None and now.gaps == 1)
    assert "removed before they were sent" in caplog.text


@pytest.mark.parametrize("restarted", [False, True])
async def test_files_that_came_and_went_while_it_waited_are_a_gap(bench: Bench, restarted: bool) -> None:
    write(bench.events, 1_000_000_001, [event(1)])
    feed = bench.feed()
    async with running(feed):
        # It stands at the end of a file.
        await bench.until(lambda: bench.taken.ids == ids([1]))
        bench.taken.refusing = "HTTP status 500"
        under_way = write(bench.events, 1_000_000_002, [event(2)])
        await bench.until(lambda: bench.taken.refused > 0)
        lost, before = write(bench.events, 1_000_000_003, [event(3)]), bench.taken.refused
        await bench.until(lambda: bench.taken.refused > before + 1, LONGEST_WAIT_MS)
        lost.unlink()
        if restarted:
            under_way.unlink()
        write(bench.events, 1_000_000_004, [event(4)])
        if not restarted:
            bench.taken.refusing = ""
            await bench.until(lambda: bench.taken.ids == ids([1, 2, 4]), LONGEST_WAIT_MS)
            await bench.until(lambda: (now := bench.positions.load("crm")) is not None and now.gaps == 1)
            return
    bench.taken.refusing = ""
    async with running(bench.feed()):
        await bench.until(lambda: bench.taken.ids == ids([1, 4]))
        await bench.until(lambda: (now := bench.positions.load("crm")) is not None and now.gaps == 1)


async def test_a_torn_file_gives_what_it_holds(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    torn = write(bench.events, 1_000_000_001, [event(1), event(2)])
    torn.write_bytes(torn.read_bytes()[:-8])
    write(bench.events, 1_000_000_002, [event(3)])
    async with running(bench.feed()):
        await bench.until(lambda: bool(bench.taken.ids) and bench.taken.ids[-1] == "n/0/3")
    assert bench.taken.ids == ids([1, 2, 3])
    assert torn.name in caplog.text


async def test_shards_are_read_each_for_itself(bench: Bench) -> None:
    write(bench.events, 1_000_000_001, [event(1)])
    write(bench.events, 1_000_000_005, [event(5)])
    write(bench.events, 1_000_000_003, [event(3)], shard=1)
    async with running(bench.feed()):
        await bench.until(lambda: len(bench.taken.ids) == 3)
        write(bench.events, 1_000_000_004, [event(4)], shard=1)
        await bench.until(lambda: len(bench.taken.ids) == 4)
    assert sorted(bench.taken.ids) == ids([1, 3, 4, 5])


async def test_a_damaged_position_stops_only_its_feed(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    (bench.root / "feeds").mkdir()
    (bench.root / "feeds" / "crm.json").write_text("{")
    async with running(bench.feed()):
        await bench.until(lambda: "crm.json is damaged" in caplog.text)


class Failing(Disk):
    """Cannot read event files, or has no room for positions."""

    def __init__(self) -> None:
        self.unreadable = self.full = False
        self.saves = 0

    def open(self, path: Path, flags: int) -> int:
        if self.unreadable and path.suffix == ".gz":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return super().open(path, flags)

    def replace_file(self, path: Path, chunks: Iterable[Buffer]) -> int:
        self.saves += 1
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return super().replace_file(path, chunks)


async def test_a_file_that_cannot_be_read_is_a_failure(bench: Bench) -> None:
    write(bench.events, 1_000_000_001, [event(1)])
    disk = Failing()
    disk.unreadable = True
    async with running(bench.feed(reading=disk)):
        await bench.until(lambda: (now := bench.positions.load("crm")) is not None and now.since > 0)
        found = bench.positions.load("crm")
        assert found is not None
        assert os.strerror(errno.EIO) in found.error
        disk.unreadable = False
        await bench.until(lambda: (now := bench.positions.load("crm")) is not None and now.sent == 1)
    found = bench.positions.load("crm")
    assert found is not None
    assert (bench.taken.ids, found.error, found.since) == (ids([1]), "", 0)


async def test_a_full_disk_repeats_nothing_and_is_seen(bench: Bench) -> None:
    disk = Failing()
    async with running(bench.feed(disk=disk)):
        await bench.until(lambda: bench.positions.load("crm") is not None)
        disk.full = True
        write(bench.events, 1_000_000_001, [event(1)])
        await bench.until(lambda: bool(bench.taken.ids))
        before = disk.saves
        await bench.until(lambda: disk.saves > before + 3, 10 * LOOK_MS)
        assert bench.taken.ids == ids([1])
        measure = Disk().measure(bench.root / "feeds" / "crm.json")
        assert measure is not None
        seen = bench.positions.seen("crm", measure.modified + 6 * SIGN_MS)
        assert seen is not None
        assert (seen.since, "crm.json" in seen.error) == (measure.modified, True)
        disk.full = False
        await bench.until(lambda: (now := bench.positions.load("crm")) is not None and now.sent == 1)
        write(bench.events, 1_000_000_002, [event(2)])
        await bench.until(lambda: (now := bench.positions.load("crm")) is not None and now.sent == 2)
    found = bench.positions.load("crm")
    assert found is not None
    assert (bench.taken.ids, found.since) == (ids([1, 2]), 0)


async def test_a_feed_with_nothing_to_send_gives_signs(bench: Bench) -> None:
    disk, begun = Failing(), bench.clock.now()
    async with running(bench.feed(disk=disk)):
        await bench.until(lambda: disk.saves == 3)
    assert bench.clock.now() - begun >= 2 * SIGN_MS


async def test_a_fault_is_logged_and_ends_no_feed(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    write(bench.events, 1_000_000_001, [event(1)])
    bench.taken.broken = True
    async with running(bench.feed()):
        await bench.until(lambda: "feed crm failed; it is tried again" in caplog.text)
        assert "KeyError: 'made to fail'" in caplog.text
        await bench.until(lambda: (now := bench.positions.load("crm")) is not None and now.since > 0, 0)
        bench.taken.broken = False
        await bench.until(lambda: bench.taken.ids == ids([1]), LONGEST_WAIT_MS)


async def test_a_lack_of_threads_ends_no_feed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    write(bench.events, 1_000_000_001, [event(1)])
    async with running(bench.feed()) as task:
        await bench.until(lambda: bench.taken.ids == ids([1]))
        with monkeypatch.context() as patch:
            patch.setattr("mqcd.feeds.feed.asyncio.to_thread", no_thread)
            await bench.until(lambda: "can't start new thread" in caplog.text)
            await bench.until(lambda: task.done() or bench.clock.sleepers == 1, 0)
            assert not task.done()
        write(bench.events, 1_000_000_002, [event(2)])
        await bench.until(lambda: bench.taken.ids == ids([1, 2]), LONGEST_WAIT_MS)

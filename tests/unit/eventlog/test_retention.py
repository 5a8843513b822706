"""Old event files go, the oldest first; what the journal may still need stays."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqcd.disk.durable import Disk
from mqcd.eventlog.files import Source, parse
from mqcd.eventlog.retention import Retain, Retained, Retention, retain
from tests.contract.harness import HOUR, SCHEDULE
from tests.fakes.clock import START_MS, FakeClock, turns
from tests.fakes.disk import FaultyDisk
from tests.unit.queue.support import Rig

SOURCE = Source("node", 3)
DAY = 24 * HOUR
NOW = START_MS + 30 * 365 * DAY
"""Long after whatever the test writes, by the clock of the machine that it runs on."""


def put(directory: Path, name: str, age: int, octets: int = 100) -> Path:
    path = directory / name
    path.write_bytes(b"x" * octets)
    written = (NOW - age) / 1000
    os.utime(path, (written, written))
    return path


def segment(number: int) -> str:
    return f"node-3-{number:010d}.jsonl.gz"


def looked(directory: Path, disk: Disk | None = None, **changes: int) -> Retained:
    limits = {"first_live": 100, "before": 0, "maxsize": 0, **changes}
    return retain(disk or Disk(), Retain(directory=directory, source=SOURCE, **limits))


def left(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_is_too_old_goes(tmp_path: Path) -> None:
    put(tmp_path, segment(1), age=3000)
    put(tmp_path, "other-0-0000000009.jsonl.gz", age=3000)
    put(tmp_path, "node-3-b0000000000007.jsonl.gz", age=3000)
    put(tmp_path, segment(2), age=1000)
    assert looked(tmp_path, before=NOW - 2000) == Retained(removed=3, octets=300)
    assert left(tmp_path) == [segment(2)]


def test_of_too_much_the_oldest_goes_first(tmp_path: Path) -> None:
    for number, age in ((1, 1000), (2, 4000), (3, 3000), (4, 2000)):
        put(tmp_path, segment(number), age=age)
    assert looked(tmp_path, maxsize=250).removed == 2
    assert left(tmp_path) == [segment(1), segment(4)]


def test_a_file_of_a_live_segment_stays_but_counts(tmp_path: Path) -> None:
    for number in (99, 100, 101):
        put(tmp_path, segment(number), age=9000 - number)
    assert looked(tmp_path, before=NOW, maxsize=100).removed == 1
    assert left(tmp_path) == [segment(100), segment(101)]


def test_a_live_segment_number_protects_our_own_files_alone(tmp_path: Path) -> None:
    put(tmp_path, "node-4-0000000100.jsonl.gz", age=9000)
    put(tmp_path, "node-3-b0000000000100.jsonl.gz", age=9000)
    assert looked(tmp_path, before=NOW).removed == 2


@pytest.mark.parametrize(
    "name", [segment(1) + ".tmp", "README", "node-3-1.jsonl.gz", "node-3-000000000x.jsonl.gz", "a.jsonl.gz"]
)
def test_other_names_and_unfinished_files_are_left_alone(tmp_path: Path, name: str) -> None:
    put(tmp_path, name, age=9000)
    assert looked(tmp_path, before=NOW, maxsize=1) == Retained()
    assert left(tmp_path) == [name]


def test_directories_and_links_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / segment(1)).mkdir()
    (tmp_path / segment(2)).symlink_to(tmp_path / segment(1))
    assert looked(tmp_path, before=NOW * 2) == Retained()


def test_best_effort_files_may_hold_a_tenth(tmp_path: Path) -> None:
    put(tmp_path, segment(1), age=9000, octets=800)
    for number in range(1, 5):
        put(tmp_path, f"node-3-b{number:013d}.jsonl.gz", age=100 - number, octets=50)
    assert looked(tmp_path, maxsize=1000).removed == 2
    assert left(tmp_path) == [segment(1), *(f"node-3-b{number:013d}.jsonl.gz" for number in (3, 4))]


def test_a_file_that_cannot_be_removed_keeps_no_other(tmp_path: Path) -> None:
    for number in (1, 2):
        put(tmp_path, segment(number), age=9000)
    disk = FaultyDisk()
    disk.fail("unlink", "*0001.jsonl.gz", code=errno.EACCES)
    done = looked(tmp_path, disk, before=NOW)
    assert (done.removed, len(done.failures)) == (1, 1)
    assert "Permission denied" in done.failures[0]


def test_who_has_it_open_reads_on(tmp_path: Path) -> None:
    with put(tmp_path, segment(1), age=9000).open("rb") as reader:
        looked(tmp_path, before=NOW)
        assert left(tmp_path) == []
        assert reader.read() == b"x" * 100


def test_names_are_read_back() -> None:
    file = parse("a-node-3-b0000000000007.jsonl.gz")
    assert file is not None
    assert (file.node, file.shard, file.best_effort, file.number) == ("a-node", 3, True, 7)
    assert file.of(Source("a-node", 3))
    assert not file.of(SOURCE)


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Rig]:
    """A store that keeps event files for a day, and 100,000 octets of them."""
    limits = Retention(maxage=DAY, maxsize=100_000)
    (tmp_path / "mail" / "events").mkdir(parents=True)
    rig = await Rig(tmp_path / "mail", FakeClock(NOW), retention=limits).open()
    yield rig
    await rig.close()


async def look(rig: Rig) -> list[str]:
    rig.store._live.checkpointer.wake()
    await turns()
    return left(rig.root / "events")


async def test_an_opened_store_looks_at_once_and_then_hourly(
    kept: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    events = kept.root / "events"
    assert await look(kept) == []
    put(events, segment(1), age=2 * DAY)
    assert await look(kept) == [segment(1)]
    kept.clock.advance(HOUR)
    assert await look(kept) == []
    assert kept.store.engine().removed_event_files == 1
    assert "1 event files with 100 octets" in caplog.text


async def test_other_limits_hold_at_once(kept: Rig) -> None:
    events = kept.root / "events"
    put(events, segment(1), age=HOUR)
    assert await look(kept) == [segment(1)]
    kept.store.reload(SCHEDULE, Retention(maxage=HOUR // 2))
    await turns()
    assert left(events) == []


async def test_its_own_files_go_only_after_their_segments(kept: Rig) -> None:
    await look(kept)
    # Much, so that it looks after this export; and by its clock whatever is written now is old.
    await kept.post.send("a@example.org", content=b"x" * 8000)
    name = segment((await kept.seal()).number)
    assert await look(kept) == [name]
    assert os.stat(kept.root / "events" / name).st_mtime * 1000 < NOW - DAY
    await kept.evacuate()
    kept.clock.advance(HOUR)
    assert name not in await look(kept)


async def test_while_the_clock_is_in_doubt_nothing_goes_for_its_age(kept: Rig) -> None:
    await look(kept)
    put(kept.root / "events", segment(1), age=0)
    kept.clock.advance(HOUR)
    kept.clock.leap(400 * DAY)
    assert await look(kept) == [segment(1)]


async def test_much_that_is_exported_makes_it_look_sooner(kept: Rig) -> None:
    await look(kept)
    put(kept.root / "events", segment(1), age=DAY // 2, octets=200_000)
    assert await look(kept) == [segment(1)]
    await kept.post.send("a@example.org", content=b"x" * 8000)
    sealed = await kept.seal()
    assert await look(kept) == [segment(sealed.number)]


async def test_a_directory_that_cannot_be_read_stops_nothing(
    kept: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await look(kept)
    kept.disk.fail("names", "*/events", code=errno.EACCES)
    kept.clock.advance(HOUR)
    await look(kept)
    assert "old event files " in caplog.text
    await kept.post.send("a@example.org")
    assert len(await kept.post.claim_all()) == 1
    assert kept.store._live.checkpointer.trouble == ""

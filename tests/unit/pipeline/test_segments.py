"""Sets of event files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.pipeline.sources.segments import (
    EventFile,
    Runs,
    absent,
    add_file,
    closed_files,
    grouped,
    joined,
    overlaps,
    within,
    without,
)
from tests.contract.harness import HOUR
from tests.fakes.clock import FakeClock
from tests.unit.queue.support import Rig


def file(number: int, series: str = "n-0-", size: int = 10) -> EventFile:
    return EventFile(series, number, f"/e/{series}{number:010d}.jsonl.gz", size)


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_a_set_holds_what_was_joined_and_nothing_else(first: set[int], second: set[int]) -> None:
    held = joined(joined({}, map(file, first)), map(file, second))
    assert [each.number for each in within(map(file, range(62)), held)] == sorted(first | second)
    assert [each.number for each in without(map(file, range(62)), held)] == [
        number for number in range(62) if number not in first | second
    ]


def test_ranges_stay_short() -> None:
    assert joined({"n-0-": "1-4,7"}, [file(5), file(6), file(9), file(3, "m-0-")]) == {
        "m-0-": "3",
        "n-0-": "1-7,9",
    }


def test_only_closed_files_are_listed(tmp_path: Path) -> None:
    for name in (
        "n-0-0000000002.jsonl.gz",
        "n-0-b170.jsonl.gz",
        "n-0-0000000001.jsonl.gz.tmp",
        "odd.jsonl.gz",
    ):
        (tmp_path / name).write_bytes(b"x")
    assert [(each.series, each.number, each.size) for each in closed_files(tmp_path)] == [
        ("n-0-", 2, 1),
        ("n-0-b", 170, 1),
        ("odd.jsonl.gz", 0, 1),
    ]
    assert closed_files(tmp_path / "nowhere") == []


def test_of_known_files_the_name_alone_is_read(tmp_path: Path) -> None:
    """There may be half a million of them, and a stream looks every second."""
    (tmp_path / "n-0-0000000001.jsonl.gz").symlink_to("n-0-0000000002.jsonl.gz/x")
    (tmp_path / "n-0-0000000002.jsonl.gz").write_bytes(b"x")
    assert [each.number for each in closed_files(tmp_path, but={"n-0-": "1,3-7"})] == [2]
    with pytest.raises(OSError, match="Not a directory"):
        closed_files(tmp_path)


def test_small_files_share_a_task_and_a_large_one_has_its_own() -> None:
    sizes = [4, 4, 4, 30, 1]
    groups = grouped([file(number, size=size) for number, size in enumerate(sizes)], 10)
    assert [[each.number for each in group] for group in groups] == [[0, 1], [2], [3], [4]]


def test_files_that_are_absent_between_others() -> None:
    taken = {"n1-0-": "1-3,5,9", "n1-0-b": "1,7"}
    runs = {"n1/0": [[1, 3, 10, 90], [5, 5, 120, 130], [9, 9, 300, 310]]}
    assert list(absent(taken, runs)) == [("n1-0-", 4, 4), ("n1-0-", 6, 8)]


def test_runs_of_files_join_only_with_their_neighbours() -> None:
    runs: Runs = {}
    for number, low, high in ((1, 1, 10), (3, 30, 40), (2, 12, 25)):
        add_file(runs, "n/0", number, low, high)
    assert runs == {"n/0": [[1, 3, 1, 40]]}
    add_file(runs, "n/0", 7, 70, 80)
    assert runs["n/0"][1] == [7, 7, 70, 80]
    assert overlaps(runs, "n/0", 80, 90)
    assert not overlaps(runs, "n/0", 41, 69)
    assert not overlaps(runs, "m/0", 1, 100)


async def test_a_new_queue_misses_no_earlier_event_files(tmp_path: Path) -> None:
    """By the numbers that queues really give themselves; what is lost later is missed all the same."""
    files: list[EventFile] = []
    runs: Runs = {}
    clock = FakeClock()
    for root in ("old", "new"):
        rig = await Rig(tmp_path / root, clock).open()
        for _ in range(3):
            await rig.post.send("a@site.example")
            await rig.evacuate()
        await rig.close()
        for file in closed_files(rig.root / "events"):
            lines = gzip.decompress(Path(file.path).read_bytes()).splitlines()
            series, _, first = json.loads(lines[0])["id"].rpartition("/")
            add_file(runs, series, file.number, int(first), int(first) + len(lines) - 1)
            files.append(file)
        clock.advance(HOUR)
    first, *_, before, last = files
    assert last.number - first.number >= HOUR // 1000
    assert list(absent(joined({}, files), runs)) == []
    without_one = joined({}, [file for file in files if file is not before])
    assert list(absent(without_one, runs)) == [(last.series, before.number, before.number)]

"""What workers write of event files, and what they tell of it. Needs no Java."""

from __future__ import annotations

import gzip
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mqcd.pipeline.batch.run import is_waiting
from mqcd.pipeline.sources.decode import LATEST
from mqcd.pipeline.sources.segments import closed_files, quoted, unquoted
from mqcd.pipeline.store.layout import PART
from mqcd.pipeline.store.store import Commit
from mqcd.pipeline.workers.counting import counted, expected, watching
from mqcd.pipeline.workers.tasks import TOGETHER, intake
from tests.pipeline.making import HOUR, T0, Log, write

_DAY = 24 * HOUR


def told_of(target: Path, *paths: Path, before: int = LATEST, together: int = TOGETHER) -> dict[str, Any]:
    """The row of one task."""
    work = intake(target, before=before, together=together)
    (taken,) = (row for batch in work(map(str, paths)) for row in batch.to_pylist())
    assert isinstance(taken, dict)
    return taken


def part_of(taken: dict[str, Any], table: str) -> str:
    """The one part that was written of a table."""
    (part,) = (part for part in taken["parts"] if f"into={table}" in part)
    return str(part)


def series_of(taken: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Each series, with the name of its file."""
    return [(file["name"], series) for file in taken["files"] for series in file["series"]]


def test_each_file_tells_its_ids_hours_and_days(tmp_path: Path) -> None:
    log = Log()
    old = log.accept(T0 - 3 * _DAY)
    log.events.clear()
    log.deliver(T0)
    log.verdict(old, "delivered", T0 + HOUR)
    first = log.seal(tmp_path / "events")
    empty = log.seal(tmp_path / "events")
    log.deliver(T0 + _DAY)
    second = log.seal(tmp_path / "events")

    taken = told_of(tmp_path / "in", first, empty, second)

    assert [(file["name"], file["damaged"]) for file in taken["files"]] == [
        (first.name, 0),
        (empty.name, 0),
        (second.name, 0),
    ]
    series = series_of(taken)
    assert [(name, each["low"], each["high"], each["events"]) for name, each in series] == [
        (first.name, 2, 5, 4),
        (second.name, 6, 8, 3),
    ]
    assert series[0][1]["hours"] == [T0 // HOUR, T0 // HOUR + 1]
    assert taken["days"] == ["2025-11-15", "2025-11-18", "2025-11-19"]
    parts = list(map(Path, taken["parts"]))
    assert all(path.name.endswith(PART) for path in parts)
    rows = {str(path.parent.relative_to(tmp_path / "in")): pq.read_table(path).num_rows for path in parts}
    assert rows == {
        "in/into=events/day=2025-11-18": 4,
        "in/into=events/day=2025-11-19": 3,
        # Of the one who was accepted in a file that is not here more is to be known.
        "in/into=recipients/kept=done-/day=2025-11-18": 1,
        "in/into=recipients/kept=done-/day=2025-11-19": 1,
        "states": 1,
    }


def test_what_cannot_be_read_is_counted_and_written_beside(tmp_path: Path) -> None:
    log = Log()
    log.deliver(T0)
    path = log.seal(tmp_path / "events")
    path.write_bytes(path.read_bytes() + gzip.compress(b"{nonsense\n"))

    taken = told_of(tmp_path / "in", path)

    assert [file["damaged"] for file in taken["files"]] == [1]
    assert [row["raw"] for row in pq.read_table(part_of(taken, "damaged")).to_pylist()] == ["{nonsense"]


@pytest.mark.parametrize("name", ["at", "due"])
@pytest.mark.parametrize(
    "time",
    [
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "1969-12-31T23:59:59.999Z",
        "2100-01-01T00:00:00Z",
    ],
)
def test_times_that_no_server_has_are_damage_and_stop_nothing(tmp_path: Path, name: str, time: str) -> None:
    log = Log()
    log.deliver(T0)
    log.add("held", T0)[name] = time
    taken = told_of(tmp_path / "in", log.seal(tmp_path / "events"))
    assert [(each["events"], each["hours"]) for _, each in series_of(taken)] == [(3, [T0 // HOUR])]
    damaged = pq.read_table(part_of(taken, "damaged"))
    assert damaged["damage"].to_pylist() == [f"{name} is no time of a server"]


@pytest.mark.parametrize("nonsense", [b"", b"{nonsense\n"])
def test_an_event_of_the_future_is_damage(tmp_path: Path, nonsense: bytes) -> None:
    log = Log()
    waits = log.accept(T0)
    log.verdict(waits, "deferred", T0 + 1, due="2025-11-30T00:00:00.000Z")
    log.deliver(T0 + _DAY)
    path = log.seal(tmp_path / "events")
    path.write_bytes(path.read_bytes() + gzip.compress(nonsense))
    taken = told_of(tmp_path / "in", path, before=T0 + _DAY)
    assert [(each["events"], each["hours"]) for _, each in series_of(taken)] == [(2, [T0 // HOUR])]
    why = ["at lies in the future"] * 3
    assert pq.read_table(part_of(taken, "damaged"))["damage"].to_pylist()[:3] == why


def _make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.mark.parametrize(
    "make",
    [
        Path.mkdir,
        os.mkfifo,
        _make_socket,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(path.name),
    ],
    ids=["directory", "fifo", "socket", "device", "loop"],
)
def test_what_is_no_regular_file_is_damage(tmp_path: Path, make: Callable[[Path], None]) -> None:
    log, events = Log(), tmp_path / "events"
    log.deliver(T0)
    good = log.seal(events)
    odd = events / "n1-0-0000000002.jsonl.gz"
    make(odd)
    files = closed_files(events)
    assert [(Path(file.path), file.size) for file in files] == [(good, good.stat().st_size), (odd, 0)]

    taken = told_of(tmp_path / "in", *(Path(file.path) for file in files))

    assert [(file["name"], file["damaged"]) for file in taken["files"]] == [(good.name, 0), (odd.name, 1)]
    damaged = pq.read_table(part_of(taken, "damaged"), columns=["damage"])
    ((why,),) = (table.values() for table in damaged.to_pylist())
    assert why.startswith("no regular file: ")


def test_a_link_to_nothing_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "n1-0-0000000001.jsonl.gz").symlink_to("gone")
    assert closed_files(tmp_path) == []


def test_an_empty_file_waits_too(tmp_path: Path) -> None:
    """Else nobody would ever take it, and it would be called waiting for ever."""
    write(tmp_path / "events" / "n1-0-0000000001.jsonl.gz", []).write_bytes(b"")
    assert is_waiting(Commit(), tmp_path / "events")


def test_a_file_that_is_gone_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    log = Log()
    paths = []
    for _ in range(3):
        log.deliver(T0)
        paths.append(log.seal(tmp_path / "events"))
    first, gone, last = paths
    gone.unlink()

    taken = told_of(tmp_path / "in", first, gone, last)

    assert (taken["gone"], [file["name"] for file in taken["files"]]) == (
        [str(gone)],
        [first.name, last.name],
    )
    written = pq.read_table(part_of(taken, "events"))["sequence"].to_pylist()
    assert written == [1, 2, 3, 7, 8, 9]


def test_where_all_files_are_gone_nothing_is_written(tmp_path: Path) -> None:
    taken = told_of(tmp_path / "in", tmp_path / "n1-0-0000000001.jsonl.gz")
    assert (len(taken["gone"]), taken["files"], taken["parts"]) == (1, [], [])


def test_a_file_that_cannot_be_read_fails_the_task_and_is_named(tmp_path: Path) -> None:
    log = Log()
    log.deliver(T0)
    path = log.seal(tmp_path / "events")
    unreadable = path.with_name("n1-0-0000000002.jsonl.gz")
    # A file like others, until it is read.
    unreadable.symlink_to("/proc/self/mem")
    with pytest.raises(OSError, match=r"Input/output error: '.*/n1-0-0000000002\.jsonl\.gz'"):
        told_of(tmp_path / "in", path, unreadable)
    assert not list((tmp_path / "in").rglob("*.parquet"))


def test_a_name_that_is_no_utf8_is_shown_as_text(tmp_path: Path) -> None:
    log, events = Log(), tmp_path / "events"
    log.deliver(T0)
    log.events.append({"v": 1})
    good = log.seal(events).rename(events / os.fsdecode(b"\xff-0-0000000007.jsonl.gz"))
    gone = events / os.fsdecode(b"\xfe.jsonl.gz")
    (file,) = closed_files(events)
    assert (file.series, file.number, file.path) == ("\\xff-0-", 7, str(good))

    taken = told_of(tmp_path / "in", Path(file.path), gone)

    name = "\\xff-0-0000000007.jsonl.gz"
    assert [(each["name"], each["damaged"]) for each in taken["files"]] == [(name, 1)]
    assert list(map(unquoted, taken["gone"])) == [str(gone)]
    for table in ("events", "damaged"):
        assert set(pq.read_table(part_of(taken, table))["file"].to_pylist()) == {name}


@pytest.mark.parametrize("name", [b"a b%20.gz", "\u00e9".encode(), b"\xff\\xff"])
def test_a_quoted_path_is_ascii_and_comes_back(name: bytes) -> None:
    path = os.fsdecode(b"/e/" + name)
    assert quoted(path).isascii()
    assert unquoted(quoted(path)) == path


def test_events_are_counted_while_they_are_read(tmp_path: Path) -> None:
    log = Log()
    paths = []
    for _ in range(2):
        log.deliver(T0)
        paths.append(log.seal(tmp_path / "events"))
    told_of(tmp_path / "in", *paths)
    told_of(tmp_path / "in", paths[0])
    octets = sum(path.stat().st_size for path in (*paths, paths[0]))
    assert counted(tmp_path / "in") == (9, octets)
    assert expected(9, octets, 2 * octets) == 18
    assert (expected(9, octets, 0), expected(0, 0, octets)) == (0, 0)

    seen: list[tuple[int, int]] = []
    looked = threading.Event()

    def tell(events: int, of: int) -> None:
        seen.append((events, of))
        looked.set()

    with watching(tmp_path / "in", 2 * octets, tell):
        assert looked.wait(60)
    assert seen[0] == (9, 18)


def test_no_file_gives_no_row(tmp_path: Path) -> None:
    assert list(intake(tmp_path / "in")(iter(()))) == []


@pytest.mark.parametrize("together", [1, 3, 4, 6, 7])
def test_however_much_is_held_before_it_is_written_all_of_it_is(tmp_path: Path, together: int) -> None:
    log = Log()
    paths = []
    for _ in range(2):
        log.deliver(T0)
        paths.append(log.seal(tmp_path / "events"))
    taken = told_of(tmp_path / "in", *paths, together=together)
    assert pq.read_table(part_of(taken, "recipients"))["attempts"].to_pylist() == [1, 1]
    written = pq.read_table(part_of(taken, "events"))["sequence"].to_pylist()
    assert written == sorted(set(written))
    assert len(written) == sum(each["events"] for _, each in series_of(taken)) == 6

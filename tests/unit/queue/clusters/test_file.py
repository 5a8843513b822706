"""Clusters: how records are cut into files, and how they are read from a cursor on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.errors import DecodeError, StoreDamaged
from mqcd.core.model import BY_DUE, Area
from mqcd.disk.durable import Disk
from mqcd.queue.clusters import file as cluster
from mqcd.queue.clusters.file import FIRST_LINE, START, Line

MINUTE = 60_000
T0 = 1_800_000_000_000

lines = st.lists(
    st.builds(
        Line,
        due=st.integers(T0, T0 + 10 * MINUTE),
        received=st.integers(1, T0),
        size=st.integers(0, 10**6),
        raw=st.integers(1, 300).map(lambda length: b"x" * length + b"\n"),
    ),
    min_size=1,
    max_size=30,
)


@given(st.sampled_from(Area), lines, st.integers(START + 1, 800))
def test_a_plan_holds_every_line_once_within_the_cap(area: Area, given_lines: list[Line], cap: int) -> None:
    plans = cluster.plan(area, given_lines, 12, cap, MINUTE)
    kept = [line for plan in plans for line in plan.lines]
    if area in BY_DUE:
        assert kept == sorted(given_lines, key=lambda line: line.due)
    else:
        assert kept == given_lines
    names = [plan.state.name for plan in plans]
    assert len(set(names)) == len(names)
    for plan in plans:
        state = plan.state
        assert state.size == START + sum(len(line.raw) for line in plan.lines)
        assert state.size <= cap or len(plan.lines) == 1
        assert (state.cursor, state.left) == (START, len(plan.lines))
        assert state.octets == sum(line.size for line in plan.lines)
        assert state.received == min(line.received for line in plan.lines)
        assert state.area is area


@given(lines, st.integers(START + 1, 800))
def test_deferred_directories_name_the_earliest_due_time(given_lines: list[Line], cap: int) -> None:
    for plan in cluster.plan(Area.DEFERRED, given_lines, 12, cap, MINUTE):
        due = [line.due for line in plan.lines]
        assert (plan.state.due, plan.state.due_last) == (min(due), max(due))
        second = int(plan.state.name.split("/")[1].removeprefix("T"))
        assert second * 1000 <= min(due) < second * 1000 + MINUTE
        assert second % 60 == 0


def test_names_say_area_and_segment() -> None:
    line = Line(T0, T0, 1, b"x\n")
    places = [cluster.held_by("") if area is Area.HELD else area for area in Area]
    names = [cluster.plan(place, [line], 12, 1000, MINUTE)[0].state.name for place in places]
    assert names == [
        "incoming/M12-0.mqc",
        f"deferred/T{T0 // 1000}/M12-0.mqc",
        "bounces/M12-0.mqc",
        "held/+/M12-0.mqc",
        f"removed/T{T0 // 1000}/M12-0.mqc",
    ]
    [held] = cluster.plan(cluster.held_by("x.example"), [line], 12, 1000, MINUTE)
    assert (held.state.name, held.state.due) == ("held/x.example/M12-0.mqc", T0)
    assert [cluster.queue_of(name) for name in (*names, held.state.name)] == [""] * 5 + ["x.example"]
    assert cluster.place_of(held.state.name) == "held/x.example"


@given(st.lists(st.binary(max_size=20).map(lambda word: word.replace(b"\n", b""))))
def test_lines_are_split_at_line_feeds_alone(words: list[bytes]) -> None:
    data = b"".join(word + b"\n" for word in words)
    assert [line[:-1] for line in cluster.split_lines(data)] == words
    assert b"".join(cluster.split_lines(data + b"rest")) == data + b"rest"


def test_reading_begins_at_the_cursor_and_ends_at_the_size(tmp_path: Path) -> None:
    path = tmp_path / "M1-0.mqc"
    path.write_bytes(FIRST_LINE + b"one\ntwo\nthree\n")
    assert cluster.read_from(Disk(), path, START + 4, START + 8) == b"two\n"


def test_another_version_is_refused_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "M1-0.mqc"
    path.write_bytes(b"mqcd-cluster 12\nline\n")
    with pytest.raises(cluster.OtherVersion, match=r"M1-0\.mqc: cluster format 12 .* newer mqcd"):
        cluster.read_from(Disk(), path, START, 100)
    with pytest.raises(StoreDamaged, match="cluster format 12 "):
        cluster.check_version(Disk(), path, "")


def test_the_version_of_an_unreadable_file_is_ignored(tmp_path: Path) -> None:
    cluster.check_version(Disk(), tmp_path / "none", "")
    (tmp_path / "damaged").write_bytes(b"mqcd-cluXter 2\n")
    cluster.check_version(Disk(), tmp_path / "damaged", "")


@pytest.mark.parametrize("first", [b"mqcd-cluster X\n", b"", b"\n", b"0123456789ABCDE0|1|d\n"])
def test_a_first_line_that_is_none_is_refused_by_its_name(tmp_path: Path, first: bytes) -> None:
    path = tmp_path / "M1-0.mqc"
    path.write_bytes(first + b"line\n")
    with pytest.raises(DecodeError, match=r"M1-0\.mqc: first line .* is not that of a cluster") as caught:
        cluster.read_from(Disk(), path, START, 100)
    assert first.split(b"\n")[0][:14].decode() in str(caught.value)

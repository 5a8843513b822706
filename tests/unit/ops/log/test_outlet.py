"""The log's way out: descriptors that are stuck, closed, full, or the journal's."""

from __future__ import annotations

import errno
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcd.ops.log.outlet import MOST_LINES, Line, Outlet


def lost(count: int) -> Line:
    return Line("error", f"lost={count}")


def infos(*texts: str) -> list[Line]:
    return [Line("info", text) for text in texts]


class Pipe:
    """A pipe whose reader reads when the test does."""

    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        self.stream = open(writing, "w", encoding="utf-8")  # noqa: SIM115
        self.outlet = Outlet(self.stream, lost, {})

    def lines_until(self, last: str) -> list[str]:
        """What comes, up to this line."""
        octets = b""
        while not octets.endswith(f"{last}\n".encode()):
            octets += os.read(self.reading, 1 << 16)
        return octets.decode().splitlines()

    def fill(self) -> int:
        """Leave no room in it; gives how many octets that took."""
        os.set_blocking(self.stream.fileno(), False)
        count = 0
        try:
            while True:
                count += os.write(self.stream.fileno(), b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(self.stream.fileno(), True)
            return count


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    os.close(made.reading)
    made.stream.close()


def test_lines_are_there_when_it_was_waited_for(pipe: Pipe) -> None:
    pipe.outlet.put(infos("one", "two"), wait=True)
    pipe.outlet.put(infos("three"), wait=True)
    os.set_blocking(pipe.reading, False)
    assert os.read(pipe.reading, 100) == b"one\ntwo\nthree\n"


def test_a_sleeping_reader_loses_only_the_overflow(pipe: Pipe) -> None:
    filled = pipe.fill()
    pipe.outlet.put(infos("first"), wait=True)
    for _ in range(MOST_LINES - 1):
        pipe.outlet.put(infos("next"), wait=True)
    pipe.outlet.put(infos("no room"), wait=True)
    left = filled
    while left:
        left -= len(os.read(pipe.reading, left))
    lines = pipe.lines_until("next")
    while lines.count("next") < MOST_LINES - 1:
        lines += pipe.lines_until("next")
    pipe.outlet.put(infos("end"), wait=False)
    lines += pipe.lines_until("end")
    # The loss is told by the next write, which comes before the lines that waited meanwhile.
    assert lines == ["first", "lost=1", *["next"] * (MOST_LINES - 1), "end"]
    assert pipe.outlet.lost == 1


def test_a_reader_that_went_away_costs_lines_and_nothing_else() -> None:
    reading, writing = os.pipe()
    with open(writing, "w", encoding="utf-8") as stream:
        outlet = Outlet(stream, lost, {})
        os.close(reading)
        for _ in range(3):
            outlet.put(infos("gone"), wait=True)
        outlet.close()


def test_a_stream_that_was_closed_costs_lines_and_nothing_else(tmp_path: Path) -> None:
    stream = (tmp_path / "log").open("w")
    outlet = Outlet(stream, lost, {})
    stream.close()
    stranger = os.open(os.devnull, os.O_RDONLY)
    try:
        outlet.put(infos("nobody hears"), wait=True)
    finally:
        os.close(stranger)


def test_a_full_disk_is_counted() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        outlet = Outlet(full, lost, {})
        outlet.put(infos("one", "two"), wait=True)
        outlet.put(infos("three"), wait=True)
        assert outlet.lost == 3


def test_what_was_cut_off_is_ended_before_the_next_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    real, room = os.write, [6]

    def write(fd: int, octets: memoryview) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "full")
        part = octets[: room[0]]
        room[0] -= len(part)
        return real(fd, part)

    monkeypatch.setattr(os, "write", write)
    with path.open("w") as stream:
        outlet = Outlet(stream, lost, {})
        outlet.put(infos("one", "two and three"), wait=True)
        room[0] = 10_000
        outlet.put(infos("four"), wait=True)
    assert path.read_text() == "one\ntw\nlost=2\nfour\n"


def test_the_journal_gets_priorities(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        status = os.fstat(stream.fileno())
        outlet = Outlet(stream, lost, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
        assert outlet.is_journal
        levels = ("debug", "info", "warning", "error", "critical", "strange")
        outlet.put([Line(level, level) for level in levels], wait=True)
    assert (tmp_path / "log").read_text().splitlines() == [
        "<7>debug", "<6>info", "<4>warning", "<3>error", "<2>critical", "<6>strange",
    ]  # fmt: skip


@pytest.mark.parametrize("told", ["", "1:1", "8:12 9:13"])
def test_another_stream_than_the_journal_has_none(tmp_path: Path, told: str) -> None:
    with (tmp_path / "log").open("w") as stream:
        outlet = Outlet(stream, lost, {"JOURNAL_STREAM": told} if told else {})
        outlet.put(infos("plain"), wait=True)
        assert not outlet.is_journal
    assert (tmp_path / "log").read_text() == "plain\n"


def test_a_stream_without_a_descriptor_is_written_to_at_once() -> None:
    stream = io.StringIO()
    before = threading.active_count()
    Outlet(stream, lost, {"JOURNAL_STREAM": "1:2"}).put(infos("one"), wait=False)
    assert stream.getvalue() == "one\n"
    assert threading.active_count() == before


def test_lone_surrogates_do_not_stop_the_log(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        Outlet(stream, lost, {}).put(infos("a\udc80b"), wait=True)
    assert (tmp_path / "log").read_text() == "a\\udc80b\n"

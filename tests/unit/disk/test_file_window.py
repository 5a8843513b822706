"""Windows: the same octets as the file's, whatever its length, and never much of it in memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.disk.file_window import Window
from tests.unit.queue.support import OneFile

STEP = 16
"""So small that everything lies across ends."""


def onto(data: bytes, size: int | None = None, step: int = STEP) -> Window:
    return Window(OneFile(data), 0, len(data) if size is None else size, step)


DATA = bytes(range(1, 256)) * 2


def test_octets_are_those_of_the_file() -> None:
    shown = onto(DATA)
    for offset in (0, 3, 15, 16, 17, 250, 2, 400, len(DATA) - 1, len(DATA), len(DATA) + 9):
        for octets in (0, 1, STEP, 5 * STEP):
            at = shown.reach(offset, octets)
            assert shown.data[at : at + octets] == DATA[offset : offset + octets]
            assert len(shown.data) <= 5 * STEP


def test_what_is_in_memory_is_not_read_again() -> None:
    shown = onto(DATA, step=len(DATA))
    for offset in range(len(DATA)):
        shown.reach(offset, 1)
    assert shown.moves == 1


def test_octets_behind_the_bound_are_not_shown() -> None:
    shown = onto(DATA, size=100)
    at = shown.reach(90, STEP)
    assert shown.data[at:] == DATA[90:100]
    assert shown.find(DATA[98:103], 0, 500) == -1
    assert b"\n".join(line for part in shown.lines(0, 500) for line in part) == DATA[:100]


def test_a_file_shorter_than_announced_ends_where_it_ends() -> None:
    shown = onto(b"one\ntwo\nthr", size=5 * STEP)
    assert list(shown.lines(0, 5 * STEP)) == [[b"one", b"two"], [b"thr"]]
    assert shown.find(b"none", 0, 5 * STEP) == -1
    assert shown.size == 11


@pytest.mark.parametrize("length", [1, 4, STEP - 1, STEP, STEP + 1])
def test_what_is_looked_for_is_found_across_ends(length: int) -> None:
    wanted = b"x" * length
    for offset in range(4 * STEP):
        shown = onto(bytes(offset) + wanted + bytes(7))
        assert shown.find(wanted, 0, shown.size) == offset
        assert shown.find(wanted, offset, offset + length) == offset
        assert shown.find(wanted, 0, offset + length - 1) == -1
        assert shown.find(wanted, offset + 1, shown.size) == -1


@given(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))), st.booleans())
def test_lines_are_the_files(words: list[bytes], whole: bool) -> None:
    data = b"head" + b"".join(word + b"\n" for word in words) + (b"" if whole else b"rest")
    shown = onto(data, step=8)
    found = [line for part in shown.lines(4, len(data)) for line in part]
    assert found == [*words, *([] if whole else [b"rest"])]


def test_over_octets_it_shows_them_all() -> None:
    shown = Window.over(b"a\nb\n")
    assert list(shown.lines(0, 4)) == [[b"a", b"b"]]
    assert shown.find(b"b", 0, 4) == 2
    assert shown.moves == 0

"""A bar for people who wait, and nothing for anybody else."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable

import pytest

from mqcd.cli.progress import PATIENCE_MS, waiting
from tests.fakes.clock import FakeClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, waited: int) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    clock = FakeClock()
    with waiting(clock) as tell:
        tell("copying", 1, 10)
        clock.advance(waited)
        tell("copying", 5, 10)
        tell("syncing", 0, 0)
    return stream.getvalue()


def test_who_waits_on_a_terminal_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "syncing" in shown(Terminal(), monkeypatch, PATIENCE_MS)


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(Terminal(), monkeypatch, PATIENCE_MS - 1) == ""


def test_a_file_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(io.StringIO(), monkeypatch, 10 * PATIENCE_MS) == ""


def test_who_is_told_nothing_more_sees_what_was_said_last(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, timers = Terminal(), []
    monkeypatch.setattr(sys, "stderr", stream)

    def later(seconds: float, act: Callable[[], None]) -> threading.Timer:
        timers.append(seconds)
        return threading.Timer(0, act)

    with waiting(FakeClock(), later) as tell:
        tell("starting", 0, 0)
        for thread in threading.enumerate():
            if isinstance(thread, threading.Timer):
                thread.join()
        assert "starting" in stream.getvalue()
    assert timers == [PATIENCE_MS / 1000]

"""The picture of `mqcd top`, held against pictures that a person has looked at (tests/data/top)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from mqcd.core.samples import MOST_DESTINATIONS, View
from mqcd.top.screen import screen, sparkline

DATA = Path(__file__).parents[2] / "data" / "top"
HERE = "127.0.0.1:9125"


def destination(name: str, **changes: Any) -> dict[str, Any]:
    usual = {
        "destination": name, "oldest_ms": None, "waiting": 0, "connections": 0, "idle": 0, "suspended": False,
        "probe_in_ms": 0, "rate_in_ms": 0, "reply": None, "reply_ms": None,
    }  # fmt: skip
    return {**usual, **changes}


DESTINATIONS = [
    destination(
        "mx.dead-and-gone.example", oldest_ms=11_100_000, suspended=True, probe_in_ms=840_000,
        reply="451 4.4.1 no connection to mx.dead-and-gone.example [192.0.2.7]: Connection refused",
    ),
    destination("probed.example", oldest_ms=600_000, waiting=1, suspended=True, reply="421 4.3.2 closing"),
    destination("busy.example", oldest_ms=340_000, reply="450 4.2.1 mailbox busy, come back later"),
    destination("slow.example", oldest_ms=65_000, waiting=1_250, connections=20),
    destination("limited.example", oldest_ms=9_000, waiting=300, rate_in_ms=1_500),
    destination("日本語の長い名前の宛先.example", oldest_ms=4_000, waiting=3, reply="450 また来てください"),
    destination("evil\x1b[2J.example", waiting=1, connections=1, reply="550 \x1b]0;owned\x07 no"),
    *(destination(f"mx{n}.example", waiting=20 - n, connections=1) for n in range(20)),
]  # fmt: skip
STUCK = [
    {
        "kind": "lane", "name": "slow.example", "message": "", "recipients": 1250, "since_ms": 22_000_000,
        "why": "no transaction has ended",
    }
]  # fmt: skip
BUSY = View(
    at=1_795_304_467_000,
    version="1.2.3",
    uptime=273_600,
    against="",
    known=True,
    rates={
        "accepted": 1234.4, "delivered": 1198.0, "deferred": 3.25, "bounced": 0.4, "expired": 0.0,
        "refused": 12.0, "attempts": 1201.65, "accepted_bytes": 5_400_000.0,
    },
    trends={"accepted": [float(n % 17) for n in range(200)], "delivered": [5.0, 9.0, 0.0, 1.0]},
    areas={
        "incoming": (12_033, 41_000_000, 2.2), "deferred": (1_204_775, 5_600_000_000, 183_000.0),
        "bounces": (3, 9_000, 0.2), "held": (0, 0, 0.0),
    },
    commit_ms=12.34, group=24.5, journal=0.62, lag=0.012, cpu=0.87, memory=188_000_000, clients=212,
    connections=1_840, disks={"queue": 120 << 30, "spool": 1_100 << 30, "events": 9 << 20}, lanes=27,
    suspended=2, unknown=4, imbalance=0, stuck=STUCK, stuck_recipients=1250, destinations=DESTINATIONS,
)  # fmt: skip
IDLE = replace(
    BUSY,
    rates=dict.fromkeys(BUSY.rates),
    trends={"accepted": [], "delivered": []},
    areas=dict.fromkeys(BUSY.areas, (0, 0, 0.0)),
    commit_ms=None, group=None, journal=0.0, cpu=None, clients=0, connections=0, unknown=0, stuck=[],
    stuck_recipients=0, destinations=[], uptime=4.0,
)  # fmt: skip
PICTURES = {
    "busy-80x24": (BUSY, 80, 24, ""),
    "busy-120x40": (BUSY, 120, 40, ""),
    "busy-60x20": (BUSY, 60, 20, ""),
    "idle-80x24": (IDLE, 80, 24, ""),
    "starting-80x24": (
        replace(IDLE, known=False, against="starting: the queue is not open yet\nmore"),
        80,
        24,
        "",
    ),
    "gone-80x24": (replace(BUSY, destinations=DESTINATIONS[:3], imbalance=-2), 80, 24, "no server answers"),
}


def picture(shown: View, width: int, height: int, trouble: str = "", *, once: bool = False) -> list[str]:
    return [line.plain.rstrip() for line in screen(shown, HERE, width, height, trouble=trouble, once=once)]


@pytest.mark.parametrize("name", PICTURES)
def test_it_looks_as_it_did_when_somebody_looked(name: str) -> None:
    drawn = "\n".join(picture(*PICTURES[name])) + "\n"
    assert drawn == (DATA / f"{name}.txt").read_text(encoding="utf-8")


@given(
    st.sampled_from([BUSY, IDLE, replace(BUSY, against="x" * 300), replace(BUSY, stuck=STUCK * 9)]),
    st.integers(1, 200),
    st.integers(1, 70),
    st.sampled_from(["", "日本" * 80]),
)
def test_no_window_is_too_small_and_no_line_too_wide(
    shown: View, width: int, height: int, trouble: str
) -> None:
    lines = picture(shown, width, height, trouble)
    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width
    assert all(line.isprintable() for line in lines)


def test_a_page_that_scrolls_ends_where_there_is_nothing_more() -> None:
    lines = picture(IDLE, 80, 24, once=True)
    assert lines[-1] == " nothing waits"


def test_a_full_window_says_how_many_more_there_are() -> None:
    lines = picture(BUSY, 80, 30)
    heading = next(n for n, line in enumerate(lines) if line.startswith(" destination "))
    more = next(n for n, line in enumerate(lines) if line.startswith(" and "))
    assert int(lines[more].split()[1]) + (more - heading - 1) == len(DESTINATIONS)


def test_the_rest_is_uncounted_if_the_server_sends_the_worst() -> None:
    many = [destination(f"mx{n}.example") for n in range(MOST_DESTINATIONS)]
    lines = picture(replace(BUSY, stuck=[], destinations=many), 80, 24)
    assert lines[22] == " and 93 or more others"


def test_all_fit_in_a_window_that_is_high_enough() -> None:
    lines = picture(replace(BUSY, stuck=[]), 80, 60)
    assert not [line for line in lines if line.startswith(" and ")]
    assert len([line for line in lines if line.startswith(" mx")]) == 21


@pytest.mark.parametrize(
    ("values", "bars"), [([], ""), ([0, 0], "  "), ([1, 2, 4, 8, 0], "▁▂▄█ "), ([0.001, 100], "▁█")]
)
def test_a_sparkline_tells_little_from_nothing(values: list[float], bars: str) -> None:
    assert sparkline(values) == bars

"""Numbers, durations and times as people read them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

NONE = "\u2013"
"""Shown where there is no value."""
DAY_MS = 86_400_000
_UNITS = ((DAY_MS, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))


def number(value: int) -> str:
    """With narrow spaces between thousands."""
    return f"{value:,}".replace(",", "\u202f")


def octets(value: int) -> str:
    """In the unit that suits."""
    for size, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if value >= size:
            return (
                f"{value / size:.1f} {unit}" if value < 10 * size else f"{number(round(value / size))} {unit}"
            )
    return f"{value} B"


def share(part: int, whole: int) -> str:
    """In percent; never 100 unless it is all, nor 0 unless it is none."""
    if not whole:
        return NONE
    return percent(part / whole)


def percent(part: float) -> str:
    """The same of a part of 1."""
    percent = 100 * part
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.0f} %" if percent in (0, 100) else f"{percent:.1f} %"


def duration(ms: float | None) -> str:
    """With two digits that count: 320 ms, 4.1 s, 2 h 5 min."""
    if ms is None:
        return NONE
    ms = round(ms)
    for index, (size, unit) in enumerate(_UNITS):
        if ms >= size and size >= 60_000:
            small, name = _UNITS[index + 1]
            rest = ms % size // small
            return f"{ms // size} {unit}" + (f" {rest} {name}" if rest and ms < 10 * size else "")
        if ms >= size and unit == "s":
            return f"{ms / 1000:.1f} s" if ms < 10_000 else f"{ms // 1000} s"
    return f"{ms} ms"


def moment(ms: int | None, *, seconds: bool = True) -> str:
    """A time in UTC."""
    if ms is None:
        return NONE
    return f"{_time(ms):%Y-%m-%d %H:%M:%S}" if seconds else f"{_time(ms):%Y-%m-%d %H:%M}"


def moment_of(ms: int, width: int) -> str:
    """A piece of time of that length: as exact as it has to be."""
    if width >= DAY_MS:
        return f"{_time(ms):%a %-d %b %Y}"
    return f"{_time(ms):%a %-d %b, %H:%M}" if width >= 60_000 else f"{_time(ms):%-d %b, %H:%M:%S}"


def tick(ms: int, step: int) -> str:
    """The same on an axis whose labels are that far apart."""
    at = _time(ms)
    if step >= DAY_MS or (ms % DAY_MS == 0 and step >= 3_600_000):
        return f"{at:%-d %b}"
    return f"{at:%H:%M}" if step >= 60_000 else f"{at:%H:%M:%S}"


def plural(count: int, one: str, more: str | None = None) -> str:
    """`1 event`, `2 events`."""
    return f"{number(count)} {one if count == 1 else more or one + 's'}"


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)

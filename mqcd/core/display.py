"""Times and sizes in a few letters, for tables that people read. Pure."""

from __future__ import annotations

_TIMES = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"))
_SIZES = ((1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"))


def span(ms: int) -> str:
    """A length of time in its largest unit, two for hours: `14m`, `3h 05m`, `2d`, `<1s`."""
    for unit, letter in _TIMES:
        count, rest = divmod(ms, unit)
        if count:
            return f"{count}h {rest // 60_000:02d}m" if letter == "h" and count < 10 else f"{count}{letter}"
    return "<1s"


def ago(then: int, now: int) -> str:
    """`3h 05m ago`."""
    return f"{span(max(now - then, 0))} ago"


def ahead(then: int, now: int) -> str:
    """`in 14m`, or `now` for what is due."""
    return f"in {span(then - now)}" if then > now else "now"


def size(octets: int) -> str:
    """`512`, `4.1K`, `30M`."""
    for unit, letter in _SIZES:
        if octets >= unit:
            count = octets / unit
            return f"{count:.1f}{letter}" if count < 10 else f"{count:.0f}{letter}"
    return str(octets)


def printable(text: str) -> str:
    """`text` without what could drive a terminal: strangers choose addresses and replies."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "?" for char in text)

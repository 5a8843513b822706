"""Octets and milliseconds by their names, and texts that name them (`64K`, `1h30m`). Pure."""

from __future__ import annotations

import re

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
YEAR = 365 * DAY

OCTETS = {"G": GIB, "M": MIB, "K": KIB}
TIMES = {"w": 7 * DAY, "d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "ms": 1}

# ASCII, or case folding would take the Kelvin sign for a K. 19 digits hold the largest value.
_FLAGS = re.IGNORECASE | re.ASCII
_SIZE = re.compile(r"([0-9]{1,19})([KMG]?)B?", _FLAGS)
_DURATION = re.compile("".join(f"(?:([0-9]{{1,19}}){unit})?" for unit in TIMES), _FLAGS)
_BARE = re.compile("[0-9]{1,19}")


def size_of(text: str) -> int | None:
    """The octets that a text such as `256K` says; None if it says none."""
    form = _SIZE.fullmatch(text)
    return int(form[1]) * OCTETS.get(form[2].upper(), 1) if form is not None else None


def duration_of(text: str) -> int | None:
    """The milliseconds that a text such as `1h30m` says, a bare number is those; None if it says none."""
    if _BARE.fullmatch(text):
        return int(text)
    form = _DURATION.fullmatch(text)
    if not text or form is None:
        return None
    return sum(int(count or 0) * factor for count, factor in zip(form.groups(), TIMES.values(), strict=True))

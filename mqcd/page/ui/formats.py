"""Numbers and times as the page shows them, each kind in one form. Pure.

Strangers choose addresses and replies: `clean` keeps what could turn a text round or hide a part of it from
showing; escaping for HTML is the templates' own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from mqcd.core.display import ahead, printable, size, span

NONE = "\N{EN DASH}"
"""What stands where nothing is known."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def number(value: float | None) -> str:
    """`1,234,567`."""
    return NONE if value is None else f"{value:,.0f}"


def rate(per_second: float | None) -> str:
    """`1,204/s`, `3.5/s`; less than one a second by the minute."""
    if per_second is None:
        return NONE
    if per_second >= 10:
        return f"{per_second:,.0f}/s"
    if per_second >= 1:
        return f"{per_second:.1f}/s"
    return f"{per_second * 60:.0f}/min" if per_second * 60 >= 0.5 else "0/min"


def octets(value: float | None) -> str:
    """`4.1 KB`, `30 MB`."""
    if value is None:
        return NONE
    text = size(int(value))
    return f"{text[:-1]} {text[-1]}B" if text[-1].isalpha() else f"{text} B"


def duration(ms: float | None) -> str:
    """`3h 05m`."""
    return NONE if ms is None else span(int(ms))


def share(part: float) -> str:
    """`42%`."""
    return f"{part:.0%}"


def moment(text: str | None) -> str:
    """An RFC 3339 time as `2026-11-24 07:03:12`, in UTC."""
    return NONE if not text else text[:19].replace("T", " ")


def ms_of(text: str | None) -> int | None:
    """The ms since 1970 that an RFC 3339 time means; None without one."""
    if not text:
        return None
    try:
        then = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int(then.replace(tzinfo=then.tzinfo or UTC).timestamp() * 1000)


def until(text: str | None, now: int) -> str:
    """`in 14m`; `now` for what is due."""
    then = ms_of(text)
    return NONE if then is None else ahead(then, now)


def since(text: str | None, now: int) -> str:
    """`3h 05m`: how long ago a time is."""
    then = ms_of(text)
    return NONE if then is None else span(max(now - then, 0))


def clean(text: object) -> str:
    """A text that a stranger wrote, without what drives a display."""
    return printable(str(text).replace("\t", " "))


def words(value: object, name: str = "") -> str:
    """A value of JSON as people read it: durations as such, and nothing of what is not set."""
    if isinstance(value, Mapping):
        parts = [(str(key), words(each, str(key))) for key, each in value.items()]
        return ", ".join(f"{key.removesuffix('_ms').replace('_', ' ')} {said}" for key, said in parts if said)
    if isinstance(value, list | tuple):
        return ", ".join(said for each in value if (said := words(each, name)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == "":
        return ""
    if isinstance(value, int | float):
        return (
            span(int(value))
            if name.endswith("_ms")
            else f"{value:g}"
            if isinstance(value, float)
            else str(value)
        )
    return moment(str(value)) if _TIME.match(str(value)) else str(value)


def plural(count: float, one: str, many: str = "") -> str:
    """`1 recipient`, `2 recipients`."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


FILTERS: Mapping[str, Callable[..., Any]] = {
    "number": number,
    "rate": rate,
    "octets": octets,
    "duration": duration,
    "share": share,
    "moment": moment,
    "until": until,
    "since": since,
    "clean": clean,
    "plural": plural,
    "words": words,
}
"""By the names that templates have for them."""

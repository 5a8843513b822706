"""How advice and what-if are shown to people, and to programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mqcd.config.kinds.fields import Duration, Listed
from mqcd.core.display import printable
from mqcd.pipeline.advice.outages import Sums, WhatIf

_HEAD = ("site", "recipients", "attempts", "then", "saved", "mean wait", "then", "saved", "off by")


def as_object(sums: Sums) -> dict[str, object]:
    """One object; times in ms, means over the recipients."""
    count = max(sums.recipients, 1)
    return {
        "site": sums.site or None,
        "recipients": sums.recipients,
        "recorded_attempts": sums.recorded_attempts,
        "replayed_attempts": sums.attempts,
        "other_attempts": sums.other_attempts,
        "attempts_saved": sums.attempts - sums.other_attempts,
        "recorded_wait_ms": sums.recorded_wait // count,
        "replayed_wait_ms": sums.wait // count,
        "other_wait_ms": sums.other_wait // count,
        "wait_saved_ms": (sums.wait - sums.other_wait) // count,
        "through": sums.through,
        "other_through": sums.other_through,
        "off": round(sums.off, 3),
        "reproduces": sums.reproduces,
    }


def table(found: WhatIf, in_force: Sequence[int], other: Sequence[int]) -> Iterator[str]:
    """Lines for people: what is compared, sites, then all of them."""
    now, then = (Listed(Duration()).show(tuple(delays)) for delays in (in_force, other))
    yield f"outages replayed by the retry delays in force ({now}), then by {then}"
    yield ""
    rows = [_HEAD, *(_row(each.site, each) for each in found.sites)]
    if found.more:
        rows.append((f"{found.more} sites more", *("" for _ in _HEAD[1:])))
    rows.append(_row("all", found.total))
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEAD))]
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        yield "  ".join(cells).rstrip()
    if not all(each.reproduces for each in (*found.sites, found.total)):
        yield ""
        yield "(!) the delays in force, replayed, miss what was recorded by more than 10 %: do not rely on it"


def _row(name: str, sums: Sums) -> tuple[str, ...]:
    count = max(sums.recipients, 1)
    return (
        printable(name),
        str(sums.recipients),
        str(sums.attempts),
        str(sums.other_attempts),
        f"{sums.attempts - sums.other_attempts:+}",
        _time(sums.wait // count),
        _time(sums.other_wait // count),
        _time((sums.wait - sums.other_wait) // count, signed=True),
        f"{sums.off:.1%}" + ("" if sums.reproduces else " (!)"),
    )


def _time(ms: int, *, signed: bool = False) -> str:
    """To the second; from an hour on to the minute."""
    least = 60_000 if abs(ms) >= 3_600_000 else 1000
    text = Duration().show(abs(ms) // least * least)
    sign = ("-" if ms < 0 else "+") if signed else ""
    return sign + text

"""Pictures as shapes of an SVG. Their text stands beside them in HTML, where it keeps its size. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from mqcd.core.samples import RATES, Sample
from mqcd.core.value import value

WIDTH, HEIGHT = 600, 120
_LONGEST_GAP_S = 60.0
"""Between samples further apart than this no line is drawn."""
_ROUND = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)


@value
class Line:
    """One line of a picture."""

    name: str
    path: str
    """For the attribute `d`."""
    last: float | None


@value
class Trend:
    """Lines over time; 0 is at the bottom, `most` at the top."""

    lines: Sequence[Line]
    most: float
    span_s: float
    """What the width stands for, seconds."""


def trend(samples: Sequence[Sample], names: Sequence[str]) -> Trend | None:
    """Rates by the names of `samples.RATES`; None: there are not yet two samples."""
    if len(samples) < 2:
        return None
    return _trend(samples, {name: _rates(samples, RATES[name]) for name in names})


def levels(samples: Sequence[Sample], values: Mapping[str, Sequence[float]]) -> Trend | None:
    """Values that stand beside the samples, one for each."""
    if len(samples) < 2:
        return None
    points = {
        name: [(sample.taken, value) for sample, value in zip(samples, each, strict=True)]
        for name, each in values.items()
    }
    return _trend(samples, points)


Points = Sequence[tuple[float, float]]


def _rates(samples: Sequence[Sample], metric: str) -> Points:
    points = []
    for one, other in pairwise(samples):
        seconds, grown = other.taken - one.taken, other.total(metric) - one.total(metric)
        if seconds > 0 and grown >= 0:
            points.append((other.taken, grown / seconds))
    return points


def _trend(samples: Sequence[Sample], points: Mapping[str, Points]) -> Trend:
    begin, end = samples[0].taken, samples[-1].taken
    most = nice(max((value for each in points.values() for _, value in each), default=0))
    lines = [
        Line(name=name, path=_path(each, begin, end, most), last=each[-1][1] if each else None)
        for name, each in points.items()
    ]
    return Trend(lines=lines, most=most, span_s=end - begin)


def _path(points: Points, begin: float, end: float, most: float) -> str:
    parts, before = [], None
    for at, figure in points:
        x = WIDTH * (at - begin) / (end - begin or 1)
        y = HEIGHT - (HEIGHT - 2) * figure / most - 1
        starts = before is None or at - before > _LONGEST_GAP_S
        parts.append(f"{'M' if starts else 'L'}{x:.1f} {y:.1f}")
        before = at
    return "".join(parts)


def nice(value: float) -> float:
    """The round number above a value, at least 1."""
    power = 1.0
    while True:
        for step in _ROUND:
            if value <= step * power:
                return step * power
        power *= 10


@value
class Piece:
    """A part of a bar, in thousandths of its width."""

    name: str
    x: float
    width: float


def stacked(parts: Mapping[str, float]) -> Sequence[Piece]:
    """Parts of a whole side by side; each that is not 0 can be seen."""
    whole = sum(parts.values())
    shown = (
        {name: max(1000 * value / whole, 6.0) for name, value in parts.items() if value > 0} if whole else {}
    )
    scale = 1000 / sum(shown.values()) if shown else 1
    pieces, x = [], 0.0
    for name, width in shown.items():
        pieces.append(Piece(name=name, x=round(x, 1), width=round(width * scale, 1)))
        x += width * scale
    return pieces


def bar(value: float, most: float) -> float:
    """The length of a bar in thousandths; what is not 0 can be seen."""
    return max(round(1000 * value / most, 1), 6.0) if value > 0 and most > 0 else 0.0

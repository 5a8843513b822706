"""Charts over time, in SVG that needs no script. Pure.

The drawing is stretched to the width there is, on a telephone too, while its strokes keep their width; so
words stand in HTML around it. Pointing at a moment shows its numbers (SVG's own `title`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from mqcd.core.value import value
from mqcd.pipeline.report.templates import macro
from mqcd.pipeline.report.words import moment_of, number, tick

_frame = macro("charts.html", "plot")
WIDE, HIGH = 1000, 100
"""Units of a drawing."""
_STEPS = (
    1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000,
    3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000, 86_400_000, 172_800_000, 345_600_000,
    604_800_000, 1_209_600_000, 2_419_200_000, 7_257_600_000, 29_030_400_000,
)  # fmt: skip
_LABELS = 7
_DECADES = (
    (1, "1 ms"), (10, "10 ms"), (100, "100 ms"), (1_000, "1 s"), (10_000, "10 s"), (60_000, "1 min"),
    (600_000, "10 min"), (3_600_000, "1 h"), (36_000_000, "10 h"), (345_600_000, "4 d"),
    (3_456_000_000, "40 d"),
)  # fmt: skip
"""Ticks of an axis of durations."""


@value(kw_only=False)
class Series:
    """What one colour means. A value for each moment; None where there is none."""

    name: str
    colour: str
    """Class in the style sheet: `a` to `f`."""
    values: Sequence[float | None]


@value
class Scale:
    """The vertical axis."""

    place: Callable[[float], float]
    """From 0, the bottom, to 1."""
    ticks: Sequence[tuple[float, str]]
    """Value and label."""


@value
class Axis:
    """The horizontal one."""

    moments: Sequence[int]
    """When each begins. They are a width apart; the last one may lie nearer."""
    width: int
    """Of one moment, ms."""

    @property
    def count(self) -> int:
        return len(self.moments)


def linear(most: float) -> Scale:
    """From 0 to a round number."""
    step = _round_step(max(most, 1) / 4)
    top = math.ceil(max(most, 1) / step) * step
    ticks = [(index * step, number(round(index * step))) for index in range(round(top / step) + 1)]
    return Scale(place=lambda value: value / top, ticks=ticks)


def percent() -> Scale:
    """From 0 to 1."""
    ticks = [(0.0, "0"), (0.25, "25 %"), (0.5, "50 %"), (0.75, "75 %"), (1.0, "100 %")]
    return Scale(place=lambda value: value, ticks=ticks)


def durations(least: float, most: float) -> Scale:
    """Each step some times the one before, for times in a queue span seven decades."""
    low = max((at for at, _ in _DECADES[:-1] if at <= max(least, 1)), default=1)
    high = next((at for at, _ in _DECADES if at >= most and at > low), _DECADES[-1][0])
    ticks = [(at, name) for at, name in _DECADES if low <= at <= high]
    spread = math.log(high / low)
    return Scale(
        place=lambda value: min(max(math.log(max(value, low) / low) / spread, 0), 1),
        ticks=ticks,
    )


def _round_step(step: float) -> float:
    """1, 2 or 5 times a power of ten, and no fraction: all that is counted is whole."""
    size = 10 ** math.floor(math.log10(step)) if step > 1 else 1
    return float(next(factor * size for factor in (1, 2, 5, 10) if factor * size >= step))


def lines(series: Sequence[Series], axis: Axis, scale: Scale, *, shown: Callable[[float], str]) -> Markup:
    """A line for each series; where single values stand alone they are dots."""
    drawn = [
        (_path(each.values, axis, scale), f"line {each.colour}")
        for each in series
        if any(value is not None for value in each.values)
    ]
    return _plot(drawn, series, axis, scale, shown)


def stacked(series: Sequence[Series], axis: Axis, scale: Scale, *, shown: Callable[[float], str]) -> Markup:
    """Bars, the first series at the bottom."""
    drawn = []
    step = WIDE / axis.count
    below = [0.0] * axis.count
    for each in series:
        pieces = []
        for index, figure in enumerate(each.values):
            if figure:
                low, high = scale.place(below[index]), scale.place(below[index] + figure)
                below[index] += figure
                left, right = _short(step * (index + 0.1)), _short(step * (index + 0.9))
                pieces.append(f"M{left} {_y(low)}V{_y(high)}H{right}V{_y(low)}Z")
        if pieces:
            drawn.append(("".join(pieces), f"bar {each.colour}"))
    return _plot(drawn, series, axis, scale, shown)


def _path(values: Sequence[float | None], axis: Axis, scale: Scale) -> str:
    step = WIDE / axis.count
    pieces, pen_down = [], False
    for index, figure in enumerate(values):
        if figure is None:
            pen_down = False
            continue
        x, y = _short(step * (index + 0.5)), _y(scale.place(figure))
        # A step of no length is a dot, where the stroke's ends are round.
        pieces.append(f"L{x} {y}" if pen_down else f"M{x} {y}h0")
        pen_down = True
    return "".join(pieces)


def _y(place: float) -> str:
    return _short(HIGH * (1 - place))


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _plot(
    drawn: Sequence[tuple[str, str]],
    series: Sequence[Series],
    axis: Axis,
    scale: Scale,
    shown: Callable[[float], str],
) -> Markup:
    return _frame(
        paths=drawn,
        grid="".join(f"M0 {_y(scale.place(value))}H{WIDE}" for value, _ in scale.ticks),
        pointers=_pointers(series, axis, shown),
        heights=[(name, f"{100 * scale.place(at):.2f}") for at, name in scale.ticks],
        times=_times(axis),
        wide=WIDE,
        high=HIGH,
    )


def _pointers(
    series: Sequence[Series], axis: Axis, shown: Callable[[float], str]
) -> list[tuple[Markup, str, str]]:
    """For each moment its words, where it begins, and how wide it is."""
    step = WIDE / axis.count
    found = []
    for index, at in enumerate(axis.moments):
        values = [(each.name, each.values[index]) for each in series]
        rows = [f"{name}: {shown(value)}" for name, value in values if value is not None]
        if rows:
            when = moment_of(at, axis.width)
            found.append((Markup("\n").join([when, *rows]), _short(step * index), _short(step)))
    return found


def _times(axis: Axis) -> list[tuple[str, str]]:
    """Labels below moments and their places: few enough for a small screen when every other is hidden."""
    begin, span = axis.moments[0], axis.count * axis.width
    step = next((each for each in _STEPS if each >= axis.width and span / each <= _LABELS), _STEPS[-1])
    first = -(-begin // step) * step
    middle = 0.5 if axis.count < 20 else 0
    places = [
        (tick(at, step), 100 * ((at - begin) / axis.width + middle) / axis.count)
        for at in range(first, begin + span, step)
    ]
    return [(name, f"{place:.2f}") for name, place in places if place <= 97]

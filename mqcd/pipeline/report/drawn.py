"""The charts of the page: what each shows, its words, and its numbers as a table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from mqcd.pipeline.report import charts
from mqcd.pipeline.report.cells import numbers
from mqcd.pipeline.report.charts import Axis, Scale, Series
from mqcd.pipeline.report.figures import Figures, Tried
from mqcd.pipeline.report.templates import macro
from mqcd.pipeline.report.words import NONE, duration, moment_of, number, percent, plural, share

HOUR_MS = 3_600_000
_frame = macro("charts.html", "figure")
_nothing = macro("charts.html", "nothing")
_SPARSE = 20
"""Moments up to which each has a dot."""


def flow(figures: Figures) -> Markup:
    """Mail that came and mail that went, and below what did not get through."""
    moments, axis = figures.moments, _axis(figures)
    came = [
        Series("accepted", "a", [each.accepted for each in moments]),
        Series("delivered", "b", [each.tried.delivered for each in moments]),
    ]
    failed = [
        Series("deferred", "c", [each.tried.deferred for each in moments]),
        Series("bounced", "d", [each.tried.bounced for each in moments]),
        Series("expired", "e", [each.tried.expired for each in moments]),
    ]
    failed = [each for each in failed if any(each.values)] or failed[:1]
    most = max((value or 0 for each in came for value in each.values), default=0)
    total = figures.total
    said = (
        f"{plural(figures.accepted, 'recipient')} accepted, {number(total.delivered)} delivered; "
        f"{plural(total.deferred, 'deferral')}, "
        f"{number(total.bounced)} bounced, {number(total.expired)} expired."
    )
    return _figure(
        "Mail accepted, delivered, deferred, bounced",
        f"{said} Each point is {_each(figures.width)}.",
        [*came, *failed],
        axis,
        [
            charts.lines(came, axis, charts.linear(most), shown=_count),
            charts.stacked(failed, axis, charts.linear(_highest(failed)), shown=_count),
        ],
        _count,
        wide=True,
    )


def latency(figures: Figures) -> Markup:
    """How long mail took that was delivered."""
    times = [each.tried.latency for each in figures.moments]
    series = [
        Series(name, colour, [each and each[index] for each in times])
        for index, (name, colour) in enumerate((("half of the mail", "b"), ("90 %", "a"), ("99 %", "e")))
    ]
    known = [value for each in series for value in each.values if value is not None]
    scale = charts.durations(min(known, default=1), max(known, default=1000))
    whole = figures.total.latency
    said = (
        f"In the period half of it took at most {duration(whole[0])}, 90 % {duration(whole[1])}, "
        f"99 % {duration(whole[2])}."
        if whole
        else "Nothing was delivered."
    )
    return _lines(figures, "Time in the queue of what was delivered", said, series, scale, duration)


def first_attempts(figures: Figures) -> Markup:
    """What got through at once, and what was put off."""

    def rates(parts: Callable[[Tried], tuple[int, int]]) -> list[float | None]:
        each = [parts(moment.tried) for moment in figures.moments]
        return [part / whole if whole else None for part, whole in each]

    series = [
        Series(
            "delivered at the first attempt",
            "b",
            rates(lambda one: (one.first_delivered, one.first_attempts)),
        ),
        Series("attempts deferred", "c", rates(lambda one: (one.deferred, one.attempts))),
        Series("attempts with TLS", "f", rates(lambda one: (one.tls, one.attempts))),
    ]
    total = figures.total
    said = (
        f"{share(total.first_delivered, total.first_attempts)} of first attempts delivered; "
        f"{share(total.deferred, total.attempts)} of all attempts deferred; "
        f"{share(total.tls, total.attempts)} with TLS."
    )
    return _lines(figures, "First attempts, deferrals, TLS", said, series, charts.percent(), percent)


def queue_age(figures: Figures) -> Markup:
    """The recipients that waited, and for how long."""
    waiting = figures.waiting
    if not waiting:
        return _nothing("Waiting in the queue", "No recipient waited at the end of any hour.")
    axis = Axis(moments=[each.at for each in waiting], width=max(figures.width, HOUR_MS))
    series = [
        Series(
            name.replace("-", " to ", 1) if not name.endswith("-") else f"over {name[:-1]}",
            f"age-{order}",
            [each.recipients.get(name, 0) for each in waiting],
        )
        for order, name in enumerate(figures.ages, 1)
    ]
    series = [each for each in series if any(each.values)]
    last = sum(waiting[-1].recipients.values())
    most = max(sum(each.recipients.values()) for each in waiting)
    said = (
        f"At the end {plural(last, 'recipient')} waited; at most {number(most)}. Counted at the end of hours."
    )
    drawn = charts.stacked(series, axis, charts.linear(most), shown=_count)
    return _figure("Waiting in the queue, by age", said, series, axis, [drawn], _count)


# ---------------------------------------------------------------- their frame


def _lines(
    figures: Figures,
    title: str,
    said: str,
    series: Sequence[Series],
    scale: Scale,
    shown: Callable[[float], str],
) -> Markup:
    axis = _axis(figures)
    return _figure(title, said, series, axis, [charts.lines(series, axis, scale, shown=shown)], shown)


def _figure(
    title: str,
    said: str,
    series: Sequence[Series],
    axis: Axis,
    plots: Sequence[Markup],
    shown: Callable[[float], str],
    *,
    wide: bool = False,
) -> Markup:
    rows = [
        [
            moment_of(at, axis.width),
            *(_value(each.values[index], shown) for each in series),
        ]
        for index, at in enumerate(axis.moments)
    ]
    heads = ["UTC", *(each.name for each in series)]
    kind = ("card wide half" if wide else "card") + (" sparse" if axis.count <= _SPARSE else "")
    return _frame(title, said, series, plots, numbers(f"{title}: the numbers", heads, rows), kind)


def _axis(figures: Figures) -> Axis:
    return Axis(moments=[each.at for each in figures.moments], width=figures.width)


def _highest(series: Sequence[Series]) -> float:
    return max(
        (sum(value or 0 for value in values) for values in zip(*(s.values for s in series), strict=True)),
        default=0,
    )


def _each(width: int) -> str:
    names = {86_400_000: "a day", HOUR_MS: "an hour", 60_000: "a minute", 1_000: "a second"}
    return names.get(width, duration(width))


def _value(value: float | None, shown: Callable[[float], str]) -> str:
    return NONE if value is None else shown(value)


def _count(value: float) -> str:
    return number(round(value))

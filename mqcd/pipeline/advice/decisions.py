"""What sums say: a destination's limits, its retry delays, and words for people. Pure, and without Spark.

Every threshold is a field of `Rules` or a constant here, with the reason for its value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import accumulate, pairwise

from mqcd.config.settings import Rate
from mqcd.core.value import value

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
MONTH = 30 * DAY


@value
class Rules:
    """How much evidence is enough. Times in ms."""

    messages: int = 3
    """Messages that a recipient must have been refused for; one refusal may be a mistake of theirs."""
    apart: int = DAY
    """From the first of these refusals to the last one, at least: a bad day of a server ends sooner."""
    whole_site: int = 3
    """When so many of a site's recipients are refused as dead in one hour or day, and no fewer than it took
    mail for, it is the site that is ill: these refusals say nothing about a recipient."""
    horizon: int = 90 * DAY
    """How far back evidence on recipients is looked for."""
    suppressed: int = 30 * DAY
    """How long a suppression lasts after the last refusal. Then mail is tried again; one more refusal within
    the horizon renews it."""
    most: int = 50_000
    """Suppressions in one proposal; the most refused go first, and the rest is counted."""
    throttled: int = 5
    """Replies that ask for less, from which on a site is looked at."""
    window: int = 14 * DAY
    """How far back the behaviour of sites is looked at: they change."""
    shaped: int = 14 * DAY
    """How long a shaping lasts after it was found last."""
    sites: int = 500
    """Sites that are shaped in one proposal, those with most such replies first."""
    retries: int = 20
    """Retries of which the success-by-delay curve of a site must be made."""
    days: int = 2
    """On so many days at least: one outage is no habit."""


MAX_DOUBT = 0.25
"""Share of attempts that a limit may fail to explain. Half of them is what a coin explains."""
MARGIN = 0.85
"""Share of the rate that was found: a token bucket lets up to ten seconds' worth more go at once."""


@value
class Limit:
    """How much a site takes."""

    value: int
    per: int = 0
    """Recipients in so many ms; 0 = connections at once."""
    doubt: float
    """Mean share of what it does not explain, of those put off and of those taken."""


class Said(StrEnum):
    """What most replies that ask for less speak of."""

    NEITHER = "neither"
    CONNECTIONS = "connections"
    RATE = "rate"


Histogram = Mapping[int, tuple[int, int]]
"""By value: how many were taken at it, and how many put off."""


def connection_limit(seen: Histogram) -> Limit | None:
    """The most connections at once, from how many others there were at each attempt.

    The value that separates best the attempts that were taken from those put off; of equals the least,
    because more was never seen to be taken.
    """
    taken, off = _sums(seen)
    if not taken or not off:
        return None
    best: Limit | None = None
    below_off = below_taken = 0
    for limit in range(max(seen) + 1):
        if limit:
            # `limit` at once: an attempt that meets one other less is taken, one that meets that many is not.
            doubt = (below_off / off + (taken - below_taken) / taken) / 2
            if best is None or doubt < best.doubt:
                best = Limit(value=limit, doubt=doubt)
        here_taken, here_off = seen.get(limit, (0, 0))
        below_taken, below_off = below_taken + here_taken, below_off + here_off
    return best


def rate_limit(seen: Histogram, per: int) -> Limit | None:
    """The most recipients in a time, from how many were taken in each such time: in `seen`, times in which
    none and in which some were put off.

    What a site takes while it asks for less is the median of what it took in such times. It explains them
    when they reach at least half of it, and the others when they do not go beyond it.
    """
    calm, busy = _sums(seen)
    if not busy:
        return None
    limit = _median({value: off for value, (_, off) in seen.items()}, busy)
    if limit < 1:
        return None
    short = sum(off for value, (_, off) in seen.items() if value * 2 < limit)
    beyond = sum(free for value, (free, _) in seen.items() if value > limit)
    doubt = (short / busy + (beyond / calm if calm else 0.0)) / 2
    return Limit(value=limit, per=per, doubt=doubt)


def _sums(seen: Histogram) -> tuple[int, int]:
    return sum(first for first, _ in seen.values()), sum(second for _, second in seen.values())


def _median(counts: Mapping[int, int], total: int) -> int:
    values = sorted(counts)
    for number, reached in zip(values, accumulate(counts[number] for number in values), strict=True):
        if reached * 2 >= total:
            return number
    return 0


def best_limit(
    connections: Histogram, minutes: Histogram, hours: Histogram, said: Said = Said.NEITHER
) -> Limit | None:
    """What explains best why a site puts mail off; None when nothing does.

    A burst meets both kinds of limit at once, so what the replies speak of goes before a better fit.
    """
    tried = (connection_limit(connections), rate_limit(minutes, MINUTE), rate_limit(hours, HOUR))
    found = [each for each in tried if each is not None and each.doubt <= MAX_DOUBT]
    named = [each for each in found if said is (Said.RATE if each.per else Said.CONNECTIONS)]
    return min(named or found, key=lambda each: each.doubt, default=None)


def advised_rate(limit: Limit) -> Rate:
    """What to keep to, so that a limit in time is not met; few in a minute as many more in an hour, or else
    the whole number would take half of them away."""
    count, per = limit.value * MARGIN, limit.per
    while count < _FEW and per in _LONGER:
        count, per = count * _LONGER[per] / per, _LONGER[per]
    return Rate(count=max(1, int(count)), per=per)


_FEW = 10
_LONGER = {MINUTE: HOUR, HOUR: DAY}


# ---------------------------------------------------------------- retry delays

STEPS = tuple(
    MINUTE * n for n in (0, 1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1440)
)
"""Where the steps of a success-by-delay curve begin, ms since the first attempt."""
VAIN = 0.1
"""A retry that succeeds less often than this is not worth its connection."""
WORTH = 0.5
"""One that succeeds as often as this is."""


@value
class Step:
    """One step of a curve: retries so long after the first attempt."""

    begin: int
    """Least of these delays that was seen to succeed, or else that was seen, ms."""
    end: int = 0
    """Greatest that was seen in vain; 0: none was."""
    retries: int
    taken: int


@value
class FirstRetry:
    """What was seen of a site's retries: none is worth it up to some delay, from another one on it is."""

    vain: int
    """Greatest delay that was tried in vain, ms."""
    works: int
    """Least that succeeded, to the next minute."""
    probe: int
    """A delay between them, where none was tried and it is worth finding out; else 0."""
    sooner: Step
    """All retries up to `vain`."""


def first_delay(curve: Sequence[Step]) -> FirstRetry | None:
    """When the first retry is worth it; None: at once, or never.

    `curve` in the order of delays.
    """
    vain = taken = last = 0
    for step in curve:
        if step.retries and step.taken >= WORTH * step.retries:
            if not vain or taken > VAIN * vain:
                return None
            works = _up(step.begin)
            sooner = Step(begin=0, end=last, retries=vain, taken=taken)
            return FirstRetry(vain=last, works=works, probe=_between(last, works), sooner=sooner)
        vain, taken = vain + step.retries, taken + step.taken
        last = max(last, step.begin, step.end)
    return None


WIDE = 1.5
"""Where the delay that works is so many times the one in vain, and longer by `GAP`, what lies between is
worth a probe."""
GAP = 10 * MINUTE


def _between(vain: int, works: int) -> int:
    """The geometric middle, as delays are spaced."""
    if works < WIDE * vain or works - vain < GAP:
        return 0
    return _up(int(math.sqrt(max(vain, MINUTE) * works)))


def _up(delay: int) -> int:
    """A whole minute."""
    return -(-delay // MINUTE) * MINUTE


def delays_from(first: int, in_force: Sequence[int], *, probe: int = 0) -> tuple[int, ...]:
    """A schedule with a retry after `first`, and before it none but a `probe`; later ones are as late as
    before."""
    at, later = 0, []
    for delay in in_force:
        at += delay
        if at > first:
            later.append(at)
    times = (probe, first, *later) if probe else (first, *later)
    spaced = [times[0], *(after - before for before, after in pairwise(times))]
    # The last one repeats: it is to be the one that repeats now.
    spaced = [each for each in spaced if each >= MINUTE]
    return tuple(spaced if spaced[-1] == in_force[-1] else [*spaced, in_force[-1]])

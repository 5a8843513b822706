"""What another retry schedule would have done in an outage that was recorded. Pure, and without Spark.

The model: an attempt at a time succeeds if and only if that time lies in none of the outage windows of its
site. A recipient is tried first when it really was, then by the schedule, its jitter as the server draws
it, the last attempt brought forward to the age limit, until it succeeds, is given up, or the record ends.
What else may meet it (greylisting, a full mailbox) and the probes that find a dead site's return are not in
the model.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from mqcd.core.schedule import RetrySchedule

TOLERANCE = 0.1
"""Share by which attempts of the replayed schedule in force may differ from those recorded: jitter, attempts
whose outcome a crash hid, and outage ends that are only known to lie between two attempts."""
MAX_ATTEMPTS = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One recipient whose first attempt fell into an outage. Times in ms."""

    spid: int
    qid: int
    first: int
    """When it was tried first."""
    limit: int
    """When it reaches its age limit."""
    end: int
    """When the record ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What the model says became of it."""

    attempts: int
    through: int
    """When it got through, ms; 0 = not while the record lasts, or never."""


def replay(case: Case, begins: Sequence[int], ends: Sequence[int], schedule: RetrySchedule) -> Outcome:
    """Try a recipient by a schedule; outages from `begins[i]` up to `ends[i]`, in order, apart."""
    at, attempts = case.first, 0
    while at <= case.end and attempts < MAX_ATTEMPTS:
        attempts += 1
        place = bisect_right(begins, at) - 1
        if place < 0 or at >= ends[place]:
            return Outcome(attempts=attempts, through=at)
        if at >= case.limit:
            break
        at = min(at + schedule.delay_of(case.spid, case.qid, attempts), max(case.limit, at + 1))
    return Outcome(attempts=attempts, through=0)

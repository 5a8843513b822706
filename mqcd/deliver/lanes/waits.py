"""What stands before a recipient of the queue: other jobs, and rates. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from mqcd.core.model import Recipient
from mqcd.core.value import value
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import Lane
from mqcd.deliver.lanes.rates import Limit, Scope
from mqcd.deliver.lanes.throttling import Throttle

Key = tuple[int, int]
"""SPID and QID."""


@value
class Wait:
    """Of one recipient."""

    place: int | None = None
    """Jobs ahead of its own, in its lane or in the line for its sender's tokens; None where it waits in
    neither."""
    rate_in_ms: int = 0
    """Time until the rates that count it allow its job, if mail goes as fast as they do; 0 = at once."""
    sender_in_ms: int = 0
    """When the turn of the last recipient comes that waits outside for its sender's rate; none is after the
    present."""


def wait_of(lanes: Collection[Lane], throttle: Throttle, recipient: Recipient, now: int) -> Wait:
    """The wait of a recipient."""
    for lane in lanes:
        if (jobs := _up_to(lane.queue.jobs, recipient.key)) is not None:
            waits = (limit.wait(_before(limit, lanes, jobs), now) for limit in lane.queue.limits)
            return Wait(place=len(jobs) - 1, rate_in_ms=max([_sender_wait(jobs, now), *waits]))
    for line in throttle.lines():
        if (jobs := _up_to(line, recipient.key)) is not None:
            return Wait(place=len(jobs) - 1, rate_in_ms=_sender_wait(jobs, now))
    limit = throttle.of_sender(recipient)
    return Wait(sender_in_ms=max(int(limit.booked) - now, 0) if limit is not None else 0)


def _up_to(line: Iterable[Job], key: Key) -> list[Job] | None:
    """The jobs of a line up to a recipient's; None where it is in none."""
    jobs: list[Job] = []
    for job in line:
        jobs.append(job)
        if any(each.key == key for each in job.recipients):
            return jobs
    return None


def _sender_wait(jobs: list[Job], now: int) -> int:
    limit = jobs[-1].limit
    return limit.wait(_count(each for each in jobs if each.limit is limit), now) if limit is not None else 0


def _before(limit: Limit, lanes: Iterable[Lane], jobs: list[Job]) -> int:
    """Recipients that a rate counts up to the last job. A zone sends in order of arrival, from all its
    lanes."""
    if limit.scope is Scope.LANE:
        return _count(jobs)
    return _count(_older(lanes, limit, jobs[-1])) + len(jobs[-1].recipients)


def _older(lanes: Iterable[Lane], limit: Limit, than: Job) -> Iterator[Job]:
    counted = chain.from_iterable(lane.queue.jobs for lane in lanes if limit in lane.queue.limits)
    return (job for job in counted if job.order < than.order)


def _count(jobs: Iterable[Job]) -> int:
    return sum(len(job.recipients) for job in jobs if not job.paid)

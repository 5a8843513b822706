"""Finds what is stuck: attempts without an end, lanes without turns, domains without a route, mail past its
age, and mail that may crash the server. Pure.

It only reports. Each item has a key that stays the same while it lasts, so that it can be
logged once. Times are ms; `now` is monotonic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from mqcd.core.model import Area, AreaStats, Recipient
from mqcd.core.queueing.spid import format_spid
from mqcd.core.value import value
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import Lane

AREAS = (Area.INCOMING, Area.DEFERRED)


class Kind(Enum):
    """What is stuck."""

    ATTEMPT = "attempt"
    """Recipients under way over a connection, without a verdict."""
    LANE = "lane"
    """Recipients that wait in the active set for a turn of their lane."""
    ROUTE = "route"
    """Recipients whose domain's route is being asked for."""
    QUEUE = "queue"
    """Mail in an area of the queue that is past its age limit."""
    OUTCOME = "outcome"
    """Recipients of one message whose outcome several crashes have hidden, see `suspects`."""


@value
class Stuck:
    """One item."""

    kind: Kind
    name: str
    """A lane, a domain or an area; of outcomes the domain of the message's first recipient."""
    message: str
    """SPID of the message, or of the first one; "" where no message is known."""
    recipients: int
    """The number known; at least 1."""
    since_ms: int
    """Time without progress."""
    why: str

    @property
    def key(self) -> tuple[Kind, str, str]:
        """The same as long as the same is stuck."""
        return self.kind, self.name, self.message if self.kind in (Kind.ATTEMPT, Kind.OUTCOME) else ""


def attempts(jobs: Iterable[tuple[Job, int]], now: int, patience: int) -> Iterator[Stuck]:
    """Jobs that take too long, of all jobs under way and when each began."""
    for job, began in jobs:
        if now - began > patience:
            yield Stuck(
                kind=Kind.ATTEMPT,
                name=job.hop.key,
                message=format_spid(job.envelope.spid),
                recipients=len(job.recipients),
                since_ms=now - began,
                why="attempt does not end",
            )


def lanes(every: Iterable[Lane], now: int, patience: int) -> Iterator[Stuck]:
    """Lanes where a first job, of any priority, has waited too long; all that wait as long count."""
    for lane in every:
        queue = lane.queue
        if queue.waiting and now - queue.since > patience and now - queue.jobs.longest_since > patience:
            late = [job for job in queue.jobs if now - job.since > patience]
            yield Stuck(
                kind=Kind.LANE,
                name=lane.name,
                message=format_spid(late[0].envelope.spid),
                recipients=sum(len(job.recipients) for job in late),
                since_ms=now - late[0].since,
                why=_why(lane, now),
            )


def _why(lane: Lane, now: int) -> str:
    if lane.suspended:
        return "destination suspended, its probe was not made"
    if lane.asleep > now or any(limit.wait(1, now) for limit in lane.queue.limits):
        return "rate allows no recipient"
    if lane.connections:
        return f"all {lane.connections} connections are slow"
    return "no connection was opened"


def routes(asked: Mapping[str, tuple[int, int]], now: int, patience: int) -> Iterator[Stuck]:
    """Domains (with how many recipients, and since when) for which DNS does not end."""
    for domain, (count, since) in asked.items():
        if now - since > patience:
            yield Stuck(
                kind=Kind.ROUTE,
                name=domain,
                message="",
                recipients=count,
                since_ms=now - since,
                why="route lookup does not end",
            )


def overdue(areas: Mapping[Area, AreaStats], wall: int, limit: int) -> Iterator[Stuck]:
    """Areas whose oldest mail is older than `limit`, when all should have ended; at least one recipient."""
    for area in AREAS:
        oldest = areas[area].oldest
        if oldest is not None and wall - oldest > limit:
            yield Stuck(
                kind=Kind.QUEUE,
                name=area.value,
                message="",
                recipients=1,
                since_ms=wall - oldest,
                why="oldest mail is past its age limit",
            )


def outcomes(suspects: Iterable[Recipient], wall: int) -> Iterator[Stuck]:
    """Recipients whose outcome several crashes have hidden, message by message."""
    messages: dict[int, list[Recipient]] = {}
    for each in suspects:
        messages.setdefault(each.spid, []).append(each)
    for spid, recipients in messages.items():
        yield Stuck(
            kind=Kind.OUTCOME,
            name=recipients[0].domain,
            message=format_spid(spid),
            recipients=len(recipients),
            since_ms=max(wall - recipients[0].envelope.received, 0),
            why=f"outcome unknown after crashes in {max(each.unknowns for each in recipients)} attempts",
        )

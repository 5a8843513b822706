"""A world for the lane table: a queue, servers that behave as they are told, and time that only moves here.

The agents around the table are played in a few lines, without asyncio, so that weeks take seconds. What
happened is kept in `attempts` and `ended`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from mqcd.core.model import Envelope, Recipient
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.lanes.decisions import STUCK_MS
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import TRIAL_MS, Bounds, Give, Lane, Why
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.lanes.window import Feedback
from mqcd.deliver.patrol import PATROL_MS
from mqcd.deliver.routing.policy import Hop
from mqcd.deliver.verdicts import is_over, part

START_MS = 1_800_000_000_000
IDLE_MS = 2000
REFUSED = Reply(code=451, status="4.4.1", text="connection refused")


@dataclass(slots=True)
class Server:
    """How one destination answers."""

    connect_ms: int = 20
    service_ms: int = 50
    """Time of one transaction while no more than `capacity` are open; beyond, they share."""
    capacity: int = 1000
    most: int = 1000
    """Connections that it takes; others are refused (421)."""
    dead: Callable[[int], bool] = lambda now: False
    """Whether connections fail at a time (ms since the start)."""
    fail_ms: int = 20
    """How long a failing connection takes to fail: small = refused, a timeout = silent."""
    defers: Callable[[int], bool] = lambda now: False
    """Whether it puts off whole transactions."""
    drift: Callable[[int], float] = lambda now: 1.0
    """By how much it is slower at a time."""
    open: int = 0
    peak: int = 0
    refused: int = 0
    """Connections beyond `most`."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One attempt of one transaction."""

    at: int
    lane: str
    sender: str
    zone: str
    recipients: tuple[Recipient, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a recipient in the end."""

    at: int
    recipient: Recipient
    how: str
    """delivered, expired, or judged (expired without an attempt of its own)."""


@dataclass(order=True, slots=True)
class _Event:
    at: int
    number: int
    act: Callable[[], None] = field(compare=False)


class World:
    """`hop_of` routes a recipient; `servers` are found by the destination's name. `now` begins at 0."""

    def __init__(
        self,
        bounds: Bounds,
        hop_of: Callable[[Recipient], Hop],
        servers: Mapping[str, Server],
        table: LaneTable | None = None,
    ):
        self.table = LaneTable(bounds) if table is None else table
        self.now = 0
        self.attempts: list[Tried] = []
        self.ended: list[Ended] = []
        self._hop_of = hop_of
        self._servers = servers
        self._number = 0
        self._spids = 0
        self._events: list[_Event] = []
        self._due: list[tuple[int, int, Recipient]] = []
        self.idle: list[_Connection] = []
        self.busy: list[_Connection] = []
        self._relieve_at = 0
        self._planned: set[int] = set()
        self._patrol()

    # ------------------------------------------------------------ what the tests do

    def send(self, domain: str, count: int = 1, sender: str = "a@here.example", zone: str = "") -> None:
        """So many messages with one recipient each."""
        for _ in range(count):
            self._spids += 2
            envelope = Envelope(spid=self._spids, sender=sender, received=START_MS + self.now, zone=zone)
            self._push(0, Recipient(envelope=envelope, size=1, qid=1, address=f"to@{domain}"))
        self._turn_soon()

    def message(self, domain: str, recipients: int, sender: str = "a@here.example") -> None:
        """One message with so many recipients."""
        self._spids += 2
        envelope = Envelope(spid=self._spids | 1, sender=sender, received=START_MS + self.now)
        for qid in range(1, recipients + 1):
            self._push(0, Recipient(envelope=envelope, size=1, qid=qid, address=f"to{qid}@{domain}"))
        self._turn_soon()

    def at(self, at: int, act: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, _Event(max(at, self.now), self._number, act))

    def run(self, until: int) -> None:
        """Let everything happen up to a time."""
        while self._events and self._events[0].at <= until:
            event = heapq.heappop(self._events)
            self.now = event.at
            event.act()
        self.now = until

    @property
    def waiting(self) -> int:
        return len(self._due) + self.table.entering.active

    # ------------------------------------------------------------ the agents

    def _push(self, due: int, recipient: Recipient) -> None:
        """Claimable from wall time `due` on."""
        self._number += 1
        heapq.heappush(self._due, (due, self._number, recipient))

    def _turn_soon(self) -> None:
        self._turn_at(self.now)

    def _turn_at(self, at: int) -> None:
        if at not in self._planned:
            self._planned.add(at)
            self.at(at, self._turn)

    def _turn(self) -> None:
        self._planned.discard(self.now)
        table = self.table
        if not table.entering.room() and self.now >= self._relieve_at:
            self._relieve_at = self.now + STUCK_MS
            self._give(*table.relieve(self.now))
        if room := table.entering.room():
            self._claim(room)
        for start in table.dispatch(self.now):
            if start.reuse:
                self._reuse(start.lane, start.job)
            else:
                _Connection(self, start.lane).begin(start.job)
        if table.slots.scarce:
            for connection in tuple(self.idle):
                if table.slots.others_wait(connection.lane):
                    connection.expire()
            self._take_back()
        wake = table.next_wake(self.now)
        if wake is not None:
            self._turn_at(self.now + max(wake, 1))
        if self._due and table.entering.room():
            self._turn_at(max(self._due[0][0] - START_MS, self.now + 1))

    def _take_back(self) -> None:
        self.table.review(self.now)
        lasting = [each for each in self.busy if each.lane.doubted and self.now - each.began > TRIAL_MS]
        for each in sorted(lasting, key=lambda each: each.began, reverse=True)[: self.table.slots.overdrawn]:
            each.take_back()

    def _claim(self, room: int) -> None:
        wall = START_MS + self.now
        self.table.renew_rests(self.now)
        skip = self.table.passing.skip(self.now)
        gives = []
        while room and self._due and self._due[0][0] <= wall:
            _, _, recipient = heapq.heappop(self._due)
            if (rest := skip.get(recipient.domain, 0)) > 0 and not self._overdue(recipient):
                self._push(wall + rest, recipient)
                continue
            room -= 1
            self.table.entering.active += 1
            gives.append(
                self.table.entering.add(recipient, recipient.domain, self._hop_of(recipient), self.now)
            )
        self._give(*gives)

    def _overdue(self, recipient: Recipient) -> bool:
        why = Why.DEAD if self.table.passing.is_dead(recipient.domain) else Why.SHARE
        schedule = self._hop_of(recipient).policy.schedule
        return is_over(recipient, schedule, why, START_MS + self.now, self.now)

    def _give(self, *gives: Give | None) -> None:
        wall = START_MS + self.now
        parted = part((give for give in gives if give), wall, self.now)
        for until, recipients in parted.parked.items():
            self.table.entering.active -= len(recipients)
            for recipient in recipients:
                self._push(until, replace(recipient, due=until))
        for judged in parted.judged:
            for recipient in judged.recipients:
                self._fail(recipient, judged.lane.hop.policy.schedule, "judged")

    def _patrol(self) -> None:
        def over(lane: Lane, recipient: Recipient) -> bool:
            schedule = lane.hop.policy.schedule
            return is_over(recipient, schedule, Why.SHARE, START_MS + self.now, self.now)

        self._give(*self.table.cull(over))
        self.table.forget(self.now)
        self.at(self.now + PATROL_MS, self._patrol)

    def _fail(
        self, recipient: Recipient, schedule: RetrySchedule, how: str, within: int | None = None
    ) -> None:
        self.table.entering.active -= 1
        due = schedule.next_due(recipient, START_MS + self.now)
        if due is not None and within is not None:
            due = min(due, START_MS + self.now + within)
        if due is None:
            self.ended.append(Ended(self.now, recipient, how))
        else:
            self._push(due, replace(recipient, due=due, attempts=recipient.attempts + 1))

    def _reuse(self, lane: Lane, job: Job) -> None:
        connection = next(each for each in self.idle if each.lane is lane)
        self.idle.remove(connection)
        connection.begin(job)


class _Connection:
    """Plays a session."""

    def __init__(self, world: World, lane: Lane) -> None:
        self.world = world
        self.lane = lane
        self.server = world._servers[lane.hop.destination.name]
        self.up = False
        self.job: Job | None = None
        self.idle_since = 0
        self.began = 0
        self.gone = False

    def take_back(self) -> None:
        assert self.job is not None
        self.gone = True
        self.world.busy.remove(self)
        self.world.table.took_back(self.lane, self.job)
        self._close()
        self.world._turn_soon()

    def begin(self, job: Job) -> None:
        """Try a job, connecting first where that has not happened."""
        world, server = self.world, self.server
        self.job = job
        self.began = world.now
        world.busy.append(self)
        first = job.recipients[0].envelope
        zone = self.lane.hop.policy.zone
        world.attempts.append(Tried(world.now, self.lane.name, first.sender, zone, tuple(job.recipients)))
        if self.up:
            self._transact()
        elif server.dead(world.now):
            world.at(world.now + server.fail_ms, self._fail)
        else:
            world.at(world.now + server.connect_ms, self._connected)

    def _connected(self) -> None:
        if self.gone:
            return
        if self.server.open >= self.server.most:
            self._refused()
            return
        self.up = True
        self.server.open += 1
        self.server.peak = max(self.server.peak, self.server.open)
        self.world.table.opened(self.lane)
        self._transact()

    def _refused(self) -> None:
        self.server.refused += 1
        if not self.lane.working:
            self._fail()
            return
        world, job = self.world, self.job
        assert job is not None
        world.busy.remove(self)
        world._give(world.table.failed(self.lane, world.now, REFUSED))
        world.table.put_back(self.lane, job)
        self._close()
        world._turn_soon()

    def _transact(self) -> None:
        world, server = self.world, self.server
        took = server.service_ms * max(server.open / server.capacity, 1) * server.drift(world.now)
        began = world.now
        world.at(world.now + max(int(took), 1), lambda: self._answered(began))

    def _answered(self, began: int) -> None:
        if self.gone:
            return
        world, job = self.world, self.job
        world.busy.remove(self)
        assert job is not None
        self.job = None
        put_off = self.server.defers(world.now)
        for recipient in job.recipients:
            if put_off:
                world._fail(recipient, job.hop.policy.schedule, "expired")
            else:
                world.table.entering.active -= 1
                world.ended.append(Ended(world.now, recipient, "delivered"))
        feedback = Feedback.PUSHED_BACK if put_off else Feedback.GOOD
        world.table.went_through(self.lane, world.now, world.now - began, feedback)
        following = world.table.next_job(self.lane, world.now)
        if following is not None:
            self.begin(following)
        elif world.table.keep(self.lane):
            world.idle.append(self)
            self.idle_since = since = world.now
            world.at(world.now + IDLE_MS, lambda: self.expire(since))
        else:
            self._close()
        world._turn_soon()

    def _fail(self) -> None:
        if self.gone:
            return
        world, job = self.world, self.job
        world.busy.remove(self)
        assert job is not None
        give = world.table.failed(self.lane, world.now, REFUSED)
        within = self.lane.comes_back(world.now)
        for recipient in job.recipients:
            world._fail(recipient, job.hop.policy.schedule, "expired", within)
        world._give(give)
        self._close()
        world._turn_soon()

    def expire(self, since: int | None = None) -> None:
        """Close, if it is idle (since then)."""
        if self in self.world.idle and (since is None or self.idle_since == since):
            self.world.idle.remove(self)
            self.world.table.slots.left(self.lane)
            self._close()
            self.world._turn_soon()

    def _close(self) -> None:
        self.server.open -= self.up
        self.world.table.closed(self.lane, self.world.now, working=self.up)

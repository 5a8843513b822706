"""A random walk through the calls of a lane table; what must hold of it always is checked after each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from mqcd.config.settings import Rate
from mqcd.core.model import Envelope, Recipient
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import SUSPENDED, Bounds, Give, Lane, Position
from mqcd.deliver.lanes.rates import Scope
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.lanes.throttling import Sleeper
from mqcd.deliver.routing.policy import Hop
from tests.unit.deliver.lanes.test_scheduling import REFUSED, to

BOUNDS = Bounds(
    queuecache=20,
    maxconnections=4,
    maxrecips=3,
    zone_rates={"bulk": Rate(count=1, per=10_000)},
    sender_rates={"b@example.org": Rate(count=1, per=20_000)},
)
OTHER = replace(BOUNDS, queuecache=40, maxconnections=2, sender_rates={})


def place(name: str, zone: str = "", rate: Rate | None = None) -> Hop:
    plain = to(name, connections=2)
    return replace(plain, policy=replace(plain.policy, zone=zone, rate=rate))


PLACES = (
    place("a"),
    place("b"),
    place("c"),
    place("slow", rate=Rate(count=1, per=5000)),
    place("bulk1", "bulk"),
    place("bulk2", "bulk"),
)


@dataclass(slots=True)
class Attempt:
    lane: Lane
    job: Job
    opened: bool


@dataclass(slots=True)
class Walk:
    """A table, and its connections."""

    table: LaneTable = field(default_factory=lambda: LaneTable(BOUNDS))
    now: int = 0
    count: int = 0
    busy: list[Attempt] = field(default_factory=list)
    idle: list[Lane] = field(default_factory=list)

    def add(self, number: int) -> None:
        """A recipient; some of them of the message before, some of a sender with a rate."""
        self.count += 1
        hop = PLACES[number % len(PLACES)]
        envelope = Envelope(
            spid=self.count // 4 * 2 + 1 if number % 4 == 0 else self.count * 2,
            sender="b@example.org" if number % 3 == 0 else "a@example.org",
            received=self.now,
            priority=number % 2,
        )
        recipient = Recipient(envelope=envelope, size=1, qid=self.count, address=f"to@{hop.key}.example")
        self.table.entering.enter([recipient])
        self.leave(self.table.entering.add(recipient, f"{hop.key}.example", hop, self.now))

    def leave(self, *given: Give | None) -> None:
        for give in given:
            self.table.entering.leave(() if give is None else give.recipients)

    def dispatch(self, _number: int) -> None:
        for start in self.table.dispatch(self.now):
            if start.reuse:
                self.idle.remove(start.lane)
            self.busy.append(Attempt(start.lane, start.job, start.reuse))

    def ends(self, how: Callable[[Attempt], bool]) -> Callable[[int], None]:
        """One attempt ends so; `how` returns whether its connection is still there."""

        def end(number: int) -> None:
            if not self.busy:
                return
            attempt = self.busy.pop(number % len(self.busy))
            if not how(attempt):
                self.table.closed(attempt.lane, self.now, working=attempt.opened)
            elif job := self.table.next_job(attempt.lane, self.now):
                self.busy.append(Attempt(attempt.lane, job, True))
            elif self.table.keep(attempt.lane):
                self.idle.append(attempt.lane)
            else:
                self.table.closed(attempt.lane, self.now, working=True)

        return end

    def open(self, attempt: Attempt) -> None:
        if not attempt.opened:
            attempt.opened = True
            self.table.opened(attempt.lane)

    def passes(self, attempt: Attempt) -> bool:
        self.open(attempt)
        self.table.went_through(attempt.lane, self.now, 5)
        self.table.entering.leave(attempt.job.recipients)
        return True

    def fails(self, attempt: Attempt) -> bool:
        if attempt.opened:
            return self.breaks(attempt)
        self.table.entering.leave(attempt.job.recipients)
        self.leave(self.table.failed(attempt.lane, self.now, REFUSED))
        return False

    def breaks(self, attempt: Attempt) -> bool:
        self.open(attempt)
        self.table.entering.leave(attempt.job.recipients)
        self.leave(self.table.broke(attempt.lane, self.now, REFUSED))
        return False

    def comes_back(self, attempt: Attempt) -> bool:
        self.table.took_back(attempt.lane, attempt.job)
        return False

    def expire(self, number: int) -> None:
        """An idle connection ends."""
        if self.idle:
            lane = self.idle.pop(number % len(self.idle))
            self.table.slots.left(lane)
            self.table.closed(lane, self.now, working=True)

    def waits(self, number: int) -> None:
        self.now += (1, 500, 5000, 61_000)[number % 4]

    def makes_room(self, number: int) -> None:
        self.leave(*self.table.relieve(self.now), *self.table.cull(lambda _, each: each.qid % 5 == number))

    def withdraws(self, number: int) -> None:
        self.table.entering.leave(self.table.withdraw(lambda _, each: each.qid % 5 == number))

    def looks(self, _number: int) -> None:
        """What changes nothing that counts."""
        self.table.next_wake(self.now)
        self.table.review(self.now)
        self.table.renew_rests(self.now)
        self.table.forget(self.now)

    @property
    def actions(self) -> Sequence[Callable[[int], None]]:
        """The more likely ones several times."""
        often = self.add, self.dispatch, self.waits, self.ends(self.passes), self.ends(self.fails), self.looks
        return (
            *often,
            *often,
            self.ends(self.comes_back),
            self.ends(self.breaks),
            self.expire,
            self.makes_room,
            self.withdraws,
            lambda _: self.table.probe(None, self.now),
            lambda number: self.table.rebind(OTHER if number % 2 else BOUNDS, self.now),
        )


def check(walk: Walk) -> None:
    """Raises AssertionError where something does not hold that always must."""
    table, lanes = walk.table, list(walk.table.lanes())
    counts_add_up(table, lanes)
    each_lane_stands_where_it_says(table, lanes)
    what_sleeps_has_an_alarm(table, lanes)
    no_lane_with_mail_is_lost(table, lanes, walk.now)
    jobs = [job for lane in lanes for job in lane.queue.jobs]
    jobs += [job for line in table._throttle.lines() for job in line]
    jobs += [attempt.job for attempt in walk.busy]
    assert table.entering.active == sum(len(job.recipients) for job in jobs)


def counts_add_up(table: LaneTable, lanes: Sequence[Lane]) -> None:
    slots, most = table.slots, table.entering.bounds.maxconnections
    assert slots.taken == sum(lane.connections for lane in lanes)
    assert slots.idle == sum(lane.idle for lane in lanes)
    assert slots.doubted == sum(lane.connections for lane in lanes if lane.doubted)
    assert slots.full == (slots.taken >= most)
    assert table.entering.shares.held.total() == table.entering.active
    for lane in lanes:
        assert 0 <= lane.idle <= lane.connections
        assert 0 <= lane.working <= lane.connections
        assert lane.queue.waiting == sum(len(job.recipients) for job in lane.queue.jobs)
        held = [limit.held for limit in lane.queue.limits if limit.scope is Scope.LANE]
        assert held in ([], [lane.queue.waiting + lane.queue.aside])


def each_lane_stands_where_it_says(table: LaneTable, lanes: Sequence[Lane]) -> None:
    turns, slots = table._turns, table.slots
    zones = turns._zones.values()
    in_line = [lane for zone in zones for lane in (*zone._queue, *(lane for _, lane in zone._ordered))]
    held = [*slots._held, *slots._held_new]
    for position, found in ((Position.IN_LINE, in_line), (Position.HELD, held)):
        assert len(found) == len(set(found))
        assert set(found) == {lane for lane in lanes if lane.position is position}
    assert all(lane.doubted for lane in held)
    for zone in zones:
        assert turns._line.count(zone) == zone.in_line
        assert zone.in_line or zone.asleep or not zone.lanes
    dead = {lane for lane in lanes if lane.suspended}
    assert dead == set(table.passing._dead)
    assert dead == {lane for lane in lanes if lane.condition in SUSPENDED}


def alarms(table: LaneTable) -> set[tuple[int, Sleeper]]:
    return {(at, what) for at, _, what in table._alarms._alarms}


def what_sleeps_has_an_alarm(table: LaneTable, lanes: Sequence[Lane]) -> None:
    aside = table._throttle._aside
    sleepers: Sequence[Sleeper] = (*lanes, *table._turns._zones.values(), *aside)
    assert all(limit.asleep for limit in aside)
    for what in sleepers:
        assert not what.asleep or (what.asleep, what) in alarms(table)


def no_lane_with_mail_is_lost(table: LaneTable, lanes: Sequence[Lane], now: int) -> None:
    """A lane with mail that stands nowhere has an alarm, or a connection at work; so has each suspended one
    until its next probe, whether it has mail or not."""
    set_ = alarms(table)
    for lane in lanes:
        probe = (lane.suspension.until, lane) in set_
        if lane.suspended and lane.suspension.until > now:
            assert probe
        if lane.queue.waiting and lane.position is Position.OUT:
            at_work = not lane.idle and lane.connections >= max(lane.most_connections(20, now), 1)
            assert at_work or (lane.suspended and probe) or (lane.asleep and (lane.asleep, lane) in set_)


@given(st.lists(st.tuples(st.integers(0, 18), st.integers(0, 11)), min_size=20, max_size=150))
def test_what_always_holds_holds_after_each_step(steps: list[tuple[int, int]]) -> None:
    walk = Walk()
    for action, number in steps:
        walk.actions[action](number)
        check(walk)

"""The experiments of docs/scheduling.md: the lane table, and a plain queue beside it, in a simulated world.

    python -m tests.bench.scheduling_experiments [fairness] [window] [rates] [recovery] [order]

Prints tables, all of them without a word. Nothing is random and time is simulated: each run prints the
same. The plain queue is first in, first out, over as many connections, and tries everybody when due.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from mqcd.config.settings import Rate, TlsPolicy
from mqcd.core.model import Recipient
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.lanes.entering import Entering
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import Bounds, Give, Lane, Start
from mqcd.deliver.lanes.passing import NOBODY, Passing, Skip
from mqcd.deliver.lanes.rates import Limit, Scope
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.lanes.slots import Slots
from mqcd.deliver.lanes.throttling import Throttle
from mqcd.deliver.lanes.turns import Turns
from mqcd.deliver.lanes.window import Feedback
from mqcd.deliver.routing.policy import Hop, Policy, hop
from mqcd.deliver.routing.routing import Destination
from tests.fakes.world import START_MS, Ended, Server, World

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
SCHEDULE = RetrySchedule(
    delays=(15 * MINUTE, 30 * MINUTE, 2 * HOUR, 4 * HOUR), maxtime=3 * DAY, maxtime_reports=DAY
)
Rows = Sequence[tuple[object, ...]]
HEALTHY = [f"h{number}.example" for number in range(20)]


class FifoEntering(Entering):
    """All that comes waits in one line."""

    def __init__(self, bounds: Bounds, parts: tuple[Turns, Throttle, Passing, Slots]) -> None:
        super().__init__(bounds, {}, *parts)
        self.waiting: deque[tuple[Lane, Recipient]] = deque()

    def room(self) -> int:
        return self.bounds.queuecache - self.active

    def add(
        self, recipient: Recipient, domain: str, hop: Hop, now: int, content: bytes | None = None
    ) -> Give | None:
        self.waiting.append((self._lanes.setdefault(hop.key, Lane(hop)), recipient))
        return None


class Fifo(LaneTable):
    """A plain queue behind the same calls: lanes are names only."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._most = bounds.maxconnections
        parts = self._turns, self._throttle, self.passing, self.slots
        self.entering = entering = FifoEntering(bounds, parts)
        self._waiting = entering.waiting
        self.connections = 0

    def skip(
        self,
        now: int,
        wall: int = 0,
        barred: Mapping[str, int] = NOBODY,
        spared: Callable[[str], bool] | None = None,
    ) -> Skip:
        return Skip((), (), {}, {}, spared, now, wall)

    def next_wake(self, now: int) -> int | None:
        return None

    def dispatch(self, now: int) -> list[Start]:
        started = []
        while self._waiting and self.connections < self._most:
            lane, recipient = self._waiting.popleft()
            self.connections += 1
            started.append(
                Start(lane=lane, job=Job(lane.hop, recipient.envelope, [recipient], now), reuse=False)
            )
        return started

    def next_job(self, lane: Lane, now: int) -> Job | None:
        return None

    def keep(self, lane: Lane) -> bool:
        return False

    def opened(self, lane: Lane) -> None:
        pass

    def went_through(self, lane: Lane, now: int, took: int = 0, feedback: Feedback = Feedback.GOOD) -> None:
        pass

    def failed(self, lane: Lane, now: int, reply: Reply) -> Give | None:
        return None

    def closed(self, lane: Lane, now: int, *, working: bool) -> None:
        self.connections -= 1

    def relieve(self, now: int) -> list[Give]:
        return []

    def cull(self, over: Callable[[Lane, Recipient], bool]) -> list[Give]:
        return []


class Map:
    """Every domain is its own destination."""

    def __init__(self, rates: dict[str, Rate] | None = None, zone: str = "", connections: int = 20) -> None:
        self._rates = rates or {}
        self._zone = zone
        self._connections = connections
        self._hops: dict[str, Hop] = {}

    def __call__(self, recipient: Recipient) -> Hop:
        name = recipient.domain
        if name not in self._hops:
            policy = Policy(
                schedule=SCHEDULE,
                helo="me.example",
                tls=TlsPolicy.MAY,
                connections=self._connections,
                zone=self._zone,
                rate=self._rates.get(name),
            )
            self._hops[name] = hop(Destination(name=name, hosts=((name,),), port=25), policy)
        return self._hops[name]


def bounds(maxconnections: int = 100, zones: dict[str, Rate] | None = None) -> Bounds:
    return Bounds(queuecache=2500, maxconnections=maxconnections, maxrecips=50, zone_rates=zones or {})


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(str(each) for each in row)} |")
    print()


def share(values: Sequence[int], part: float) -> int:
    """The value that `part` of all stay below."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else 0


# ---------------------------------------------------------------- fairness


@dataclass(frozen=True)
class Trouble:
    """Destinations besides the healthy ones, with mail queued for each at the start."""

    name: str
    servers: dict[str, Server]
    queued: int


def troubles(queued: int) -> list[Trouble]:
    dead = Server(dead=lambda now: True, fail_ms=20)
    stalling = Server(dead=lambda now: True, fail_ms=MINUTE)
    slow = Server(service_ms=5 * SECOND, capacity=5)
    return [
        Trouble("none", {}, 0),
        Trouble("one that refuses", {"dead.example": dead}, queued),
        Trouble("one that never answers", {"stalling.example": stalling}, queued),
        Trouble("one that takes 5 s a message", {"slow.example": slow}, queued),
        Trouble(
            "all three", {"dead.example": dead, "stalling.example": stalling, "slow.example": slow}, queued
        ),
    ]


def healthy_times(trouble: Trouble, lanes: bool, seconds: int) -> tuple[list[int], int, int]:
    """Times in queue of mail to healthy destinations, how many were sent, attempts for the others."""
    # Each run has its own: a server counts its connections.
    servers = {name: Server() for name in HEALTHY}
    servers |= {name: replace(server) for name, server in trouble.servers.items()}
    bound = bounds()
    world = World(bound, Map(), servers, None if lanes else Fifo(bound))
    for name in trouble.servers:
        world.send(name, trouble.queued)
    sent = 0
    for tick in range(seconds * 2):
        for name in HEALTHY:
            world.at(tick * SECOND // 2, partial(world.send, name))
            sent += 1
    world.run((seconds + 60) * SECOND)
    times = [_age(each) for each in world.ended if each.recipient.domain in HEALTHY]
    return times, sent, sum(each.lane not in HEALTHY for each in world.attempts)


def _age(ended: Ended) -> int:
    return ended.at + START_MS - ended.recipient.envelope.received


def fairness(queued: int = 20_000, seconds: int = 300) -> Rows:
    """Rows: trouble, table, median, 99th percentile (ms), not delivered, attempts for the troubled."""
    rows: list[tuple[object, ...]] = []
    for trouble in troubles(queued):
        for name, lanes in (("lanes", True), ("plain queue", False)):
            times, sent, attempts = healthy_times(trouble, lanes, seconds)
            median, most = (share(times, part) if times else "-" for part in (0.5, 0.99))
            rows.append((trouble.name, name, median, most, sent - len(times), attempts))
    return rows


# ---------------------------------------------------------------- windows


def window(marks: Sequence[int] = (1, 5, 15, 60, 300)) -> Rows:
    """Connections in use at times (s), messages a second over the last mark's span, refusals."""
    kinds = {
        "2 at once": Server(capacity=2),
        "8 at once": Server(capacity=8),
        "40 at once": Server(capacity=40),
        "8 connections, 421 to others": Server(most=8),
        "ever slower: twice as slow each minute": Server(capacity=40, drift=lambda now: 2 ** (now / MINUTE)),
    }
    rows = []
    for name, server in kinds.items():
        world = World(bounds(), Map(connections=100), {"d.example": server})
        for second in range(0, marks[-1] + 1, 5):
            world.at(second * SECOND, partial(_top_up, world))
        used = []
        for mark in marks:
            world.run(mark * SECOND)
            used.append(int(next(world.table.lanes()).window.size))
        done = sum(each.how == "delivered" for each in world.ended) / marks[-1]
        rows.append((name, *used, f"{done:.0f}", server.refused))
    return rows


def _top_up(world: World) -> None:
    world.send("d.example", max(2400 - world.waiting, 0))


# ---------------------------------------------------------------- rates


def rates(queued: int = 3000) -> Rows:
    """How a backlog goes out under rates."""
    rows = []
    for text, rate in (
        ("10/s", Rate(count=10, per=SECOND)),
        ("6000/h", Rate(count=6000, per=HOUR)),
        ("500/h", Rate(count=500, per=HOUR)),
    ):
        world = World(bounds(), Map({"d.example": rate}), {"d.example": Server()})
        world.send("d.example", queued)
        most = 0
        for second in range(60):
            world.run(second * SECOND)
            most = max(most, world.table.entering.active)
        world.run(DAY)
        times = [each.at for each in world.attempts]
        first = sum(at < MINUTE for at in times)
        ideal = queued * rate.per // rate.count
        rows.append(
            (
                text,
                Limit(Scope.LANE, rate).burst,
                first,
                _most_in(times, MINUTE),
                _most_in(times, HOUR),
                f"{max(each.at for each in world.ended) / ideal:.3f}",
                most,
            )
        )
    return rows


def _most_in(times: Sequence[int], span: int) -> int:
    """The most that fell into any stretch of so many ms."""
    most, first = 0, 0
    for last, at in enumerate(times):
        while times[first] <= at - span:
            first += 1
        most = max(most, last - first + 1)
    return most


# ---------------------------------------------------------------- recovery


def recovery(queued: int = 10_000, hours: int = 6) -> Rows:
    """A destination that comes back: attempts until then, and how soon its mail goes."""
    rows = []
    for name, fail_ms in (("refuses", 20), ("never answers", MINUTE)):
        for kind, lanes in (("lanes", True), ("plain queue", False)):
            back = hours * HOUR + 7 * MINUTE
            server = Server(dead=lambda now, back=back: now < back, fail_ms=fail_ms)  # type: ignore[misc]
            bound = bounds()
            world = World(bound, Map(), {"d.example": server}, None if lanes else Fifo(bound))
            world.send("d.example", queued)
            world.run(back + 9 * HOUR)
            tried = sum(each.at < back for each in world.attempts)
            done = sorted(each.at - back for each in world.ended if each.how == "delivered")
            rows.append((name, kind, tried, *(_minutes(share(done, part)) for part in (0, 0.5, 0.99))))
    return rows


def _minutes(ms: int) -> str:
    return f"{ms / MINUTE:.1f}"


# ---------------------------------------------------------------- order


def order(each: int = 200) -> Rows:
    """How far from the order of arrival recipients are tried: ten destinations, bursts one after another."""
    rows = []
    names = HEALTHY[:10]
    for kind, zone in (("default zone: turns of lanes", ""), ("named zone: order of arrival", "bulk")):
        limit = {zone: Rate(count=50, per=SECOND)} if zone else {}
        rates_ = {} if zone else {name: Rate(count=5, per=SECOND) for name in names}
        world = World(bounds(zones=limit), Map(rates_, zone), {name: Server() for name in names})
        for name in names:
            world.send(name, each)
        world.run(10 * MINUTE)
        spids = [tried.recipients[0].spid for tried in world.attempts]
        ranks = {spid: place for place, spid in enumerate(sorted(spids))}
        off = [abs(place - ranks[spid]) for place, spid in enumerate(spids)]
        lanes = Counter(tried.lane for tried in world.attempts[: 5 * len(names)])
        rows.append((kind, share(off, 0.5), max(off), len(lanes)))
    return rows


# ---------------------------------------------------------------- all


EXPERIMENTS: dict[str, tuple[Callable[[], Rows], Sequence[str]]] = {
    "fairness": (
        fairness,
        (
            "trouble",
            "table",
            "median ms",
            "99th percentile ms",
            "not delivered",
            "attempts for the troubled",
        ),
    ),
    "window": (
        window,
        ("server", "window at 1 s", "5 s", "15 s", "60 s", "300 s", "messages/s", "421"),
    ),
    "rates": (
        rates,
        (
            "rate",
            "burst",
            "in the first minute",
            "most in any minute",
            "most in any hour",
            "time / least possible",
            "most in the active set",
        ),
    ),
    "recovery": (
        recovery,
        (
            "dead server",
            "table",
            "attempts while dead",
            "first delivery, min after",
            "half of all",
            "99 of 100",
        ),
    ),
    "order": (order, ("order", "median places off", "most places off", "lanes among the first 50")),
}


def main() -> None:
    """Run and print."""
    for name in sys.argv[1:] or EXPERIMENTS:
        run, head = EXPERIMENTS[name]
        print(f"{name}\n")
        table(head, run())


if __name__ == "__main__":
    main()

"""The record of a lane, its two states, and what the table returns of it. Pure.

A `Lane` belongs to the table alone; workers hand it back and do not write to it. A job that was handed out
belongs to its worker (`begun`, `content`) until it comes back. A lane's `Condition` says what is known of the
destination: it changes in `Lane.on` alone, by a table of state and event to the state that follows; what the
table does not have raises `IllegalTransition`. Its `Position` says where the lane waits for its turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from mqcd.config.kinds.fields import RateKind
from mqcd.config.settings import Rate
from mqcd.core.model import Recipient
from mqcd.core.ports import UsedRates
from mqcd.core.states import following
from mqcd.core.value import value
from mqcd.deliver.lanes.jobs import Job, JobQueue
from mqcd.deliver.lanes.outside import NO_SHARE, NOT_SUSPENDED, PROBE_GRACE_MS, Share, Suspension
from mqcd.deliver.lanes.rates import Limit, Scope
from mqcd.deliver.lanes.window import FIRST_WINDOW, Pace, Window
from mqcd.deliver.routing.policy import Hop

PROMPT_MS = 3000
"""Longest smoothed transaction time at which a destination counts as answering."""
TRIAL_MS = 10_000
"""A destination does not answer if attempts are under way and none has ended for this long."""


class Condition(Enum):
    """The condition of a lane's destination."""

    NEW = "new"
    """No transaction has ended yet."""
    OPEN = "open"
    """The last transaction ran to its end."""
    SUSPENDED = "suspended"
    """No server takes connections, or they only break: one recipient waits for the next probe."""
    PROBING = "probing"
    """Suspended, and the probe is under way."""
    FORGOTTEN = "forgotten"
    """Out of the table."""

    __hash__ = object.__hash__
    """Hashed by identity: looked up for each attempt."""


class Event(Enum):
    """Events of a destination."""

    START = "start"
    """An attempt begins."""
    PASS = "pass"  # noqa: S105
    """A transaction ran to its end."""
    FAIL = "fail"
    """No host can be reached, or too many connections in a row broke."""
    UNUSED = "unused"
    """Its last connection is closed."""
    FORGET = "forget"
    """The table removes the lane."""

    __hash__ = object.__hash__


_NEW, _OPEN, _SUSPENDED = Condition.NEW, Condition.OPEN, Condition.SUSPENDED
_PROBING, _FORGOTTEN = Condition.PROBING, Condition.FORGOTTEN

CONDITIONS: Mapping[Condition, Mapping[Event, Condition]] = {
    _NEW: {
        Event.START: _NEW,
        Event.PASS: _OPEN,
        Event.FAIL: _SUSPENDED,
        Event.UNUSED: _NEW,
        Event.FORGET: _FORGOTTEN,
    },
    _OPEN: {
        Event.START: _OPEN,
        Event.PASS: _OPEN,
        Event.FAIL: _SUSPENDED,
        Event.UNUSED: _OPEN,
        Event.FORGET: _FORGOTTEN,
    },
    # Connections from before the suspension may still pass, or fail in their turn.
    _SUSPENDED: {
        Event.START: _PROBING,
        Event.PASS: _OPEN,
        Event.FAIL: _SUSPENDED,
        Event.UNUSED: _SUSPENDED,
        Event.FORGET: _FORGOTTEN,
    },
    # UNUSED: the probe ended without saying anything of the destination, for example taken back.
    _PROBING: {
        Event.START: _PROBING,
        Event.PASS: _OPEN,
        Event.FAIL: _SUSPENDED,
        Event.UNUSED: _SUSPENDED,
    },
    _FORGOTTEN: {},
}


class Position(Enum):
    """The place where a lane waits for its turn.

    | from | to | by |
    |---|---|---|
    | OUT | IN_LINE | `Turns.push`, if it has jobs |
    | IN_LINE | OUT | `Turns.pop` |
    | OUT | HELD | `Slots.hold` |
    | HELD | OUT, and IN_LINE if it has jobs | `Slots.release` |
    """

    OUT = "out"
    """Nowhere: it has nothing to start, may not start it yet, or its window is full."""
    IN_LINE = "in line"
    """In its zone's line."""
    HELD = "held"
    """Out of line until `Slots` has a connection for it."""


SUSPENDED = frozenset({Condition.SUSPENDED, Condition.PROBING})


@dataclass(slots=True, eq=False)
class Lane:
    """The state of one hop. Beside each group of fields stands the module that alone writes them, where there
    is one."""

    # entering
    hop: Hop
    # lane: `on`
    condition: Condition = Condition.NEW
    suspended: bool = False
    """Whether no server of the destination accepted a connection at the last try; follows the condition."""
    # turns and slots
    position: Position = Position.OUT
    # entering, scheduling and throttling
    queue: JobQueue = field(default_factory=JobQueue)
    # scheduling
    window: Window = FIRST_WINDOW
    pace: Pace = field(default_factory=Pace)
    suspension: Suspension = NOT_SUSPENDED
    working: int = 0
    """Connections past the handshake with a server that takes mail."""
    breaks: int = 0
    """Connections that broke since the last transaction that ran to its end."""
    # entering and scheduling
    moved: int = 0
    """When a transaction last ended, or its first recipients came."""
    share: Share = NO_SHARE
    # entering
    coming: int = 0
    """New recipients that will wait here as soon as their message is durable."""
    # slots
    connections: int = 0
    """Open or being opened."""
    idle: int = 0
    """Connections that are open and without work."""
    busy_since: int = 0
    """When an attempt last began while none was under way."""
    doubted: bool = True
    """Its connections count as those of a destination that does not answer, see `slots`."""
    # throttling
    limit: Limit | None = None
    """That of its policy's rate."""
    # throttling, alarms
    asleep: int = 0
    """Nothing can start before this time, for lack of the lane's own tokens."""
    # passing
    domains: set[str] = field(default_factory=set)
    """Domains whose mail goes by this lane alone."""

    def owes_nothing(self, now: int) -> bool:
        """Whether it is OUT, and a new lane would have as many tokens of its own."""
        return self.position is Position.OUT and all(
            limit.is_full(now) for limit in self.queue.limits if limit.scope is Scope.LANE
        )

    @property
    def name(self) -> str:
        """The hop's key."""
        return self.hop.key

    def __str__(self) -> str:
        return self.name

    def on(self, event: Event) -> None:
        """Change the condition. Raises IllegalTransition."""
        condition = following(CONDITIONS, self.condition, event, self)
        if condition is not self.condition:
            self.condition = condition
            self.suspended = condition in SUSPENDED

    def has_room(self, recipients: int) -> bool:
        """Whether so many new ones may come to wait here: together with those that wait, or will (`coming`),
        they are no more than the working connections."""
        return self.coming + self.queue.waiting + recipients <= self.working

    def answers(self, now: int) -> bool:
        """Whether its recent transactions ended in reasonable time, and attempts under way still may."""
        if self.condition is not _OPEN or self.pace.recent > PROMPT_MS:
            return False
        oldest = now - TRIAL_MS
        return self.connections == self.idle or self.moved >= oldest or self.busy_since >= oldest

    def until_probed(self, now: int) -> int:
        """Time that recipients wait outside while it is suspended: until shortly after its probe, ms."""
        if not self.queue.waiting and not self.connections:
            # There is no probe to wait for: the first recipient that comes will be it.
            return self.suspension.until - now
        return self.suspension.wait(now)

    def comes_back(self, now: int) -> int | None:
        """Longest time, ms, until a recipient whose attempt failed comes back; None = its retry delay, as the
        lane is not suspended. Others come first: each gets a turn as the probe."""
        return self.until_probed(now) + PROBE_GRACE_MS if self.suspended else None

    def top(self, queuecache: int) -> int:
        """Connections that it may have at most. With no limit in its policy `queuecache`: about so many
        recipients are in flight, and more connections would have none to try."""
        return self.hop.policy.connections or queuecache

    def most_connections(self, queuecache: int, now: int) -> int:
        """Connections that it may have now."""
        if self.suspended:
            return 1 if self.suspension.until <= now else 0
        return min(max(1, int(self.window.size)), self.top(queuecache))

    def view(self, queuecache: int, now: int) -> LaneState:
        """A snapshot."""
        return LaneState(
            name=self.name,
            destination=self.hop.destination.name,
            zone=self.hop.policy.zone,
            waiting=self.queue.waiting + self.queue.aside,
            connections=self.connections,
            idle=self.idle,
            window=self.most_connections(queuecache, now),
            suspended=self.suspended,
            probe_in_ms=max(self.suspension.until - now, 0) if self.suspended else 0,
            rate_in_ms=max((limit.wait(1, now) for limit in self.queue.limits), default=0),
            rule=self.hop.policy.rule,
            booked_in_ms=int(max([0, *(limit.booked - now for limit in self.queue.limits)])),
            rest_in_ms=max(self.share.until - now, 0) if self.share.most else 0,
            pace_ms=int(self.pace.recent),
            rates=[RateKind().show(limit.rate) for limit in self.queue.limits],
        )


@value
class LaneState:
    """A lane in reports to operators."""

    name: str
    destination: str
    zone: str
    waiting: int
    """Recipients in the active set without an attempt under way."""
    connections: int
    idle: int
    window: int
    """Connections that it may have now."""
    suspended: bool
    probe_in_ms: int
    """0 unless suspended."""
    rate_in_ms: int
    """Time until its rate and its zone's allow the next recipient; 0 = at once."""
    rule: str = ""
    """The id of the standing rule that slows it down; "" = none does."""
    booked_in_ms: int = 0
    """When the turn of the last recipient comes that waits outside for a rate; none is after the present."""
    rest_in_ms: int = 0
    """How long claims still pass over its mail because it holds its share; 0 = they do not."""
    pace_ms: int = 0
    """Time of a transaction lately; 0 = not known."""
    rates: Sequence[str] = ()
    """These rates, as the configuration writes them."""


@value
class Start:
    """Try a job: over an idle connection of its lane, or over a new one."""

    lane: Lane
    job: Job
    reuse: bool


class Why(Enum):
    """Why recipients are returned untried."""

    DEAD = "dead"
    """Their destination is suspended."""
    RATE = "rate"
    """A rate allows them later."""
    SHARE = "share"
    """Their lane holds more than its share of the active set and makes no progress."""


@value
class Give:
    """Park recipients, to be due again `after` ms from now."""

    recipients: Sequence[Recipient]
    after: int
    why: Why
    lane: Lane


@value
class Bounds:
    """The settings that bound the table, by their names in `deliver`; 0 = no limit."""

    queuecache: int
    maxconnections: int
    maxrecips: int
    zone_rates: Mapping[str, Rate] = field(default_factory=dict)
    sender_rates: Mapping[str, Rate] = field(default_factory=dict)
    """By address or domain, "<>" the null sender."""
    used: UsedRates | None = None
    """Where the processes of several shards share the rates."""

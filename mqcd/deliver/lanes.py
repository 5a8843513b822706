"""What the lane table holds and what it decides: values and their meaning. Pure.

`Job` and `Lane` belong to the table alone; agents hand them back and do not write to them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from mqcd.core.model import Recipient
from mqcd.deliver.policy import Hop

START_WINDOW = 5.0
"""Connections that an unknown destination may have at once."""


@dataclass(slots=True)
class Job:
    """Recipients of one message that travel together."""

    hop: Hop
    recipients: list[Recipient]
    since: int
    """When it came into its lane."""
    begun: bool = False
    """The store knows that the attempt has begun."""
    probe: bool = False


@dataclass(slots=True)
class Lane:
    """What is known of one hop."""

    hop: Hop
    window: float = START_WINDOW
    jobs: deque[Job] = field(default_factory=deque)
    waiting: int = 0
    """Recipients in `jobs`."""
    open_jobs: dict[int, Job] = field(default_factory=dict)
    """By SPID: the job that takes further recipients of that message."""
    connections: int = 0
    """Open or being opened."""
    idle: int = 0
    """Of those, open and without work."""
    working: int = 0
    """Of those, got through to a server that takes mail."""
    breaks: int = 0
    """Connections that broke since the last transaction that went through."""
    moved: int = 0
    """When a transaction last ended, or its first recipients came."""
    suspended: bool = False
    until: int = 0
    """When the probe may start."""
    delay: int = 0
    """Time between the last two probes."""
    rest_until: int = 0
    """Until when its domains are passed over because it holds more than its share."""
    domains: set[str] = field(default_factory=set)
    queued: bool = False
    """Stands in the table's line of lanes that may have something to start."""

    @property
    def name(self) -> str:
        """The hop's key."""
        return self.hop.key


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneState:
    """A lane as operators see it."""

    name: str
    destination: str
    zone: str
    waiting: int
    """Recipients in the active set that are not being tried."""
    connections: int
    idle: int
    window: int
    """Connections that it may have now."""
    suspended: bool
    probe_in_ms: int
    """0 unless suspended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """Try a job: over an idle connection of its lane, or over a new one."""

    lane: Lane
    job: Job
    reuse: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Give:
    """Park recipients, to be due again `after` ms from now."""

    recipients: Sequence[Recipient]
    after: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """The settings that bound the table, by their names in `deliver`; 0 = no limit."""

    queuecache: int
    maxconnections: int
    maxrecips: int

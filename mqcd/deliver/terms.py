"""Delivery's current settings, and its state between start and stop."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from mqcd.config.advice import Shaping
from mqcd.config.settings import DeliverSettings
from mqcd.core.ports import Clock, Tokens, UsedRates
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.smtp.tracing import Traces
from mqcd.deliver.lanes.lane import Bounds

_log = logging.getLogger("mqcd.deliver")


@dataclass(slots=True, kw_only=True)
class Terms:
    """One per deliverer, which alone writes to it."""

    settings: DeliverSettings
    schedule: RetrySchedule
    clock: Clock
    own_names: Collection[str] = ()
    """The names of this server; mail that DNS routes to them would loop."""
    shapings: Sequence[Shaping] = ()
    """How to treat destinations, by the advice in effect."""
    tokens: Tokens | None = None
    """With several shards: the connections that they share."""
    generation: int = 0
    """How often settings, schedule, names or shapings have changed."""
    traces: Traces = field(init=False)
    """The traces that apply to connections that are opened."""
    started: int = 0
    """When delivery began, monotonic ms."""
    stopping: bool = False
    """Nothing new is started."""
    halted: bool = False
    """An operator has paused delivery: no attempt begins."""

    def __post_init__(self) -> None:
        self.traces = Traces(self.clock.now)

    @property
    def begins_nothing(self) -> bool:
        """Whether no attempt begins: at a stop, or while an operator has paused delivery."""
        return self.stopping or self.halted

    @property
    def processes(self) -> int:
        """Server processes of all shards."""
        return self.tokens.processes if self.tokens is not None else 1

    @property
    def uptime(self) -> int:
        """Time that delivery has run, ms."""
        return self.clock.monotonic() - self.started


def bounds_of(settings: DeliverSettings, most_connections: int, used: UsedRates | None = None) -> Bounds:
    """What bounds the lane table; the process has descriptors for `most_connections`, 0 = for all."""
    connections = settings.maxconnections
    if 0 < most_connections < connections:
        _log.warning(
            "maxconnections is %d, and the descriptor limit leaves room for %d: raise it (LimitNOFILE=)",
            *(connections, most_connections),
        )
        connections = most_connections
    return Bounds(
        queuecache=settings.queuecache,
        maxconnections=connections,
        maxrecips=settings.maxrecips,
        zone_rates={zone.name: zone.rate for zone in settings.zones if zone.rate is not None},
        sender_rates={sender.match: sender.rate for sender in settings.senders},
        used=used,
    )

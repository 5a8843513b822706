"""Checks once a minute for what no event triggers, while mail is in flight or a lane suspended.

* Recipients that wait inside for longer than their age limit (see `verdicts`) get a verdict.
* Suspended lanes for which nothing waits are forgotten.
* What is stuck (see `watchdog`) is logged, once each, as a warning; its end at level info.

Settings read: deliver/watchdog, and the retry schedules.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mqcd.core.model import Recipient
from mqcd.core.ports import QueueStore
from mqcd.deliver.health import watchdog
from mqcd.deliver.health.suspects import Suspects
from mqcd.deliver.health.watchdog import Kind, Stuck
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import Lane, Why
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.settling import Settling
from mqcd.deliver.terms import Terms
from mqcd.deliver.verdicts import grace, is_over

PATROL_MS = 60_000

_log = logging.getLogger("mqcd.deliver")


@dataclass(eq=False, repr=False)
class Patrol:
    """`jobs` are those under way and when each began, `asked` the routes: how many wait, and since when."""

    _terms: Terms
    _table: LaneTable
    _store: QueueStore
    _suspects: Suspects
    _settling: Settling
    _jobs: Callable[[], Iterable[tuple[Job, int]]]
    _asked: Callable[[], Mapping[str, tuple[int, int]]]
    _reported: dict[tuple[Kind, str, str], Stuck] = field(default_factory=dict)
    _next: int = 0

    def wait(self) -> int | None:
        """Time, ms, until `walk` is to be called again; None while there is nothing to check."""
        if not (self._table.entering.active or self._table.passing.suspended):
            return None
        return max(self._next - self._terms.clock.monotonic(), 0)

    def walk(self) -> None:
        now = self._terms.clock.monotonic()
        if now < self._next:
            return
        self._next = now + PATROL_MS
        wall, uptime = self._terms.clock.now(), self._terms.uptime

        def over(lane: Lane, recipient: Recipient) -> bool:
            return is_over(recipient, lane.hop.policy.schedule, Why.SHARE, wall, uptime)

        self._settling.give(*self._table.cull(over))
        self._table.forget(now)
        self._report(self.stuck())

    def stuck(self) -> Sequence[Stuck]:
        """What is stuck at this moment."""
        patience = self._terms.settings.watchdog
        if not patience:
            return ()
        now = self._terms.clock.monotonic()
        found = [
            *watchdog.attempts(self._jobs(), now, patience),
            *watchdog.lanes(self._table.lanes(), now, patience),
            *watchdog.routes(self._asked(), now, patience),
            *watchdog.outcomes(self._suspects, self._terms.clock.now()),
        ]
        schedule = self._terms.schedule
        limit = schedule.maxtime + grace(schedule) + patience
        if self._store.may_expire() and self._terms.uptime > grace(schedule) + patience:
            found += watchdog.overdue(self._store.stats(), self._terms.clock.now(), limit)
        return found

    def _report(self, found: Sequence[Stuck]) -> None:
        now = {each.key: each for each in found}
        for key, each in now.items():
            if key not in self._reported:
                _log.warning(
                    "stuck: %s %s, %d recipients, message %s, for %d s: %s",
                    each.kind.value,
                    each.name,
                    each.recipients,
                    each.message or "-",
                    each.since_ms // 1000,
                    each.why,
                )
        for key, each in self._reported.items():
            if key not in now:
                _log.info("no longer stuck: %s %s", each.kind.value, each.name)
        self._reported = now

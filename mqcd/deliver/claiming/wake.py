"""What wakes the loop of delivery. Other parts report here; what it means for the next claim is in `plan`.

| report of | call | the loop wakes |
|---|---|---|
| the store: new mail | `notified` | as `plan` says |
| the recorder: recipients have left the active set | `released` | likewise, or if lanes wait in line |
| settings, rules, operators | `look_afresh` | and claims |
| workers, routes, held mail | `kick` | |
| the loop itself, before it sleeps | `sleep` | after that time |
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from mqcd.core.model import Recipient
from mqcd.core.ports import Clock, QueueStore
from mqcd.deliver.claiming.plan import Plan
from mqcd.deliver.connection.timers import Alarm
from mqcd.deliver.lanes.scheduling import LaneTable


@dataclass(eq=False, repr=False)
class Wake:
    """One per deliverer."""

    _table: LaneTable
    _store: QueueStore
    _clock: Clock
    plan: Plan = field(default_factory=Plan)
    _event: asyncio.Event = field(default_factory=asyncio.Event)
    _alarm: Alarm = field(init=False)
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when delivery is drained; a waiter clears it first."""

    def __post_init__(self) -> None:
        self._alarm = Alarm(self._clock, self.kick)
        self._quiet.set()

    # ------------------------------------------------------------ reports

    def kick(self) -> None:
        """Something has changed."""
        self._event.set()

    def look_afresh(self) -> None:
        """A claim may give something again."""
        self.plan.changed()
        self._event.set()

    def notified(self) -> None:
        """The store has new mail."""
        if self.plan.new_mail(self._table.entering.room(), self._table.entering.shares.several):
            self._event.set()

    def released(self, recipients: Sequence[Recipient]) -> None:
        """Recipients have left; they may have kept other mail out of the active set, or from a connection."""
        table, entering, plan = self._table, self._table.entering, self.plan
        kept_out = plan.kept_out(entering.room(), table.passing.passes_over)
        entering.leave(recipients)
        freed = plan.left(kept_out, entering.room(), entering.shares.several)
        if freed or table.slots.wanted or not self._quiet.is_set():
            self._event.set()

    # ------------------------------------------------------------ for the loop

    @property
    def called(self) -> bool:
        """Whether the next turn comes at once."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Until something wakes the loop."""
        await self._event.wait()
        self._event.clear()

    def sleep(self, ms: int) -> None:
        """Wake after this time at the latest."""
        self._alarm.set(ms)

    def turned(self) -> None:
        """A turn of the loop has ended: resumes what waits for a drained delivery."""
        if not self._quiet.is_set() and self._is_drained():
            self._quiet.set()

    def close(self) -> None:
        """Set no more alarms."""
        self._alarm.close()

    # ------------------------------------------------------------ for tests

    async def drained(self) -> None:
        """Return once nothing is in flight and nothing is due."""
        while not self._is_drained():
            self._quiet.clear()
            await self._quiet.wait()

    def _is_drained(self) -> bool:
        due = self._store.next_due()
        return not self._table.entering.active and (due is None or due > self._clock.now())

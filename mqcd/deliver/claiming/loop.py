"""The loop of delivery: each turn claims due recipients, has them placed into lanes, and starts workers.

| step of a turn | concerns | these recipients are then |
|---|---|---|
| `_relieve` | what is past its age limit; lanes that stand still in a full active set | settled; parked |
| `_claim_held` | held mail of domains that are sent theirs now | in lanes, see `Placing` |
| `_claim` | what is due, but for the domains that are passed over | the same |
| | the same, where a stop or a pause came meanwhile | parked |
| `Pool.dispatch` | what the lanes allow | at workers |

* When a turn claims, and when the next turn comes, is decided in `plan`; `wake` has what wakes the loop.
* A turn claims for the room in the active set at its begin, less what held mail has taken of it. Nothing is
  reserved: new mail that starts meanwhile (`Entering.start_new`) may exceed `queuecache` by what one claim
  asks for.
* A store that fails pauses delivery (see `Recorder`). After an internal error, which is logged, the next turn
  comes in a second.
* While an operator has paused delivery, what waits is parked.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Recipient
from mqcd.core.ports import QueueStore
from mqcd.core.queueing.holding import HoldMode
from mqcd.deliver.claiming.wake import Wake
from mqcd.deliver.connection.pool import Pool
from mqcd.deliver.held import Held
from mqcd.deliver.lanes.lane import Why
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.patrol import Patrol
from mqcd.deliver.placing import Placing
from mqcd.deliver.recording import Recorder
from mqcd.deliver.settling import Settling
from mqcd.deliver.standing import Standing
from mqcd.deliver.terms import Terms
from mqcd.deliver.verdicts import is_late, is_over

CLAIMED_AT_ONCE = 500
"""Recipients of one claim: to read them, route them and perhaps give them back is one turn of the loop."""

_log = logging.getLogger("mqcd.deliver")


@dataclass(eq=False, repr=False)
class Loop:
    """One per deliverer. `start` once, `stop` once."""

    _wake: Wake
    _terms: Terms
    _table: LaneTable
    _store: QueueStore
    _recorder: Recorder
    _settling: Settling
    _placing: Placing
    _standing: Standing
    _held: Held
    _patrol: Patrol
    _pool: Pool
    _held_last: bool = False
    """Whether the last claim of held mail gave some."""
    _task: asyncio.Task[None] | None = None

    @property
    def started(self) -> bool:
        """Whether it was started."""
        return self._task is not None

    def start(self) -> None:
        """Take the first turn at once."""
        self._wake.kick()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Wait for the turn under way, the last one, as `terms.stopping` is set. It is not cancelled: a claim
        must not leave recipients behind."""
        if self._task is not None:
            self._wake.kick()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            if self._terms.stopping:
                return
            try:
                await self._turn()
            except StoreUnavailable as error:
                self._recorder.unavailable(error)
            except Exception:
                _log.exception("delivery loop failed, next turn in 1 s")
                self._wake.sleep(self._wake.plan.failed(self._terms.clock.monotonic()))

    async def _turn(self) -> None:
        table = self._table
        if self._recorder.paused:
            return
        if self._terms.halted:
            # It rests in the store, where operators' actions reach it.
            self._recorder.park(table.empty(), 0)
            return
        now = self._relieve()
        if self._wake.plan.claims(room := table.entering.room(), now):
            if room:
                # First, and for a part of the room: other mail may fill all of it.
                room -= await self._claim_held(room)
            await self._claim(room)
        if self._terms.begins_nothing:
            return
        # Behind all that claims: what has come may start.
        self._pool.dispatch()
        # Last: when the next turn comes depends on what the others have left.
        self._sleep_until_next()
        self._wake.turned()

    def _relieve(self) -> int:
        """Give back what has waited too long; returns the time."""
        self._patrol.walk()
        now = self._terms.clock.monotonic()
        if self._wake.plan.relieves(self._table.entering.room(), now):
            self._settling.give(*self._table.relieve(now))
        return now

    async def _claim_held(self, room: int) -> int:
        """Claim held mail that is sent now, for a quarter of the room; returns how many. For the only place
        it takes turns with other mail."""
        if room == 1 and self._held_last:
            self._held_last = False
            # Other mail may leave the place.
            self._wake.kick()
            return 0
        claimed = await self._held.claim(min(room, CLAIMED_AT_ONCE) // 4 or 1)
        self._held_last = bool(claimed)
        self._table.entering.enter(claimed)
        self._placing.place(claimed)
        if claimed:
            self._wake.kick()
        return len(claimed)

    async def _claim(self, room: int) -> None:
        """Claim for the `room` of this turn; 0 = none is left, by the active set or by held mail: then for
        tenants that hold little of it, if it is full (`places`). All else that a claim goes by is of one
        moment: nothing awaits before the claim itself."""
        table, clock = self._table, self._terms.clock
        now, wall = clock.monotonic(), clock.now()
        # Before the look: it passes over lanes that rest, and does not decide which go on to.
        table.renew_rests(now)
        skip = table.passing.skip(now, wall, self._standing.barred, self._comes_to_rest)
        # Before the claim: what leaves the active set meanwhile wakes the loop by it.
        self._wake.plan.claiming(bool(skip))
        overdue = partial(self._overdue, wall) if skip.by_lanes else None
        received_by = wall - self._terms.schedule.first_age
        # Behind held mail, which has taken some.
        most, places = min(room, CLAIMED_AT_ONCE), table.entering.places(skip)
        claimed = await self._store.claim(most, wall, skip, overdue, received_by, places)
        # At once: however they leave, they are counted out.
        table.entering.enter(claimed)
        if self._terms.begins_nothing:
            # A stop or a pause has come during the claim.
            self._recorder.park(claimed, 0)
            return
        self._placing.place(self._held.ended(claimed))
        # Behind the claim: whether it has left due mail.
        due = self._store.next_due() if room else None
        more = due is not None and due <= clock.now()
        if self._wake.plan.claimed(room, now, some=bool(claimed), due=more, refused=places.refused):
            self._wake.kick()

    def _comes_to_rest(self, domain: str) -> bool:
        """Whether mail for a domain with a dead destination is claimed, to be held."""
        return self._terms.schedule.holding.mode(domain) is HoldMode.ETRN

    def _overdue(self, wall: int, recipient: Recipient) -> bool:
        """Whether a passed-over recipient has reached its age limit, or its sender is due a warning."""
        if self._standing.barred.get(recipient.lane_key, 0) > wall:
            return False
        schedule = self._terms.schedule
        why = Why.DEAD if self._table.passing.is_dead(recipient.lane_key) else Why.SHARE
        over = is_over(recipient, schedule, why, wall, self._terms.uptime)
        return over or is_late(recipient, schedule, wall)

    def _sleep_until_next(self) -> None:
        clock, table = self._terms.clock, self._table
        now = clock.monotonic()
        due = self._store.next_due() if table.entering.room() and not self._wake.called else None
        due_in = None if due is None else due - clock.now()
        self._wake.sleep(self._wake.plan.sleep(now, due_in, table.next_wake(now), self._patrol.wait()))

"""Delivery as a service: claims due recipients, routes them, and lets workers try them.

Guarantees
* It wakes when the store has mail, when a connection is free, or at the next due time; and twice a second
  while the active set is full.
* At most `queuecache` recipients are in flight, an eighth more where tenants share, and 100 for each
  session that collects held mail; each claimed one is settled or parked.
* Nothing that happens to one recipient or one destination stops the others.
* `stop`: recipients without a final dot out when the grace is over are parked; the others are left begun,
  without a verdict, and the store's next start counts them as outcome unknown.

Settings read: `deliver`, and the retry schedule.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import replace
from functools import partial

from mqcd.config.advice import Shaping
from mqcd.config.settings import DeliverSettings
from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Batch, Recipient
from mqcd.core.ports import Clock, Dialer, Notifier, Observer, QueueStore, Resolver, Tokens, UsedRates
from mqcd.core.queueing.holding import HoldMode
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.selecting import live
from mqcd.core.selecting.rules import StandingRule
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp.tracing import Traces
from mqcd.deliver.collecting import Collecting
from mqcd.deliver.connection.connecting import Connector
from mqcd.deliver.connection.link import LinkView
from mqcd.deliver.connection.pool import Pool
from mqcd.deliver.connection.timers import Alarm, Sweep
from mqcd.deliver.direct import Direct
from mqcd.deliver.explaining import Explainer
from mqcd.deliver.health.suspects import Suspects
from mqcd.deliver.health.watchdog import Stuck
from mqcd.deliver.held import Held
from mqcd.deliver.lanes.gauging import Gauges, gauge
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import LaneState, Why
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.outlook import Waiting
from mqcd.deliver.patrol import Patrol
from mqcd.deliver.placing import Placing, Suppressed
from mqcd.deliver.plan import Plan
from mqcd.deliver.recording import Recorder
from mqcd.deliver.replying import Effect
from mqcd.deliver.routing.router import Router
from mqcd.deliver.settling import Settling
from mqcd.deliver.standing import Standing
from mqcd.deliver.terms import Terms, bounds_of
from mqcd.deliver.verdicts import is_late, is_over

CLAIMED_AT_ONCE = 500
"""Recipients of one claim: to read them, route them and perhaps give them back is one turn of the loop."""
SETTLE_GRACE_MS = 1000
"""How long a stop waits for the store to record the last verdicts."""

_log = logging.getLogger("mqcd.deliver")


class Deliverer:
    """Delivery for one store. `start` once, `stop` once."""

    def __init__(
        self,
        settings: DeliverSettings,
        schedule: RetrySchedule,
        *,
        store: QueueStore,
        clock: Clock,
        resolver: Resolver,
        dialer: Dialer,
        observer: Observer,
        notifier: Notifier | None = None,
        own_names: Collection[str] = (),
        most_connections: int = 0,
        tokens: Tokens | None = None,
        used: UsedRates | None = None,
    ) -> None:
        """`own_names`: the names of this server; mail that DNS routes to them would loop.
        `most_connections`: how many the process has descriptors for; 0 = as many as the settings say.
        `tokens`, `used`: with several shards."""
        self._terms = Terms(settings=settings, schedule=schedule, clock=clock, tokens=tokens)
        self._clock = clock
        self._store = store
        self._most_connections = most_connections
        self._used = used
        self._suspects = Suspects(store, clock)
        self._table = LaneTable(bounds_of(settings, most_connections, used))
        self._recorder = Recorder(store, clock, self._released, self._kick, self._suspects)
        self._settling = Settling(self._terms, store, self._recorder, notifier)
        self._sweep = Sweep(clock, _tick_of(settings))
        self._connector = Connector(self._terms, resolver, dialer, observer, self._sweep)
        parts = (store, self._recorder, self._settling, self._connector, self._sweep)
        self._pool = Pool(self._terms, self._table, *parts, self._place_anew, self._kick)
        self._standing = Standing(clock)
        self._ruled: tuple[Sequence[StandingRule], int] = (), 0
        """The standing rules as they were given, and for how long a bounce can be undone, ms."""
        placed = (self._settling, self._standing)
        self._placing = Placing(self._terms, self._table, resolver, *placed, own_names, self._kick)
        views = (self._pool.at_work, self._placing.asked)
        self._patrol = Patrol(self._terms, self._table, store, self._suspects, self._settling, *views)
        self._held = Held(
            self._terms, self._table, store, self._placing, self._settling, self._connector, self._kick
        )
        self.collecting = Collecting(self._terms, self._table, store, self._recorder, *placed, self._sweep)
        """Sends held mail over connections of clients that collect it."""
        self._direct = Direct(self._terms, self._table, self._pool, self._placing, self._recorder, self._kick)
        self._alarm = Alarm(clock, self._kick)
        self._event = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None
        self._search: asyncio.Task[None] | None = None
        """Looks for suspects."""
        self._plan = Plan()
        self._quiet = asyncio.Event()
        """Set when delivery is drained; a waiter clears it first."""
        self._quiet.set()

    # ------------------------------------------------------------ for the composition root

    async def start(self) -> None:
        self._terms.started = self._clock.monotonic()
        self._store.watch(self._notified)
        self._store.hand_over(self._direct.find)
        self._event.set()
        loop = asyncio.get_running_loop()
        self._loop_task = loop.create_task(self._run())
        self._search = loop.create_task(self._suspects.look())
        self._held.begin()

    def reload(self, settings: DeliverSettings, schedule: RetrySchedule) -> None:
        """Apply new settings and schedule from the next decision on; DNS servers stay as they are."""
        self._terms.settings, self._terms.schedule = settings, schedule
        self._sweep.tick_ms = _tick_of(settings)
        self._table.rebind(bounds_of(settings, self._most_connections, self._used), self._clock.monotonic())
        self._placing.reroute()
        self.rule(*self._ruled)
        if self._loop_task is not None:
            self._held.begin()
        self._look_afresh()

    def advise(self, shapings: Sequence[Shaping], suppressed: Suppressed | None) -> None:
        """Apply advice from the next decision on: how to treat destinations, and which recipients of mail
        that was never tried are refused without an attempt."""
        self._placing.advise(shapings, suppressed)
        self._look_afresh()

    def rule(self, rules: Sequence[StandingRule], grace_ms: int) -> Collection[str]:
        """Have these rules stand from the next decision on, also for what waits for its turn; `grace_ms`: how
        long a bounce can be undone. Gives the domains whose suspension by a rule is over."""
        self._ruled = rules, grace_ms
        zones = self.router.zones
        resolved = [replace(rule, where=live.resolved(rule.where, zones=zones)) for rule in rules]
        freed = self._standing.replace(resolved, grace_ms)
        self._place_all_anew()
        return freed

    def act(self, keys: Collection[tuple[int, int]], batch: Batch, selection: Selection) -> None:
        """Have an operator's batch on a selection reach recipients of it that are in flight (SPID and QID)
        and not delivered first."""
        self._standing.act(keys, batch, selection)
        self._place_all_anew()

    def _place_all_anew(self) -> None:
        self._placing.place(self._table.withdraw(self._standing.misplaces))
        self._look_afresh()

    def _place_anew(self, job: Job) -> bool:
        """Place a job again that left its lane before other rules stood; False where it is right."""
        standing, hop = self._standing, job.hop
        if not standing.stands and not hop.policy.rule:
            return False
        if not any(standing.misplaces(each, hop) for each in job.recipients):
            return False
        self._placing.place(job.recipients)
        return True

    def on_effect(self, heard: Callable[[Effect], None]) -> None:
        """Report to `heard` what replies mean for destinations."""
        self._settling.on_effect = heard

    def halt(self, paused: bool) -> None:
        """Begin no attempt, and let what waits rest in the store, until called with False."""
        self._terms.halted = paused
        self._look_afresh()

    def trace_by(self, traces: Traces) -> None:
        """Connections that are opened from now on are looked at for these."""
        self._terms.traces = traces

    def renew(self, wanted: Callable[[Sequence[str]], bool]) -> None:
        """Connections to such peers (address, host, destination) end once their present message is done."""
        self._pool.renew(wanted)

    def probe(self, domains: Collection[str] | None) -> None:
        """Try suspended destinations of mail for `domains` (None = all) now, by one recipient each."""
        self._table.probe(domains, self._clock.monotonic())
        self._look_afresh()

    def start_held(self, wanted: Callable[[str], bool]) -> Collection[str]:
        """Try the mail that rests for these domains now; returns the domains that have some."""
        self._plan.changed()
        return self._held.start(wanted)

    async def stop(self, grace_ms: int) -> None:
        """Start nothing new; wait up to `grace_ms` for running attempts, then cancel them."""
        self._terms.stopping = True
        if self._loop_task is not None:
            # Not cancelled: a claim that is under way must not leave recipients behind.
            self._event.set()
            await asyncio.wait([self._loop_task])
        if self._search is not None:
            self._search.cancel()
        self._held.end()
        self._alarm.close()
        self._recorder.park(self._table.empty() + self._placing.stop(), 0)
        await self._pool.end(grace_ms)
        # Untried mail of connections that had gone stale.
        self._recorder.park(self._table.empty(), 0)
        settled = asyncio.ensure_future(self._recorder.done())
        timer = asyncio.ensure_future(self._clock.sleep(SETTLE_GRACE_MS))
        await asyncio.wait([settled, timer], return_when=asyncio.FIRST_COMPLETED)
        settled.cancel()
        timer.cancel()
        self._recorder.close()
        self._sweep.close()

    async def drained(self) -> None:
        """Return once nothing is in flight and nothing is due: for tests and demonstrations."""
        while not self._is_drained():
            self._quiet.clear()
            await self._quiet.wait()

    @property
    def active(self) -> int:
        """Recipients that are claimed and neither settled nor parked."""
        return self._table.active

    @property
    def paused(self) -> bool:
        """Whether delivery waits for a store that cannot record."""
        return self._recorder.paused

    @property
    def suspended(self) -> int:
        return self._table.passing.suspended

    def explainer(self) -> Explainer:
        """Explains the route of mail and why it waits, by the rules now in effect."""

        def lane(name: str) -> LaneState | None:
            return self._table.state(name, self._clock.monotonic())

        rules, most = self._standing.find, self._terms.settings.maxrecips
        return Explainer(self._placing.router, self._clock, lane, rules, most, self._pool.way)

    def waiting(self, recipient: Recipient) -> Waiting:
        """The present state of a recipient."""
        in_flight = self._store.in_flight(recipient)
        now = self._clock.monotonic()
        return Waiting(
            recipient=recipient,
            in_flight=in_flight,
            wait=self._table.wait(recipient, now),
            asked=in_flight and self._placing.asks(recipient),
        )

    def lanes(self) -> Sequence[LaneState]:
        return self._table.states(self._clock.monotonic())

    @property
    def standing(self) -> Standing:
        """The rules in effect, and what they do."""
        return self._standing

    @property
    def router(self) -> Router:
        """Routes mail by the settings in effect."""
        return self._placing.router

    def connections(self) -> Sequence[LinkView]:
        """The connections to next hops, also the ones being opened."""
        return self._pool.views()

    def gauges(self, sites: Container[str]) -> Gauges:
        """Figures over all lanes, those of the destinations in `sites` apart."""
        return gauge(self._table.lanes(), self._pool.at_work(), sites)

    def stuck(self) -> Sequence[Stuck]:
        """Items without progress for longer than the watchdog's limit."""
        return self._patrol.stuck()

    # ------------------------------------------------------------ the loop

    async def _run(self) -> None:
        while True:
            await self._event.wait()
            self._event.clear()
            if self._terms.stopping:
                return
            try:
                await self._turn_once()
            except StoreUnavailable as error:
                self._recorder.unavailable(error)
            except Exception:
                _log.exception("delivery loop failed, next turn in 1 s")
                self._alarm.set(self._plan.failed(self._clock.monotonic()))

    async def _turn_once(self) -> None:
        table, clock = self._table, self._clock
        if self._recorder.paused:
            return
        if self._terms.halted:
            # It rests in the store, where operators' actions reach it.
            self._recorder.park(table.empty(), 0)
            return
        self._patrol.walk()
        now = clock.monotonic()
        if self._plan.relieves(table.room(), now):
            self._settling.give(*table.relieve(now))
        if self._plan.claims(room := table.room(), now):
            await self._claim(room)
        if self._terms.rests:
            return
        self._pool.dispatch()
        self._sleep_until_next()
        if not self._quiet.is_set() and self._is_drained():
            self._quiet.set()

    async def _claim(self, room: int) -> None:
        clock = self._clock
        wall, now = clock.now(), clock.monotonic()
        self._table.renew_rests(now)
        skip = self._table.skip(now, wall, self._standing.barred).but(self._rests)
        self._plan.claiming(bool(skip))
        overdue = partial(self._overdue, wall) if skip.by_lanes else None
        received_by = wall - self._terms.schedule.first_age
        if room:
            started = await self._held.claim(min(room, CLAIMED_AT_ONCE) // 4 or 1)
            self._table.enter(started)
            if started:
                self._event.set()
                self._placing.place(started)
                room = max(room - len(started), 1)
        most, places = min(room, CLAIMED_AT_ONCE), self._table.places(skip)
        claimed = await self._store.claim(most, wall, skip, overdue, received_by, places)
        self._table.enter(claimed)
        if self._terms.rests:
            self._recorder.park(claimed, 0)
            return
        self._placing.place(self._held.ended(claimed))
        due = self._store.next_due() if room else None
        more = due is not None and due <= clock.now()
        if self._plan.claimed(room, now, some=bool(claimed), due=more, refused=places.refused):
            self._event.set()

    def _rests(self, domain: str) -> bool:
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
        clock, table = self._clock, self._table
        now = clock.monotonic()
        due = self._store.next_due() if table.room() and not self._event.is_set() else None
        due_in = None if due is None else due - clock.now()
        self._alarm.set(self._plan.sleep(now, due_in, table.next_wake(now), self._patrol.wait()))

    # ------------------------------------------------------------ what other parts report

    def _kick(self) -> None:
        """Wake the loop after a change."""
        self._event.set()

    def _look_afresh(self) -> None:
        """Wake the loop, to claim at once."""
        self._plan.changed()
        self._event.set()

    def _notified(self) -> None:
        """The store has new mail."""
        if self._plan.new_mail(self._table.room(), self._table.shares.several):
            self._event.set()

    def _released(self, recipients: Sequence[Recipient]) -> None:
        """Wake the loop where what has left kept other mail out of the active set, or lanes stand in line."""
        table, plan = self._table, self._plan
        kept_out = plan.kept_out(table.room(), table.passing.passes_over)
        table.leave(recipients)
        freed = plan.left(kept_out, table.room(), table.shares.several)
        if freed or table.slots.wanted or not self._quiet.is_set():
            self._event.set()

    def _is_drained(self) -> bool:
        due = self._store.next_due()
        return not self._table.active and (due is None or due > self._clock.now())


def _tick_of(settings: DeliverSettings) -> int:
    """How late the end of a time limit may be noticed, ms."""
    return min(max(settings.client.timeout // 10, 10), 1000)

"""Delivery as a service: claims due recipients, routes them, and lets workers try them.

`Deliverer` makes the parts, starts and stops them, and passes on what the server asks of them; it decides
only what is placed anew. What runs:

| task | of | from | to |
|---|---|---|---|
| the loop: claims, places, dispatches | `claiming.loop` | `start` | `stop`, after the turn under way |
| a worker for each connection | `connection.pool` | its first job | `stop`, after its job or the grace |
| look-ups of routes | `placing` | an unknown domain | `stop` |
| probes of domains with held mail | `held` | `start`, `reload` | `stop` |
| what the store could not record, again | `recording` | a failure | `stop`, after SETTLE_GRACE_MS |
| time limits | `connection.timers` | a connection | `stop` |
| the search for suspects | `health.suspects` | `start` | its end, or `stop` |

Guarantees
* At most `queuecache` recipients are in flight, an eighth more where tenants share, 100 for each session that
  collects held mail, and what one claim asks for (`claiming.loop`); each claimed one is handed to the store,
  settled or parked, also after an internal error (see `settling`). What the store refuses by a fault of its
  own stays in flight there until its next start, and is counted no more here (see `recording`).
* Nothing that happens to one recipient or one destination stops the others.
* `stop`: recipients without a final dot out when the grace is over are parked; the others are left begun,
  without a verdict, and the store's next start counts them as outcome unknown.

Settings read: `deliver`, and the retry schedule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import replace

from mqcd.config.advice import Shaping
from mqcd.config.settings import DeliverSettings
from mqcd.core.model import Batch, Recipient
from mqcd.core.ports import Clock, Dialer, Notifier, Observer, QueueStore, Resolver, Tokens, UsedRates
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.selecting import live
from mqcd.core.selecting.rules import StandingRule
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp.tracing import Traces
from mqcd.deliver.claiming.loop import Loop
from mqcd.deliver.claiming.wake import Wake
from mqcd.deliver.collecting import Collecting
from mqcd.deliver.connection.connecting import Connector
from mqcd.deliver.connection.link import LinkView
from mqcd.deliver.connection.pool import Pool
from mqcd.deliver.connection.timers import Sweep
from mqcd.deliver.connection.worker import Idle, Worker
from mqcd.deliver.direct import Direct
from mqcd.deliver.explaining import Explainer
from mqcd.deliver.health.suspects import Suspects
from mqcd.deliver.health.watchdog import Stuck
from mqcd.deliver.held import Held
from mqcd.deliver.lanes.gauging import Gauges, gauge
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import Lane, LaneState
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.outlook import Waiting
from mqcd.deliver.patrol import Patrol
from mqcd.deliver.placing import Placing, Suppressed
from mqcd.deliver.reaching import Reaching
from mqcd.deliver.recording import Recorder
from mqcd.deliver.replying import Effect
from mqcd.deliver.routing.policy import Hop
from mqcd.deliver.routing.router import Router
from mqcd.deliver.settling import Settling
from mqcd.deliver.standing import Standing
from mqcd.deliver.terms import Terms, bounds_of

SETTLE_GRACE_MS = 1000
"""How long a stop waits for the store to record the last verdicts."""


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
        """`own_names`: as in `Terms`. `most_connections`: how many the process has descriptors for; 0 = as
        many as the settings say. `tokens`, `used`: with several shards."""
        terms = self._terms = Terms(
            settings=settings, schedule=schedule, clock=clock, own_names=own_names, tokens=tokens
        )
        self._clock = clock
        self._store = store
        self._most_connections = most_connections
        self._used = used
        self._ruled: tuple[Sequence[StandingRule], int] = (), 0
        """The standing rules as they were given, and for how long a bounce can be undone, ms."""
        table = self._table = LaneTable(bounds_of(settings, most_connections, used))
        wake = self._wake = Wake(table, store, clock)
        kick = wake.kick
        suspects = self._suspects = Suspects(store, clock)
        reaching = self.reaching = Reaching(clock, lambda: terms.schedule.longest)
        """What operators' batches have still to do to mail in flight."""
        recorder = self._recorder = Recorder(store, clock, wake.released, kick, suspects)
        settling = self._settling = Settling(terms, store, recorder, notifier)
        sweep = self._sweep = Sweep(clock, _tick_of(settings))
        connector = self._connector = Connector(terms, resolver, dialer, observer, sweep)
        pool = self._pool = Pool(clock, table, self._make_worker)
        standing = self._standing = Standing(clock, store.may_expire)
        placing = self._placing = Placing(
            terms, table.entering, resolver, settling, _reaching=reaching, _standing=standing, _changed=kick
        )
        self._patrol = Patrol(terms, table, store, suspects, settling, pool.at_work, placing.asked)
        self._held = Held(terms, table, store, placing, settling, connector, kick)
        self.collecting = Collecting(
            terms,
            table.entering,
            store,
            _recorder=recorder,
            _settling=settling,
            _reaching=reaching,
            _standing=standing,
            _sweep=sweep,
        )
        """Sends held mail over connections of clients that collect it."""
        self._direct = Direct(terms, table, pool, placing, recorder, kick)
        self._loop = self._make_loop()
        self._search: asyncio.Task[None] | None = None
        """Looks for suspects."""

    def _make_worker(self, idle: Idle, lane: Lane, job: Job, turn: int) -> Worker:
        return Worker(
            _terms=self._terms,
            _table=self._table,
            _store=self._store,
            _recorder=self._recorder,
            _settling=self._settling,
            _connector=self._connector,
            _sweep=self._sweep,
            _placed_anew=self._placed_anew,
            _changed=self._wake.kick,
            _idle=idle,
            lane=lane,
            _job=job,
            _turn=turn,
        )

    def _make_loop(self) -> Loop:
        """The loop, which uses all the other parts: so they are made before."""
        return Loop(
            _wake=self._wake,
            _terms=self._terms,
            _table=self._table,
            _store=self._store,
            _recorder=self._recorder,
            _settling=self._settling,
            _placing=self._placing,
            _standing=self._standing,
            _held=self._held,
            _patrol=self._patrol,
            _pool=self._pool,
        )

    # ------------------------------------------------------------ for the composition root

    async def start(self) -> None:
        self._terms.started = self._clock.monotonic()
        self._store.watch(self._wake.notified)
        self._store.hand_over(self._direct.find)
        self._loop.start()
        self._search = asyncio.get_running_loop().create_task(self._suspects.look())
        self._held.begin()

    def reload(
        self,
        settings: DeliverSettings,
        schedule: RetrySchedule,
        own_names: Collection[str],
        shapings: Sequence[Shaping] = (),
    ) -> None:
        """Apply new settings, schedule, names, and advice on how to treat destinations from the next decision
        on, also to what waits for its turn; DNS servers stay as they are.

        Where all are as before (by `==`) nothing is placed anew. The rules come behind the routes: their
        conditions name the new zones, and what waits is placed anew.
        """
        terms = self._terms
        before = terms.settings, terms.schedule, terms.own_names, terms.shapings
        if before == (settings, schedule, own_names, shapings):
            self._wake.look_afresh()
            return
        terms.generation += 1
        terms.settings, terms.schedule = settings, schedule
        terms.own_names, terms.shapings = own_names, shapings
        self._sweep.tick_ms = _tick_of(settings)
        self._table.rebind(bounds_of(settings, self._most_connections, self._used), self._clock.monotonic())
        self._placing.reroute()
        self.rule(*self._ruled)
        if self._loop.started:
            self._held.begin()
        self._wake.look_afresh()

    def suppress(self, suppressed: Suppressed | None) -> None:
        """Refuse these recipients of mail that was never tried without an attempt, from the next decision
        on."""
        self._placing.suppressed = suppressed
        self._wake.look_afresh()

    def rule(self, rules: Sequence[StandingRule], grace_ms: int) -> None:
        """Have these rules stand from the next decision on, also for what waits for its turn; `grace_ms`: how
        long a bounce can be undone."""
        self._ruled = rules, grace_ms
        zones = self.router.zones
        resolved = [replace(rule, where=live.resolved(rule.where, zones=zones)) for rule in rules]
        self._standing.replace(resolved, grace_ms)
        self.reaching.bind_rules({rule.id for rule in rules})
        self._place_waiting_anew(self._misplaces)

    def act(self, keys: Collection[tuple[int, int]], batch: Batch, selection: Selection) -> None:
        """Have an operator's batch on a selection reach recipients of it that are in flight (SPID and QID)
        and not delivered first."""
        self.reaching.act(keys, batch, selection)
        awaited = self.reaching.awaited
        self._place_waiting_anew(lambda _hop, recipient: recipient.key in awaited)

    def _place_waiting_anew(self, misplaced: Callable[[Hop, Recipient], bool]) -> None:
        """Place what waits in lanes that it does not belong to; workers look at jobs that are put back."""
        self._placing.place(self._table.withdraw(misplaced))
        self._wake.look_afresh()

    def _misplaces(self, hop: Hop, recipient: Recipient) -> bool:
        """Whether a recipient that waits at a hop may belong elsewhere by the settings and rules that stand
        now."""
        return hop.generation != self._terms.generation or self._standing.misplaces(hop, recipient)

    def _placed_anew(self, job: Job) -> bool:
        """Whether a job was placed again that left its lane before other settings or rules stood, or before a
        batch was to reach it; False where it is right."""
        awaited, hop = self.reaching.awaited, job.hop
        outdated = hop.generation != self._terms.generation
        if not (self._standing.stands or awaited or hop.policy.rule or outdated):
            return False
        if not any(each.key in awaited or self._misplaces(hop, each) for each in job.recipients):
            return False
        self._table.entering.remember(job)
        self._placing.place(job.recipients)
        return True

    def on_effect(self, heard: Callable[[Effect], None]) -> None:
        """Report to `heard` what replies mean for destinations."""
        self._settling.on_effect = heard

    def halt(self, halted: bool) -> None:
        """An operator pauses delivery: begin no attempt, and let what waits rest in the store, until called
        with False. It does not change `paused`."""
        self._terms.halted = halted
        self._wake.look_afresh()

    def trace_by(self, traces: Traces) -> None:
        """Connections that are opened from now on are looked at for these."""
        self._terms.traces = traces

    def renew(self, wanted: Callable[[Sequence[str]], bool]) -> None:
        """Connections to such peers (address, host, destination) end once their present message is done."""
        self._pool.renew(wanted)

    def probe(self, domains: Collection[str] | None) -> None:
        """Try suspended destinations of mail for `domains` (None = all) now, by one recipient each."""
        self._table.probe(domains, self._clock.monotonic())
        self._wake.look_afresh()

    def start_held(self, wanted: Callable[[str], bool]) -> Collection[str]:
        """Try the mail that rests for these domains now; returns the domains that have some."""
        self._wake.look_afresh()
        return self._held.start(wanted)

    async def stop(self, grace_ms: int) -> None:
        """Start nothing new; wait up to `grace_ms` for running attempts, then cancel them.

        | step | its place |
        |---|---|
        | `stopping` | first: from now on no worker takes another job, and no connection is reserved |
        | the loop's turn ends | it may hold claimed recipients that are not in the table yet |
        | suspects, held mail, wake-ups with their alarm end | so that nothing begins another turn |
        | the table is emptied, look-ups end | all of it is parked: none of it is being tried |
        | workers end | what they put back (connections that were stale) is in the table again |
        | the table is emptied again | |
        | the recorder has recorded all, in its time | behind everything that hands in verdicts |
        """
        self._terms.stopping = True
        await self._loop.stop()
        if self._search is not None:
            self._search.cancel()
        self._held.end()
        self._wake.close()
        self._recorder.park(self._table.empty() + self._placing.stop(), 0)
        await self._pool.end(grace_ms)
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
        await self._wake.drained()

    @property
    def active(self) -> int:
        """Recipients that are claimed and neither settled nor parked."""
        return self._table.entering.active

    @property
    def paused(self) -> bool:
        """Whether delivery waits for a store that cannot record; not whether an operator has it paused, see
        `halt`."""
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


def _tick_of(settings: DeliverSettings) -> int:
    """How late the end of a time limit may be noticed, ms."""
    return min(max(settings.client.timeout // 10, 10), 1000)

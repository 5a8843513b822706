"""Mail out as one part: claims what is due, routes it, and lets sessions try it, until it is stopped.

Guarantees
* Notified, never polling: it wakes when the store has something, when a connection is free, or at the
  next due time.
* At most `queuecache` recipients are in flight; whatever is claimed ends settled or parked.
* Nothing that happens to one recipient or one destination stops the others.
* `stop`: what has not sent its final dot when the grace is over is parked; what has is left begun,
  without a verdict, for the store's next start to count as outcome unknown.

Settings read: `deliver`, and the retry schedule.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Container, Iterator, Sequence
from functools import partial

from mqcd.config.advice import Shaping
from mqcd.config.settings import DeliverSettings
from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Recipient
from mqcd.core.ports import Clock, Dialer, Notifier, Observer, QueueStore, Resolver
from mqcd.core.schedule import RetrySchedule
from mqcd.deliver.connection.shop import Shop
from mqcd.deliver.connection.timers import Alarm, Sweep
from mqcd.deliver.connection.tls_failures import TlsFailures
from mqcd.deliver.connection.worker import Session
from mqcd.deliver.explaining import Explainer, Waiting
from mqcd.deliver.health.suspects import Suspects
from mqcd.deliver.health.watchdog import Stuck
from mqcd.deliver.lanes.gauging import Gauges, gauge
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import TRIAL_MS, Bounds, LaneState, Start, Why
from mqcd.deliver.lanes.parking import is_late, is_over
from mqcd.deliver.lanes.scheduling import STUCK_MS, LaneTable
from mqcd.deliver.patrol import Patrol
from mqcd.deliver.placing import Placing, Suppressed
from mqcd.deliver.recording import Settler

MAX_SLEEP_MS = 3_600_000
"""The longest sleep; wall time may be set while we sleep."""
CLAIMED_AT_ONCE = 500
"""Recipients of one claim: to read them, route them and perhaps give them back is one turn of the loop."""
EMPTY_CLAIM_MS = 1000
"""Until when we do not claim again where the store said due and then gave nothing."""

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
    ) -> None:
        """`own_names`: what this server calls itself; mail that DNS sends there would come back.
        `most_connections`: as many as the process has descriptors for; 0 = as many as the settings say."""
        suspects = Suspects(store, clock)
        self._most_connections = most_connections
        self._table = LaneTable(self._bounds(settings))
        self._shop = Shop(
            settings=settings,
            schedule=schedule,
            store=store,
            clock=clock,
            resolver=resolver,
            dialer=dialer,
            observer=observer,
            table=self._table,
            settler=Settler(store, clock, self._released, self._kick, suspects),
            sweep=Sweep(clock, min(max(settings.client.timeout // 10, 10), 1000)),
            tls_failures=TlsFailures(clock),
            suspects=suspects,
            notifier=notifier,
        )
        self._placing = Placing(self._shop, own_names, self._kick)
        self._alarm = Alarm(clock, self._kick)
        self._patrol = Patrol(self._shop, self._under_way, self._placing.asked)
        self._event = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None
        self._search: asyncio.Task[None] | None = None
        """Looks for suspects."""
        self._sessions: dict[Session, asyncio.Task[None]] = {}
        self._idle: dict[str, list[Session]] = {}
        self._turns: Counter[str] = Counter()
        """By zone: connections opened, so that its own addresses take turns whatever others do."""
        self._dry_until = 0
        self._relieve_at = 0
        self._review_at = 0
        self._waiters: list[asyncio.Future[None]] = []

    # ------------------------------------------------------------ for the composition root

    async def start(self) -> None:
        """Deliver from now on."""
        self._shop.started = self._shop.clock.monotonic()
        self._shop.store.watch(self._notified)
        self._event.set()
        loop = asyncio.get_running_loop()
        self._loop_task = loop.create_task(self._run())
        self._search = loop.create_task(self._shop.suspects.look())

    def reload(self, settings: DeliverSettings, schedule: RetrySchedule) -> None:
        """Route, speak and retry by new settings from the next decision on; DNS servers stay as they are."""
        shop = self._shop
        shop.settings, shop.schedule = settings, schedule
        self._table.rebind(self._bounds(settings), shop.clock.monotonic())
        self._placing.reroute()
        self._event.set()

    def advise(self, shapings: Sequence[Shaping], suppressed: Suppressed | None) -> None:
        """Go by this advice from the next decision on: how to treat destinations, and which recipients of
        mail that was never tried get a refusal of our own in place of an attempt."""
        self._placing.advise(shapings, suppressed)
        self._event.set()

    def probe(self, domains: Collection[str] | None) -> None:
        """Try suspended destinations of mail for `domains` (None = all) now, by one recipient each."""
        self._table.probe(domains, self._shop.clock.monotonic())
        self._dry_until = 0
        self._event.set()

    async def stop(self, grace_ms: int) -> None:
        """Start nothing new; let what runs end within `grace_ms`, then cut it off."""
        shop = self._shop
        shop.stopping = True
        if self._loop_task is not None:
            # Not cancelled: a claim that is under way must not leave recipients behind.
            self._event.set()
            await asyncio.wait([self._loop_task])
        if self._search is not None:
            self._search.cancel()
        self._alarm.close()
        shop.settler.park(self._table.empty() + self._placing.stop(), 0)
        for session in [each for group in self._idle.values() for each in group]:
            session.expire()
        await self._end_sessions(grace_ms)
        settled = asyncio.ensure_future(shop.settler.done())
        timer = asyncio.ensure_future(shop.clock.sleep(SETTLE_GRACE_MS))
        await asyncio.wait([settled, timer], return_when=asyncio.FIRST_COMPLETED)
        settled.cancel()
        timer.cancel()
        shop.settler.close()
        shop.sweep.close()

    async def drained(self) -> None:
        """Return once nothing is in flight and nothing is due: for tests and demonstrations."""
        while not self._is_drained():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    @property
    def active(self) -> int:
        """Recipients in flight in delivery's hands."""
        return self._table.active

    @property
    def paused(self) -> bool:
        """Whether delivery waits for a store that cannot record."""
        return self._shop.settler.paused

    @property
    def suspended(self) -> int:
        """Destinations that are suspended."""
        return self._table.suspended

    def explainer(self) -> Explainer:
        """Tells where mail would go and why it waits, by the rules in effect now."""
        shop = self._shop

        def lane(name: str) -> LaneState | None:
            return self._table.state(name, shop.clock.monotonic())

        return Explainer(self._placing.router, shop.clock, lane, shop.settings.maxrecips)

    def waiting(self, recipient: Recipient) -> Waiting:
        """What is known of a recipient's state at this moment."""
        in_flight = self._shop.store.in_flight(recipient)
        place = self._table.position(recipient.key) if in_flight else None
        return Waiting(recipient=recipient, in_flight=in_flight, place=place)

    def lanes(self) -> Sequence[LaneState]:
        """What each destination is doing."""
        return self._table.states(self._shop.clock.monotonic())

    def gauges(self, sites: Container[str]) -> Gauges:
        """Figures over all lanes, those of the destinations in `sites` apart."""
        return gauge(self._table.lanes(), self._under_way(), sites)

    def stuck(self) -> Sequence[Stuck]:
        """What has made no progress for longer than the watchdog's patience."""
        return self._patrol.stuck()

    # ------------------------------------------------------------ the loop

    async def _run(self) -> None:
        while True:
            await self._event.wait()
            self._event.clear()
            if self._shop.stopping:
                return
            try:
                await self._turn_once()
            except StoreUnavailable as error:
                self._shop.settler.unavailable(error)
            except Exception:
                _log.exception("the delivery loop failed and goes on in a second")
                self._dry_until = self._shop.clock.monotonic() + EMPTY_CLAIM_MS
                self._alarm.set(EMPTY_CLAIM_MS)

    async def _turn_once(self) -> None:
        shop, table, clock = self._shop, self._table, self._shop.clock
        if shop.settler.paused:
            return
        self._patrol.walk()
        now = clock.monotonic()
        if not (room := table.room()) and now >= self._relieve_at:
            self._relieve_at = now + STUCK_MS
            shop.give(*table.relieve(now))
            room = table.room()
        if room and now >= self._dry_until:
            await self._claim(room)
        if shop.stopping:
            return
        self._dispatch()
        self._sleep_until_next()
        if self._waiters and self._is_drained():
            self._tell_drained()

    async def _claim(self, room: int) -> None:
        clock = self._shop.clock
        wall, now = clock.now(), clock.monotonic()
        skip = self._table.skip(now).counted_from(wall)
        overdue = partial(self._overdue, wall) if skip else None
        received_by = wall - self._shop.schedule.first_age
        room = min(room, CLAIMED_AT_ONCE)
        claimed = await self._shop.store.claim(room, wall, skip, overdue, received_by)
        self._table.active += len(claimed)
        if self._shop.stopping:
            self._shop.settler.park(claimed, 0)
            return
        self._placing.place(claimed)
        due = self._shop.store.next_due()
        if due is not None and due <= clock.now():
            if claimed:
                self._event.set()
            else:
                self._dry_until = now + EMPTY_CLAIM_MS

    def _overdue(self, wall: int, recipient: Recipient) -> bool:
        """Whether a recipient that claims pass over has waited long enough, or its sender is to hear."""
        schedule = self._shop.schedule
        why = Why.DEAD if self._table.is_dead(recipient.domain) else Why.SHARE
        over = is_over(recipient, schedule, why, wall, self._shop.uptime)
        return over or is_late(recipient, schedule, wall)

    def _dispatch(self) -> None:
        for start in self._table.dispatch(self._shop.clock.monotonic()):
            if start.reuse:
                self._idle[start.lane.name].pop().hand(start.job)
            else:
                self._open(start)
        if self._table.slots.scarce:
            for session in [each for group in self._idle.values() for each in group]:
                if self._table.slots.others_wait(session.lane):
                    session.expire()
            self._take_back()

    def _take_back(self) -> None:
        """Attempts at destinations that do not answer, where others wait for their connections: the last that
        were begun, so that those before them come to an end."""
        now = self._shop.clock.monotonic()
        if now < self._review_at:
            return
        self._review_at = now + STUCK_MS
        self._table.review(now)
        if not (count := self._table.slots.overdrawn):
            return
        lasting = [
            session
            for session in self._sessions
            if session.lane.doubted and session.may_be_taken_back and now - session.began > TRIAL_MS
        ]
        for session in sorted(lasting, key=lambda each: each.began, reverse=True)[:count]:
            session.take_back()

    def _open(self, start: Start) -> None:
        zone = start.lane.hop.policy.zone
        self._turns[zone] += 1
        turn = self._turns[zone]
        session = Session(self._shop, start.lane, start.job, turn=turn, idle=self._idle, changed=self._kick)
        task = asyncio.get_running_loop().create_task(session.run())
        self._sessions[session] = task
        task.add_done_callback(lambda _: self._sessions.pop(session, None))

    def _sleep_until_next(self) -> None:
        clock, table = self._shop.clock, self._table
        times = [MAX_SLEEP_MS]
        wake = table.next_wake(clock.monotonic())
        if wake is not None:
            times.append(wake)
        if (patrol := self._patrol.wait()) is not None:
            times.append(patrol)
        due = self._shop.store.next_due() if table.room() else None
        if due is not None and not self._event.is_set():
            times.append(max(due - clock.now(), self._dry_until - clock.monotonic(), 0))
        self._alarm.set(min(times))

    def _under_way(self) -> Iterator[tuple[Job, int]]:
        """Jobs that are being tried, and since when."""
        return (each for session in self._sessions if (each := session.at_work) is not None)

    # ------------------------------------------------------------ what others tell

    def _kick(self) -> None:
        """Something has changed that the loop should look at."""
        self._event.set()

    def _notified(self) -> None:
        """The store may have something to claim; without room there is nothing to do about it."""
        self._dry_until = 0
        if self._table.room():
            self._event.set()

    def _released(self, count: int) -> None:
        self._table.active -= count
        if self._table.room():
            self._event.set()

    def _is_drained(self) -> bool:
        due = self._shop.store.next_due()
        return not self._table.active and (due is None or due > self._shop.clock.now())

    def _tell_drained(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _end_sessions(self, grace_ms: int) -> None:
        if not self._sessions:
            return
        ends = asyncio.ensure_future(asyncio.wait(tuple(self._sessions.values())))
        timer = asyncio.ensure_future(self._shop.clock.sleep(grace_ms))
        await asyncio.wait([ends, timer], return_when=asyncio.FIRST_COMPLETED)
        ends.cancel()
        timer.cancel()
        left = tuple(self._sessions.values())
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    def _bounds(self, settings: DeliverSettings) -> Bounds:
        connections = settings.maxconnections
        if 0 < self._most_connections < connections:
            _log.warning(
                "maxconnections is %d, and the descriptor limit leaves room for %d: raise it (LimitNOFILE=)",
                *(connections, self._most_connections),
            )
            connections = self._most_connections
        return Bounds(
            queuecache=settings.queuecache,
            maxconnections=connections,
            maxrecips=settings.maxrecips,
            zone_rates={zone.name: zone.rate for zone in settings.zones if zone.rate is not None},
            sender_rates={sender.match: sender.rate for sender in settings.senders},
        )

"""One server: every part made and wired, and the order in which they start, reload and stop.

Start: bind all ports without serving them; the caller drops privileges; listen (the doors answer 4xx, /readyz
503); `open` lists the steps that follow, and `stop` those of a stop, each with the reason for its place;
`stopping` says how long they may last. What is cut off is what a crash would have left: the next start
recovers it.

Settings read: all. A start raises ConfigError (an address that cannot be bound, with its place in the file),
StoreBusy, StoreDamaged, StoreUnavailable; `stop` then stops what was started.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from mqcd.config.advice import Advice
from mqcd.config.problems import BadConfiguration
from mqcd.config.settings import Settings, Suppressing
from mqcd.core.ports import Clock, Observer
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.daemon.advised import Adviser
from mqcd.daemon.changes import Changes, compare, refuse
from mqcd.daemon.control.actions.applying import purge
from mqcd.daemon.control.held import HeldRequests
from mqcd.daemon.control.keeping import Keeping
from mqcd.daemon.control.pages import Pages
from mqcd.daemon.control.switches import Switches, turns_of
from mqcd.daemon.derived import (
    holding_of,
    options_of,
    own_names,
    report_of,
    retention_of,
    schedule_of,
    suppressions_of,
)
from mqcd.daemon.doors import Doors
from mqcd.daemon.feeds.figures import Feeds
from mqcd.daemon.hashkey import hash_key
from mqcd.daemon.host.descriptors import Shares, divide, limit
from mqcd.daemon.host.guard import Guard, within
from mqcd.daemon.host.memory import watch
from mqcd.daemon.listeners.listenertls import ListenersTls
from mqcd.daemon.listeners.listenertls import Loaded as Tls
from mqcd.daemon.observers import Observers
from mqcd.daemon.operating import make_operating
from mqcd.daemon.places import CONTROL, place_of
from mqcd.daemon.ports import Ports
from mqcd.daemon.readiness import Phase, Readiness
from mqcd.daemon.shards.role import Role
from mqcd.daemon.stopping import AUDIT, GRACE_MS, LIMITS, MAIL, MAILDROP, QUEUE, REPORTS, STOP_MS
from mqcd.daemon.storing import make_store
from mqcd.deliver.service import Deliverer
from mqcd.net.dialer import SystemDialer
from mqcd.net.resolver import DnsResolver
from mqcd.ops.log.log import Log
from mqcd.ops.metrics.lag import LoopLag
from mqcd.report.task import ReportTask

log = logging.getLogger("mqcd.daemon")

_LAG, _LOG = "the loop's watch", "the log"
_RESOURCES = "the watch for memory and storage"
_ADVICE = "the watch for advice"
_BATCHES, _FILES, _GRACES = "operators' actions", "the files of operators' actions", "the end of removals"
_RULES = "the watch for rules"
_LOSSY = "the log of refusals and connections"
_COMPANIONS = "processes beside the server"


class Server:
    """Made, then `bind`, `listen`, `open`, each once and in this order; `stop` after any of them."""

    _companions_end: asyncio.Future[None] | None = None
    """Done when the processes beside the server have ended; None before a stop."""
    _stop_begun = 0
    """When a stop has begun, monotonic ms."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        log_to: Log,
        observers: Sequence[Observer] = (),
        conf: Path | None = None,
        shares: Shares | None = None,
        role: Role | None = None,
        given: Mapping[str, Sequence[socket.socket]] | None = None,
    ) -> None:
        """`observers` hear of each event besides metrics and log; `conf` is the file for errors to name;
        `shares` divide the descriptors, None = as many as the process has now;
        `role`: that of one shard's process, None = there is one process; `given`: sockets that the service
        manager has bound, by listener, None = there are none."""
        # Each part is given the parts that it uses, so these are made before it.
        self._given = given or {}
        self.settings = settings
        self.shares = shares or divide(limit(), settings.queue.journal.segments)
        self._clock = clock
        self._log = log_to
        self._conf = conf
        self.guard = Guard()
        schedule = schedule_of(settings)
        # The event log's, which the queue writes: addresses are hashed with it.
        self._key = hash_key(settings.ops.events, conf)
        self._role = role
        shard = role.shard if role is not None else 0
        options = options_of(settings, schedule, self._key, shard)
        self._observers = Observers(settings, options, clock, log_to, observers)
        observer = self._observers.all
        self.store, self._described = make_store(settings, options, clock, observer, conf)
        # One for doors and delivery: the lookups are limited together.
        resolver = DnsResolver(settings.deliver.dns, clock, most=self.shares.lookups)
        self._balance = role.balance(self.store.refusing) if role is not None else None
        """Spreads clients over the processes of all shards; None = there is one process."""
        self.tls = role.tls if role is not None else ListenersTls(settings.submit)
        self.doors = self._make_doors(resolver)
        self._reports = ReportTask(self.store, clock, report_of(settings), self.doors.trusts)
        self.deliverer = self._make_deliverer(schedule, resolver)
        self._operating = make_operating(settings, self.store, self.deliverer, clock, log_to.say, shard)
        self._operating.batches.longest_ms = schedule.longest
        # Doors ask for held mail, which delivery has: it comes to them later.
        self._held = self._make_held(role)
        self.doors.hold(holding_of(settings.queue), self._held)
        self._adviser = Adviser(settings.ops.advice.rootpath, clock, self._advised)
        self._lag = LoopLag(clock)
        turns = turns_of(self.doors.all, self.deliverer, self._reports)
        paused = settings.ops.control.batches / "paused"
        self._switches = Switches(paused, self.store, clock, log_to.say, turns)
        self._ready = Readiness(self.store, self.deliverer, self._switches)
        # Last: they show all parts and serve them.
        self._pages = self._make_pages()
        self._ports = Ports(settings, conf, clock, self.doors, self._pages, role, log_to.say)

    def _make_doors(self, resolver: DnsResolver) -> Doors:
        return Doors(
            self.settings,
            self.shares,
            self.store,
            self._clock,
            self._observers.all,
            resolver=resolver,
            tls=self.tls,
            role=self._role,
            balance=self._balance,
        )

    def _make_deliverer(self, schedule: RetrySchedule, resolver: DnsResolver) -> Deliverer:
        role = self._role
        return Deliverer(
            self.settings.deliver,
            schedule,
            store=self.store,
            clock=self._clock,
            resolver=resolver,
            dialer=SystemDialer(),
            observer=self._observers.all,
            notifier=self._reports.maker,
            own_names=own_names(self.settings),
            most_connections=self.shares.outbound,
            tokens=role.tokens if role is not None else None,
            used=role.used if role is not None else None,
        )

    def _make_pages(self) -> Pages:
        self.keeping = Keeping(lambda: self.settings, self._log.reload, self._clock, self._log.say)
        return Pages(
            store=self.store,
            described=self._described,
            deliverer=self.deliverer,
            doors=self.doors.all,
            adviser=self._adviser,
            batches=self._operating.batches,
            ruling=self._operating.ruling,
            held=self._held,
            observers=self._observers,
            lag=self._lag,
            clock=self._clock,
            log_event=self._log.say,
            key=self._key,
            not_ready=self._ready.not_ready,
            records_unknown=self._ready.records_unknown,
            keeping=self.keeping,
            switches=self._switches,
            local=self.doors.local,
            feeds=None if self.doors.maildrop is None else Feeds(self.settings, self._clock),
        )

    def _make_held(self, role: Role | None) -> HeldRequests:
        asking = (self._clock, self._log.say, role.others if role is not None else None, self._balance)
        return HeldRequests(self.deliverer, lambda: holding_of(self.settings.queue), *asking)

    @property
    def ops_port(self) -> int:
        """TCP port of the pages; the bound one once bound."""
        return self._ports.ops_port

    # ------------------------------------------------------------ start

    async def bind(self) -> None:
        """Bind every port and load the keys of listeners, which may need root; no client can connect yet.
        Raises ConfigError."""
        self._load_tls()
        self.guard.spawn(_LOG, self._log.run())
        self.guard.spawn(_LAG, self._lag.run())
        await self._ports.bind(self._given)

    def _load_tls(self) -> None:
        try:
            self.tls.use(self.tls.load(self.settings.submit, self._conf))
        except BadConfiguration as error:
            if self._role is None:
                raise
            # The supervisor could read them, perhaps as root; this process is a later one.
            log.error("the certificates of listeners stay as the supervisor has read them: %s", error)

    async def listen(self) -> None:
        """Answer, and let no mail in yet: what peers send is read from here on. Raises ConfigError."""
        await self._ports.listen()
        if self._balance is not None:
            self._balance.listen(self._ports.admit, self._held.borrow)

    async def open(self) -> None:
        """Let mail in, recover the rest of the queue, then deliver and report.

        Raises ConfigError, StoreBusy, StoreDamaged, StoreUnavailable.
        """
        steps: Sequence[Callable[[], Awaitable[None]]] = (
            # First: the queue is this server's, and so is the name of the control socket.
            self._open_queue,
            # It asks the queue whether the clock can be believed; without its rules no server takes mail.
            self._operating.book.load,
            # Before there is mail: operators see the rest of the start.
            self._serve_commands,
            self._ports.serve_programs,
            # Before the doors open: it names the recipients they refuse.
            self._adviser.look,
            # All that follows may take long; mail is accepted meanwhile.
            self._open_doors,
            # Nothing is claimed before all records are known.
            self._recover,
            # It asks the whole queue which of its files were taken, and must ask before any is delivered.
            self._open_maildrop,
            # Before anything is claimed that an action is to reach.
            self._operating.batches.following.recall,
            # From here on there are claims.
            self.deliverer.start,
            # What follows finds delivery at work.
            self._begin_tasks,
        )
        for step in steps:
            await step()
        # Last: it watches all tasks that there are.
        self.guard.adopt()
        self._ready.phase = Phase.RUNNING
        self._log.say("ready")

    async def _open_queue(self) -> None:
        await self.store.open()
        for warning in self._described.warnings:
            log.warning("%s", warning)

    async def _serve_commands(self) -> None:
        if self._role is not None or not self.settings.queue.read_only:
            await self._ports.serve_commands()
            await self.doors.listen(place_of(self._conf, CONTROL))
            if self._ports.companions:
                self.guard.spawn(_COMPANIONS, self._ports.companions.run())

    async def _open_doors(self) -> None:
        if not self.settings.queue.read_only:
            self.guard.spawn(_LOSSY, self._observers.lossy.run())
        self.doors.open(read_only=self.settings.queue.read_only)
        self._switches.start()
        if self._balance is not None:
            # In service from now on: other processes may pass clients to it. Those that it has already the
            # doors count at their next look.
            self._balance.count(0)
        if self._role is not None:
            self._role.ready()

    async def _recover(self) -> None:
        self._ready.phase = Phase.RECOVERING
        await self.store.recovered()
        if not (self.settings.queue.read_only or self._described.promises.shared):
            # Other servers write to a queue that is read-only or shared: its ledger cannot balance here.
            self._pages.metrics.open_ledger()
        self._ready.records_known = True

    async def _open_maildrop(self) -> None:
        if self.doors.maildrop is not None:
            await self.doors.maildrop.recover()
            self.guard.spawn(MAILDROP, self.doors.maildrop.run())

    async def _begin_tasks(self) -> None:
        self._operating.effects.started = True
        self.guard.spawn(REPORTS, self._reports.run())
        self.guard.spawn(_RESOURCES, watch(self.doors.load, self.store.refusing, self._clock))
        self.guard.spawn(_ADVICE, self._adviser.run())
        if not self.settings.queue.read_only:
            self.guard.spawn(_BATCHES, self._operating.batches.run())
            self.guard.spawn(_RULES, self._operating.book.run())
            self.guard.spawn(_FILES, self._operating.batches.tend())
            self.guard.spawn(_GRACES, purge(self.store, self._clock))

    # ------------------------------------------------------------ while it runs

    def reload(self, settings: Settings, tls: Tls | None = None) -> Changes:
        """Apply what can change now, `tls` for its listeners; returns what was applied, what needs a restart,
        and what doors have refused.

        Before `open` the parts keep the settings and open with them; in a stop nothing is applied. No step
        waits, so that no mail passes between two of them.
        """
        old, wanted = self.settings, compare(self.settings, settings)
        if self._ready.phase is Phase.STOPPING:
            waits = (*wanted.applied, *wanted.needs_restart)
            return Changes(settings=self.settings, applied=(), needs_restart=waits)
        # First: what a door refuses, the other parts do not go by either.
        changes = refuse(old, wanted, self.doors.reload(wanted.settings))
        self.settings = changes.settings
        pairs = zip(changes.settings.submit.listeners, wanted.settings.submit.listeners, strict=True)
        taken = {listener.name for listener, new in pairs if listener.ssl == new.ssl}
        steps: Sequence[Callable[[], None]] = (
            # Before the others: what they log goes by it.
            lambda: self._log.reload(self.settings.ops.log),
            lambda: self.tls.use({name: each for name, each in (tls or {}).items() if name in taken}),
            lambda: self._ports.reload(self.settings),
            lambda: self._observers.audit.reload(self.settings.deliver, self.settings.report),
            lambda: self._reports.reload(report_of(self.settings)),
            # Operators' actions, queue and delivery, by settings and advice together.
            lambda: self._advised(self._adviser.advice),
        )
        for step in steps:
            step()
        return changes

    def _advised(self, advice: Advice) -> None:
        """Apply this advice and the current settings."""
        # The rules come first: a reload of delivery applies them to the zones that it adds.
        schedule = schedule_of(self.settings, advice.shapings)
        grace_ms, batches = self.settings.queue.grace, self._operating.batches
        batches.grace_ms, batches.longest_ms = grace_ms, schedule.longest
        self.deliverer.rule(tuple(self._operating.book.rules.values()), grace_ms)
        mode = self.settings.submit.suppression
        refusal = suppressions_of(advice, self._key).refusal if advice.suppressions else None
        # Before the reload, which places mail anew.
        self.deliverer.suppress(refusal if mode is Suppressing.BOUNCE else None)
        names = own_names(self.settings)
        self.deliverer.reload(self.settings.deliver, schedule, names, advice.shapings)
        self.store.reload(schedule, retention_of(self.settings))
        self.doors.hold(holding_of(self.settings.queue), self._held)
        self.doors.suppress(refusal if mode is Suppressing.REFUSE else None)

    # ------------------------------------------------------------ stop

    async def stop(self) -> None:
        """Stop everything, in order, also when only some of it was started. A second call has no effect, and
        does not wait."""
        if self._ready.phase is Phase.STOPPING:
            return
        self._stop_begun = self._clock.monotonic()
        self._ready.phase = Phase.STOPPING
        self.guard.stopping()
        self._log.say("stopping")
        steps: Sequence[Callable[[], Awaitable[None]]] = (
            # First: no work from elsewhere. What they wait for ends while the next steps last.
            self._stop_sources,
            # Together: each may last for all of the grace.
            self._stop_mail,
            # The next start carries on what is left of them.
            lambda: self.guard.end(_RULES, _BATCHES, _FILES, _GRACES),
            # Behind the doors: it waits for the answer to its last file.
            self._stop_maildrop,
            # When no session is left that could use what the doors share.
            self.doors.close,
            # Behind delivery: its last bounces are reported.
            self._stop_reports,
            # When nothing is left that writes to it.
            self._close_queue,
            # Behind the queue's last events.
            self._close_logs,
            # Late: operators see the stop.
            self._close_ports,
            # Last of all.
            self._stop_watches,
        )
        for step in steps:
            await step()

    async def _stop_sources(self) -> None:
        if self.doors.maildrop is not None:
            self.doors.maildrop.stop()
        if self._balance is not None:
            self._balance.close()
        self._companions_end = asyncio.ensure_future(self.guard.end(_COMPANIONS))

    async def _stop_mail(self) -> None:
        doors = [door.stop(GRACE_MS) for door in self.doors.all]
        await self._await_part(MAIL, asyncio.gather(self.deliverer.stop(GRACE_MS), *doors))

    async def _stop_maildrop(self) -> None:
        await self._await_part(MAILDROP, self.guard.ended(MAILDROP))
        await self.guard.end(MAILDROP)

    async def _stop_reports(self) -> None:
        self._reports.stop()
        await self._await_part(REPORTS, self.guard.ended(REPORTS))
        await self.guard.end(REPORTS)

    async def _close_queue(self) -> None:
        self._ready.records_known = False
        self._observers.lossy.stop()
        left = STOP_MS - LIMITS[AUDIT] - (self._clock.monotonic() - self._stop_begun)
        await self._await_part(QUEUE, asyncio.gather(self.store.close(), self.guard.ended(_LOSSY)), left)

    async def _await_part(self, part: str, work: Awaitable[object], left: int = 0) -> None:
        """Give a part its time, or all that is `left`, ms, where that is more."""
        await within(self._clock, max(LIMITS[part], left), part, work)

    async def _close_logs(self) -> None:
        self.keeping.close()
        self._observers.audit.close(LIMITS[AUDIT] / 1000)

    async def _close_ports(self) -> None:
        if self._companions_end is not None:
            await self._companions_end
        await self._ports.close()

    async def _stop_watches(self) -> None:
        await self.guard.end(_ADVICE, _RESOURCES, _LAG)
        self._log.say("stopped")
        self._log.stop()
        await self.guard.ended(_LOG)

"""Mail that rests for its domain (see `core.queueing.holding`): started when it is asked for, or when its
destination takes connections again.

Guarantees
* A started domain's mail is claimed from its own queue, beside all other mail and with a share of the same
  active set; one recipient at first, where its destination was suspended. The run ends when the queue is
  empty, or when mail of it has to rest again.
* A domain with mode etrn is probed at intervals: a connection is opened and closed, the store is not asked.
* What a claim gives out at the end of its rest, though nobody can be connected to for it, expires.

Settings read: queue held.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from mqcd.core.model import (
    Attempt,
    Deferred,
    Delivered,
    Envelope,
    Expired,
    Phase,
    PutOff,
    Recipient,
    Settlement,
)
from mqcd.core.ports import QueueStore
from mqcd.core.queueing.holding import HoldMode
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.connection.connecting import Connector
from mqcd.deliver.connection.link import Link
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.placing import Placing
from mqcd.deliver.routing.policy import Hop
from mqcd.deliver.settling import Settling
from mqcd.deliver.terms import Terms

PROBED_AT_ONCE = 20
"""Destinations to which a connection is opened at the same time, to see whether they answer."""
LINGER_MS = 2000
"""How long a run lasts at least."""
NOT_COLLECTED = Reply(code=451, status="4.4.7", text="held for collection by ATRN, and not collected in time")

_log = logging.getLogger("mqcd.deliver")


@dataclass(eq=False, repr=False)
class Held:
    """One per deliverer; calls `changed` when there is mail to claim."""

    _terms: Terms
    _table: LaneTable
    _store: QueueStore
    _placing: Placing
    _settling: Settling
    _connector: Connector
    _changed: Callable[[], None]
    _running: dict[str, int] = field(default_factory=dict)
    """Domains whose mail is being worked through, and since when, the one whose turn is next first."""
    _resting: set[str] = field(default_factory=set)
    """Domains that have mail at rest, as far as is known: a probe looks again."""
    _probes: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._settling.on_verdicts = self._heard

    # ------------------------------------------------------------ for the service

    def begin(self) -> None:
        """Probe from now on, if any domain is to be probed."""
        wanted = any(each.mode is HoldMode.ETRN for each in self._terms.schedule.holding.domains)
        if wanted and self._probes is None:
            self._probes = asyncio.get_running_loop().create_task(self._probe_for_ever())
        elif not wanted:
            self.end()

    def end(self) -> None:
        """Probe no longer."""
        if self._probes is not None:
            self._probes.cancel()
            self._probes = None

    def start(self, wanted: Callable[[str], bool]) -> Collection[str]:
        """Work through the mail of these domains; returns the ones that have some."""
        found = [domain for domain in self._store.held_domains() if wanted(domain)]
        if found:
            self._running.update(dict.fromkeys(found, self._terms.clock.monotonic()))
            # The client asks because its server is there: a suspension must not keep the mail waiting.
            self._table.probe(found, self._terms.clock.monotonic())
            self._changed()
        return found

    async def claim(self, room: int) -> Sequence[Recipient]:
        """At most `room` recipients of started domains, each domain in its turn. Raises StoreUnavailable."""
        found: list[Recipient] = []
        try:
            for domain in tuple(self._running):
                if len(found) >= room or self._terms.stopping:
                    break
                # While another's mail was claimed it may have ended.
                if domain in self._running and not self._table.passing.is_dead(domain, probed=True):
                    share = max(room // len(self._running), 1)
                    found += await self._claim(domain, min(share, room - len(found)))
        except BaseException:
            self._table.entering.enter(found)
            self._settling.park(found)
            raise
        return found

    async def _claim(self, domain: str, share: int) -> Sequence[Recipient]:
        """A domain's share of the room; one recipient where its destination is suspended."""
        share = 1 if self._table.passing.is_dead(domain) else share
        claimed = await self._store.claim_held(domain, share)
        # It may have ended meanwhile.
        since = self._running.pop(domain, None)
        if since is not None and (claimed or self._goes_on(domain, since)):
            self._running[domain] = since
        return claimed

    def _goes_on(self, domain: str, since: int) -> bool:
        """Whether a claim that gave nothing may give something later: the store may be short of room, or
        what was just tried is coming to rest."""
        return self._terms.clock.monotonic() - since < LINGER_MS or domain in self._store.held_domains()

    def ended(self, claimed: Sequence[Recipient]) -> list[Recipient]:
        """The claimed recipients that may be tried; those whose rest is over without a way to try them get
        their verdict."""
        holding = self._terms.schedule.holding
        if not holding:
            return list(claimed)
        over = [each for each in claimed if holding.ends(each)]
        if over:
            self._expire(over)
        return [each for each in claimed if not holding.ends(each)]

    def _expire(self, recipients: Sequence[Recipient]) -> None:
        now = self._terms.clock.now()
        # A store that could not read a record gives it out again without looking at its time.
        self._settling.park([each for each in recipients if each.due > now])
        may_expire, schedule = self._store.may_expire(), self._terms.schedule
        for domain in {each.domain for each in recipients if each.due <= now}:
            attempt = Attempt(destination=domain, phase=Phase.ROUTE, at=now)
            verdict: Expired | Deferred = Expired(reply=NOT_COLLECTED, attempt=attempt)
            if not may_expire:
                again = now + schedule.delays[0]
                verdict = Deferred(reply=NOT_COLLECTED, attempt=attempt, due=again, held=True)
            due = [each for each in recipients if each.due <= now and each.domain == domain]
            self._settling.record([Settlement(recipient=each, verdict=verdict) for each in due], domain)

    # ------------------------------------------------------------ what became of it

    def _heard(self, settlements: Sequence[Settlement]) -> None:
        """Mail that has to rest ends the run of its domain; mail that was delivered shows that the
        destination takes more."""
        holding = self._terms.schedule.holding
        if not holding:
            return
        for each in settlements:
            domain = each.recipient.domain
            if isinstance(each.verdict, PutOff) and each.verdict.held:
                self._running.pop(domain, None)
                self._resting.add(domain)
            elif isinstance(each.verdict, Delivered) and self._shows_life(each.recipient):
                self._resting.discard(domain)
                self.start(domain.__eq__)

    def _shows_life(self, delivered: Recipient) -> bool:
        """Whether a delivery says that a domain with mail at rest takes more."""
        return delivered.domain in self._resting and self._terms.schedule.holding.rests(delivered)

    # ------------------------------------------------------------ probes

    async def _probe_for_ever(self) -> None:
        await self._store.recovered()
        while True:
            await self._probe_all()
            await self._terms.clock.sleep(self._terms.schedule.holding.probe_interval)

    async def _probe_all(self) -> None:
        """Probe each domain with mail at rest once."""
        mode = self._terms.schedule.holding.mode
        domains = [each for each in self._store.held_domains() if mode(each) is HoldMode.ETRN]
        self._resting = set(domains)
        slots = asyncio.Semaphore(PROBED_AT_ONCE)

        async def probe(domain: str) -> None:
            async with slots:
                if domain not in self._running and await self._answers(domain):
                    self._resting.discard(domain)
                    self.start(domain.__eq__)

        async with asyncio.TaskGroup() as group:
            for domain in domains:
                group.create_task(probe(domain))

    async def _answers(self, domain: str) -> bool:
        """Whether a host of the domain greets."""
        try:
            envelope = Envelope(spid=0, sender="", received=self._terms.clock.now())
            hop, _ = await self._placing.router.trace(envelope, domain)
            if not isinstance(hop, Hop):
                return False
            found = await self._connector.connect(hop, 0)
            if not isinstance(found, Link):
                return False
            await self._connector.leave(found)
        except Exception:
            # A fault here must not end the probes of other domains; it costs this one its turn.
            _log.exception("internal error: probe of %s", domain)
            return False
        return True

"""What all connections of one deliverer share: settings, ports, the lane table, the settler."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from mqcd.config.settings import DeliverSettings
from mqcd.core.model import Attempt, Deferred, Phase, Recipient, Settlement, Submission
from mqcd.core.ports import Clock, Dialer, Notifier, Observer, QueueStore, Resolver
from mqcd.core.reply import Reply
from mqcd.core.schedule import RetrySchedule
from mqcd.deliver.connection.timers import Sweep
from mqcd.deliver.connection.tls_failures import TlsFailures
from mqcd.deliver.connection.verdicts import failure, verdict_on
from mqcd.deliver.health.suspects import Suspects
from mqcd.deliver.lanes.lane import Give
from mqcd.deliver.lanes.parking import Judged, part
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.recording import Settler
from mqcd.deliver.smtp.exchange import Outcome

MOST_ON_ONE = 100
"""Recipients on one report: it and their verdicts are one record, and a record has its bounds."""

_SILENT_MS = 60_000

_log = logging.getLogger("mqcd.deliver")

Reporting = Callable[[Notifier, Sequence[Settlement]], Awaitable[Sequence[Submission]]]
"""Which of the notifier's reports it is."""


@dataclass(slots=True, kw_only=True)
class Shop:
    """Made once by the deliverer."""

    settings: DeliverSettings
    schedule: RetrySchedule
    store: QueueStore
    clock: Clock
    resolver: Resolver
    dialer: Dialer
    observer: Observer
    table: LaneTable
    settler: Settler
    sweep: Sweep
    tls_failures: TlsFailures
    suspects: Suspects
    notifier: Notifier | None = None
    """Reports on delay, and on success where the next hop will not; None = nobody does."""
    started: int = 0
    """When delivery began, monotonic."""
    stopping: bool = False
    """Nothing new is started."""

    sessions: int = 0
    """Connections named so far."""
    silent_until: int = 0
    """Until when a shortage is not logged again, monotonic."""

    def new_session(self) -> str:
        """A name for a connection in the log; no two runs give the same one."""
        # Runs begin at different times, and connections are not opened by thousands a second.
        self.sessions = self.sessions + 1 if self.sessions else self.clock.now()
        return f"out-{self.sessions:x}"

    def shortage(self, reply: Reply) -> None:
        """Log that this machine has no room for a connection, at most once a minute."""
        now = self.clock.monotonic()
        if now >= self.silent_until:
            self.silent_until = now + _SILENT_MS
            _log.warning("%s; mail waits, and no destination is suspended for it", reply.text)

    @property
    def uptime(self) -> int:
        """For how long delivery has run, ms."""
        return self.clock.monotonic() - self.started

    def settle_all(
        self,
        recipients: list[Recipient],
        outcome: Outcome,
        attempt: Attempt,
        schedule: RetrySchedule,
        begin: str = "",
        within: int | None = None,
    ) -> None:
        """The same outcome for all of them; see `record`. A retry comes `within` ms at the latest (None =
        when the schedule has it)."""
        # In this order: a leap between the two is then known.
        now = self.clock.now()
        may_expire = self.store.may_expire()
        latest = None if within is None else now + within
        verdicts = [
            verdict_on(recipient, outcome, attempt, schedule, now, may_expire=may_expire, latest=latest)
            for recipient in recipients
        ]
        pairs = zip(recipients, verdicts, strict=True)
        self.record([Settlement(recipient=each, verdict=verdict) for each, verdict in pairs], begin)

    def record(self, settlements: Sequence[Settlement], begin: str = "") -> None:
        """Have verdicts recorded, those that tell a sender of a delay together with the report on it, message
        by message; see `Settler.settle`."""
        messages: dict[int, list[Settlement]] = {}
        others: list[Settlement] = []
        for each in settlements:
            tells = isinstance(each.verdict, Deferred) and each.verdict.warning and self.notifier
            (messages.setdefault(each.recipient.spid, []) if tells else others).append(each)
        if others:
            self.settler.settle(others, begin)
        for settled in messages.values():
            self.report(settled, lambda notifier, told: notifier.delayed(told), begin)

    def report(self, settlements: Sequence[Settlement], how: Reporting, begin: str = "") -> None:
        """Have verdicts on recipients of one message recorded together with reports on them."""
        if self.notifier is None:
            self.settler.settle(settlements, begin)
            return
        for start in range(0, len(settlements), MOST_ON_ONE):
            told = settlements[start : start + MOST_ON_ONE]
            self.settler.settle(told, begin, partial(how, self.notifier, told))

    def give(self, *gives: Give | None) -> None:
        """Park what the table gives back, and settle those whose time is over."""
        now = self.clock.now()
        parted = part((give for give in gives if give), now, self.uptime)
        for until, recipients in parted.parked.items():
            self.settler.park(recipients, until)
        for judged in parted.judged:
            hop, outcome = judged.lane.hop, failure(judged.reply, Phase.CONNECT)
            schedule = hop.policy.schedule
            self.settle_all(judged.recipients, outcome, _none(judged, now), schedule, hop.destination.name)
        self._warn(parted.warned, now)

    def _warn(self, warned: Iterable[tuple[int, Judged]], now: int) -> None:
        """Have those wait on whose senders are to hear that they do."""
        may_warn = self.store.may_expire()
        for until, judged in warned:
            if not may_warn:
                self.settler.park(judged.recipients, until)
                continue
            schedule, attempt = judged.lane.hop.policy.schedule, _none(judged, now)
            self.record(
                [
                    Settlement(
                        recipient=each,
                        verdict=Deferred(
                            reply=judged.reply,
                            attempt=attempt,
                            due=until,
                            warning=schedule.expires(each, now),
                        ),
                    )
                    for each in judged.recipients
                ],
                attempt.destination,
            )


def _none(judged: Judged, now: int) -> Attempt:
    """The attempt that was not made for those who waited in vain."""
    hop = judged.lane.hop
    zone = hop.policy.zone
    return Attempt(destination=hop.destination.name, zone=zone, phase=Phase.CONNECT, at=now)

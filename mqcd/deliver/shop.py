"""What all connections of one deliverer share: settings, ports, the lane table, the settler."""

from __future__ import annotations

from dataclasses import dataclass

from mqcd.config.settings import DeliverSettings
from mqcd.core.model import Attempt, Phase, Recipient, Settlement
from mqcd.core.ports import Clock, Dialer, Notifier, Observer, QueueStore, Resolver
from mqcd.core.schedule import RetrySchedule
from mqcd.deliver.exchange import Outcome
from mqcd.deliver.lanes import Give
from mqcd.deliver.parking import part
from mqcd.deliver.scheduling import LaneTable
from mqcd.deliver.settling import Settler
from mqcd.deliver.timers import Sweep
from mqcd.deliver.tls_failures import TlsFailures
from mqcd.deliver.verdicts import failure, verdict_on


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
    notifier: Notifier | None = None
    """Reports on success where the next hop will not; None = nobody does."""
    started: int = 0
    """When delivery began, monotonic."""
    stopping: bool = False
    """Nothing new is started."""

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
    ) -> None:
        """The same outcome for all of them; see `Settler.settle`."""
        # In this order: a leap between the two is then known.
        now = self.clock.now()
        may_expire = self.store.may_expire()
        self.settler.settle(
            [
                Settlement(
                    recipient=recipient,
                    verdict=verdict_on(recipient, outcome, attempt, schedule, now, may_expire=may_expire),
                )
                for recipient in recipients
            ],
            begin,
        )

    def give(self, *gives: Give | None) -> None:
        """Park what the table gives back, and settle those whose time is over."""
        now = self.clock.now()
        parted = part((give for give in gives if give), now, self.uptime)
        for until, recipients in parted.parked.items():
            self.settler.park(recipients, until)
        for judged in parted.judged:
            hop = judged.lane.hop
            outcome = failure(judged.reply, Phase.CONNECT)
            name, zone = hop.destination.name, hop.policy.zone
            attempt = Attempt(destination=name, zone=zone, phase=outcome.phase, at=now)
            schedule = hop.policy.schedule
            self.settle_all(judged.recipients, outcome, attempt, schedule, hop.destination.name)

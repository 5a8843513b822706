"""What it means that other rules stand: delivery goes by them, and the mail that waits comes under them.

* Mail that waits for its turn in delivery is judged again at once. What waits elsewhere is judged when it is
  claimed; for `hold` and `bounce` a batch of the rule's id does it earlier, where it finds the mail.
* A start begins no such batch: what the last run left undone is found by claims.
* When a suspension is cancelled its mail is due at once.
* What a rule has held or bounced stays so when it ends; `mqcd queue undo ID` takes it back.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from mqcd.core.errors import StoreUnavailable
from mqcd.core.ports import Clock, QueueStore
from mqcd.core.selecting.rules import RuleAction, StandingRule
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.control.batches import Batches, Order
from mqcd.daemon.control.retrying import LogEvent
from mqcd.daemon.rules.book import Rules
from mqcd.deliver.service import Deliverer

log = logging.getLogger("mqcd.daemon")


class Effects:
    """Of one process; `book.Apply`."""

    def __init__(
        self,
        store: QueueStore,
        deliverer: Deliverer,
        batches: Batches,
        clock: Clock,
        log_event: LogEvent,
        *,
        speaks: bool,
    ) -> None:
        """`speaks`: whether this process logs what has ended; one of all shards does."""
        self._store = store
        self._deliverer = deliverer
        self._batches = batches
        self._clock = clock
        self._log_event = log_event
        self._speaks = speaks
        self.started = False
        """Whether mail is delivered: until then nothing waits in delivery, and no batch is begun."""

    async def __call__(self, before: Rules, after: Rules) -> None:
        self._deliverer.rule(tuple(after.values()), self._batches.grace_ms)
        if not self.started:
            return
        for rule in _missing(before, after):
            await self._added(rule)
        now = self._clock.now()
        for rule in _missing(after, before):
            if self._speaks and rule.ended(now):
                self._log_event("rule-ended", **_about(rule))
            if rule.action is RuleAction.SUSPEND and not rule.ended(now):
                await self._resume(rule)

    async def _added(self, rule: StandingRule) -> None:
        batch = rule.batch(self._clock.now(), self._batches.grace_ms)
        if batch is None:
            return
        try:
            await self._batches.begin(Order(batch=batch, selection=self._selection(rule)))
        except StoreUnavailable as error:
            log.warning("%s: mail that waits comes under it when it is due: %s", rule, error)

    async def _resume(self, rule: StandingRule) -> None:
        try:
            await self._store.expedite(self._selection(rule))
        except StoreUnavailable as error:
            log.warning("%s is cancelled; its mail is tried when it is due: %s", rule, error)

    def _selection(self, rule: StandingRule) -> Selection:
        """The mail in the queue that it selects, as far as the sites of domains are known."""
        return Selection(where=rule.where.resolved(self._deliverer.sites()))


def _missing(there: Mapping[str, StandingRule], rules: Mapping[str, StandingRule]) -> list[StandingRule]:
    return [rule for name, rule in rules.items() if name not in there]


def _about(rule: StandingRule) -> dict[str, str]:
    """The fields of a line of the log."""
    fields = {"rule": rule.id, "name": rule.name, "by": rule.by, "where": str(rule.where)}
    return {name: value for name, value in {**fields, "reason": rule.reason}.items() if value}

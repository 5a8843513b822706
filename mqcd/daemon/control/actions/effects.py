"""What it means that other rules stand: delivery goes by them, and the mail that waits comes under them.

* Mail that waits for its turn in delivery is judged again at once. What waits elsewhere is judged when it is
  claimed; for `hold` and `bounce` a batch of the rule's id does it earlier, where it finds the mail.
* A start begins no such batch: what the last run left undone is found by claims.
* `Replies` makes a rule of what a reply means for its destination, at once.
* When a suspension is cancelled a batch `retry-ID` makes its mail due at once.
* What a rule has held or bounced stays so when it ends; `mqcd queue undo ID` takes it back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from mqcd.core.display import printable
from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Action, Batch
from mqcd.core.ports import Clock
from mqcd.core.selecting import live
from mqcd.core.selecting.rules import SERVER, SITE, RuleAction, StandingRule, where_of_batch
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import Compare, Where
from mqcd.daemon.control.actions.batches import Batches
from mqcd.daemon.control.actions.orders import Order, name_of
from mqcd.daemon.rules.book import MOST_RULES, RuleBook, Rules
from mqcd.daemon.rules.form import MOST_TEXT
from mqcd.deliver.replying import Effect
from mqcd.deliver.service import Deliverer
from mqcd.ops.log.log import LogEvent

log = logging.getLogger("mqcd.daemon")


class Effects:
    """Of one process; `book.Apply`."""

    def __init__(
        self,
        deliverer: Deliverer,
        batches: Batches,
        clock: Clock,
        may_expire: Callable[[], bool],
        log_event: LogEvent,
        *,
        speaks: bool,
    ) -> None:
        """`may_expire`: whether the clock can be believed. `speaks`: whether this process logs what has
        ended; one of all shards does."""
        self._deliverer = deliverer
        self._batches = batches
        self._clock = clock
        self._may_expire = may_expire
        self._log_event = log_event
        self._speaks = speaks
        self.started = False
        """Whether mail is delivered: until then nothing waits in delivery, and no batch is begun."""

    async def __call__(self, before: Rules, after: Rules) -> None:
        self._deliverer.rule(tuple(after.values()), self._batches.grace_ms)
        if not self.started:
            return
        now = self._clock.now()
        for rule in _missing(before, after):
            batch = rule.batch(now, self._batches.grace_ms)
            if batch is not None:
                await self._begin(rule, batch, where_of_batch(rule, after.values()))
        for rule in _missing(after, before):
            ended = rule.ended(now) and self._may_expire()
            if self._speaks and ended:
                self._log_event("rule-ended", **_about(rule))
            if rule.action is RuleAction.SUSPEND and not ended:
                await self._begin(rule, _retry_after(rule, now), replace(rule.where, now=now))

    async def _begin(self, rule: StandingRule, batch: Batch, where: Where) -> None:
        """A batch on the mail of this shard; the other processes begin their parts of it."""
        try:
            order = Order(batch=batch, selection=Selection(where=where), resolved=self._on_records(where))
            await self._batches.known.begin(order)
        except StoreUnavailable as error:
            log.warning("%s: mail that waits follows the change when it is due: %s", rule, error)

    def _on_records(self, where: Where) -> Where:
        """The same for the mail in the queue, as far as the sites of domains are known."""
        router = self._deliverer.router
        return live.resolved(where, zones=router.zones, sites=router.sites(), origins=router.origins)


class Replies:
    """Makes the standing rules that reply rules ask for, each once while it stands."""

    def __init__(self, book: RuleBook, clock: Clock, log_event: LogEvent) -> None:
        self._book = book
        self._clock = clock
        self._log_event = log_event
        self._new: dict[tuple[RuleAction, str], StandingRule] = {}
        """By action and site: what is to be added next, together."""
        self._known: dict[tuple[RuleAction, str], str] = {}
        """By action and site, the id of the rule that was found last."""
        self._adding: asyncio.Task[None] | None = None
        self._full = False

    def __call__(self, effect: Effect) -> None:
        """A reply has come; see `deliver.replying`."""
        key = RuleAction(effect.rule.action.value), effect.site
        if key in self._new or self._stands(*key) or self._is_full():
            return
        self._new[key] = self._made(effect, *key)
        if self._adding is None:
            self._adding = asyncio.get_running_loop().create_task(self._add())

    def _stands(self, action: RuleAction, site: str) -> bool:
        now, standing = self._clock.now(), self._book.rules
        known = self._known.get((action, site))
        if known is not None and known in standing and not standing[known].ended(now):
            return True
        # Perhaps another shard's process has made one.
        where = _at(site)
        for rule in standing.values():
            made = rule.by == SERVER and rule.action is action and not rule.ended(now)
            if made and rule.where.root == where:
                self._known[action, site] = rule.id
                return True
        return False

    def _is_full(self) -> bool:
        """Whether no further rule may stand; that is logged once."""
        full = len(self._book.rules) + len(self._new) >= MOST_RULES
        if full and not self._full:
            log.error("%d rules stand: reply rules suspend and slow no further destination", MOST_RULES)
        self._full = full
        return full

    def _made(self, effect: Effect, action: RuleAction, site: str) -> StandingRule:
        now, rule = self._clock.now(), effect.rule
        slow = action is RuleAction.SLOW
        return StandingRule(
            id=name_of(action, now),
            action=action,
            where=Where(_at(site), now),
            at=now,
            by=SERVER,
            reason=printable(f"reply rule for {effect.reply}")[:MOST_TEXT],
            until=now + (rule.span or 0),
            rate=(rule.rate.count, rule.rate.per) if slow and rule.rate else None,
            connections=(rule.maxserverconnections or int(not rule.rate)) if slow else 0,
        )

    async def _add(self) -> None:
        try:
            while self._new:
                added = tuple(self._new.values())
                await self._book.add_now(*added)
                self._new = {key: rule for key, rule in self._new.items() if rule not in added}
                for rule in added:
                    self._log_event("rule-added", **_about(rule))
                if len(self._known) > 2 * MOST_RULES:
                    self._known.clear()
        finally:
            self._adding = None


def _retry_after(rule: StandingRule, now: int) -> Batch:
    """What makes mail of a cancelled rule due; of the same id in all processes."""
    return Batch(
        id=f"{Action.RETRY}-{rule.id}",
        action=Action.RETRY,
        at=now,
        by=SERVER,
        reason=f"{rule} cancelled",
        until=now,
    )


def _at(site: str) -> Compare:
    return Compare(SITE, "=", (site,))


def _missing(there: Mapping[str, StandingRule], rules: Mapping[str, StandingRule]) -> list[StandingRule]:
    return [rule for name, rule in rules.items() if name not in there]


def _about(rule: StandingRule) -> dict[str, str]:
    """The fields of a line of the log."""
    fields = {"rule": rule.id, "name": rule.name, "by": rule.by, "where": str(rule.where)}
    return {name: value for name, value in {**fields, "reason": rule.reason}.items() if value}

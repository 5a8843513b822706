"""The pages of the standing rules.

GET /v1/rules lists the standing ones, with `applied`: how often each has kept a recipient back or slowed it
since the start. POST /v1/rules adds one, see `form`; with `dry_run` it says how much mail that waits it
selects, and shows the first few. POST /v1/rules/cancel takes an `id`, and says what stays of the rule and how
to take that back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mqcd.core.errors import DecodeError
from mqcd.core.model import Action, Batch
from mqcd.core.ports import Clock
from mqcd.core.selecting.rules import RuleAction, StandingRule, where_of_batch
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.control.actions.batches import Batches
from mqcd.daemon.control.actions.orders import Order, fields_in, name_of, take_dry_run
from mqcd.daemon.control.api.binding import Given
from mqcd.daemon.control.resolving import check_zones
from mqcd.daemon.rules.book import RuleBook
from mqcd.daemon.rules.form import fields_of, parse_rule
from mqcd.deliver.service import Deliverer
from mqcd.ops.http.server import Request
from mqcd.ops.log.log import LogEvent

RULES, CANCEL = "/v1/rules", "/v1/rules/cancel"


class Ruling:
    """The pages of one process."""

    def __init__(
        self, book: RuleBook, deliverer: Deliverer, batches: Batches, clock: Clock, log_event: LogEvent
    ) -> None:
        self._book = book
        self._deliverer = deliverer
        self._batches = batches
        self._clock = clock
        self._log_event = log_event

    async def list(self, _request: Request, _given: Given) -> object:
        """The rules that stand."""
        await self._book.look()
        return [self._shown(rule) for rule in self._book.rules.values()]

    async def add(self, request: Request, _given: Given) -> object:
        """Add one, or say what it would select. Raises DecodeError, StoreUnavailable."""
        fields, by = fields_in(request), request.by
        dry_run = take_dry_run(fields)
        now = self._clock.now()
        for name in ("id", "at"):
            if name in fields:
                raise DecodeError(f"{name}: the server chooses it")
        rule = parse_rule({**fields, "by": by}, now)
        if rule.ended(now):
            raise DecodeError("until: expected a time to come")
        check_zones(rule.where, self._deliverer.router)
        if dry_run:
            return await self._count(rule)
        rule = replace(rule, id=name_of(rule.action, now))
        await self._book.change(lambda rules: rules.update({rule.id: rule}), by)
        self._log("rule-added", rule, by)
        return {"rule": self._shown(rule), "batch": rule.id if rule.batch_action else None}

    async def _count(self, rule: StandingRule) -> Mapping[str, object]:
        """What waits and comes under it."""
        action = rule.batch_action or Action.HOLD
        batch = Batch(id=name_of(action, rule.at), action=action, at=rule.at, by=rule.by)
        where = where_of_batch(rule, self._book.rules.values())
        selection = Selection(where=replace(where, now=rule.at))
        outcome = await self._batches.counted(Order(batch=batch, selection=selection))
        return {
            "rule": None,
            "batch": None,
            "matched": outcome.changed + outcome.in_flight,
            "sample": outcome.sample,
            **({"unrouted": outcome.order.unrouted} if outcome.order.unrouted else {}),
        }

    async def cancel(self, request: Request, _given: Given) -> object:
        """End one. Raises DecodeError, StoreUnavailable."""
        fields, by = fields_in(request), request.by
        name = fields.get("id")
        if fields.keys() != {"id"} or not isinstance(name, str):
            raise DecodeError("id: expected the id of a rule, and nothing else")
        await self._book.look()
        rule = self._book.rules.get(name)
        if rule is None:
            raise DecodeError(f"no rule {name} stands; GET {RULES} lists those that do")
        self._book.forget(name)
        await self._book.change(lambda rules: rules.pop(name, None), by)
        self._log("rule-cancelled", rule, by)
        undo = f"mqcd queue undo {name}" if rule.batch_action else None
        return {"rule": self._shown(rule), "stays": _STAYS.get(rule.action), "undo": undo}

    def _shown(self, rule: StandingRule) -> dict[str, object]:
        return {**fields_of(rule), "applied": self._deliverer.standing.applied.get(rule.id, 0)}

    def _log(self, event: str, rule: StandingRule, by: str) -> None:
        fields = {"rule": rule.id, "by": by, "where": str(rule.where), "name": rule.name}
        fields["until"] = str(fields_of(rule)["until"] or "")
        fields["reason"] = rule.reason
        self._log_event(event, **{name: value for name, value in fields.items() if value})

    def counts(self) -> dict[str, int]:
        """How many rules of each action stand."""
        actions = [rule.action for rule in self._book.rules.values()]
        return {action.value: actions.count(action) for action in RuleAction}


_STAYS = {RuleAction.HOLD: "held", RuleAction.BOUNCE: "removed"}
"""The area in which the mail of a cancelled rule stays."""

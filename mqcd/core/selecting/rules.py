"""Standing rules: what becomes of all mail that a condition selects, as long as the rule stands. Pure.

`RuleSet.find` is the whole decision. Of several rules that select a recipient the one counts whose action
comes first in `RuleAction`, and of those the oldest: what is kept back is neither bounced nor tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from mqcd.core.address import normal_domain
from mqcd.core.model import Action, Batch, Recipient, Word
from mqcd.core.queueing.amendment import is_released
from mqcd.core.selecting.where import AnyOf, Compare, Node, Not, Predicate, Where, all_of
from mqcd.core.selecting.where_fields import IN, site_name
from mqcd.core.value import value

SITE = "site"
SERVER = "server"
"""The author of rules that follow from reply rules."""
_OF_DESTINATION = frozenset({"domain", SITE})
_TIMED = frozenset({"age", "due"})
_NOT_KEPT = AnyOf((Not(Compare("area", "=", ("held",))), Compare("due", ">", ("0s",))))
"""Mail that no operator or rule holds; what rests for its domain has a due time."""
_STEP_MS = 1000
"""How long a condition on an age counts as evaluated."""


class RuleAction(Word):
    """What a rule does to the mail that it selects, the strongest first."""

    HOLD = "hold"
    """It rests in area held."""
    BOUNCE = "bounce"
    """It is ended, as by `queue bounce`."""
    SUSPEND = "suspend"
    """It is not tried: it waits, and does not expire."""
    SLOW = "slow"
    """It is tried over fewer connections, or at a lower rate."""


_ORDER = {action: place for place, action in enumerate(RuleAction)}
_BATCHES = {RuleAction.HOLD: Action.HOLD, RuleAction.BOUNCE: Action.BOUNCE}
"""What the actions are that change a record."""


@value
class StandingRule:
    """One rule. Times in ms."""

    id: str
    """No other rule or batch has it; begins with the action."""
    action: RuleAction
    where: Where
    at: int
    """When it was made."""
    by: str
    """Who made it, as `uid:1000`; `server` for the effect of a reply rule."""
    name: str = ""
    reason: str = ""
    until: int = 0
    """When it ends; 0 = when it is cancelled."""
    rate: tuple[int, int] | None = None
    """Of `slow`: so many recipients in so many ms, for each destination."""
    connections: int = 0
    """Of `slow`: connections at once to each destination; 0 = as many as without the rule."""
    report: bool = True
    """Of `bounce`: whether senders get reports."""

    @property
    def batch_action(self) -> Action | None:
        """The action of a batch that does the same to mail that waits; None where records do not change."""
        return _BATCHES.get(self.action)

    @property
    def of_records(self) -> bool:
        """Whether a record shows what it selects, without the knowledge of delivery."""
        return SITE not in self.where.fields

    @property
    def of_destinations(self) -> bool:
        """Whether it selects all mail of a domain or none, from any sender."""
        return self.where.fields <= _OF_DESTINATION

    def ended(self, now: int) -> bool:
        """Whether its time is over."""
        return 0 < self.until <= now

    def batch(self, now: int, grace_ms: int) -> Batch | None:
        """What changes a recipient that it selects now; `grace_ms`: how long a bounce can be undone."""
        action = self.batch_action
        if action is None:
            return None
        bounces = action is Action.BOUNCE
        return Batch(
            id=self.id,
            action=action,
            at=now,
            by=self.by,
            reason=self.reason or self.name,
            until=now + grace_ms if bounces else 0,
            report=bounces and self.report,
        )

    def __str__(self) -> str:
        return f"rule {self.id}" + (f" ({self.name})" if self.name else "")


def where_of_batch(rule: StandingRule, standing: Iterable[StandingRule]) -> Where:
    """What the batch of a new rule changes beside others that stand: no bounce ends mail that is held, or
    that a hold selects; and nothing that one of these may judge otherwise once its site is known."""
    parts = [rule.where.root]
    holds: list[StandingRule] = []
    if rule.action is RuleAction.BOUNCE:
        holds = [each for each in standing if each.action is RuleAction.HOLD]
        parts += [_NOT_KEPT, *(Not(each.where.root) for each in holds)]
    if not all(each.of_records for each in (rule, *holds)):
        parts.append(Compare(SITE, "~", ("*",)))
    return replace(rule.where, root=all_of(*parts))


class Subject(NamedTuple):
    """What a rule is asked about."""

    recipient: Recipient
    site: str


@dataclass(slots=True)
class _Compiled:
    rule: StandingRule
    matches: Predicate[Subject]
    at: int
    """When its condition was last reckoned, 0 = the time does not matter."""
    place: int
    """Its turn among all rules."""


class RuleSet:
    """The rules in effect."""

    def __init__(
        self, rules: Sequence[StandingRule] = (), may_expire: Callable[[], bool] = lambda: True
    ) -> None:
        """`may_expire`: whether the clock can be believed; else no rule ends."""
        self._may_expire = may_expire
        ordered = sorted(rules, key=lambda rule: (_ORDER[rule.action], rule.at, rule.id))
        self._general: list[_Compiled] = []
        self._named: dict[tuple[str, str], list[_Compiled]] = {}
        """By field and value: rules that say no more than that. There may be one for each of many sites."""
        for place, rule in enumerate(ordered):
            compiled = _compile(rule, rule.at, place)
            names = _names(rule.where.root)
            for name in names:
                self._named.setdefault(name, []).append(compiled)
            if not names:
                self._general.append(compiled)
        self._of_sites = [rule for rule in ordered if not rule.of_records]
        """The strongest first."""

    def _about(self, subject: Subject) -> Sequence[_Compiled]:
        """The rules that may select it, in their order."""
        if not self._named:
            return self._general
        keys = ("domain", subject.recipient.domain), (SITE, subject.site)
        found = [each for key in keys for each in self._named.get(key, ())]
        return sorted([*self._general, *found], key=attrgetter("place")) if found else self._general

    def find(self, recipient: Recipient, destination: str | None, now: int) -> StandingRule | None:
        """The rule that counts for a recipient at wall time `now`; None without one.

        `destination`: the name of where it goes; None while that is not known: rules on sites then say
        nothing. A recipient that an operator has released is not held before its next verdict.
        """
        subject = Subject(recipient, "" if destination is None else site_name(destination))
        for each in self._about(subject):
            rule = each.rule
            if (destination is None and not rule.of_records) or (rule.ended(now) and self._may_expire()):
                continue
            if each.at and abs(now - each.at) >= _STEP_MS:
                each.matches, each.at = _compile(rule, now, each.place).matches, now
            if each.matches(subject) and not (rule.action is RuleAction.HOLD and is_released(recipient)):
                return rule
        return None

    def awaits_site(self, recipient: Recipient, now: int) -> bool:
        """Whether a rule would keep a recipient whose site is not known from an attempt, but perhaps a
        stronger one on sites counts."""
        rule = self.find(recipient, None, now) if self._of_sites else None
        if rule is None or rule.action is RuleAction.SLOW:
            return False
        return _ORDER[self._of_sites[0].action] < _ORDER[rule.action]


def _compile(rule: StandingRule, now: int, place: int) -> _Compiled:
    timed = bool(rule.where.fields & _TIMED)
    return _Compiled(rule, replace(rule.where, now=now).on(_read), now if timed else 0, place)


def _names(root: Node) -> list[tuple[str, str]]:
    """The domains or sites that a condition lists, if that is all it does."""
    if not isinstance(root, Compare) or root.field not in _OF_DESTINATION or root.op not in ("=", IN):
        return []
    form = normal_domain if root.field == "domain" else site_name
    return [(root.field, form(each)) for each in root.values]


def _read(path: str) -> Callable[[Subject], Any]:
    if path == SITE:
        return itemgetter(1)
    get = attrgetter(path)
    return lambda subject: get(subject[0])

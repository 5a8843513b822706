"""Applies the standing rules to what is claimed. Pure.

Guarantees: mail that no rule selects costs one look at each rule, and nothing while there is none. A domain
all of whose mail is suspended is passed over by claims (`barred`), however many wait; other suspended mail is
parked, for the longest retry delay at most, and then judged again. A rule that has ended no longer counts.

`find` names the rule that counts for a recipient, `apply` says what that does to one that is claimed. Which
rule counts is decided in `selecting.rules`, what a batch makes of a record in `queueing.amendment`.

| `apply` of a rule that | the recipient is | besides |
|---|---|---|
| holds or bounces | settled: amended by a batch of the rule's id | |
| holds, but it is at rest and started for its domain | parked, due at once; held as it is claimed then | |
| suspends | parked until the rule ends | its domain is barred, if no mail of it may be tried |
| slows | not kept back: it goes to a lane of its own (`Router.slowed`) | |

What is barred lasts, in `_bars` and `barred`, which have the same domains, ordered by expiry, usually:

| a domain | by |
|---|---|
| enters, or goes last if it is there | `apply`, while there are fewer than MAX_BARRED |
| leaves: the first, if its time is over and there are MAX_BARRED | `apply` |
| leaves: each whose rule has ended | `replace` |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mqcd.core.model import Amended, Area, Recipient, Settlement
from mqcd.core.ports import Clock
from mqcd.core.queueing.amendment import applies
from mqcd.core.selecting.rules import SITE, RuleAction, RuleSet, StandingRule
from mqcd.core.value import value
from mqcd.deliver.routing.policy import Hop

LOOK_MS = 15 * 60_000
"""How long claims pass over a barred domain at once: its destination may be another by then."""
MAX_BARRED = 10_000
"""Domains that are passed over; mail of others is parked."""


@value(kw_only=False)
class _Bar:
    """A domain that is passed over."""

    rule: StandingRule
    destination: str
    """What is suspended: the destination of that name, or the domain alone."""


@dataclass(slots=True)
class KeptBack:
    """Recipients that rules keep from an attempt, and what becomes of them: see `Settling.keep_back`."""

    settlements: list[Settlement] = field(default_factory=list)
    parked: dict[int, list[Recipient]] = field(default_factory=dict)
    """By the wall time until which they wait, ms."""


class Standing:
    """One per deliverer. Times are wall time, ms."""

    def __init__(self, clock: Clock, may_expire: Callable[[], bool]) -> None:
        """`may_expire`: whether the clock can be believed; else no rule ends."""
        self._clock = clock
        self._may_expire = may_expire
        self.rules = RuleSet()
        self.stands = False
        """Whether there are any: asked for each recipient."""
        self._grace_ms = 0
        self._bars: dict[str, _Bar] = {}
        self.barred: dict[str, int] = {}
        """Until when claims pass over each of the same domains: some of those times are over. Others only
        read it."""
        self.applied: dict[str, int] = {}
        """By id of a rule, how often it has kept a recipient from an attempt or slowed one since the start:
        again each time that parked mail is claimed."""

    def replace(self, rules: Sequence[StandingRule], grace_ms: int) -> None:
        """These rules stand from now on; `grace_ms`: how long a bounce can be undone."""
        self.rules, self._grace_ms = RuleSet(rules, self._may_expire), grace_ms
        self.stands = bool(rules)
        standing = {rule.id for rule in rules}
        for domain in [domain for domain, bar in self._bars.items() if bar.rule.id not in standing]:
            self._unbar(domain)
        self.applied = {name: count for name, count in self.applied.items() if name in standing}

    def find(self, recipient: Recipient, hop: Hop | None) -> StandingRule | None:
        """The rule that counts for a recipient; its `hop` is None while it is not known."""
        destination = None if hop is None else hop.destination.name
        return self.rules.find(recipient, destination, self._clock.now())

    def awaits_site(self, recipient: Recipient) -> bool:
        """See `RuleSet.awaits_site`."""
        return self.rules.awaits_site(recipient, self._clock.now())

    def misplaces(self, hop: Hop, recipient: Recipient) -> bool:
        """Whether a recipient that waits for its turn at a hop belongs elsewhere by now."""
        rule = self.find(recipient, hop)
        return hop.policy.rule != ("" if rule is None else rule.id)

    def apply(
        self, rule: StandingRule, recipient: Recipient, hop: Hop | None, longest: int, kept: KeptBack
    ) -> bool:
        """Whether the rule that counts for a claimed recipient keeps it back: then it is in `kept`.

        `hop`: None while it is not known; `longest`: the longest retry delay, ms.
        """
        slows = rule.action is RuleAction.SLOW
        if slows and hop is None:
            # It is asked for again with the hop.
            return False
        self.applied[rule.id] = self.applied.get(rule.id, 0) + 1
        if slows:
            return False
        now = self._clock.now()
        batch = rule.batch(max(now, recipient.envelope.received), self._grace_ms)
        if batch is not None and applies(recipient, batch):
            kept.settlements.append(Settlement(recipient=recipient, verdict=Amended(batch=batch)))
            return True
        rested = batch is not None and recipient.area is Area.HELD
        until = now if rested else _end(rule, now) or now + longest
        if rule.action is RuleAction.SUSPEND and self._bars_all(rule, recipient, hop):
            self._bar(rule, recipient.domain, hop, until)
        kept.parked.setdefault(min(until, now + longest), []).append(recipient)
        return True

    def _bar(self, rule: StandingRule, domain: str, hop: Hop | None, until: int) -> None:
        """Append the domain; when full, evict the oldest entry if expired."""
        now = self._clock.now()
        self._unbar(domain)
        first = next(iter(self.barred), "")
        if len(self._bars) >= MAX_BARRED and self.barred[first] <= now:
            self._unbar(first)
        if len(self._bars) < MAX_BARRED:
            whole = hop is not None and rule.where.fields == {SITE}
            self._bars[domain] = _Bar(rule, hop.destination.name if hop and whole else domain)
            self.barred[domain] = min(until, now + LOOK_MS)

    def _unbar(self, domain: str) -> None:
        self._bars.pop(domain, None)
        self.barred.pop(domain, None)

    def _bars_all(self, rule: StandingRule, recipient: Recipient, hop: Hop | None) -> bool:
        """Whether the rule selects all mail of the recipient's domain: then claims need not ask for each.

        It must look at nothing but domain and site (`of_destinations`). Without a word on sites
        (`of_records`) it selects all mail of a domain or none; else all of it must go to one site
        (`hop.sole`). An operator's next hop (`route`) takes mail that the rest of its domain does not follow.
        """
        if recipient.route or not rule.of_destinations:
            return False
        return rule.of_records or (hop is not None and hop.sole)

    def suspended(self) -> Mapping[str, str]:
        """By name of a destination of which all mail is passed over, or of a domain, the id of the rule."""
        now = self._clock.now()
        barred = [bar for domain, bar in self._bars.items() if self.barred[domain] > now]
        return {bar.destination: bar.rule.id for bar in barred}


def _end(rule: StandingRule, now: int) -> int:
    """When what a rule keeps back is judged again; 0 = the rule does not say."""
    # A clock in doubt has passed its end: it stands on.
    return now + LOOK_MS if rule.ended(now) else rule.until

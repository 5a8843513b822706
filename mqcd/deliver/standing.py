"""The standing rules, and operators' batches on mail in flight, as delivery applies them to what it claims.

Guarantees: mail that no rule selects costs one look at each rule, and nothing while there is none. A domain
all of whose mail is suspended is passed over by claims (`barred`), however many wait; other suspended mail is
parked, for the longest retry delay at most, and then judged again. A rule that has ended no longer counts.
A batch reaches mail in flight that is not delivered first, and comes to the same as on mail at rest: what
waits for its turn is not tried, and what an attempt leaves in the queue is not tried again. A retry reaches
none: what it wants is being done.

What lasts in `Standing`, beside the rules:

| | enters | leaves |
|---|---|---|
| `_acts`: by recipient in flight, | `act`, when a batch has passed | `acted`: all of a recipient; |
| ids of the batches that are to | over it; any number, each once | `act`: a batch after KEPT_MS; |
| reach it | | `replace`: one whose rule has ended |
| `_batches`: by id, the same in | `act` | `act`: one that is to reach nobody, |
| the order in which they ran, | | any after KEPT_MS; |
| and releases and undos, which | `act`, while `_acts` has any | `replace`: one whose rule has ended |
| take back what came before them | | |
| `_bars` and `_until`: domains, | `apply`, by one recipient that | `apply`: the first, if its time is |
| the one first whose time is | is suspended, while there are | over and there are MAX_BARRED; |
| over first, as a rule | fewer than MAX_BARRED; a domain | `replace`: those whose rule has |
| | that comes again goes last | ended |

Each id in `_acts` is in `_batches`, no recipient there is without one, and `_bars` and `_until` have the same
domains. Whoever is about to try a claimed recipient calls `acted` first, and settles by what it gives
instead. When, of a recipient that is in flight as a batch passes:

| where it is | meets `acted` |
|---|---|
| in a lane, or aside for its sender's tokens | at once: `Deliverer._place_all_anew` asks `misplaces` |
| its route is being looked up | once that is known: `Placing._route` |
| in an attempt | once it is claimed again, unless it was delivered or bounced |
| collected by its user (ATRN) | before each message: `Collecting._fresh` |
| given back or parked | once it is claimed again |

Batches come before rules: `Placing._place` asks no rule where `acted` gives a verdict. A new rule's own batch
on what waits has the rule's id (`StandingRule.batch`), so `_ids` and `_batches` may share one: `replace`
forgets it with the rule, and `pending` leaves it out.

What `acted` makes of a recipient that three of these batches are to reach, one after the other:

| `_batches` | to reach it | then it is | made so far |
|---|---|---|---|
| redirect-1 | yes | redirected | redirect-1 |
| hold-2 | yes | held | redirect-1, hold-2 |
| release-3, whose selection it fits as it is now | | as before hold-2 | redirect-1 |
| remove-4 of other mail | | the same | redirect-1 |
| hold-5 | yes | held | redirect-1, hold-5 |
| undo-6 of hold-5, likewise | | as before hold-5 | redirect-1 |

So its verdict is redirect-1 alone. If its record bears redirect-1 already, a kill came after the verdict and
before `pending` was noted without it: the batches up to that one are past, and nothing is left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from mqcd.core.model import Action, Amended, Area, Batch, Recipient, Settlement
from mqcd.core.ports import Clock
from mqcd.core.queueing.amendment import ENDS, SPENT, amended_by, applies, batch_of
from mqcd.core.selecting.rules import SITE, RuleAction, RuleSet, StandingRule
from mqcd.core.selecting.selection import Selection
from mqcd.deliver.routing.policy import Hop

LOOK_MS = 15 * 60_000
"""How long claims pass over a barred domain at once: its destination may be another by then."""
KEPT_MS = 24 * 3_600_000
"""How long it is remembered that a batch has not reached a recipient: it may have been delivered."""
MAX_BARRED = 10_000
"""Domains that are passed over; mail of others is parked."""
_TAKES_BACK = frozenset({Action.RELEASE, Action.UNDO})
"""Actions that let go mail that they select, which others have not reached yet."""

Pending = tuple[Batch, Selection, Sequence[tuple[int, int]]]
"""As `Standing.act` takes it: a batch, its selection where it takes back (else all), and SPID and QID of the
recipients that it has not reached yet."""


@dataclass(frozen=True, slots=True)
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
        self._ids: Set[str] = frozenset()
        """Of these rules."""
        self._grace_ms = 0
        self._bars: dict[str, _Bar] = {}
        self._until: dict[str, int] = {}
        """Until when each of the same domains is passed over."""
        self._acts: dict[tuple[int, int], frozenset[str]] = {}
        """By SPID and QID."""
        self._batches: dict[str, tuple[Batch, Selection]] = {}
        """With the selection of what takes back; the others have their recipients in `_acts`."""
        self.applied: dict[str, int] = {}
        """By id of a rule, how many recipients it has kept from an attempt or slowed since the start."""

    @property
    def stands(self) -> bool:
        """Whether anything may keep a recipient from its attempt: asked for each."""
        return bool(self._ids or self._acts)

    def act(self, keys: Collection[tuple[int, int]], batch: Batch, selection: Selection) -> None:
        """A batch that has run on a selection is to reach these recipients of it, which were in flight."""
        oldest = self._clock.now() - KEPT_MS
        self._forget({name for name, (each, _) in self._batches.items() if each.at <= oldest})
        added = frozenset({batch.id})
        self._acts.update({key: self._acts[key] | added if key in self._acts else added for key in keys})
        self._batches[batch.id] = batch, selection if batch.action in _TAKES_BACK else Selection()
        awaited = {name for names in self._acts.values() for name in names}
        self._batches = {
            name: each
            for name, each in self._batches.items()
            if name in awaited or (awaited and each[0].action in _TAKES_BACK)
        }

    def _forget(self, names: Set[str]) -> None:
        """No recipient waits for these batches any more."""
        if self._batches.keys() & names:
            self._batches = {name: each for name, each in self._batches.items() if name not in names}
            self._acts = {key: left for key, each in self._acts.items() if (left := each - names)}

    def acted(self, recipient: Recipient) -> Amended | None:
        """What the batches that have not reached a recipient yet make of it, as of mail at rest; once."""
        awaited = self._acts.pop(recipient.key, None)
        if awaited is None:
            return None
        now = self._clock.now()
        state, made = recipient, tuple[Batch, ...]()
        for batch, selection in self._not_past(recipient, awaited):
            if _is_over(batch, now) or not applies(state, batch):
                continue
            if batch.id in awaited:
                made = *made, _begun(batch, now)
            elif batch.action in _TAKES_BACK and selection.matches(state):
                made = _left(made, batch)
            state = amended_by(recipient, made)
        return Amended(batch=made[-1], earlier=made[:-1]) if made else None

    def _not_past(self, recipient: Recipient, awaited: Set[str]) -> Sequence[tuple[Batch, Selection]]:
        """The batches behind the one that changed the record last, if that is among the awaited ones: it was
        recorded before a restart, and so were those before it. Else all."""
        last = batch_of(recipient).removeprefix(SPENT)
        past = list(self._batches).index(last) + 1 if last in awaited else 0
        return list(self._batches.values())[past:]

    def pending(self) -> Sequence[Pending]:
        """What `act` is to be given, in this order, for another process to go on with what batches have not
        done yet. Nothing of rules: they stand there too."""
        keys: dict[str, list[tuple[int, int]]] = {}
        for key, awaited in self._acts.items():
            for name in awaited - self._ids:
                keys.setdefault(name, []).append(key)
        if not keys:
            return []
        return [
            (batch, selection, keys.get(name, []))
            for name, (batch, selection) in self._batches.items()
            if name in keys or batch.action in _TAKES_BACK
        ]

    def replace(self, rules: Sequence[StandingRule], grace_ms: int) -> None:
        """These rules stand from now on; `grace_ms`: how long a bounce can be undone."""
        self.rules, self._grace_ms = RuleSet(rules, self._may_expire), grace_ms
        standing = {rule.id for rule in rules}
        ended, self._ids = self._ids - standing, standing
        self._forget(ended)
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
        if recipient.key in self._acts:
            return True
        rule = self.find(recipient, hop)
        return hop.policy.rule != ("" if rule is None else rule.id)

    def apply(
        self, rule: StandingRule, recipient: Recipient, hop: Hop | None, longest: int, kept: KeptBack
    ) -> bool:
        """Whether the rule that counts for a claimed recipient keeps it back: then it is in `kept`.

        What is slowed is not kept back. `hop`: None while it is not known; `longest`: the longest retry
        delay, ms.
        """
        slows = rule.action is RuleAction.SLOW
        if not slows or hop is not None:
            self.applied[rule.id] = self.applied.get(rule.id, 0) + 1
        if slows:
            return False
        now = self._clock.now()
        batch = rule.batch(max(now, recipient.envelope.received), self._grace_ms)
        if batch is not None and applies(recipient, batch):
            kept.settlements.append(Settlement(recipient=recipient, verdict=Amended(batch=batch)))
            return True
        # A hold of mail that was started for its domain: it waits like other mail first.
        end = now if recipient.area is Area.HELD and batch is not None else _end(rule, now) or now + longest
        kept.parked.setdefault(min(end, now + longest), []).append(recipient)
        if rule.action is RuleAction.SUSPEND and self._bars_all(rule, recipient, hop):
            domain = recipient.domain
            whole = hop is not None and rule.where.fields == {SITE}
            bar = _Bar(rule, hop.destination.name if hop and whole else domain)
            self._pass_over(domain, bar, now, min(end, now + LOOK_MS))
        return True

    def _pass_over(self, domain: str, bar: _Bar, now: int, until: int) -> None:
        """Bar a domain, behind the others, if there is room: the first goes for it once its time is over."""
        self._unbar(domain)
        first = next(iter(self._until), "")
        if len(self._bars) >= MAX_BARRED and self._until[first] <= now:
            self._unbar(first)
        if len(self._bars) < MAX_BARRED:
            self._bars[domain], self._until[domain] = bar, until

    def _unbar(self, domain: str) -> None:
        self._bars.pop(domain, None)
        self._until.pop(domain, None)

    def _bars_all(self, rule: StandingRule, recipient: Recipient, hop: Hop | None) -> bool:
        """Whether the rule selects all mail of the recipient's domain: then claims need not ask for each.

        It must look at nothing but domain and site (`of_destinations`). Without a word on sites
        (`of_records`) it selects all mail of a domain or none; else all of it must go to one site
        (`hop.sole`). An operator's next hop (`route`) takes mail that the rest of its domain does not follow.
        """
        if recipient.route or not rule.of_destinations:
            return False
        return rule.of_records or (hop is not None and hop.sole)

    @property
    def barred(self) -> Mapping[str, int]:
        """Domains that claims pass over, and until when: some of those times are over."""
        return self._until

    def suspended(self) -> Mapping[str, str]:
        """By name of a destination of which all mail is passed over, or of a domain, the id of the rule."""
        now = self._clock.now()
        barred = [bar for domain, bar in self._bars.items() if self._until[domain] > now]
        return {bar.destination: bar.rule.id for bar in barred}


def _is_over(batch: Batch, now: int) -> bool:
    """Whether the mail that it reschedules is due by now."""
    return batch.action is Action.RESCHEDULE and batch.until <= now


def _begun(batch: Batch, now: int) -> Batch:
    """The batch as it reaches a recipient now: it can be undone for as long as if it had done so at once."""
    if batch.action not in ENDS:
        return batch
    return replace(batch, until=max(now, batch.at) + batch.until - batch.at)


def _left(made: tuple[Batch, ...], by: Batch) -> tuple[Batch, ...]:
    """What a release or an undo that applies behind these leaves of them."""
    if by.action is Action.RELEASE:
        return tuple(each for each in made if each.action is not Action.HOLD)
    return made[:-1] if made and made[-1].id == by.target else made


def _end(rule: StandingRule, now: int) -> int:
    """When what a rule keeps back is judged again; 0 = the rule does not say."""
    # A clock in doubt has passed its end: it stands on.
    return now + LOOK_MS if rule.ended(now) else rule.until

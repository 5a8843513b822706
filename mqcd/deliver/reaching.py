"""What operators' batches make of mail that is in flight as they run. Pure.

Guarantees: a batch reaches mail in flight that is not delivered first, and has the same effect as on queued
mail: what waits for its turn is not tried, and what an attempt leaves in the queue is not tried again. A
retry reaches none: what it wants is being done.

`act` notes which recipients a batch is to reach. A part that is about to try a claimed recipient calls
`take_amendment` first, and settles by what it gives instead. When, of a recipient that is in flight as a
batch runs:

| where it is | `take_amendment` is called |
|---|---|
| in a lane, or aside for its sender's tokens | at once: `Deliverer.act` has it placed anew |
| its route is being looked up | once that is known: `Placing._route` |
| at a worker that connects, or put back by one | before the attempt: `Deliverer._placed_anew` |
| in an attempt | once it is claimed again, unless it was delivered or bounced |
| collected by its user (ATRN) | before each message: `Collecting._fresh` |
| given back or parked | once it is claimed again |

Batches come before rules: `Placing._place` asks no rule where `take_amendment` gives a verdict. What lasts
here:

| | enters by | leaves by |
|---|---|---|
| `awaited`: recipients, with ids of batches | `act` | `take_amendment`; `_forget`, with its last id |
| `_batches`: one of these | `act` | `_drop_unawaited`; `_forget` |
| `_batches`: a release or an undo: takes back | `act`, if a recipient awaits any | the same |

`_batches` has them in the order in which they ran. One that goes on after a restart comes to `act` twice and
keeps its place: none has run since. Those of a rule that has ended are forgotten: a new rule's batch on what
waits has the rule's id (`StandingRule.batch`). While the rule stands its batch is not `pending`: the rule
stands in the other process, too. Also forgotten, as another comes to `act`, are those that are older than
KEPT_MS and the longest retry delay: by then what an attempt deferred was claimed again, except where delivery
was paused or mail suspended for so long. Older ones that a start brings back have RECALLED_MS more: what they
are to reach is claimed in that time. Nothing is forgotten as a verdict is final: a store that another server
shares may have lost the recipient, and take it back.

After an exception in `take_amendment` the recipient waits for its batches still, and is not tried until they
are forgotten: it is deferred each time that it is claimed (by ATRN: left at rest).

Example: `take_amendment` of a recipient that three of these batches are to reach, one after the other. `made`
is what they come to so far, and makes each state of the record from the one that was claimed:

| `_batches` | to reach it | then it is | `made` |
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

from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import replace

from mqcd.core.model import Action, Amended, Batch, Recipient
from mqcd.core.ports import Clock
from mqcd.core.queueing.amendment import ENDS, SPENT, amended_by, applies, batch_of
from mqcd.core.selecting.selection import Selection
from mqcd.core.value import value

KEPT_MS = 24 * 3_600_000
"""How long, and the longest retry delay, it is remembered that a batch has not reached a recipient: it may
have left the queue otherwise."""
RECALLED_MS = 3_600_000
"""How long at least after a start."""
_TAKES_BACK = frozenset({Action.RELEASE, Action.UNDO})
"""Actions that let go mail that they select, which others have not reached yet."""

Key = tuple[int, int]
"""SPID and QID."""
Pending = tuple[Batch, Selection, Sequence[Key]]
"""As `Reaching.act` takes it: a batch, its selection where it takes back (else all), and the recipients that
it has not reached yet."""


@value(kw_only=False)
class _Ran:
    """A batch that has run."""

    batch: Batch
    selection: Selection | None
    """Of one that takes back; None = of another, whose recipients are in `awaited`."""
    since: int
    """Monotonic ms, from which its age counts."""


class Reaching:
    """One per deliverer."""

    def __init__(self, clock: Clock, longest: Callable[[], int] = lambda: 0) -> None:
        """`longest`: the longest retry delay, ms."""
        self._clock = clock
        self._longest = longest
        self.awaited: dict[Key, frozenset[str]] = {}
        """By recipient in flight, the ids of the batches that are to reach it. Others only read it."""
        self._batches: dict[str, _Ran] = {}
        """By id, in the order in which they ran."""
        self._rules: Set[str] = frozenset()
        """The ids of the rules that stand."""

    def act(self, keys: Collection[Key], batch: Batch, selection: Selection) -> None:
        """A batch that has run on a selection is to reach these recipients of it, which were in flight."""
        now, kept = self._clock.monotonic(), KEPT_MS + self._longest()
        self._forget({name for name, ran in self._batches.items() if ran.since <= now - kept})
        since = now - min(max(0, self._clock.now() - batch.at), kept - RECALLED_MS)
        awaited, alone = self.awaited, frozenset({batch.id})
        awaited.update({key: awaited[key] | alone if key in awaited else alone for key in keys})
        self._batches[batch.id] = _Ran(batch, selection if batch.action in _TAKES_BACK else None, since)
        self._drop_unawaited()

    def _drop_unawaited(self) -> None:
        """Drop the batches that no recipient awaits; of what takes back, only if none awaits any batch."""
        named = {name for names in self.awaited.values() for name in names}
        self._batches = {
            name: ran
            for name, ran in self._batches.items()
            if name in named or (named and ran.selection is not None)
        }

    def take_amendment(self, recipient: Recipient) -> Amended | None:
        """What the batches that have not reached a recipient yet make of it, as of queued mail; once."""
        awaited = self.awaited.get(recipient.key)
        if awaited is None:
            return None
        now = self._clock.now()
        state, made = recipient, tuple[Batch, ...]()
        for ran in self._not_past(recipient, awaited):
            batch = ran.batch
            if _is_over(batch, now) or not applies(state, batch):
                continue
            if batch.id in awaited:
                made = *made, _begun(batch, now)
            elif ran.selection is not None and ran.selection.matches(state):
                made = _left(made, batch)
            state = amended_by(recipient, made)
        # Not before: an exception above must not lose the batches.
        del self.awaited[recipient.key]
        return Amended(batch=made[-1], earlier=made[:-1]) if made else None

    def _not_past(self, recipient: Recipient, awaited: Set[str]) -> Sequence[_Ran]:
        """The batches behind the one that changed the record last, if that is among the awaited ones: it was
        recorded before a restart, and so were those before it. Else all."""
        last = batch_of(recipient).removeprefix(SPENT)
        past = list(self._batches).index(last) + 1 if last in awaited else 0
        return list(self._batches.values())[past:]

    def pending(self) -> Sequence[Pending]:
        """What `act` is to be given, in this order, for another process to go on with what batches have not
        done yet. Nothing of rules: they stand there too."""
        keys: dict[str, list[Key]] = {}
        for key, awaited in self.awaited.items():
            for name in awaited - self._rules:
                keys.setdefault(name, []).append(key)
        if not keys:
            return []
        return [
            (ran.batch, ran.selection or Selection(), keys.get(name, []))
            for name, ran in self._batches.items()
            if name in keys or ran.selection is not None
        ]

    def bind_rules(self, rules: Set[str]) -> None:
        """The rules of these ids stand from now on: what the batches of others have not reached they will not
        reach."""
        ended, self._rules = self._rules - rules, rules
        self._forget(ended)

    def _forget(self, names: Set[str]) -> None:
        """No recipient waits for these batches any more."""
        if self._batches.keys() & names:
            self._batches = {name: ran for name, ran in self._batches.items() if name not in names}
            self.awaited = {key: left for key, each in self.awaited.items() if (left := each - names)}


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

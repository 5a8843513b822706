"""How tenants share lanes, zones and the active set, so that none starves another by its number. Pure.

A recipient's tenant is `Envelope.tenant`; mail of none ("") shares as one tenant.

* Turns in a lane, and in a named zone (`TurnOrder`), by start-time fair queueing: a job's turn is one behind
  the last of its tenant, and not before the turn that is served now. A has turns 1 to 1000 waiting and 7 is
  served when B's first job comes: that has turn 8 and goes behind A's eighth. A's jobs keep their order.
* Places of the active set (`Places`): one more in `SHARE` is kept for new mail of tenants that hold little; a
  tenant may hold `SHARE` times as many as are left. With `queuecache` at 2500 there are 2812 places:

  | tenants with more than enough mail | each holds | left |
  |---|---|---|
  | 1 | 2500, all that there would be without tenants | 312 |
  | 2 | 1323 | 165 |
  | 3 | 900 | 112 |
  | the second comes when one holds 2500 | it gets 278 at once, and more as those leave | 34 |

* Mail of a tenant that holds next to nothing (`Shares.holds_little`: at most one in `FEW` of what the others
  hold, and one in `SHARE` of what is left; never "") comes into a lane that keeps others' mail outside. Many
  tenants may each hold next to nothing, so a lane takes only `few_of` of it: 78. Beside one that holds 2500,
  next to nothing is 39.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mqcd.core.model import Recipient

SHARE = 8
"""One in as many places of the active set is kept; a tenant may hold as many times what is left of them."""
FEW = 16
"""A tenant that holds one in as many of what the others hold, or less, holds next to nothing."""
MOST_EXTRA = 500
"""Recipients of one claim beyond the active set."""
_KEPT_TURNS = 64


@dataclass(slots=True, eq=False, repr=False)
class TurnOrder:
    """Numbers the turns of jobs that go one after the other: of a lane, or of all lanes of a named zone."""

    now: int = 0
    """The last turn that was served."""
    _last: dict[str, int] = field(default_factory=dict)
    """By tenant, its last turn that was given out; those not after `now` are dropped at times."""
    _kept: int = _KEPT_TURNS

    def next(self, tenant: str) -> int:
        """The turn of a tenant's new job."""
        last, now = self._last.get(tenant), self.now
        if last is None:
            last = self._drop_past()
        turn = self._last[tenant] = (last if last > now else now) + 1
        return turn

    def _drop_past(self) -> int:
        """Drop what says no more than `now`, where there is much; returns the last turn of one dropped."""
        if len(self._last) >= self._kept:
            self._last = {name: last for name, last in self._last.items() if last > self.now}
            self._kept = max(2 * len(self._last), _KEPT_TURNS)
        return 0

    def give_back(self, tenant: str) -> None:
        """A job of the tenant is gone without having had its turn: its next one takes a turn earlier."""
        last = self._last.get(tenant, 0)
        if last > self.now:
            self._last[tenant] = last - 1

    def served(self, turn: int) -> None:
        """A job has its turn."""
        if turn > self.now:
            self.now = turn


@dataclass(slots=True, eq=False, repr=False)
class Shares:
    """What each tenant holds of the active set."""

    held: Counter[str] = field(default_factory=Counter)
    """Recipients in flight by tenant; none is 0."""
    several: bool = False
    """Whether there has been mail of more than one tenant: until then none holds little beside another,
    and no claim asks for places."""
    _first: str | None = None

    def enter(self, recipients: Iterable[Recipient]) -> None:
        """They are in flight now."""
        for recipient in recipients:
            tenant = recipient.envelope.tenant
            self.held[tenant] += 1
            if self._first is None:
                self._first = tenant
            elif tenant != self._first:
                self.several = True

    def leave(self, recipients: Iterable[Recipient]) -> None:
        """They are not any more."""
        for recipient in recipients:
            tenant = recipient.envelope.tenant
            self.held[tenant] -= 1
            if self.held[tenant] <= 0:
                del self.held[tenant]

    def is_few(self, recipient: Recipient, waiting: int, active: int, most: int) -> bool:
        """Whether a recipient comes into a lane although others have to wait outside; `waiting`: how many
        that came so wait there."""
        if not self.several or waiting >= few_of(most):
            return False
        return self.holds_little(recipient.envelope.tenant, active, most)

    def holds_little(self, tenant: str, active: int, most: int, more: int = 0) -> bool:
        """Whether a tenant with `more` recipients holds next to nothing of `active` ones."""
        held = self.held[tenant]
        few = min((active - held) // FEW, _left(active, most) // SHARE)
        return tenant != "" and held + more <= few


class Places:
    """See `core.queueing.turns.Places`: the places that one claim may fill."""

    def __init__(
        self, shares: Shares, active: int, most: int, *, full: bool, takes_few: Callable[[str, int], bool]
    ) -> None:
        """`most`: of the active set, which is `full` or not. `takes_few`: see `Skip`."""
        self._shares = shares
        self._active = active
        self._most = most
        self._takes_few = takes_few
        self._left = _left(active, most)
        self._taken: Counter[str] = Counter()
        self.extra = max(min(self._left, MOST_EXTRA), 0) if full else 0
        """See the port."""
        self.refused = full and self._left <= 0
        """Whether a tenant that holds less than the others together was refused, or nothing is left."""

    def take(self, tenant: str) -> bool:
        """See the port."""
        held = self._shares.held[tenant] + self._taken[tenant]
        if held >= SHARE * self._left:
            self.refused |= 2 * held < self._active
            return False
        self._taken[tenant] += 1
        self._left -= 1
        return True

    def passes(self, tenant: str, domain: str) -> bool:
        """See the port."""
        little = self._shares.holds_little(tenant, self._active, self._most, 1)
        return little and self._takes_few(domain, few_of(self._most))


def few_of(most: int) -> int:
    """How many recipients of tenants that hold next to nothing a lane takes beyond what it may hold."""
    return max(most // (4 * SHARE), 1)


def _left(active: int, most: int) -> int:
    return most + most // SHARE - active

"""Rates: token buckets, and the recipients that wait for a token inside the active set. Pure.

A limit of N recipients in a time lets go, over any stretch of time, at most what N makes of that stretch
and `burst` more. The burst is what the rate gives in ten seconds or in the time that it names, whichever
is less, and at least one recipient: `10/s` may begin with 10, `500/h` with 1. A limit begins full.

A recipient that would have to wait longer than `HOLD_MS` for a token is given a time to come back at, one
after the other and shortly before each one's turn, so that a backlog costs nothing until it can go. Times are
monotonic ms; counts are recipients. Tokens are counted in fractions of a recipient, without rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from mqcd.config.settings import Rate
from mqcd.core.address import normal_domain, split_address
from mqcd.core.ports import UsedRates

BURST_MS = 10_000
HOLD_MS = 10_000
"""Recipients that would have to wait longer than this for a token wait outside."""
LONGEST_MS = 3_600_000
"""No recipient waits outside for longer: rates may change meanwhile."""
TURN_MS = HOLD_MS // 2
"""How long before its turn a recipient comes back."""
_NS = 1_000_000
"""In a ms."""
STEP_MS = 1000
"""Recipients whose turns fall into one such step come back together."""


class Scope(StrEnum):
    """Whose mail a limit counts, all of which waits while it has no tokens."""

    LANE = "lane"
    ZONE = "zone"
    SENDER = "sender"


class Limit:
    """One rate and its used share.

    | call | when | tokens | turns booked outside |
    |---|---|---|---|
    | `lets_in` | a recipient comes | looked at: for all held and one more | newcomers stay behind |
    | `book` | it may not come in | | its own is the last, unless beyond LONGEST_MS |
    | `wait`, then `take` | its job is next, once (`Job.paid`) | used | |
    | `change` | a reload | what was used stays used | forgotten; what waits comes as it was asked to |

    A turn is never given back: one of a recipient that does not come stays unused. Of more recipients than
    `burst`, `wait` never returns 0.
    """

    __slots__ = ("_at", "_level", "asleep", "booked", "burst", "held", "rate", "scope")

    def __init__(self, scope: Scope, rate: Rate) -> None:
        self.scope = scope
        self.rate = rate
        self.burst = _burst(rate)
        self.held = 0
        """Recipients that wait for it inside; only `JobQueue` changes it."""
        self.asleep = 0
        """When jobs that stand aside for it are looked at again, 0 = none does; only `Alarms` changes it."""
        # A recipient costs `rate.per`, a millisecond gives `rate.count`: integers, hence exact.
        self._level = self.burst * rate.per
        self._at = 0
        self.booked = 0.0
        """The last turn of the mail that waits outside."""

    def wait(self, recipients: int, now: int) -> int:
        """Time, ms, until there are tokens for `recipients`, if none is taken meanwhile; 0 = now."""
        self._fill(now)
        short = recipients * self.rate.per - self._level
        return -(-short // self.rate.count) if short > 0 else 0

    def take(self, recipients: int, now: int) -> None:
        """Use the tokens of these recipients, after `wait` returned 0."""
        self._fill(now)
        self._level -= recipients * self.rate.per

    def lets_in(self, now: int, most: int, been_outside: bool) -> bool:
        """Whether one more recipient may wait inside.

        At most `most` may. While others wait outside for their turns newcomers join them at the end;
        a recipient that has `been_outside` goes ahead of newcomers.
        """
        room = 2 * HOLD_MS if been_outside else HOLD_MS
        if self.held >= most or not (been_outside or self.booked <= now + HOLD_MS):
            return False
        return self.wait(self.held + 1, now) <= room

    def book(self, now: int, most: int, been_outside: bool) -> int:
        """In how many ms one more recipient should come back; 0 = it may wait inside, see `lets_in`."""
        if self.lets_in(now, most, been_outside):
            return 0
        turn = max(self.booked + self.rate.per / self.rate.count, now + self.wait(self.held + 1, now))
        if turn - now > LONGEST_MS:
            return LONGEST_MS
        self.booked = turn
        back = (int(turn) - TURN_MS) // STEP_MS * STEP_MS
        return max(back - now, STEP_MS)

    def change(self, rate: Rate, now: int) -> None:
        """Apply another rate from now on; used tokens stay used."""
        self._fill(now)
        left = self._level // self.rate.per
        self.rate, self.burst = rate, _burst(rate)
        self._level = min(left, self.burst) * rate.per
        self.booked = 0.0

    def is_full(self, now: int) -> bool:
        """Whether a new limit would behave the same."""
        return not self.held and not self.wait(self.burst, now) and self.booked <= now

    def _fill(self, now: int) -> None:
        if now > self._at:
            gained = self._level + (now - self._at) * self.rate.count
            self._level = min(gained, self.burst * self.rate.per)
            self._at = now


class SharedLimit(Limit):
    """One rate that the processes of several shards share. Between `wait` and `take` of one process another
    may take: then all wait until that is regained."""

    __slots__ = ("_name", "_used")

    def __init__(self, scope: Scope, name: str, rate: Rate, used: UsedRates) -> None:
        super().__init__(scope, rate)
        self._name = f"{scope} {name}"
        self._used = used

    def wait(self, recipients: int, now: int) -> int:
        """See `Limit`."""
        ahead = self._used.ahead(self._name, now * _NS)
        short = ahead + self._ns(recipients - self.burst)
        return -(-short // _NS) if short > 0 else 0

    def take(self, recipients: int, now: int) -> None:
        """See `Limit`."""
        self._used.use(self._name, self._ns(recipients), now * _NS)

    def change(self, rate: Rate, now: int) -> None:
        """See `Limit`; the time until used tokens are regained stays."""
        self.rate, self.burst = rate, _burst(rate)
        self.booked = 0.0

    def _ns(self, recipients: int) -> int:
        return recipients * self.rate.per * _NS // self.rate.count


def limit_of(scope: Scope, name: str, rate: Rate, used: UsedRates | None) -> Limit:
    """A limit, shared with other processes by its scope and name where there are any."""
    return Limit(scope, rate) if used is None else SharedLimit(scope, name, rate, used)


class Limits:
    """The limits of zones and of senders, by name."""

    def __init__(self) -> None:
        self.zones: dict[str, Limit] = {}
        self.senders: dict[str, Limit] = {}

    def rebind(
        self,
        zones: Mapping[str, Rate],
        senders: Mapping[str, Rate],
        now: int,
        used: UsedRates | None = None,
    ) -> None:
        """Apply these rates. Senders are addresses or domains, "<>" the null one."""
        self.zones = _rebound(self.zones, zones, now, Scope.ZONE, used)
        by_sender = {_sender(name): rate for name, rate in senders.items()}
        self.senders = _rebound(self.senders, by_sender, now, Scope.SENDER, used)

    def of_sender(self, reverse_path: str) -> Limit | None:
        """The limit of an address, else of its domain."""
        if not reverse_path:
            return self.senders.get("<>")
        local, domain = split_address(reverse_path)
        domain = normal_domain(domain)
        return self.senders.get(f"{local.lower()}@{domain}") or self.senders.get(domain)


def _sender(name: str) -> str:
    local, domain = split_address(name)
    if not domain:
        return name if name == "<>" else normal_domain(name)
    return f"{local.lower()}@{normal_domain(domain)}"


def _rebound(
    old: Mapping[str, Limit], rates: Mapping[str, Rate], now: int, scope: Scope, used: UsedRates | None
) -> dict[str, Limit]:
    made: dict[str, Limit] = {}
    for name, rate in rates.items():
        limit = made[name] = old.get(name) or limit_of(scope, name, rate, used)
        if limit.rate != rate:
            limit.change(rate, now)
    return made


def _burst(rate: Rate) -> int:
    return max(rate.count * min(rate.per, BURST_MS) // rate.per, 1)

"""Which domains claims pass over, and until when. Pure.

Mail that its lane would only have to give back stays in the store, where it costs nothing.

| a domain is passed over | until | kept as |
|---|---|---|
| whose lane is suspended | soon after the next probe (`Suspension.wait`) | `add` to `revived` |
| whose lane rests: it holds its share | the rest is over, and it has room again | `add` to `stops_resting` |
| that a standing rule suspends | as the rule says | `barred`, by the caller |

So are domains that all go by one lane (`belongs`), at most MAX_DOMAINS of a lane; other mail is claimed and
given back.

Example: 900 recipients for `a.example` come to a new lane, which may hold 625. The 626th makes the lane rest
for 100 ms: it is parked for so long with the later ones, and claims pass over `a.example`. At the
first claim after that the lane still holds 625: it rests for another 200 ms, then for 400, at most for five
minutes. The first transaction that ends lifts the share; then the rest under way is the last. A lane that
had stood still must use up half of its share for that.

A look-up (`skip`, `is_dead`, `dead`, `deserted`) changes nothing; `LaneTable.renew_rests` decides which lanes
rest on, when a claim begins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar, overload

from mqcd.deliver.lanes.lane import Lane
from mqcd.deliver.lanes.outside import MOST_GRACE_MS

T = TypeVar("T")
NOBODY: Mapping[str, int] = {}
MAX_DOMAINS = 1000
"""Domains of a suspended lane that are named to the store; others are claimed and given back."""


@dataclass(slots=True, eq=False, repr=False)
class Skip(Mapping[str, int]):
    """Domains that one claim passes over, and until when. They are looked up on demand: there may be tens of
    thousands, and a claim meets few of them."""

    _resting: Collection[Lane]
    _dead: Collection[Lane]
    _lane_of: Mapping[str, Lane]
    """By domain, the lane that all its mail goes by."""
    _barred: Mapping[str, int]
    """Until when, wall time."""
    _spared: Callable[[str], bool] | None
    """The domains that dead lanes do not have passed over."""
    _now: int
    """Monotonic."""
    _from: int
    """The same, wall time."""

    def __getitem__(self, domain: str) -> int:
        if until := self.get(domain, 0):
            return until
        raise KeyError(domain)

    @overload
    def get(self, key: str, /) -> int | None: ...
    @overload
    def get(self, key: str, /, default: int | T) -> int | T: ...
    def get(self, key: str, /, default: int | T | None = None) -> int | T | None:
        """Until when a domain is passed over."""
        if self._barred and (until := self._barred.get(key, 0)) > self._from:
            return until
        lane = self._lane_of.get(key)
        if lane is None:
            return default
        if lane.suspended:
            spared = self._spared is not None and self._spared(key)
            rest = 0 if spared else lane.until_probed(self._now)
        else:
            rest = lane.share.until - self._now if lane in self._resting else 0
        return self._from + rest if rest > 0 else default

    def __iter__(self) -> Iterator[str]:
        of_lanes = [domain for lane in (*self._resting, *self._dead) for domain in lane.domains]
        named = dict.fromkeys((*of_lanes, *self._barred))
        return (domain for domain in named if self.get(domain, 0))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return bool(self._resting or self._dead or self._barred)

    def takes_few(self, domain: str, most: int) -> bool:
        """Whether a domain is passed over for its lane's share alone, and fewer than `most` are beyond it."""
        if self._barred and self._barred.get(domain, 0) > self._from:
            return False
        lane = self._lane_of.get(domain)
        return lane is not None and not lane.suspended and lane.queue.few < most

    @property
    def by_lanes(self) -> bool:
        """Whether lanes have their domains passed over: then mail among it may be overdue."""
        return bool(self._resting or self._dead)


class Passing:
    """By domain, the lane that alone takes its mail; and the lanes whose domains may be passed over."""

    def __init__(self) -> None:
        self._dead: dict[Lane, None] = {}
        """Suspended ones."""
        self._resting: dict[Lane, None] = {}
        """Lanes that keep mail outside because they hold their share."""
        self._lane_of: dict[str, Lane] = {}

    @property
    def passes_over(self) -> bool:
        """Whether there are such lanes."""
        return bool(self._resting or self._dead)

    def clear(self) -> None:
        """Forget which lanes the domains have."""
        for lane in self._lane_of.values():
            lane.domains.clear()
        self._lane_of.clear()

    def add(self, lane: Lane) -> None:
        """Its domains are passed over until it takes mail again."""
        if lane.suspended:
            self._dead[lane] = None
        else:
            self._resting[lane] = None

    def revived(self, lane: Lane) -> None:
        """A lane is no longer suspended."""
        self._dead.pop(lane, None)

    def stops_resting(self, lane: Lane) -> None:
        """A lane rests no longer."""
        self._resting.pop(lane, None)

    def belongs(self, domain: str, lane: Lane) -> None:
        """All mail of a domain goes by this lane."""
        before = self._lane_of.get(domain)
        if before is lane:
            return
        if before is not None:
            del self._lane_of[domain]
            before.domains.discard(domain)
        if len(lane.domains) < MAX_DOMAINS:
            lane.domains.add(domain)
            self._lane_of[domain] = lane

    def forget(self, lane: Lane) -> None:
        """A lane was removed."""
        self._dead.pop(lane, None)
        self._resting.pop(lane, None)
        for domain in lane.domains:
            self._lane_of.pop(domain, None)

    def skip(
        self,
        now: int,
        wall: int = 0,
        barred: Mapping[str, int] = NOBODY,
        spared: Callable[[str], bool] | None = None,
    ) -> Skip:
        """Domains that claims pass over, and until when, from `wall` on; rules suspend those `barred`, and
        dead destinations of those `spared` do not matter."""
        return Skip(self._resting, self._dead, self._lane_of, barred, spared, now, wall)

    @property
    def resting(self) -> Collection[Lane]:
        """The lanes that rest, or did at the last claim."""
        return tuple(self._resting)

    def is_dead(self, domain: str, *, probed: bool = False) -> bool:
        """Whether a domain's destination is suspended; `probed`: and has a recipient to be probed with."""
        lane = self._lane_of.get(domain)
        if lane is None or not lane.suspended:
            return False
        return not probed or bool(lane.queue.waiting or lane.connections)

    def dead(self, domains: Collection[str] | None) -> list[Lane]:
        """Suspended lanes that take mail for `domains` (None = any), or may take it."""
        lanes = list(self._dead)
        if domains is None:
            return lanes
        homes = {self._lane_of.get(domain) for domain in domains}
        unknown = None in homes
        return [lane for lane in lanes if lane in homes or (unknown and _has_others(lane))]

    @property
    def suspended(self) -> int:
        """How many lanes are suspended."""
        return len(self._dead)

    def deserted(self, now: int) -> list[Lane]:
        """Suspended lanes whose probe is overdue because no mail waits for them."""
        return [
            lane
            for lane in self._dead
            if not lane.queue.waiting and not lane.connections and not lane.queue.aside
            if now > lane.suspension.until + MOST_GRACE_MS
        ]


def _has_others(lane: Lane) -> bool:
    """Whether a lane may have mail for domains of which it is not known."""
    return not lane.hop.sole or len(lane.domains) >= MAX_DOMAINS

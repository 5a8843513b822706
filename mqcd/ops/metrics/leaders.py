"""The busiest names have figures of their own; all others share one set.

Names come from outside (a flood of mail may bring a million domains), so what is kept must be bounded: one
place for each of the busiest, a few numbers for each that may become so. Counters that have been
shown must never go back, so a place changes hands rarely and what its owner counted is put by:

* The first half of the places goes to the first to come, so that a server with few destinations shows all
  of them at once; the other half to names that come `ENTRY` times, so that a flood cannot have them all.
* A name that has a place keeps it for `TENURE` at least, and loses it only to one that came `MARGIN` times
  as often of late.
* What a name had counted when it lost its place is kept until four times as many others have lost theirs,
  which takes four times `TENURE` at the least. Should the name come back before, it goes on from there.

What is counted without a place is counted with the others for good, and what was counted in a place is not:
no event is counted twice, and the others never go back either.

Which of the others come often is found as Misra and Gries do it ("Finding repeated elements", 1982): a
name that makes up more than 1/`CANDIDATES` of what came is always among the candidates, the count of each is
at most the true one, and an event costs the same however many names there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Generic, TypeVar

ENTRY = 10
"""How often one must have come for one of the later places."""
MARGIN = 4
TENURE = 3_600_000
"""Milliseconds."""
CANDIDATES = 4
"""For each place so many candidates, and so many that are remembered."""
OTHER = "other"

Kept = TypeVar("Kept")


class _Place(Generic[Kept]):
    __slots__ = ("kept", "since", "volume")

    def __init__(self, kept: Kept, since: int, volume: int) -> None:
        self.kept = kept
        self.since = since
        self.volume = volume
        """How often its owner came, halved every `TENURE`."""


class Leaders(Generic[Kept]):
    """Figures by name, for `size` names and the others. Times are wall time, ms; it may leap."""

    def __init__(self, size: int, make: Callable[[], Kept]) -> None:
        """`make` gives new figures, all at nought."""
        self.size = size
        self.others = make()
        """Figures of all names that have no place, and of the name "other"."""
        self._make = make
        self._places: dict[str, _Place[Kept]] = {}
        self._candidates: dict[str, int] = {}
        self._past: dict[str, Kept] = {}
        """Figures of names that lost their place, the longest ago first."""
        self._bar = 1
        """A candidate that has come less often need not be looked at."""
        self._closed_until = 0
        """No place changes hands before this time."""
        self._halved = 0
        """When volumes were halved last."""

    def of(self, name: str, at: int) -> Kept:
        """Where to count an event of `name` that happens at `at`."""
        place = self._places.get(name)
        if place is None:
            return self._outside(name, at)
        place.volume += 1
        return place.kept

    @property
    def names(self) -> Collection[str]:
        """The ones with a place now."""
        return self._places.keys()

    @property
    def remembered(self) -> int:
        """Names in memory, with a place or without."""
        return len(self._places) + len(self._candidates) + len(self._past)

    def __iter__(self) -> Iterator[tuple[str, Kept]]:
        """Each name that has a place, with its figures; the others last."""
        for name, place in self._places.items():
            yield name, place.kept
        yield OTHER, self.others

    def tick(self, at: int) -> None:
        """Let time pass also where all that comes has a place; to be called now and then."""
        if at < self._halved:
            # The clock went back: treat each name as if it had just come.
            for place in self._places.values():
                place.since = min(place.since, at)
            self._halved, self._closed_until = at, 0
        elif at - self._halved >= TENURE:
            self._halved = at
            for place in self._places.values():
                place.volume //= 2
            self._candidates = {name: count // 2 for name, count in self._candidates.items() if count > 1}
            self._bar = min(self._bar, ENTRY)

    def _outside(self, name: str, at: int) -> Kept:
        if not self.size or name == OTHER:
            return self.others
        self.tick(at)
        count = self._count(name)
        if count < self._bar or at < self._closed_until or not self._room_for(count, at):
            return self.others
        self._candidates.pop(name, None)
        kept = self._past.pop(name) if name in self._past else self._make()
        self._places[name] = _Place(kept, at, count)
        return kept

    def _count(self, name: str) -> int:
        """How often a name without a place has come of late, at least."""
        counts = self._candidates
        if (known := counts.get(name)) is not None:
            counts[name] = known + 1
            return known + 1
        if len(counts) < self.size * CANDIDATES:
            counts[name] = 1
            return 1
        # One event of each of so many different names: they cancel one another out.
        self._candidates = {other: count - 1 for other, count in counts.items() if count > 1}
        return 0

    def _room_for(self, count: int, at: int) -> bool:
        """Whether a name that came `count` times gets a place; there is a free one then."""
        free = self.size - len(self._places)
        if free:
            self._bar = 1 if 2 * free > self.size else ENTRY
            return count >= self._bar
        ripe = [(each.volume, name) for name, each in self._places.items() if at - each.since >= TENURE]
        if not ripe:
            self._closed_until = min(each.since for each in self._places.values()) + TENURE
            return False
        volume, weakest = min(ripe)
        self._bar = max(volume * MARGIN, ENTRY)
        if count < self._bar:
            return False
        self._past[weakest] = self._places.pop(weakest).kept
        if len(self._past) > self.size * CANDIDATES:
            del self._past[next(iter(self._past))]
        return True

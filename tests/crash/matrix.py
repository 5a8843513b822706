"""Which crashes are tried: every prefix of a trace, and of what was not synced then, what is kept.

Four baselines (all of what was not synced is kept; nothing; only names; only octets), and up to two
deviations from the first two of them: a sector, a length or a name in another of its versions. Images that
hold the same are recovered once; what came of each is judged anew for each prefix, since the world has
seen more.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import combinations

from tests.crash.memory import Trace
from tests.crash.model import Choice, Op, State, Unit
from tests.crash.oracle import Outcome, World, judge, recover

DRAINED = 8
"""One in so many images is also drained after its recovery."""


class Baseline(Enum):
    """What of the undecided is kept before deviations."""

    NOTHING = "nothing kept"
    ALL = "all kept"
    NAMES = "names kept"
    OCTETS = "octets kept"


@dataclass(frozen=True, slots=True)
class Cut:
    """One crash."""

    prefix: int
    """Changes that have been made."""
    baseline: Baseline
    deviations: tuple[tuple[Unit, int], ...] = ()

    def choice(self, units: Mapping[Unit, int]) -> Choice:
        return {**_based(self.baseline, units), **dict(self.deviations)}


def _based(baseline: Baseline, units: Mapping[Unit, int]) -> dict[Unit, int]:
    if baseline is Baseline.NOTHING:
        return {}
    if baseline is Baseline.ALL:
        return dict(units)
    names = baseline is Baseline.NAMES
    return {unit: last for unit, last in units.items() if isinstance(unit[1], str) is names}


def alternatives(baseline: Baseline, units: Mapping[Unit, int]) -> list[tuple[Unit, int]]:
    """All single deviations from a baseline."""
    based = _based(baseline, units)
    return [
        (unit, version)
        for unit, last in units.items()
        for version in range(last + 1)
        if version != based.get(unit, 0)
    ]


def all_cuts(prefix: int, units: Mapping[Unit, int]) -> Iterator[Cut]:
    """Every crash at one prefix, up to two deviations from nothing and from all."""
    for baseline in Baseline:
        yield Cut(prefix, baseline)
    for baseline in (Baseline.NOTHING, Baseline.ALL):
        singles = alternatives(baseline, units)
        for one in singles:
            yield Cut(prefix, baseline, (one,))
        for one, other in combinations(singles, 2):
            if one[0] != other[0]:
                yield Cut(prefix, baseline, (one, other))


def some_cuts(prefix: int, units: Mapping[Unit, int], many: int, chance: random.Random) -> Iterator[Cut]:
    """The baselines, and `many` of the others by chance."""
    for baseline in Baseline:
        yield Cut(prefix, baseline)
    for _ in range(many if units else 0):
        baseline = chance.choice((Baseline.NOTHING, Baseline.ALL))
        singles = alternatives(baseline, units)
        picked = chance.sample(singles, min(len(singles), chance.choice((1, 2, 2))))
        yield Cut(prefix, baseline, tuple(dict(picked).items()))


@dataclass(frozen=True, slots=True)
class Violation:
    """A crash after which a promise is broken."""

    cut: Cut
    op: Op | None
    """The last change before it."""
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        after = f"after {self.op.name} by {self.op.site}" if self.op is not None else "at the beginning"
        deviations = "; ".join(f"{unit} in version {version}" for unit, version in self.cut.deviations)
        kept = f"{self.cut.baseline.value}, deviations: {deviations or 'none'}"
        return "\n  ".join((f"prefix {self.cut.prefix}, {after}, {kept}", *self.wrong[:6]))


@dataclass(slots=True)
class Tally:
    """How much was covered."""

    prefixes: int = 0
    points: int = 0
    """Crashes judged."""
    images: int = 0
    """Different ones among what they left."""
    deviations: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Crashes with none, one and two deviations."""
    violations: list[Violation] = field(default_factory=list)


class Recoveries:
    """What came of each image, once; shared by all that look at the same program and settings."""

    def __init__(self, *, links: bool = False) -> None:
        self._links = links
        self._known: dict[bytes, Outcome] = {}

    def __len__(self) -> int:
        return len(self._known)

    @property
    def keys(self) -> set[bytes]:
        """Of all images that were recovered."""
        return set(self._known)

    async def of(self, state: State, choice: Choice) -> Outcome:
        """What a start makes of what a cut leaves of `state`."""
        image = state.image(choice)
        key = image.key()
        outcome = self._known.get(key)
        if outcome is None:
            drained = len(self._known) % DRAINED == 0
            outcome = await recover(image.state(), links=self._links, drained=drained)
            self._known[key] = outcome
        return outcome


def crash_points(trace: Trace, first: int = 0) -> Iterator[tuple[int, State, World]]:
    """The disk and the world before each change from number `first` on, and after the last one.

    Both are the same object each time. Marks change nothing on the disk: of a run of them, the last counts.
    """
    state, world = trace.start.clone(), World.after(trace.past)
    for number, op in enumerate(trace.ops):
        if number >= first and op.mark is None:
            yield number, state, world
        state.apply(op)
        if op.mark is not None:
            world.hear(op.mark)
    yield len(trace.ops), state, world


async def try_cut(
    trace: Trace, cut: Cut, state: State, world: World, units: Mapping[Unit, int], recoveries: Recoveries
) -> Violation | None:
    """One crash: what is wrong after it, if anything."""
    outcome = await recoveries.of(state, cut.choice(units))
    wrong = judge(outcome, world, kill=cut.baseline is Baseline.ALL and not cut.deviations)
    if not wrong:
        return None
    return Violation(cut, trace.ops[cut.prefix - 1] if cut.prefix else None, tuple(wrong))


async def sample(
    trace: Trace, recoveries: Recoveries, *, many: int, seed: int, first: int = 0, share: float = 1.0
) -> Tally:
    """Crashes at a share of the prefixes, `many` by chance at each, and its baselines."""
    chance = random.Random(seed)
    tally = Tally()
    before = len(recoveries)
    for prefix, state, world in crash_points(trace, first):
        if chance.random() >= share:
            continue
        tally.prefixes += 1
        units = state.undecided()
        for cut in some_cuts(prefix, units, many, chance):
            tally.points += 1
            tally.deviations[len(cut.deviations)] += 1
            violation = await try_cut(trace, cut, state, world, units, recoveries)
            if violation is not None:
                tally.violations.append(violation)
    tally.images = len(recoveries) - before
    return tally

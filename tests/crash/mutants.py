"""For each sync of the queue: a disk on which exactly that one does nothing, and a crash that shows it.

The trace stays as it is, for no decision of the program hangs on a sync; only the model leaves the sync out.
What is tried are the crashes that it could matter for: between the sync and the next one that makes up for
it, with what it should have made durable lost as a whole and piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from tests.crash.matrix import Baseline, Cut, Recoveries, Violation, try_cut
from tests.crash.memory import Trace
from tests.crash.model import State, Unit
from tests.crash.oracle import World
from tests.crash.scenarios import Told

_PIECES = 4
"""Pieces lost one at a time, at each prefix."""


@dataclass(frozen=True, slots=True)
class Caught:
    """The crash that shows what a sync is for."""

    told: str
    violation: Violation


def occurrences(trace: Trace, site: str) -> list[int]:
    """Where in a trace a site's syncs happen."""
    return [number for number, op in enumerate(trace.ops) if op.syncs and op.site == site]


def without(
    trace: Trace, site: str, first: int = 0, *, instead: str = ""
) -> Iterator[tuple[int, State, World, dict[Unit, int]]]:
    """The disk before each change, with the syncs of a site left out, as long as that makes a difference.

    Or with another operation `instead`.
    The last item is what has not become durable because of it, each with the number of its last version.
    """
    whole, lacking, world = trace.start.clone(), trace.start.clone(), World.after(trace.past)
    for number, op in enumerate(trace.ops):
        if op.mark is not None:
            world.hear(op.mark)
            continue
        if number >= first:
            missing = _missing(whole, lacking)
            if missing:
                yield number, lacking, world, missing
        whole.apply(op)
        if op.syncs and op.site == site:
            if not instead:
                continue
            op = replace(op, name=instead)
        lacking.apply(op)
    missing = _missing(whole, lacking)
    if missing:
        yield len(trace.ops), lacking, world, missing


def _missing(whole: State, lacking: State) -> dict[Unit, int]:
    units = lacking.undecided()
    return {unit: last for unit, last in units.items() if lacking.versions(unit) != whole.versions(unit)}


def _cuts(prefix: int, missing: dict[Unit, int]) -> Iterator[Cut]:
    for baseline in Baseline:
        yield Cut(prefix, baseline, tuple((unit, 0) for unit in missing))
    pieces = list(missing)
    for unit in (*pieces[: _PIECES // 2], *pieces[-_PIECES // 2 :]):
        yield Cut(prefix, Baseline.ALL, ((unit, 0),))


async def find(
    site: str, stories: Iterable[Told], recoveries: Callable[[Told], Recoveries], *, instead: str = ""
) -> Caught | None:
    """A crash after which a promise is broken because a site's syncs do nothing, or another operation
    `instead`; None if there is none."""
    for told in stories:
        places = occurrences(told.trace, site)
        if not places:
            continue
        known = recoveries(told)
        for prefix, state, world, missing in without(
            told.trace, site, max(places[0], told.first), instead=instead
        ):
            units = state.undecided()
            for cut in _cuts(prefix, missing):
                violation = await try_cut(told.trace, cut, state, world, units, known)
                if violation is not None:
                    return Caught(told.name, violation)
    return None


ARGUED = {
    "queue.recovery.replay._read: datasync": "twice is safer: the newest segment was synced when it was "
    "found, and each other one was before the next began",
    "queue.roots.link_place: mkdir": "no mail hangs on a link to a shard: its next start makes it again, and "
    "shard 0 makes the directory durable itself",
}
"""Syncs that no promise hangs on, and why they are there."""
OUTSIDE_STORIES = frozenset({"queue.roots.link_place: mkdir"})
"""The ones that no story meets: a story runs one shard below its own roots."""

"""All of the crash matrix, and the table of what it covered.

    python -m tests.crash.full [--seed N] [--minutes M] [--jobs N] [--docs] [--keep FILE]

First each sync's mutant; then each prefix of each story and of the lives after a SIGKILL and after power
cuts, with the four baselines and every single deviation, however long that takes (two hours of a
processor); then, for M minutes, pairs of deviations by chance; at last a hundred aborts of a real ext4, where
one can be mounted. Ends, or from then on is ended by Ctrl-C, with the table and, if anything was wrong, with
what and how it comes again; `--docs` puts the table of a whole run into docs/internals.md. With `--keep` the
single deviations are kept in a file piece by piece, and the next run of the same sources and seed does
the rest of them: so the whole may take several runs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import logging
import multiprocessing
import os
import pickle
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import IO

from rich.progress import Progress

from tests.crash.aborts import aborting, rounds
from tests.crash.matrix import (
    Baseline,
    Cut,
    Recoveries,
    Tally,
    Violation,
    alternatives,
    crash_points,
    some_cuts,
    try_cut,
)
from tests.crash.mutants import ARGUED, Caught, find
from tests.crash.scenarios import STORIES, Told, cut_again, killed_before_syncs, tell
from tests.crash.sites import sites

Wrong = tuple[str, Violation]
"""Where, and what."""
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "internals.md"
BEGIN, END = "<!-- crash matrix -->\n", "<!-- end of crash matrix -->\n"
_STEP = 48
"""Prefixes in one piece of work: what came of their images is kept that long."""
_CUTS = 12
"""Power cuts of each story whose aftermath is cut again."""
_ABORTS = 100
"""Aborts of an ext4 under a queue."""
_PAIRS = 40
"""Crashes by chance at each prefix, in each round."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some prefixes of one trace, for one process to see to."""

    told: int
    """Number among all that is told."""
    first: int
    last: int
    round: int
    """0 = all single deviations, else pairs by chance."""


@dataclass(slots=True)
class _Row:
    """What was covered of one story, with all that came after it."""

    changes: int = 0
    lives: int = 0
    points: int = 0
    keys: set[bytes] = field(default_factory=set)
    deviations: list[int] = field(default_factory=lambda: [0, 0, 0])

    def add(self, tally: Tally, keys: set[bytes]) -> None:
        self.points += tally.points
        self.keys |= keys
        self.deviations = [a + b for a, b in zip(self.deviations, tally.deviations, strict=True)]


_everything: list[Told] = []
"""Set before the processes are forked."""
_seed = 0


def _singles(prefix: int, units: dict[tuple[int, int | str], int]) -> Iterator[Cut]:
    for baseline in Baseline:
        yield Cut(prefix, baseline)
    for baseline in (Baseline.NOTHING, Baseline.ALL):
        yield from (Cut(prefix, baseline, (one,)) for one in alternatives(baseline, units))


async def _try(piece: Piece) -> tuple[Tally, set[bytes]]:
    told = _everything[piece.told]
    recoveries, tally = Recoveries(links=told.links), Tally()
    chance = random.Random(f"{_seed} {piece}")
    for prefix, state, world in crash_points(told.trace, piece.first):
        if prefix >= piece.last:
            break
        units = state.undecided()
        cuts = some_cuts(prefix, units, _PAIRS, chance) if piece.round else _singles(prefix, units)
        for cut in cuts:
            tally.points += 1
            tally.deviations[len(cut.deviations)] += 1
            violation = await try_cut(told.trace, cut, state, world, units, recoveries)
            if violation is not None:
                tally.violations.append(violation)
    return tally, recoveries.keys


_Done = tuple[Piece, Tally, set[bytes]]


class Kept:
    """What earlier runs have done of the single deviations, and of which stories.

    The stories are kept with it: threads take part in them, so telling one again may give another trace."""

    def __init__(self, path: Path | None, seed: int) -> None:
        self._file: IO[bytes] | None = None
        self._origin = (seed, _sources())
        self.stories: list[Told] = []
        self.done: list[_Done] = []
        if path is None:
            return
        self._file = path.open("a+b")
        self._file.seek(0)
        whole = 0
        try:
            if pickle.load(self._file) == self._origin:
                self.stories = pickle.load(self._file)
                whole = self._file.tell()
                while True:
                    self.done.append(pickle.load(self._file))
                    whole = self._file.tell()
        except (EOFError, pickle.UnpicklingError):
            # The end of the file, or of what a run wrote that was killed.
            pass
        self._file.truncate(whole)

    def close(self) -> None:
        """Leave the file for the next run."""
        if self._file is not None:
            self._file.close()

    def begin(self, stories: list[Told]) -> None:
        """Nothing is kept yet: these are the stories."""
        self.stories = stories
        self._write(self._origin)
        self._write(stories)

    def add(self, done: _Done) -> None:
        """Keep this piece."""
        if not done[0].round:
            self._write(done)

    def _write(self, what: object) -> None:
        if self._file is not None:
            pickle.dump(what, self._file)
            self._file.flush()


def _sources() -> str:
    """What a result depends on: all of our modules that are in use."""
    digest = hashlib.blake2b()
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] in ("__main__", "mqcd", "tests") and file:
            digest.update(f"{name} ".encode() + Path(file).read_bytes())
    return digest.hexdigest()


def _work(piece: Piece) -> _Done:
    logging.disable(logging.CRITICAL)
    tally, keys = asyncio.run(_try(piece))
    return piece, tally, keys


def _round(number: int) -> list[Piece]:
    """All there is to do in a round, the stories themselves first."""
    order = [
        Piece(told, start, start + _STEP, number)
        for told, each in enumerate(_everything)
        for start in range(each.first, len(each.trace.ops) + 1, _STEP)
    ]
    random.Random(_seed + number).shuffle(order)
    order.sort(key=lambda piece: _everything[piece.told].name != _everything[piece.told].story)
    return order


def _pieces(singles: list[Piece], seconds: float) -> Iterator[Piece]:
    """First all of those; from then on rounds of pairs, until the time is up."""
    yield from singles
    deadline = time.monotonic() + seconds
    for number in count(1):
        for piece in _round(number):
            if time.monotonic() > deadline:
                return
            yield piece


async def _tell_all(seed: int) -> list[Told]:
    everything = []
    for name in STORIES:
        told = await tell(name)
        everything += [told, *await killed_before_syncs(told), *await cut_again(told, many=_CUTS, seed=seed)]
    return everything


async def _mutants(everything: Sequence[Told], progress: Callable[[], object]) -> dict[str, Caught | None]:
    recoveries = {links: Recoveries(links=links) for links in (False, True)}
    whole = [told for told in everything if told.name == told.story]
    others = [told for told in everything if told.name != told.story]
    caught = {}
    for site in sites():
        if site not in ARGUED:
            caught[site] = await find(site, [*whole, *others], lambda told: recoveries[told.links])
        progress()
    return caught


def table(rows: dict[str, _Row], mutants: dict[str, Caught | None]) -> str:
    """What was covered, as docs/internals.md has it."""
    lines = [
        "| story | changes | lives after a crash | crashes judged | different disks | one deviation | two |"
    ]
    lines.append("|---|--:|--:|--:|--:|--:|--:|")
    for name, row in rows.items():
        numbers = row.changes, row.lives, row.points, len(row.keys), row.deviations[1], row.deviations[2]
        lines.append(" | ".join((f"| {name}", *(f"{number:,}" for number in numbers))) + " |")
    lines += ["", "| sync | story | what a crash does without it |", "|---|---|---|"]
    for site in sites():
        caught = mutants.get(site)
        if site in ARGUED:
            lines.append(f"| `{site}` | - | nothing: {ARGUED[site]} |")
        else:
            what = _plain(caught.violation) if caught is not None else "NOT CAUGHT"
            lines.append(f"| `{site}` | {caught.told if caught is not None else ''} | {what} |")
    return "\n".join(lines) + "\n"


def _plain(violation: Violation) -> str:
    """What was wrong, without the names and numbers of one run."""
    text = re.sub(r"\b[0-9A-F]{16}\b", "SPID", violation.wrong[0])
    text = re.sub(r"<Verb\.\w+: '([\w-]+)'>", r"\1", text)
    text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID", text)
    text = re.sub(r"M\d+-\d+|\d{9,}", "N", text)
    return text.replace("|", "\\|").replace("/mail/", "")


def put_into_docs(text: str) -> None:
    """Replace what stands between the marks."""
    page = DOCS.read_text()
    head, rest = page.split(BEGIN)
    DOCS.write_text(head + BEGIN + "\n" + text + "\n" + END + rest.split(END)[1])


def _cover(
    seconds: float, jobs: int, rows: dict[str, _Row], progress: Progress, kept: Kept
) -> tuple[list[tuple[str, Violation]], bool]:
    """All single deviations, then pairs for some time; fills the rows and returns what was wrong, and whether
    all was tried."""
    violations: list[tuple[str, Violation]] = []
    singles = _round(0)
    bars = progress.add_task("single deviations", total=len(singles)), progress.add_task("pairs", total=None)

    def count_in(done: _Done) -> None:
        piece, tally, keys = done
        told = _everything[piece.told]
        rows[told.story].add(tally, keys)
        violations.extend((told.name, each) for each in tally.violations)
        crashes = sum(row.points for row in rows.values())
        what = "pairs" if piece.round else "single deviations"
        label = f"{what}: {crashes:,} crashes, {len(violations)} wrong"
        progress.update(bars[piece.round > 0], advance=1, description=label)

    for done in kept.done:
        count_in(done)
    earlier = {piece for piece, _, _ in kept.done}
    left = [piece for piece in singles if piece not in earlier]
    # The pool takes from its source as fast as it can; ours has no end.
    pace, over = threading.Semaphore(3 * jobs), threading.Event()

    def paced() -> Iterator[Piece]:
        for piece in _pieces(left, seconds):
            pace.acquire()
            if over.is_set():
                return
            yield piece

    # What was told is never freed: without it a look for garbage in a child has less to look at.
    gc.collect()
    gc.freeze()
    with multiprocessing.get_context("fork").Pool(jobs, _undisturbed) as pool:
        try:
            for done in pool.imap_unordered(_work, paced()):
                pace.release()
                kept.add(done)
                count_in(done)
        except KeyboardInterrupt:
            # The pool waits for whoever gives it work.
            over.set()
            pace.release()
            return violations, False
    return violations, True


def _abort(seed: int) -> str:
    """What was lost with aborts of an ext4, "" when nothing was."""
    with tempfile.TemporaryDirectory() as place, aborting(Path(place)) as disk:
        if disk is None:
            return "not tried: no ext4 can be mounted here, that needs root and loop devices"
        try:
            asyncio.run(rounds(disk, _ABORTS, seed))
        except AssertionError as error:
            return str(error)
    return ""


def _undisturbed() -> None:
    """A child of a program that somebody may end from the keyboard: that one says so itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.full")
    parser.add_argument("--seed", type=int, default=1, help="what the chances begin with")
    parser.add_argument("--minutes", type=float, default=15, help="for pairs of deviations, at the end")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--docs", action="store_true", help="put the table into docs/internals.md")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="go on where an earlier run has ended")
    return parser.parse_args()


def main() -> int:
    """The command."""
    global _seed
    chosen = _arguments()
    logging.disable(logging.CRITICAL)
    _seed = chosen.seed
    with closing(Kept(chosen.keep, chosen.seed)) as kept:
        if not kept.stories:
            kept.begin(asyncio.run(_tell_all(chosen.seed)))
        return _run(chosen, kept)


def _run(chosen: argparse.Namespace, kept: Kept) -> int:
    _everything.extend(kept.stories)
    rows = {name: _Row() for name in STORIES}
    for told in _everything:
        rows[told.story].changes += len(told.trace.ops) - told.first
        rows[told.story].lives += told.name != told.story
    with Progress() as progress:
        bar = progress.add_task("mutants", total=len(sites()))
        mutants = asyncio.run(_mutants(_everything, lambda: progress.advance(bar)))
        violations, whole = _cover(chosen.minutes * 60, chosen.jobs, rows, progress, kept)
    text = table(rows, mutants)
    print(text)
    if chosen.docs and whole:
        put_into_docs(text)
    for name, violation in violations[:20]:
        print(f"seed {chosen.seed}, {name}: {violation}")
    survivors = [site for site, caught in mutants.items() if caught is None]
    print(f"{len(violations)} violations; mutants not caught: {', '.join(survivors) or 'none'}")
    aborted = _abort(chosen.seed) if whole else "not tried"
    print(f"{_ABORTS} aborts of ext4: {aborted or 'nothing was lost'}")
    if not whole:
        print("cut short: not all of it was tried, and the docs are as they were")
    return 1 if violations or survivors or aborted else 0


if __name__ == "__main__":
    sys.exit(main())

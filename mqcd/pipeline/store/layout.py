"""Every name below the tables' root, and below the staging directory of a batch.

    ROOT/TABLE/day=DAY/*.parquet            what readers see
    ROOT/_staging/BATCH-TOKEN/              what one attempt at a batch has made so far (`Staging`)
    ROOT/_log/BATCH.json                    its commit
    ROOT/_ledger/                           what an account has read of the queue
    ROOT/_stream/                           Spark's checkpoint while a stream runs
    ROOT/_java/                             the archive of Java's classes
    ROOT/_lock, _stream.lock                one batch at a time, one stream at a time
    ROOT/_moves                             held shared by readers, exclusively while files move

    STAGING/in/into=TABLE/day=DAY/          events and damaged lines, as tasks have read them
    STAGING/in/into=recipients/kept=STATE-/day=DAY/
                                            recipients, by state of life
    STAGING/states/                         what files say of recipients whose life is in several of them
    STAGING/once/into=TABLE/day=DAY/        events, sorted out anew: a repeated one is a damaged line
    STAGING/TABLE/day=DAY/                  days of a table, made anew
    STAGING/whole-TABLE/day=DAY/            small files of a table, put together
    STAGING/count/                          how many events each task has read

DAY is YYYY-MM-DD. Files of `recipients` have names that begin with their state: `open-`, `aged-` or `done-`
(`batch.recipients` says what these are). What tasks write themselves, in `in` and `states`, ends in `.part`
until the driver publishes it; only `.parquet` counts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

STAGING = "_staging"
LOG = "_log"
LOCK = "_lock"
STREAM_LOCK = "_stream.lock"
CHECKPOINT = "_stream"
MOVES = "_moves"
ACCOUNT = "_ledger"
JAVA = "_java"

INTO, DAY = "into", "day"
"""Columns, and parts of a path: the table that rows go into, and their day. Spark makes paths of columns."""
OPEN, AGED, DONE = "open-", "aged-", "done-"
STATES = "states"
COUNT = "count"
PART = ".part"
_IN, _ONCE, _WHOLE = "in", "once", "whole-"
_KEPT = "kept"
_DAY = f"{DAY}="


def incoming(table: str, day: object, state: str = "") -> str:
    """Where a task writes rows of a table and a day, below staging; `state` is given for `recipients`."""
    kept = f"{_KEPT}={state}/" if state else ""
    return f"{_IN}/{INTO}={table}/{kept}{_DAY}{day}"


def commit_name(batch: int) -> str:
    """The file of a commit, below `LOG`."""
    return f"{batch:010d}.json"


def day_directory(day: str) -> str:
    """The directory of a day, below that of its table."""
    return f"{_DAY}{day}"


def day_of(path: str | Path) -> str:
    """The day of a file, which its directory names."""
    return Path(path).parent.name.removeprefix(_DAY)


def is_state(path: str | Path, state: str) -> bool:
    """Whether a file of `recipients` has rows of that state."""
    path = Path(path)
    return path.name.startswith(state) or f"{_KEPT}={state}" in path.parts


class Staging:
    """The staging directory of one attempt at a batch."""

    def __init__(self, root: Path, path: Path, batch: int) -> None:
        self.path = path
        self._root = root
        self._batch = batch

    def incoming(self, table: str) -> Path:
        """The directory of a table's rows as they came in."""
        return self.path / _IN / f"{INTO}={table}"

    def publish(self, parts: Iterable[str]) -> list[str]:
        """Give files of tasks their final names, which it returns, now that the tasks are known to have
        ended."""
        return [str(path.rename(path.with_suffix(".parquet"))) for path in map(Path, parts)]

    def discard(self, files: Iterable[str]) -> None:
        """Remove staged files that others have taken the place of."""
        for path in files:
            Path(path).unlink()

    def came(self, table: str) -> list[str]:
        """Files of a table's rows as they came in."""
        return sorted(str(path) for path in self.incoming(table).glob(f"**/{_DAY}*/*.parquet"))

    def states(self) -> list[str]:
        """Files of rows that are to be folded with what is known."""
        return sorted(str(path) for path in (self.path / STATES).glob("*.parquet"))

    @property
    def once(self) -> Path:
        """The directory for events sorted out anew: one whose id came before is a damaged line."""
        return self.path / _ONCE

    def replace_incoming(self) -> None:
        """Have the rows in `once` take the place of the events that came in, and of recipients made of these;
        damaged lines that came in stay."""
        for table in ("events", "recipients"):
            shutil.rmtree(self.incoming(table), ignore_errors=True)
        for path in sorted(self.once.glob(f"{INTO}=*/*/*.parquet")):
            target = self.path / _IN / path.parent.relative_to(self.once) / f"{_ONCE}-{path.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)

    def anew(self, table: str) -> Path:
        """The directory of days of a table that are made anew."""
        return self.path / table

    def whole(self, table: str) -> Path:
        """The directory of small files put together."""
        return self.path / f"{_WHOLE}{table}"

    def moves(self) -> Iterator[list[str]]:
        """Pairs of paths below the root: where each file lies, and where it goes.

        A name contains the number of its batch, so none is ever used twice.
        """
        for index, path in enumerate(sorted(self.path.rglob("*.parquet"))):
            placed = _target(path.relative_to(self.path).parts)
            if placed is not None:
                table, day, state = placed
                target = f"{table}/{day}/{state}{self._batch:010d}-{index:05d}.parquet"
                yield [str(path.relative_to(self._root)), target]


def _target(parts: tuple[str, ...]) -> tuple[str, str, str] | None:
    """Table, directory of the day, and state for which a staged file is made; None = for none.

    `parts` is one of these. So any other directory of staging that has a `.parquet` file in it counts as the
    table of its name: one whose files are for no table has to return None here, as STATES does.

        in/into=TABLE/day=DAY/FILE          in/into=recipients/kept=STATE-/day=DAY/FILE
        whole-TABLE/day=DAY/FILE            TABLE/day=DAY/FILE          states/FILE
    """
    place, day = parts[0], parts[-2]
    if place == STATES:
        return None
    if place == _IN:
        table = _value(parts[1])
        return table, day, _value(parts[2]) if table == "recipients" else ""
    if place.startswith(_WHOLE):
        table = place.removeprefix(_WHOLE)
        return table, day, DONE if table == "recipients" else ""
    return place, day, ""


def _value(part: str) -> str:
    return part.partition("=")[2]


def below(root: Path, paths: Iterable[str]) -> list[str]:
    """Paths as a commit names them: relative to the root."""
    return [str(Path(path).relative_to(root)) for path in paths]

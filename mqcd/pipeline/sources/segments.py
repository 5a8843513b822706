"""Event files, sets of them, and which ids they hold. Pure but for `closed_files`, which lists a directory.

A set of files is written as `{"node-shard-": "1-17,19"}`: ranges of segment numbers for each series of
files. It is what a batch has taken and what a stream's offset says, and it stays small however many files
there were; a file that comes late, with a number below the taken ones, is still a new one.

A name that is no UTF-8 goes by its `shown` text here: so series, sets and tables hold text alone.

Ids in files are written as `{"node/shard": [[1, 17, 1, 900], [19, 19, 960, 990]]}` (`Runs`): files 1 to 17
follow one another and hold sequences from 1 to 900; 18 was never seen.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

PARTITION = 8 << 20
"""Packed octets of event files that a task gets: some 130 MB of text."""
SUFFIX = ".jsonl.gz"
"""Of closed files; one that is being written has another name."""
_NAME = re.compile(r"(?P<series>.+-b?)(?P<number>\d+)\.jsonl\.gz")


class EventFile(NamedTuple):
    """One closed file."""

    series: str
    """`<node>-<shard>-`, of best-effort files with `b` behind; of a foreign name all of it."""
    number: int
    path: str
    size: int
    """Octets."""


Sets = Mapping[str, str]
Runs = dict[str, list[list[int]]]
"""For each node/shard the runs of files that follow one another: first and last number, least and greatest
sequence of their events. In order; runs need not follow one another in their sequences."""
Ranges = list[tuple[int, int]]


def shown(name: str) -> str:
    r"""A file name as text: an octet that is no UTF-8 is written as `\xff`."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")


def quoted(path: str) -> str:
    """A path for Arrow and Spark, which take nothing but text: percent-encoded, whatever its octets are."""
    return quote(os.fsencode(path))


def unquoted(text: str) -> str:
    """The path that was quoted."""
    return os.fsdecode(unquote_to_bytes(text))


def parse_name(name: str) -> tuple[str, int]:
    """Series and number of a file name, as `shown`."""
    match = _NAME.fullmatch(name)
    return (match["series"], int(match["number"])) if match else (name, 0)


def closed_files(directory: Path, but: Sets | None = None) -> list[EventFile]:
    """All closed files that are not in a set, by series and number; none where there is no directory.

    A busy server closes one every five seconds and keeps them for a month, and a stream looks every second:
    only what is new is asked for its size. What is no regular file has none; reading it fails.
    Raises OSError.
    """
    found = []
    known = _holding(but or {})
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                if not name.endswith(SUFFIX) or known(*(named := parse_name(shown(name)))):
                    continue
                # The server keeps them for so long only.
                with suppress(FileNotFoundError):
                    found.append(EventFile(*named, entry.path, _size(entry)))
    except FileNotFoundError:
        return []
    return sorted(found)


def check_there(directory: Path) -> None:
    """Raises FileNotFoundError where a directory that has had closed files has none at all: a server keeps
    its last ones, so it is gone or not mounted now."""
    if not closed_files(directory):
        raise FileNotFoundError(errno.ENOENT, "no event file is left in this directory", str(directory))


def _size(entry: os.DirEntry[str]) -> int:
    try:
        found = entry.stat()
        return found.st_size if stat.S_ISREG(found.st_mode) else 0
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return 0


def read_ranges(text: str) -> Ranges:
    """`1-17,19` as pairs of first and last. Raises ValueError."""
    pairs = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        pairs.append((int(first), int(last or first)))
    return pairs


def _write_ranges(numbers: Iterable[tuple[int, int]]) -> str:
    merged: Ranges = []
    for first, last in sorted(numbers):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in merged)


def add_file(runs: Runs, series: str, number: int, low: int, high: int) -> None:
    """Add a file of a node/shard, with sequences from `low` to `high`. Neighbours become one run."""
    merged: list[list[int]] = []
    for run in sorted([*runs.get(series, ()), [number, number, low, high]]):
        before = merged[-1] if merged else None
        if before and run[0] == before[1] + 1 and run[2] > before[3]:
            before[1], before[3] = run[1], run[3]
        else:
            merged.append(list(run))
    runs[series] = merged


def overlaps(runs: Runs, series: str, low: int, high: int) -> bool:
    """Whether some file of a node/shard may hold sequences between these."""
    return any(run[2] <= high and low <= run[3] for run in runs.get(series, ()))


def absent(sets: Sets, runs: Mapping[str, Sequence[Sequence[int]]]) -> Iterator[tuple[str, int, int]]:
    """Series, first and last number of what is not between files that are there; best-effort files have
    numbers of their own, which do not follow one another.

    `runs` show where a queue was made anew: no file was ever between the last
    one of the old queue and the first one of the new.
    """
    for series, text in sorted(sets.items()):
        if not series.endswith("-b"):
            node, _, shard = series.removesuffix("-").rpartition("-")
            anew = {run[0] for run in runs.get(f"{node}/{shard}", ()) if _begins_a_queue(run[0], run[2])}
            for (_, before), (after, _) in itertools.pairwise(read_ranges(text)):
                if after not in anew:
                    yield series, before + 1, after - 1


def _begins_a_queue(number: int, sequence: int) -> bool:
    """Both numbers of a new queue are the time when it was made, in s and in microseconds; later segments
    are far too small to keep up with that."""
    return sequence // 1_000_000 in (number, number + 1)


def _holding(sets: Sets) -> Callable[[str, int], bool]:
    """Whether a set has the file of a series with a number. Sets may have very many gaps."""
    ranges = {series: sorted(read_ranges(text)) for series, text in sets.items()}

    def holds(series: str, number: int) -> bool:
        runs = ranges.get(series, [])
        place = bisect_right(runs, number, key=itemgetter(0)) - 1
        return place >= 0 and number <= runs[place][1]

    return holds


def within(files: Iterable[EventFile], sets: Sets) -> Iterator[EventFile]:
    """Those files that are in a set."""
    holds = _holding(sets)
    return (file for file in files if holds(file.series, file.number))


def without(files: Iterable[EventFile], sets: Sets) -> Iterator[EventFile]:
    """Those files that are not in a set."""
    holds = _holding(sets)
    return (file for file in files if not holds(file.series, file.number))


def joined(sets: Sets, files: Iterable[EventFile]) -> dict[str, str]:
    """A set with more files in it."""
    ranges = {series: read_ranges(text) for series, text in sets.items()}
    for file in files:
        ranges.setdefault(file.series, []).append((file.number, file.number))
    return {series: _write_ranges(pairs) for series, pairs in sorted(ranges.items())}


def grouped(files: Iterable[EventFile], most: int) -> Iterator[list[EventFile]]:
    """The files in groups of about `most` octets, each at least one: small ones share a task."""
    group: list[EventFile] = []
    size = 0
    for file in files:
        if group and size + file.size > most:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    if group:
        yield group

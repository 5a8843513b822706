"""`queue ls --sort age`: records from the oldest on; what memory should not hold is in temporary files."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, TextIO, TypeVar

from mqcd.core.errors import DecodeError
from mqcd.queue.format import record
from mqcd.queue.reading.snapshot import Item, item_of

if TYPE_CHECKING:
    from mqcd.core.selecting.selection import Selection
    from mqcd.daemon.control.view import View
    from mqcd.queue.reading.shards import Snapshots

HELD = 50_000
"""Records in memory at most: about 20 MB."""
_KEY = 19
"""Digits of a time."""
Made = TypeVar("Made")


class Oldest:
    """What commands take of `Snapshots` or a `View`, in order of acceptance."""

    def __init__(self, snapshot: Snapshots | View, held: int = HELD) -> None:
        self._snapshot = snapshot
        self._held = held

    def batches(self, selection: Selection) -> Iterator[list[Item]]:
        """The recipients that are selected."""
        return self.project(selection, item_of)

    def project(self, selection: Selection, make: Callable[[str, bool], Made]) -> Iterator[list[Made]]:
        """What `make` makes of the text of each record, and of whether it is in flight."""
        unlimited = replace(selection, limit=None)
        with ExitStack() as files:
            runs: list[Iterable[str]] = []
            held: list[str] = []
            for batch in self._snapshot.project(unlimited, _keyed):
                held += batch
                if len(held) < self._held:
                    continue
                held = sorted(held)[: selection.limit]
                # A small limit leaves room for the next ones; else the run goes to a file.
                if len(held) > self._held // 2:
                    runs.append(_spilled(held, files.enter_context(_file())))
                    held = []
            runs.append(sorted(held))
            lines = islice(heapq.merge(*runs), selection.limit)
            while part := [_made(line, make) for line in islice(lines, 1000)]:
                yield part


def _keyed(text: str, in_flight: bool) -> str:
    """A line that sorts by time of acceptance, and then by message."""
    *_, part = record.halves(text)
    try:
        received = int(part.partition("|")[0])
    except ValueError as error:
        raise DecodeError(f"record line holds a field that cannot be: {text[:120]!r}") from error
    return f"{received:0{_KEY}d}{text}{'+' if in_flight else '-'}\n"


def _made(line: str, make: Callable[[str, bool], Made]) -> Made:
    return make(line[_KEY:-2], line[-2] == "+")


def _file() -> TextIO:
    return TemporaryFile("w+", encoding="utf-8", newline="\n")


def _spilled(lines: Iterable[str], file: TextIO) -> TextIO:
    file.writelines(lines)
    file.seek(0)
    return file

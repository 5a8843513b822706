"""Reads on in the event log from a position. Blocking: called in a thread.

Files are never changed once they have their name, so a file and a number of lines is a place for ever. A file
that is gone was removed by the event log's retention: its feed goes on with the next one, and counts a gap.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mqcd.core.events import Verb
from mqcd.core.value import value
from mqcd.disk.durable import Disk
from mqcd.eventlog.reading import Series, lines_with, pieces_of, series_of
from mqcd.feeds.position import Place, Position, Shard

_PACKED = 1 << 16
_FILES = 100
"""Files that are read for one portion, at most, so that a position is saved now and then."""

Chooses = Callable[[bytes], bool]
"""Whether a feed wants an event, by its line."""


@value
class Portion:
    """Events of one shard's files."""

    lines: Sequence[bytes]
    """JSON of the events that the feed selects, without line feeds."""
    after: Position
    """Behind them."""
    damaged: str = ""
    """A file that could not be read to its end, and why: the feed goes on behind it."""


class Reader:
    """Of one directory of event files."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory

    def newest(self) -> Position:
        """Behind all events that there are. Raises OSError."""
        series = series_of(self._disk, self._directory)
        # Behind a last line that no file has: of the newest file nothing is read again.
        return Position(places={shard: Place(files[-1][0], _ALL) for shard, files in series.items()})

    def read(self, position: Position, chooses: Chooses, most: int, octets: int) -> Portion | None:
        """At most so many events, and about so many octets, behind a position; None = there are no more.

        The shard whose next file is the oldest comes first. Raises OSError.
        """
        series = series_of(self._disk, self._directory)
        waiting = [
            (files[0][0], shard, files)
            for shard, every in series.items()
            if (files := _open_files(every, position.places.get(shard)))
        ]
        if not waiting:
            return None
        _, shard, files = min(waiting, key=lambda each: each[:2])
        return self._from(position, shard, files[:_FILES], chooses, most, octets)

    def marked(self, position: Position) -> Position:
        """The same, but where a file that has come since is next: so its removal is seen. Raises OSError."""
        places = dict(position.places)
        for shard, every in series_of(self._disk, self._directory).items():
            place = places.get(shard)
            if place is not None and place.lines == _ALL and (files := _open_files(every, place)):
                places[shard] = Place(files[0][0], 0)
        return replace(position, places=places)

    def _from(
        self, position: Position, shard: Shard, files: Series, chooses: Chooses, most: int, octets: int
    ) -> Portion:
        place = position.places.get(shard)
        gap = place is not None and place.lines != _ALL and files[0][0] != place.number
        chosen: list[bytes] = []
        for number, path in files:
            behind = place.lines if place is not None and place.number == number else 0
            lines = 0
            try:
                for line in self._lines(path):
                    lines += 1
                    if lines > behind and chooses(line):
                        chosen.append(line)
                        octets -= len(line)
                        if len(chosen) >= most or octets <= 0:
                            return _portion(position, shard, Place(number, lines), chosen, gap=gap)
            except FileNotFoundError:
                gap = True
            except zlib.error as error:
                damaged = f"{path}: {error}"
                return _portion(position, shard, Place(number, _ALL), chosen, gap=gap, damaged=damaged)
        return _portion(position, shard, Place(files[-1][0], _ALL), chosen, gap=gap)

    def _lines(self, path: Path) -> Iterator[bytes]:
        return lines_with(pieces_of(self._disk, path, _PACKED), b'"event":')


_ALL = 1 << 62
"""Lines of a file that has been read to its end."""


def _open_files(files: Series, place: Place | None) -> Series:
    """The files that hold events behind a place."""
    if place is None:
        return files
    first = place.number + (place.lines == _ALL)
    return [each for each in files if each[0] >= first]


def _portion(
    position: Position, shard: Shard, place: Place, lines: Sequence[bytes], *, gap: bool, damaged: str = ""
) -> Portion:
    places = {**position.places, shard: place}
    after = replace(position, places=places, sent=position.sent + len(lines), gaps=position.gaps + gap)
    return Portion(lines=lines, after=after, damaged=damaged)


def chooser(verbs: Collection[Verb], tenants: Collection[str]) -> Chooses:
    """Wants the events of these verbs and tenants; none of either = all of them."""
    wanted = tuple(f'"event":"{verb}"'.encode() for verb in verbs)
    names = tuple(f'"tenant":{json.dumps(name, ensure_ascii=False)}'.encode() for name in tenants)

    def wants(line: bytes) -> bool:
        if wanted and not any(each in line for each in wanted):
            return False
        # A text that holds this has its quotes escaped: only the field itself matches.
        return not names or any(each in line for each in names)

    return wants

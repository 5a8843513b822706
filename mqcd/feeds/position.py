"""How far a feed has come in the event log: of each shard a file and lines of it. One small file a feed.

The file is replaced whole, and synced, after each portion that its receiver has taken, and once a minute. A
kill before that sends the portion again. It is also the sign of a feed's life: what keeps it from being
written, a full disk or the end of the process, shows by its age.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

from mqcd.core.errors import StoreDamaged
from mqcd.core.value import value
from mqcd.disk.durable import Disk

SIGN_MS = 60_000
"""How often a feed saves its position at least, whether it is another or not."""
_SILENT_MS = 5 * SIGN_MS
Shard = tuple[str, int]
"""Node and number: the writer of a series of files."""


@value(kw_only=False)
class Place:
    """In one series of files."""

    number: int
    """Of the file that is being read."""
    lines: int
    """Lines of it that are behind."""


@value
class Position:
    """Of a feed."""

    places: Mapping[Shard, Place] = field(default_factory=dict)
    sent: int = 0
    """Events that the receiver has taken."""
    gaps: int = 0
    """How often files were gone before they had been read."""
    error: str = ""
    """Why the last attempt failed; "" = it did not."""
    since: int = 0
    """When attempts began to fail, ms; 0 = they do not."""


class Positions:
    """The positions of all feeds, in one directory."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"

    def load(self, name: str) -> Position | None:
        """Where a feed is; None = it has never run. Raises OSError, StoreDamaged."""
        path = self._path(name)
        if not self._disk.exists(path):
            return None
        try:
            return _unpack(json.loads(self._disk.read_file(path)))
        except (ValueError, KeyError, TypeError) as error:
            text = f"{path} is damaged ({error}): remove it, and the feed begins with the newest events"
            raise StoreDamaged(text) from error

    def seen(self, name: str, now: int) -> Position | None:
        """The same, as others see it: one that is damaged, or was last saved long ago, is that of a feed that
        fails. Raises OSError."""
        file = self._disk.measure(self._path(name))
        try:
            found, why = self.load(name), ""
        except StoreDamaged as error:
            found, why = Position(), str(error)
        if found is None or file is None:
            return None
        if not found.since and now - file.modified > _SILENT_MS:
            why = why or f"{self._path(name)} was last written then: no server runs, or its log says why"
        return replace(found, error=why, since=file.modified) if why else found

    def save(self, name: str, position: Position) -> None:
        """Durable on return. Raises OSError."""
        self._disk.mkdir(self._directory)
        self._disk.replace_file(self._path(name), [json.dumps(_pack(position), indent=1).encode()])


def _pack(position: Position) -> dict[str, object]:
    places = [
        {"node": node, "shard": shard, "file": place.number, "lines": place.lines}
        for (node, shard), place in sorted(position.places.items())
    ]
    return {
        "places": places,
        "sent": position.sent,
        "gaps": position.gaps,
        "error": position.error,
        "since": position.since,
    }


def _unpack(found: Mapping[str, object]) -> Position:
    places = found["places"]
    if not isinstance(places, list):
        raise ValueError("places is no list")
    return Position(
        places={
            (str(each["node"]), int(each["shard"])): Place(int(each["file"]), int(each["lines"]))
            for each in places
        },
        sent=int(str(found["sent"])),
        gaps=int(str(found["gaps"])),
        error=str(found["error"]),
        since=int(str(found["since"])),
    )

"""Which record lines a selection means, found out without decoding them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from mqcd.core.errors import DecodeError
from mqcd.core.selecting.selection import Selection
from mqcd.queue.format import record

_TYPED: Mapping[str, Callable[[str], object]] = {
    "spid": lambda text: int(text, 16),
    "area": record.area_of,
    "route": lambda text: text.partition(" ")[0],
    **dict.fromkeys(("due", "size", "attempts", "code", "received"), int),
}
"""Fields that are no texts in a `Recipient`, or a part of one in a line."""


_PLACE = {name: place for place, name in enumerate(record.Fields._fields)}
_PLACE["route"] = _PLACE["amended"]
_OF_FLAGS = tuple(_PLACE[name] for name in ("spid", "area", "address", "received", "sender"))
"""The fields that flags of a selection look at."""


class _Columns:
    """Reads from a line's fields what a `Recipient` has, and knows how many of them are needed for it."""

    def __init__(self) -> None:
        self.last = 0
        """The last field that is read."""

    def read(self, path: str) -> Callable[[Sequence[str]], Any]:
        """Reads what stands at a path."""
        name = path.rpartition(".")[2]
        place = _PLACE[name]
        self.last = max(self.last, place)
        typed = _TYPED.get(name)
        return (lambda each: typed(each[place])) if typed is not None else itemgetter(place)


def chooser(selection: Selection) -> Callable[[str], bool] | None:
    """A predicate on what `verify` gave, which raises DecodeError; None when all are selected."""
    if selection.everything:
        return None
    columns = _Columns()
    wanted = selection.unknowns
    unknowns = columns.read("unknowns")
    flags = None if replace(selection, where=None).everything else selection
    where = selection.where.on(columns.read) if selection.where is not None else None
    # Each line of a queue goes through here: what stands behind the last field is not split.
    most = max(columns.last, *_OF_FLAGS) + 1 if flags is not None else columns.last + 1

    def chosen(text: str) -> bool:
        each = text.split("|", most)
        if len(each) <= most:
            raise DecodeError(f"record line has {len(each)} fields, not {record.FIELDS}: {text[:120]!r}")
        if "%" in text:
            each = list(map(record.unescape, each))
        try:
            if wanted and int(unknowns(each)) < wanted:
                return False
            if flags is not None:
                spid, area, address, received, sender = map(each.__getitem__, _OF_FLAGS)
                if not flags.admits(record.area_of(area), int(spid, 16), sender, address, int(received)):
                    return False
            return where is None or where(each)
        except (ValueError, KeyError) as error:
            raise DecodeError(f"record line holds a field that cannot be: {text[:120]!r}") from error

    return chosen

"""Which values of a file did not parse, so that the defaults used instead cause no further errors. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Faults:
    """The paths of the errors so far."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._paths = set(paths)
        self._holders = {path.partition("@")[0] for path in self._paths if "@" in path}
        """Elements of which an attribute is wrong."""

    def __contains__(self, path: str) -> bool:
        return path in self._paths

    def sound(self, stem: str, items: Sequence[Item], *names: str) -> Iterator[tuple[int, Item]]:
        """The items of the list at `stem`, counted from 1, of which these attributes are right.

        Without names: all attributes, unknown ones included, are right.
        """
        for index, item in enumerate(items, start=1):
            at = f"{stem}[{index}]"
            if not (any(f"{at}@{name}" in self._paths for name in names) if names else at in self._holders):
                yield index, item

"""What checks share: items of lists with their paths, and which values of a file did not parse, so that the
defaults used instead cause no further errors. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from mqcd.config.settings import ListenerSettings, RelaySettings, Settings

Item = TypeVar("Item")
Remarks = Iterator[tuple[str, str]]
"""Each a path, with list indexes, and a text."""
LISTENER = "mta/submit/listeners/listener"
RELAY = "mta/deliver/relays/relay"


def numbered(stem: str, items: Sequence[Item]) -> Iterator[tuple[str, Item]]:
    """The items of the list at `stem`, each with its path."""
    return ((f"{stem}[{index}]", item) for index, item in enumerate(items, start=1))


def listeners(settings: Settings) -> Iterator[tuple[str, ListenerSettings]]:
    """Each listener with its path."""
    return numbered(LISTENER, settings.submit.listeners)


def relays(settings: Settings) -> Iterator[tuple[str, RelaySettings]]:
    """Each relay with its path."""
    return numbered(RELAY, settings.deliver.relays)


class Faults:
    """The paths of the errors so far."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._paths = set(paths)

    def __contains__(self, path: str) -> bool:
        return path in self._paths

    def sound(self, stem: str, items: Sequence[Item], *names: str) -> Iterator[tuple[str, Item]]:
        """The items of the list at `stem` of which these attributes are right, each with its path.

        Without names: all attributes, unknown ones included, are right.
        """
        holders = () if names else {path.partition("@")[0] for path in self._paths if "@" in path}
        for at, item in numbered(stem, items):
            if at not in holders and not any(f"{at}@{name}" in self._paths for name in names):
                yield at, item

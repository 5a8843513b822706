"""Waiting for what other threads and processes do: by notification, each wait with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

DEADLINE = 100.0
"""Seconds after which a wait fails. Not a measure of speed: what never comes must be told as such."""
INTERVAL = 0.02
"""Seconds between two looks at what cannot notify us: files and pages of another process."""

Item = TypeVar("Item")
Found = TypeVar("Found")


class Board(Generic[Item]):
    """Things that happen, in order; any thread may put one up, any other wait for it."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._changed = threading.Condition()
        self._closed = False

    def put(self, item: Item) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more will come: whoever waits for it fails at once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def all(self) -> list[Item]:
        with self._changed:
            return list(self._items)

    def first(
        self, match: Callable[[Item], bool], what: str, *, after: int = 0, seconds: float = DEADLINE
    ) -> Item:
        """The first item that matches, there or to come; the first `after` ones are not looked at."""
        return self.several(match, 1, what, after=after, seconds=seconds)[0]

    def several(
        self,
        match: Callable[[Item], bool],
        count: int,
        what: str,
        *,
        after: int = 0,
        seconds: float = DEADLINE,
    ) -> list[Item]:
        """The first `count` items that match."""
        ends = time.monotonic() + seconds
        found: list[Item] = []
        seen = after
        with self._changed:
            while True:
                for item in self._items[seen:]:
                    if match(item):
                        found.append(item)
                        if len(found) == count:
                            return found
                seen = max(seen, len(self._items))
                left = ends - time.monotonic()
                if self._closed or left <= 0:
                    why = "nothing more will come" if self._closed else f"not within {seconds:g} s"
                    raise AssertionError(f"{what}: {why}; {len(found)} of {count} are there")
                self._changed.wait(left)

    def __len__(self) -> int:
        with self._changed:
            return len(self._items)


def poll(look: Callable[[], Found | None], what: str, *, seconds: float = DEADLINE) -> Found:
    """What `look` gives once it is something true; for what cannot notify us."""
    ends = time.monotonic() + seconds
    pause = threading.Event()
    while not (found := look()):
        if time.monotonic() > ends:
            raise AssertionError(f"{what}: not within {seconds:g} s")
        pause.wait(INTERVAL)
    return found

"""How many events the workers have read so far, for a progress line.

Each task keeps a file of two numbers below a directory that driver and workers share; nothing depends on it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mqcd.pipeline.store.layout import COUNT

_LOOK = 0.5
"""Seconds between two looks."""


class Count:
    """What one task has read."""

    def __init__(self, base: Path) -> None:
        self._path = base / COUNT / uuid.uuid4().hex
        self._events = self._octets = 0

    def add(self, events: int, file: Path) -> None:
        """So many more, of that file."""
        self._events += events
        with suppress(OSError):
            self._octets += file.stat().st_size
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(f"{self._events} {self._octets}")


def counted(base: Path) -> tuple[int, int]:
    """Events and octets that all tasks have read."""
    events = octets = 0
    for path in (base / COUNT).glob("*"):
        # One that is being written anew may be empty.
        with suppress(OSError, ValueError):
            some, more = map(int, path.read_text().split())
            events, octets = events + some, octets + more
    return events, octets


def expected(events: int, octets: int, total: int) -> int:
    """How many events `total` octets may hold, when `octets` of them hold so many; 0: nothing is known."""
    return max(events, round(events * total / octets)) if octets and total else 0


@contextmanager
def watching(base: Path, total: int, report: Callable[[int, int], None]) -> Iterator[None]:
    """While the block lasts, report again and again how many events were read, and of how many, `total` being
    the octets of all files."""
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(_LOOK):
            events, octets = counted(base)
            report(events, expected(events, octets, total))

    thread = threading.Thread(target=look, name="count", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()

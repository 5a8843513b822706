"""Progress of long work: a bar on standard error, shown after 2 s.

It appears even if no progress is reported: starting Spark is one step of many seconds.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from mqcd.core.ports import Clock
    from mqcd.core.progress import Progress as Report

PATIENCE_MS = 2_000


Later = Callable[[float, Callable[[], None]], threading.Timer]
"""Makes a timer: so many seconds, then what to do."""


@contextmanager
def waiting(clock: Clock, later: Later = threading.Timer) -> Iterator[Report]:
    """Gives a function that shows progress, on a terminal alone."""
    bar = _Bar(clock, later)
    try:
        yield bar.report
    finally:
        bar.end()


class _Bar:
    def __init__(self, clock: Clock, later: Later) -> None:
        self._clock = clock
        self._later = later
        self._since = clock.monotonic()
        self._shown: Progress | None = None
        self._what, self._total = "", 0
        self._task: TaskID | None = None
        self._state = "", 0, 0
        """What was said last."""
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def report(self, what: str, done: int, total: int) -> None:
        with self._lock:
            self._state = what, done, total
            if self._shown is None and not self._is_time():
                return
            self._show()

    def _is_time(self) -> bool:
        """Whether to show it now; if not yet, it is shown when it is."""
        if not sys.stderr.isatty():
            return False
        left = self._since + PATIENCE_MS - self._clock.monotonic()
        if left > 0 and self._timer is None:
            self._timer = self._later(left / 1000, self._late)
            self._timer.daemon = True
            self._timer.start()
        return left <= 0

    def _late(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._show()

    def _show(self) -> None:
        what, done, total = self._state
        if self._shown is None:
            self._shown = _show()
        if self._task is None or (what != self._what and not (total == self._total > 1 and done)):
            if self._task is not None:
                self._shown.remove_task(self._task)
            self._task = self._shown.add_task(what, total=total or None)
        # Steps of so many are one piece of work: the time that the last ones took gives the time left.
        self._what, self._total = what, total
        self._shown.update(self._task, description=what, completed=done, total=total or None)

    def end(self) -> None:
        """Leave nothing behind on the screen."""
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if self._shown is not None:
            self._shown.stop()


def _show() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.start()
    return progress

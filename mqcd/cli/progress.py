"""How far a long piece of work has come: a bar on standard error, for people who wait more than 2 s."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mqcd.core.ports import Clock

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from mqcd.queue.admin.findings import Progress as Tell

PATIENCE_MS = 2_000


@contextmanager
def waiting(clock: Clock) -> Iterator[Tell]:
    """Gives a function to be told of progress; shows nothing where nobody looks."""
    bar = _Bar(clock)
    try:
        yield bar.tell
    finally:
        bar.end()


class _Bar:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._shown: Progress | None = None
        self._what = ""
        self._task: TaskID | None = None

    def tell(self, what: str, done: int, total: int) -> None:
        """So much is done."""
        if self._shown is None:
            if not sys.stderr.isatty() or self._clock.monotonic() - self._since < PATIENCE_MS:
                return
            self._shown = _show()
        if self._task is None or what != self._what:
            if self._task is not None:
                self._shown.remove_task(self._task)
            self._what, self._task = what, self._shown.add_task(what, total=total or None)
        self._shown.update(self._task, completed=done, total=total or None)

    def end(self) -> None:
        """Leave nothing behind on the screen."""
        if self._shown is not None:
            self._shown.stop()


def _show() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.start()
    return progress

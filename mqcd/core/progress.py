"""Progress of long work, for display."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the name of a step, how much of it is done, and how much there is in all (0 = not known)."""


def no_progress(_step: str, _done: int, _total: int) -> None:
    """A `Progress` that shows nothing."""

"""Bounds log lines on refusals: a few a minute for each client, then one with the count of the rest. Pure.
Lines that were left out are counted in one line when their minute has passed and another one is logged: an
idle server writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

WINDOW_MS = 60_000
MOST = 20
"""Lines on one client within a window."""
CLIENTS = 1000
"""Clients that are counted each for itself; all others count together, as ""."""


class Crowd:
    """Recent refusals by client."""

    __slots__ = ("_counts", "_until")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._until = 0

    def admits(self, at: int, client: str) -> bool:
        """Whether one more refusal of `client`, at wall time `at`, has a line of its own."""
        if not self._counts:
            self._until = at + WINDOW_MS
        if client not in self._counts and len(self._counts) >= CLIENTS:
            client = ""
        count = self._counts[client] = self._counts.get(client, 0) + 1
        return count <= MOST

    def is_over(self, at: int) -> bool:
        """Whether a window has passed in which something was refused."""
        return bool(self._counts) and not self._until - WINDOW_MS <= at < self._until

    def left_out(self) -> Mapping[str, int]:
        """How many lines each client was denied; the next window begins with the next refusal."""
        counts, self._counts = self._counts, {}
        return {client: count - MOST for client, count in counts.items() if count > MOST}

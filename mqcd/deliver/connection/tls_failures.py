"""Addresses whose TLS failed lately, so that not every connection tries it again."""

from __future__ import annotations

from collections import OrderedDict

from mqcd.core.ports import Clock

CLEAR_MS = 600_000
"""Time for which TLS is not tried again."""
MAX_REMEMBERED = 10_000


class TlsFailures:
    """Addresses whose TLS did not work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: OrderedDict[str, int] = OrderedDict()

    def note(self, address: str) -> None:
        """Record a TLS failure of this address."""
        self._until[address] = self._clock.monotonic() + CLEAR_MS
        self._until.move_to_end(address)
        if len(self._until) > MAX_REMEMBERED:
            self._until.popitem(last=False)

    def __contains__(self, address: str) -> bool:
        return self._until.get(address, 0) > self._clock.monotonic()

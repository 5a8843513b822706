"""Messages of which a spool file may come to be before they have an owner: those on their way in.

Each edit that evacuates says up to which SPID spool files may have an owner in the clusters alone, and names
those below it that cannot, for they have not been accepted. A start removes what a crash has left of them.
Promise: a SPID is among them from the moment it is handed out until its message is accepted or refused, and
not after that, for its record may rest in a cluster then. Whoever never comes with a SPID is waited for
`KEPT_MS` and then forgotten.
"""

from __future__ import annotations

from mqcd.core.ports import Clock

KEPT_MS = 600_000
"""From a SPID to its message pass five seconds at a full ring, or the making of a report: much less."""
_EVER = 1 << 62


class Drafts:
    """One shard's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[int, int] = {}
        """By SPID: the monotonic time, ms, until which its message is waited for."""

    def reserve(self, spid: int) -> None:
        """A SPID was handed out."""
        self._until[spid] = self._clock.monotonic() + KEPT_MS

    def begin(self, spid: int) -> None:
        """Its message comes, however long that takes."""
        self._until[spid] = _EVER

    def end(self, spid: int) -> None:
        """Its message has been accepted, or nothing of it is left."""
        self._until.pop(spid, None)

    def current(self) -> tuple[int, ...]:
        """All of them."""
        now = self._clock.monotonic()
        for spid in [spid for spid, until in self._until.items() if until < now]:
            del self._until[spid]
        return tuple(self._until)

"""Whether a server is ready, and why not: the phase of its run first, then what its parts say."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from mqcd.daemon.control.switches import Switches
from mqcd.daemon.storing import ServedStore
from mqcd.deliver.service import Deliverer


class Phase(Enum):
    """Of a server's run, in this order. A value says why it is not ready; "" = the phase is no reason."""

    OPENING = "starting: the queue is not open yet"
    RECOVERING = "starting: mail is taken, and what the last run left is being read"
    RUNNING = ""
    STOPPING = "stopping"


class Readiness:
    """Of one server, which sets `phase` and `records_known`."""

    def __init__(self, store: ServedStore, deliverer: Deliverer, switches: Switches) -> None:
        self.phase = Phase.OPENING
        self.records_known = False
        """Whether all are: from the end of the recovery until the queue is closed in a stop. Not whether the
        queue is open, as it is while it recovers, nor whether the doors are (`Doors.open`)."""
        self._store = store
        self._deliverer = deliverer
        self._switches = switches

    def records_unknown(self) -> str:
        """Why records cannot be listed; "" = they can."""
        return "" if self.records_known else self.phase.value

    def not_ready(self) -> Sequence[str]:
        """What keeps the door shut or delivery from running, most important first."""
        if self.phase is not Phase.RUNNING:
            return [self.phase.value]
        reasons = list(self._switches.reasons())
        if why := self._store.refusing():
            reasons.append(f"no mail is taken: {why}")
        if stalled := self._store.stalled():
            reasons.append(f"delivery waits: {stalled}")
        elif self._deliverer.paused:
            reasons.append("delivery waits: the queue cannot record anything now")
        return reasons

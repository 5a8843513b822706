"""New mail that goes straight to a connection that is free: no claim, no lane's queue, no begin of its own.
Where all are at work it goes straight into its lane, without a claim, as long as no more wait there.

A connection, or a place in the lane, is reserved before the message is durable, and used when it is.
Guarantees: no acknowledged new mail of its lane is overtaken, as a lane with idle connections has none
waiting; what rates, suspensions, advice or the active set hold back is not reserved for, and takes the
ordinary way. What is reserved ends used or released.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mqcd.core.model import Recipient
from mqcd.core.ports import Reservation
from mqcd.core.queueing.spid import format_spid
from mqcd.deliver.connection.pool import Pool
from mqcd.deliver.connection.worker import Worker
from mqcd.deliver.lanes.lane import Start
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.placing import Placing
from mqcd.deliver.recording import Recorder
from mqcd.deliver.terms import Terms

_log = logging.getLogger("mqcd.deliver")


@dataclass(eq=False, repr=False)
class Direct:
    """One per deliverer; calls `changed` when a job had to go to its lane."""

    _terms: Terms
    _table: LaneTable
    _pool: Pool
    _placing: Placing
    _recorder: Recorder
    _changed: Callable[[], None]

    def find(self, recipients: Sequence[Recipient]) -> Reservation | None:
        """See `core.ports.QueueStore.hand_over`."""
        if self._terms.begins_nothing or self._recorder.paused or self._recorder.crowded:
            return None
        try:
            hop = self._placing.known(recipients)
        except Exception:
            # The ordinary way gives such mail a verdict; here an error would refuse it at the door.
            name = format_spid(recipients[0].spid)
            _log.exception("internal error: no route for %s", recipients[0].address, extra={"spid": name})
            return None
        if hop is None:
            return None
        start = self._table.entering.start_new(recipients, hop, self._terms.clock.monotonic())
        if start is None:
            return None
        return _Reserved(self, start, self._pool.reserve(start.lane) if start.reuse else None)

    def use(self, start: Start, worker: Worker | None) -> None:
        """The message is durable."""
        if worker is None:
            self._wait(start)
        elif self._terms.stopping:
            self._recorder.park(start.job.recipients, 0)
            # It ends: the stop would wait its whole grace for a connection without a job.
            worker.rest_again()
        elif not worker.hand(start.job):
            self._table.put_back(start.lane, start.job)
            self._changed()

    def _wait(self, start: Start) -> None:
        """Its recipients take their place in line, by the rules that stand now."""
        recipients = start.job.recipients
        self._table.entering.came(start)
        if self._terms.begins_nothing:
            self._recorder.park(recipients, 0)
            return
        self._placing.place(recipients, start.job.content)
        if self._table.slots.wanted:
            self._changed()

    def release(self, start: Start, worker: Worker | None) -> None:
        """The message was not accepted."""
        self._table.entering.undo_start(start)
        if worker is not None:
            worker.rest_again()
        self._changed()


@dataclass(slots=True, eq=False, repr=False)
class _Reserved:
    """See `core.ports.Reservation`."""

    _direct: Direct
    _start: Start
    _worker: Worker | None
    """The connection; None = one that is at work when the message is durable."""
    _open: bool = True

    @property
    def begins(self) -> bool:
        return self._worker is not None

    @property
    def destination(self) -> str:
        return self._start.job.hop.destination.name

    def use(self, content: bytes | None) -> None:
        if self._open:
            self._open = False
            self._start.job.begun, self._start.job.content = self.begins, content
            self._direct.use(self._start, self._worker)

    def release(self) -> None:
        if self._open:
            self._open = False
            self._direct.release(self._start, self._worker)

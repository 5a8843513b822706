"""The observers of a server's events, and one that passes each event on to all of them."""

from __future__ import annotations

from collections.abc import Sequence

from mqcd.config.settings import Settings
from mqcd.core.ports import Clock, Observer
from mqcd.daemon.derived import breakdown_of
from mqcd.disk.durable import Disk
from mqcd.eventlog.lossy import LossyEvents
from mqcd.eventlog.lossy_files import LossyFiles
from mqcd.ops.audit.audit import Audit
from mqcd.ops.fanout import Fanout
from mqcd.ops.last_replies import LastReplies
from mqcd.ops.log.log import Log
from mqcd.ops.log.observer import LogObserver
from mqcd.ops.metrics.meters import Meters
from mqcd.ops.metrics.metrics import Omissions
from mqcd.queue.memory.shard_state import Options


class Observers:
    """Counters, last replies, log, audit logs, the lossy event log, and the caller's own observers."""

    def __init__(
        self, settings: Settings, options: Options, clock: Clock, log: Log, more: Sequence[Observer]
    ) -> None:
        self._log = log
        self.meters = Meters()
        self.breakdown = breakdown_of(settings)
        self.last_replies = LastReplies()
        self.audit = Audit(settings.deliver, settings.report)
        files = LossyFiles(Disk(), options.events, options.source, settings.queue.minfree)
        self.lossy = LossyEvents(files, clock, options.source.key)
        # The event log of a read-only queue belongs to the server that writes to the queue.
        lossy = () if settings.queue.read_only else (self.lossy,)
        counting = (self.meters, self.breakdown, self.last_replies)
        self.all = Fanout(*counting, LogObserver(log), self.audit, *lossy, *more)

    def omissions(self) -> Omissions:
        """How many lines and events were lost."""
        return Omissions(log_lines=self._log.lost, audit_lines=self.audit.lost, events=self.lossy.missing)

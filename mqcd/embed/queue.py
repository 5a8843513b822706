"""The queue of an embedding program: opened and closed on one event loop, with delivery where it is wanted.

Settings read: the blocks of queue, deliver, report and events.
"""

from __future__ import annotations

import asyncio
import logging

from mqcd.config.settings import Settings
from mqcd.core.model import Submission
from mqcd.core.ports import Clock, Observer
from mqcd.daemon.derived import options_of, own_names, schedule_of
from mqcd.daemon.descriptors import divide, limit
from mqcd.daemon.hashkey import hash_key
from mqcd.deliver.service import Deliverer
from mqcd.net.dialer import SystemDialer
from mqcd.net.resolver import DnsResolver
from mqcd.queue.store import ClusterStore
from mqcd.report.task import ReportTask

log = logging.getLogger(__name__)

GRACE_MS = 8000
"""How long a close waits for attempts under way."""


class EmbeddedQueue:
    """A store, and delivery and reports if `deliver`; open from `open` to `close`, both on one loop."""

    def __init__(self, settings: Settings, clock: Clock, observer: Observer, *, deliver: bool) -> None:
        self._settings = settings
        self._clock = clock
        self._observer = observer
        self._deliver = deliver
        options = options_of(settings, schedule_of(settings), hash_key(settings.ops.events))
        self._store = ClusterStore(options, clock, observer)
        self._delivery: tuple[Deliverer, ReportTask, asyncio.Task[None]] | None = None

    async def open(self) -> None:
        """Accept mail, recover what the last run left, then deliver.

        Raises StoreBusy, StoreDamaged and StoreUnavailable; nothing is open then.
        """
        await self._store.open()
        try:
            await self._store.recovered()
            if self._deliver:
                await self._start_delivery()
        except BaseException:
            await self._store.close()
            raise

    async def close(self) -> None:
        """Stop delivery, make all durable, and release the directory."""
        if self._delivery is not None:
            deliverer, reports, running = self._delivery
            self._delivery = None
            await deliverer.stop(GRACE_MS)
            reports.stop()
            await asyncio.wait([running])
        await self._store.close()

    async def enqueue(self, submission: Submission) -> None:
        """Durable on return. Raises StoreUnavailable and Refused."""
        await self._store.enqueue(submission)

    def reserve(self, several: bool) -> int:
        """The SPID of the next message."""
        return self._store.reserve(several)

    async def _start_delivery(self) -> None:
        settings = self._settings
        reports = ReportTask(self._store, self._clock, settings.report)
        shares = divide(limit(), settings.queue.journal.segments)
        deliverer = Deliverer(
            settings.deliver,
            schedule_of(settings),
            store=self._store,
            clock=self._clock,
            resolver=DnsResolver(settings.deliver.dns, self._clock, most=shares.lookups),
            dialer=SystemDialer(),
            observer=self._observer,
            notifier=reports.maker,
            own_names=own_names(settings),
            most_connections=shares.outbound,
        )
        await deliverer.start()
        running = asyncio.get_running_loop().create_task(reports.run(), name="mqcd reports")
        running.add_done_callback(_log_failure)
        self._delivery = deliverer, reports, running


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("reports are no longer made", exc_info=error)

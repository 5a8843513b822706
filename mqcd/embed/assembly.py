"""The parts of an embedded queue, made and wired. A composition root; imported when a queue is opened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from mqcd.config.kinds.values import HostPort
from mqcd.config.load import defaults
from mqcd.config.settings import RelaySettings, ReportSettings, Settings
from mqcd.core.model import Body, Envelope, Origin, Recipient, Submission
from mqcd.core.ports import Clock, Observer, QueueStore
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp.marks import marks_of
from mqcd.daemon.derived import options_of, own_names, schedule_of
from mqcd.daemon.hashkey import hash_key
from mqcd.daemon.host.descriptors import divide, limit
from mqcd.deliver.service import Deliverer
from mqcd.embed.backoff import BackoffSchedule
from mqcd.embed.message import Mail
from mqcd.embed.relaying import Relaying, RelayTerms
from mqcd.embed.retrying import Retrying
from mqcd.embed.wishes import BounceFactory, SmtpRelay, Wishes
from mqcd.net.dialer import SystemDialer
from mqcd.net.resolver import DnsResolver
from mqcd.queue.store import ClusterStore
from mqcd.report.making import ReportMaker
from mqcd.report.task import ReportTask
from mqcd.stores.queue.stored_queue import StoredQueue

GRACE_MS = 8000
"""How long a close waits for attempts under way."""

log = logging.getLogger(__name__)


class Delivery(Protocol):
    """What relays from the store."""

    async def start(self) -> None: ...

    async def stop(self, grace_ms: int) -> None: ...


class Assembly:
    """Of one queue, for one run."""

    def __init__(self, wishes: Wishes, clock: Clock, observer: Observer) -> None:
        self._wishes = wishes
        self._clock = clock
        self._observer = observer
        self._settings = _settings(wishes)
        self._schedule: RetrySchedule = (
            BackoffSchedule(backoff=wishes.backoff) if wishes.backoff else schedule_of(self._settings)
        )
        self._store = self._make_store()
        self._reports = self._make_reports()
        self._delivery = self._make_delivery()
        self._reporting: asyncio.Task[None] | None = None
        self._retrying = Retrying(self._store, clock)

    @property
    def store(self) -> QueueStore:
        """The queue itself."""
        return self._store

    def _make_store(self) -> ClusterStore | StoredQueue:
        store = self._wishes.store
        if not isinstance(store, str | Path):
            age = self._settings.queue.key_age
            return StoredQueue(store, self._clock, self._observer, self._schedule, key_age=age)
        options = options_of(self._settings, self._schedule, hash_key(self._settings.ops.events))
        return ClusterStore(options, self._clock, self._observer)

    def _make_reports(self) -> ReportTask:
        reports = ReportTask(self._store, self._clock, self._settings.report)
        if self._wishes.bounce is not None:
            reports.maker = _OwnReports(self._store, self._clock, self._settings.report, self._wishes.bounce)
        return reports

    def _make_delivery(self) -> Delivery | None:
        wishes, settings = self._wishes, self._settings
        if wishes.relay is None:
            return None
        if not isinstance(wishes.relay, SmtpRelay):
            terms = RelayTerms(
                relay=wishes.relay, policies=wishes.policies, schedule=self._schedule, at_once=wishes.at_once
            )
            return Relaying(self._store, self._clock, terms)
        shares = divide(limit(), settings.queue.journal.segments)
        return Deliverer(
            settings.deliver,
            self._schedule,
            store=self._store,
            clock=self._clock,
            resolver=DnsResolver(settings.deliver.dns, self._clock, most=shares.lookups),
            dialer=SystemDialer(),
            observer=self._observer,
            notifier=self._reports.maker,
            own_names=own_names(settings),
            most_connections=shares.outbound,
        )

    async def open(self) -> None:
        """Raises StoreBusy, StoreDamaged and StoreUnavailable; nothing is open then."""
        await self._store.open()
        try:
            await self._store.recovered()
            if self._delivery is not None:
                await self._delivery.start()
                self._reporting = asyncio.create_task(self._reports.run(), name="mqcd reports")
                self._reporting.add_done_callback(_log_failure)
        except BaseException:
            await self._store.close()
            raise

    async def retry(self, selection: Selection) -> int:
        """See `Queue.retry`."""
        return await self._retrying.run(selection)

    async def close(self) -> None:
        """Stop delivery, make all durable, and release the store."""
        await self._retrying.close()
        if self._delivery is not None:
            await self._delivery.stop(GRACE_MS)
        if self._reporting is not None:
            self._reports.stop()
            await asyncio.wait([self._reporting])
        await self._store.close()


class _OwnReports(ReportMaker):
    """Reports on failures that the program makes."""

    def __init__(
        self, store: QueueStore, clock: Clock, settings: ReportSettings, bounce: BounceFactory
    ) -> None:
        super().__init__(store, clock, settings, lambda _: False)
        self._bounce = bounce
        self._queue = store
        self._time = clock

    async def failed(self, bounces: Sequence[Recipient]) -> Submission:
        """The report on bounces of one message."""
        first = bounces[0]
        mail = Mail(
            envelope=first.envelope,
            recipients=[each.address for each in bounces],
            attempts=first.attempts,
            size=first.size,
            open_content=lambda: self._queue.content(first),
        )
        content = await self._bounce(mail, bounces)
        readers = self.readers(first)
        envelope = Envelope(
            spid=self._queue.reserve(len(readers) > 1),
            sender="",
            received=self._time.now(),
            origin=Origin.REPORT,
            body=Body.SEVEN if content.isascii() else Body.EIGHT,
            smtputf8=not all(reader.isascii() for reader in readers),
            message_id=marks_of(content).message_id,
        )
        return Submission(envelope=envelope, recipients=readers, content=content)


def _settings(wishes: Wishes) -> Settings:
    var = Path(wishes.store).absolute() if isinstance(wishes.store, str | Path) else Path.cwd()
    settings = wishes.settings or defaults(var=var, hostname=wishes.hostname)
    deliver, relay = settings.deliver, wishes.relay
    if isinstance(relay, SmtpRelay) and relay.host:
        address = HostPort(host=relay.host, port=relay.port)
        deliver = replace(deliver, relays=(RelaySettings(address=address, lmtp=relay.lmtp),))
    report = settings.report if wishes.reports else replace(settings.report, generate_ndr=False)
    return replace(settings, deliver=deliver, report=report)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("reports are no longer made", exc_info=error)

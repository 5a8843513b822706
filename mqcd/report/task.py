"""The reporting task: takes bounces out of the queue and puts reports in their place.

The report's acceptance and the end of the bounces that it tells of are one settle, so that no bounce is
reported twice or never. While the store cannot record that, the bounces stay claimed here and are
tried again; nothing is lost, for a store that is opened again offers them again.

Settings read: generate_ndr, queuecache, and what `making` reads.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext

from mqcd.config.settings import ReportSettings
from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Discarded, Recipient, Reported, Settlement, Submission
from mqcd.core.ports import Clock, QueueStore
from mqcd.core.spid import format_spid
from mqcd.report.dsn import wants_failures
from mqcd.report.making import ReportMaker, wants_all

log = logging.getLogger(__name__)

GATHER_MS = 250
"""How long bounces are let gather: the recipients of one message fail within moments of one another,
at different servers, and should be told of in one report."""
FULL_AT_ONCE = 4
"""Reports in memory at once that may return much of their message (RET=FULL)."""
RETRY_MS = 5_000
"""How long to wait when the store could not do something."""


class ReportTask:
    """Reports on bounces while `run` runs."""

    def __init__(self, store: QueueStore, clock: Clock, settings: ReportSettings) -> None:
        self._store = store
        self._clock = clock
        self.maker = ReportMaker(store, clock, settings)
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._full = asyncio.Semaphore(FULL_AT_ONCE)
        self._held: list[Recipient] = []
        """Claimed bounces without an end yet."""

    def reload(self, settings: ReportSettings) -> None:
        """Go by new settings from the next report on."""
        self.maker.settings = settings

    async def run(self) -> None:
        """Report on what bounces, until `stop`. The store must be open."""
        self._store.watch(self._wake.set)
        self._wake.set()
        while not self._stopping.is_set():
            await self._wake.wait()
            self._wake.clear()
            await self._pause(GATHER_MS)
            await self._work()
        await self._give_back()

    def stop(self) -> None:
        """Make `run` return once the reports under way are recorded."""
        self._stopping.set()
        self._wake.set()

    async def _work(self) -> None:
        """Report until no bounce is left."""
        while not self._stopping.is_set():
            try:
                if not self._held:
                    self._held = list(await self._store.claim_bounces(self.maker.settings.queuecache))
            except StoreUnavailable as error:
                log.warning("no bounces to be had, will try again: %s", error)
                await self._pause(RETRY_MS)
                continue
            if not self._held:
                return
            await self._report_all()
            if self._held:
                await self._pause(RETRY_MS)

    async def _report_all(self) -> None:
        """Report on each message whose bounces are held; hold on to those that could not be ended."""
        messages: dict[int, list[Recipient]] = {}
        for bounce in self._held:
            messages.setdefault(bounce.spid, []).append(bounce)
        left = await asyncio.gather(*(self._in_turn(bounces) for bounces in messages.values()))
        self._held = [bounce for bounces in left for bounce in bounces]

    async def _in_turn(self, bounces: list[Recipient]) -> list[Recipient]:
        """`_report`, as soon as there is room for what it returns."""
        async with self._full if wants_all(bounces[0].envelope) else nullcontext():
            return await self._report(bounces)

    async def _report(self, bounces: list[Recipient]) -> list[Recipient]:
        """Report on bounces of one message; gives those that are to be tried again."""
        settlements: list[Settlement] = []
        told: list[Recipient] = []
        for bounce in bounces:
            reason = self._silence(bounce)
            if reason:
                settlements.append(Settlement(recipient=bounce, verdict=Discarded(reason=reason)))
            else:
                told.append(bounce)
        reports: list[Submission] = []
        try:
            if told:
                reports.append(await self.maker.failed(told))
                verdict = Reported(report_spid=reports[0].envelope.spid)
                settlements += [Settlement(recipient=each, verdict=verdict) for each in told]
            await self._store.settle(settlements, reports)
        except StoreUnavailable as error:
            name = format_spid(bounces[0].spid)
            log.warning("report on %s not recorded, will try again: %s", name, error, extra={"spid": name})
            return bounces
        return []

    def _silence(self, bounce: Recipient) -> str:
        """Why nobody is told of this bounce; "" when somebody is."""
        if bounce.is_report:
            return "null sender"
        if not self.maker.settings.generate_ndr:
            return "generate_ndr"
        if not wants_failures(bounce):
            return "notify"
        return "" if self.maker.readers(bounce) else "ndr_recip_redirect"

    async def _pause(self, ms: int) -> None:
        """Wait, but not longer than until `stop`."""
        waits = [asyncio.ensure_future(self._clock.sleep(ms)), asyncio.ensure_future(self._stopping.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _give_back(self) -> None:
        """Let go of the bounces that are still held; at the next opening they are free in any case."""
        if not self._held:
            return
        try:
            await self._store.park(self._held, 0)
        except StoreUnavailable as error:
            log.warning("%d bounces are left claimed until the next start: %s", len(self._held), error)
        self._held = []

"""The reporting task: takes bounces out of the queue and puts reports in their place.

The report's acceptance and the end of the bounces that it lists are one settle, so that no bounce is
reported twice or never. While the store cannot record that, the bounces stay claimed here and are
tried again; nothing is lost, for a store that is opened again offers them again. A message whose report fails
for any other reason is logged and tried again a minute later, beside all others.

All recipients of one message that wait go into one report, which leaves at once. Later failures stay claimed
here for a minute, and go into the next: one message cannot make us send more than a report a minute, however
its recipients fail. A stop gives them back, and the next start reports at once.

A claimed bounce is in one of three states:

| state | where | left by |
|---|---|---|
| held | `_held`, by message | `_ready` chooses its message; a stop, which parks it |
| held and gathered | `_held`, and its message in `_gathering` | the time in `_gathering`, or no room |
| being reported | taken from `_held` by `_report_all` | the settle; back to `_held` when that fails |

All three together are at most HELD: one pass claims what there is room for, then reports. A message is ready
when it is not gathered:

| the claim filled its room | room for another is left | the pass reports (`_ready`) | and then |
|---|---|---|---|
| yes: more may wait | yes | ready messages of one recipient | the next pass |
| yes | no (`_is_full`) | all ready messages, and the largest, if need be (`_with_largest`) | the next pass |
| no | either | all ready messages | the work is done |

After a failed report passes claim nothing until one has succeeded.

Settings read: generate_ndr, queuecache, and what `making` reads. queuecache is that of reports, not of
deliveries: how many bounces are claimed at a time, and how many messages are reported on at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext, suppress

from mqcd.config.settings import ReportSettings
from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Discarded, Envelope, Recipient, Reported, Settlement
from mqcd.core.ports import Clock, QueueStore
from mqcd.core.queueing.spid import format_spid, is_several
from mqcd.net.waits import in_time
from mqcd.report.dsn import wants_failures
from mqcd.report.making import ReportMaker

log = logging.getLogger(__name__)

GATHER_MS = 250
"""How long bounces are gathered: recipients of one message fail at nearly the same time, at different
servers, and belong in one report."""
LATER_MS = 60_000
"""How long further bounces of a message are gathered after a report on it."""
HELD = 5_000
"""Most bounces that are claimed at once (some 2 KB each); when so many are held, reports come earlier."""
GATHERING = 100_000
"""Messages of which it is remembered that a report has gone out."""
FULL_AT_ONCE = 4
"""Reports in memory at once that may return much of their message (RET=FULL)."""
RETRY_MS = 5_000
"""Pause after a failure of the store."""


class ReportTask:
    """Reports on bounces while `run` runs."""

    def __init__(
        self,
        store: QueueStore,
        clock: Clock,
        settings: ReportSettings,
        trusts: Callable[[Envelope], bool] = lambda _: False,
    ) -> None:
        """`trusts`: whether a message came from a client that the server relays for."""
        self._store = store
        self._clock = clock
        self.maker = ReportMaker(store, clock, settings, trusts)
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._halted = False
        self._full = asyncio.Semaphore(FULL_AT_ONCE)
        self._held: dict[int, list[Recipient]] = {}
        """Claimed bounces without an end yet, by message."""
        self._gathering: dict[int, int] = {}
        """Messages of several recipients that were reported on, and any whose report failed by a fault; until
        when further bounces of theirs are gathered, monotonic ms; in that order."""

    def reload(self, settings: ReportSettings) -> None:
        """Apply new settings from the next report on."""
        self.maker.settings = settings

    def halt(self, paused: bool) -> None:
        """Begin no report until called with False."""
        self._halted = paused
        self._wake.set()

    async def run(self) -> None:
        """Report on what bounces, until `stop`. The store must be open."""
        self._store.watch(self._wake.set)
        self._wake.set()
        while not self._stopping.is_set():
            await self._news()
            self._wake.clear()
            await self._pause(GATHER_MS)
            try:
                await self._work()
                continue
            except StoreUnavailable as error:
                log.warning("bounces cannot be claimed, will try again: %s", error)
            except Exception:
                log.exception("reporting failed because of a fault, will try again")
            await self._pause(RETRY_MS)
            self._wake.set()
        await self._give_back()

    def stop(self) -> None:
        """Make `run` return once the reports under way are recorded."""
        self._stopping.set()
        self._wake.set()

    async def _news(self) -> None:
        """Wait until there may be a bounce, or the time of some that are held has come."""
        if not self._held or self._halted:
            await self._wake.wait()
            return
        left = min(map(self._ready_at, self._held)) - self._clock.monotonic()
        with suppress(TimeoutError):
            await in_time(self._clock, max(left, 0), self._wake.wait())

    async def _work(self) -> None:
        """Report until only gathered bounces are left. Raises StoreUnavailable when none can be claimed."""
        more, failed = True, False
        while (more or failed) and not (self._stopping.is_set() or self._halted):
            if not failed:
                more = await self._claim()
            failed = not await self._report_all(self._ready(more))
            if failed:
                await self._pause(RETRY_MS)

    async def _claim(self) -> bool:
        """Hold as many more bounces as there is room for; returns whether more may wait."""
        room = min(self.maker.settings.queuecache, self._room)
        claimed = await self._store.claim_bounces(room)
        for bounce in claimed:
            self._held.setdefault(bounce.spid, []).append(bounce)
        # Also without room, when nothing was claimed: more may wait then, too.
        return len(claimed) == room

    @property
    def _room(self) -> int:
        """How many more bounces may be held."""
        return HELD - sum(map(len, self._held.values()))

    @property
    def _is_full(self) -> bool:
        """Whether the next claim would have less room than it may use."""
        return self._room < self.maker.settings.queuecache

    def _ready(self, more: bool) -> list[int]:
        """The messages to report on now, by the table above. While `more` bounces may wait, they may be of
        messages of several recipients that are held."""
        now = self._clock.monotonic()
        while self._gathering and next(iter(self._gathering.values())) <= now:
            del self._gathering[next(iter(self._gathering))]
        ready = [spid for spid in self._held if self._ready_at(spid) <= now]
        if more and self._is_full:
            return self._with_largest(ready)
        return [spid for spid in ready if not (more and is_several(spid))]

    def _with_largest(self, ready: list[int]) -> list[int]:
        """These, and the fewest other messages whose reports make room for a claim with them."""
        held, chosen = self._held, list(ready)
        room = self._room + sum(len(held[spid]) for spid in ready)
        for spid in sorted(held.keys() - ready, key=lambda spid: len(held[spid]), reverse=True):
            if room >= self.maker.settings.queuecache:
                break
            chosen.append(spid)
            room += len(held[spid])
        return chosen

    def _ready_at(self, spid: int) -> int:
        """From when on a message may be reported on (again), monotonic ms."""
        return self._gathering.get(spid, 0)

    async def _report_all(self, spids: list[int]) -> bool:
        """Report on these messages, unless a stop or a pause comes; False when some stay held that are to be
        tried again after a pause."""
        held, most = self._held, self.maker.settings.queuecache
        for at in range(0, len(spids), most):
            if self._stopping.is_set() or self._halted:
                return True
            some = [held.pop(spid) for spid in spids[at : at + most]]
            left = await asyncio.gather(*map(self._report, some))
            held |= {bounces[0].spid: bounces for bounces in left if bounces}
        # Of two messages, say, the first is reported: it is held no more. If the store fails for the second,
        # that is ready again at once: False. A fault in it gathers it for LATER_MS: True, so that the others
        # go on, unless there is no room to hold it for so long.
        now, full = self._clock.monotonic(), self._is_full
        return not any(spid in held and (full or self._ready_at(spid) <= now) for spid in spids)

    async def _report(self, bounces: list[Recipient]) -> list[Recipient]:
        """Report on bounces of one message, as soon as there is room for what is returned of it; returns the
        bounces to try again."""
        spid, name = bounces[0].spid, format_spid(bounces[0].spid)
        named = {"spid": name}
        try:
            async with self._full if self.maker.returns_all(bounces[0].envelope) else nullcontext():
                is_reported = await self._record(bounces)
        except StoreUnavailable as error:
            log.warning("report on %s not recorded, will try again: %s", name, error, extra=named)
            return bounces
        except Exception:
            log.exception("report on %s failed because of a fault, will try again", name, extra=named)
            self._gather(spid)
            return bounces
        if is_reported and is_several(spid):
            self._gather(spid)
        return []

    async def _record(self, bounces: list[Recipient]) -> bool:
        """Record the end of bounces of one message, and the report that lists them; returns whether there is
        one."""
        silences = [(bounce, self._silence(bounce)) for bounce in bounces]
        listed = [bounce for bounce, why in silences if not why]
        reports = [await self.maker.failed(listed)] if listed else []
        listing = reports[0].envelope.spid if reports else 0
        settlements = [
            Settlement(
                recipient=bounce, verdict=Discarded(reason=why) if why else Reported(report_spid=listing)
            )
            for bounce, why in silences
        ]
        await self._store.settle(settlements, reports)
        return bool(reports)

    def _gather(self, spid: int) -> None:
        self._gathering.pop(spid, None)
        self._gathering[spid] = self._clock.monotonic() + LATER_MS
        if len(self._gathering) > GATHERING:
            del self._gathering[next(iter(self._gathering))]

    def _silence(self, bounce: Recipient) -> str:
        """Why no report is made of this bounce; "" when one is."""
        if bounce.is_report:
            return "null sender"
        if not self.maker.settings.generate_ndr:
            return "generate_ndr"
        if not wants_failures(bounce):
            return "notify"
        return "" if self.maker.readers(bounce) else "ndr_recip_redirect"

    async def _pause(self, ms: int) -> None:
        """Wait, but not longer than until `stop`."""
        with suppress(TimeoutError):
            await in_time(self._clock, ms, self._stopping.wait())

    async def _give_back(self) -> None:
        """Release the bounces that are still held; the next open releases them in any case."""
        held = [bounce for bounces in self._held.values() for bounce in bounces]
        self._held = {}
        if not held:
            return
        try:
            await self._store.park(held, 0)
        except StoreUnavailable as error:
            log.warning("%d bounces are left claimed until the next start: %s", len(held), error)

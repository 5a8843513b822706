"""Hands verdicts and parked recipients to the store, and keeps them until the store has them.

Connections do not wait for a verdict to be durable; how many may be on their way is bounded
(`MAX_OUTSTANDING`, see `Recorder.room`). While the store cannot record (StoreUnavailable) the work is kept
and tried again every `RETRY_MS`, and nothing new may be started while it is `paused`: no verdict is lost
and no recipient is tried twice for want of one.

The states of one record (`_Work`):

| state | it is | what follows |
|---|---|---|
| queued park | in `_parks`, not the first | submitted, once the one before has ended |
| submitted | given to `_submit` | kept behind others; else outstanding, or what the store raises at once |
| outstanding | counted in `_outstanding` | ended; kept, where the store cannot record |
| kept | in `_kept` | outstanding again, see `_try_again` |
| ended | released: recorded, or refused by a fault | |

A close drops queued parks; what is kept stays so. A recipient in flight is in one record only, so their order
does not matter.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Recipient, Settlement, Submission
from mqcd.core.ports import Clock, QueueStore
from mqcd.deliver.health.suspects import Suspects

RETRY_MS = 1000
MAX_OUTSTANDING = 1000
"""Most recipients whose verdicts are being recorded."""

PARKED_AT_ONCE = 250
"""Recipients in one record that are given back. A lane may give back thousands at once; each part waits for
the one before it, so that no turn of the loop handles all of them."""

Reports = Callable[[], Awaitable[Sequence[Submission]]]
"""Makes reports, anew for each try to record them."""

_log = logging.getLogger("mqcd.deliver")


@dataclass(slots=True, kw_only=True)
class _Work:
    """One record to write to the store."""

    settlements: Sequence[Settlement] = ()
    recipients: Sequence[Recipient] = ()
    """To be parked."""
    until: int = 0
    begin: str = ""
    """Destination of an attempt whose begin is not recorded yet."""
    reports: Reports | None = None
    """Makes the messages that the verdicts give rise to."""
    all: Sequence[Recipient] = ()
    """Its recipients."""

    def __post_init__(self) -> None:
        self.all = self.recipients or [settlement.recipient for settlement in self.settlements]

    def perform(self, store: QueueStore) -> Awaitable[None]:
        """Hand it to the store. A retry after a failure calls this again, and hands over no begin twice."""
        if self.recipients:
            return store.park(self.recipients, self.until)
        if self.begin:
            # Both in one turn: what is between them would be an attempt of unknown outcome after a kill.
            begun = asyncio.ensure_future(store.begin(self.all, self.begin))
            # A journal that fails refuses the begin, but not the verdict: then the attempt has no event.
            begun.add_done_callback(lambda future: future.cancelled() or future.exception())
            self.begin = ""
        if self.reports is not None:
            return _reporting(store, self.settlements, self.reports)
        return store.settle(self.settlements)


async def _reporting(store: QueueStore, settlements: Sequence[Settlement], reports: Reports) -> None:
    """Record verdicts together with the reports on them. For the reports' sake no verdict may be lost."""
    made: Sequence[Submission] = ()
    try:
        made = await reports()
    except StoreUnavailable:
        raise
    except Exception:
        _log.exception("making a report on %d recipients failed", len(settlements))
    await store.settle(settlements, made)


@dataclass(eq=False, repr=False)
class Recorder:
    """The one way from delivery to the store's records.

    Calls `released` with the recipients that are recorded, and `changed` when `paused` ends.
    """

    _store: QueueStore
    _clock: Clock
    _released: Callable[[Sequence[Recipient]], None]
    _changed: Callable[[], None]
    _suspects: Suspects | None = None
    _outstanding: int = 0
    _kept: deque[_Work] = field(default_factory=deque)
    _parks: deque[_Work] = field(default_factory=deque)
    """The first one is being recorded, or kept: then in `_kept`, too."""
    _retry: asyncio.Task[None] | None = None
    _closed: bool = False
    _waiters: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def paused(self) -> bool:
        """Whether the store cannot record at this time."""
        return self._retry is not None

    @property
    def crowded(self) -> bool:
        """Whether `room` would wait."""
        return self._outstanding >= MAX_OUTSTANDING

    def settle(
        self, settlements: Sequence[Settlement], begin: str = "", reports: Reports | None = None
    ) -> None:
        """Record verdicts; with `begin` (a destination) also that the attempt has begun, with `reports` also
        what they give rise to."""
        if self._suspects is not None:
            self._suspects.settled(settlements)
        self._submit(_Work(settlements=settlements, begin=begin, reports=reports))

    def park(self, recipients: Sequence[Recipient], until: int) -> None:
        """Give recipients back untried, due at `until` (wall time, ms)."""
        idle = not self._parks
        for start in range(0, len(recipients), PARKED_AT_ONCE):
            self._parks.append(_Work(recipients=recipients[start : start + PARKED_AT_ONCE], until=until))
        if idle and self._parks:
            self._submit(self._parks[0])

    def _next_park(self, work: _Work) -> None:
        """`work` has ended: the park behind it starts in a turn of its own."""
        if self._parks and self._parks[0] is work:
            self._parks.popleft()
            if self._parks:
                asyncio.get_running_loop().call_soon(self._park, self._parks[0])

    def _park(self, work: _Work) -> None:
        if self._parks and self._parks[0] is work:
            self._submit(work)

    def unavailable(self, error: BaseException) -> None:
        """Pause: the store cannot record, as this or another part has found."""
        if self._retry is None and not self._closed:
            _log.warning("delivery paused, the store cannot record: %s", error)
            self._retry = asyncio.get_running_loop().create_task(self._try_again())

    async def room(self) -> None:
        """Wait until fewer than MAX_OUTSTANDING are on their way and the store records."""
        while self.crowded or self.paused:
            await self._wait()

    async def done(self) -> None:
        """Wait until the store has everything."""
        while self._outstanding or self._kept or self._parks:
            await self._wait()

    def close(self) -> None:
        """Try no more."""
        self._closed = True
        self._parks.clear()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _submit(self, work: _Work) -> None:
        if self._kept:
            self._kept.append(work)
        else:
            self._start(work)

    def _start(self, work: _Work) -> None:
        try:
            future = asyncio.ensure_future(work.perform(self._store))
        except StoreUnavailable as error:
            self._keep(work, error)
            return
        except Exception as error:
            self._end(work, error)
            return
        self._outstanding += len(work.all)
        if future.done():
            self._ended(work, future)
        else:
            future.add_done_callback(partial(self._ended, work))

    def _ended(self, work: _Work, future: asyncio.Future[None]) -> None:
        self._outstanding -= len(work.all)
        error = None if future.cancelled() else future.exception()
        if isinstance(error, StoreUnavailable) or future.cancelled():
            self._keep(work, error or StoreUnavailable("the store cancelled the record"))
        else:
            self._end(work, error)

    def _end(self, work: _Work, error: BaseException | None) -> None:
        """The store has recorded `work`. Or it has refused it, a fault of this program: then the recipients
        stay in flight for the store until its next start, and delivery counts them no more."""
        if error is not None:
            _log.error("the store failed on %d recipients", len(work.all), exc_info=error)
        self._released(work.all)
        if self._parks:
            self._next_park(work)
        if self._waiters:
            self._wake()

    def _keep(self, work: _Work, error: BaseException) -> None:
        self._kept.append(work)
        self.unavailable(error)
        self._wake()

    async def _try_again(self) -> None:
        """Start what is kept, until all of it is recorded. Meanwhile `_kept` is empty: new records start at
        once, and may overtake one that fails again."""
        while True:
            await self._clock.sleep(RETRY_MS)
            again, self._kept = self._kept, deque()
            for work in again:
                self._start(work)
            while self._outstanding:
                await self._wait()
            if not self._kept:
                break
        self._retry = None
        _log.warning("delivery resumed, the store records again")
        self._wake()
        self._changed()

    def _wake(self) -> None:
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

"""Delivery by a program's own relay: an attempt for each message that is due, several at once.

Every recipient that was claimed is settled or given back. An attempt that `stop` cuts off has an unknown
outcome: the next run tries it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby

from mqcd.core.errors import MqcdError, StoreUnavailable
from mqcd.core.model import Attempt, Phase, Recipient, Settlement
from mqcd.core.ports import Clock, QueueStore
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.queueing.spid import format_spid
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.deliver.recording import Recorder
from mqcd.deliver.smtp.exchange import Outcome, Result
from mqcd.deliver.verdicts import failure, verdict_on
from mqcd.embed.message import Mail, Relay, RelayPolicy
from mqcd.net.waits import in_time

log = logging.getLogger(__name__)

DESTINATION = "relay"
"""Of all attempts, in events."""
_MOST_RECIPIENTS = 100
"""Of one claim for each attempt that may run."""
_IDLE_MS = 3_600_000
_FAULT = Reply(code=451, status="4.3.0", text="the relay failed, see the log")
_COUNT = Reply(code=451, status="4.3.0", text="the relay gave another number of replies than recipients")


@value
class RelayTerms:
    """How messages are relayed."""

    relay: Relay
    policies: Sequence[RelayPolicy]
    schedule: RetrySchedule
    at_once: int
    """Attempts that run at once."""


class Relaying:
    """Of one store. `start` once, `stop` once."""

    def __init__(self, store: QueueStore, clock: Clock, terms: RelayTerms) -> None:
        self._store = store
        self._clock = clock
        self._terms = terms
        self._wake = asyncio.Event()
        self._stopping = False
        self._recorder = Recorder(store, clock, lambda _: None, self._wake.set)
        self._attempts: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Relay what is due from now on."""
        self._store.watch(self._wake.set)
        self._running = asyncio.create_task(self._run(), name="mqcd relaying")

    async def stop(self, grace_ms: int) -> None:
        """Start no more attempts, and give those under way `grace_ms`."""
        self._stopping = True
        self._wake.set()
        if self._running is not None:
            await asyncio.wait([self._running])
        if self._attempts:
            _, late = await asyncio.wait(self._attempts, timeout=grace_ms / 1000)
            for attempt in late:
                attempt.cancel()
            if late:
                await asyncio.wait(late)
        if not self._recorder.paused:
            await self._recorder.done()
        self._recorder.close()

    async def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                claimed = await self._claim()
            except StoreUnavailable as error:
                self._recorder.unavailable(error)
                claimed = []
            if not claimed:
                await self._sleep()

    async def _claim(self) -> Sequence[Recipient]:
        room = self._terms.at_once - len(self._attempts)
        if room <= 0 or self._recorder.paused or self._recorder.crowded:
            return []
        claimed = await self._store.claim(room * _MOST_RECIPIENTS, self._clock.now())
        by_message = sorted(claimed, key=lambda each: each.key)
        messages = [list(group) for _, group in groupby(by_message, key=lambda each: each.spid)]
        for recipients in messages[:room]:
            task = asyncio.create_task(self._attempt(recipients))
            self._attempts.add(task)
            task.add_done_callback(self._ended)
        for recipients in messages[room:]:
            self._recorder.park(recipients, 0)
        return claimed

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._attempts.discard(task)
        self._wake.set()

    async def _sleep(self) -> None:
        """Until there may be something to do."""
        due = self._store.next_due()
        room = len(self._attempts) < self._terms.at_once and not self._recorder.paused
        wait = _IDLE_MS if due is None or not room else min(max(due - self._clock.now(), 1), _IDLE_MS)
        with suppress(TimeoutError):
            await in_time(self._clock, wait, self._wake.wait())

    # ------------------------------------------------------------ one attempt

    async def _attempt(self, recipients: list[Recipient]) -> None:
        mail = Mail(
            envelope=recipients[0].envelope,
            recipients=[each.address for each in recipients],
            attempts=recipients[0].attempts,
            size=recipients[0].size,
            open_content=lambda: self._store.content(recipients[0]),
        )
        begun = self._clock.monotonic()
        try:
            await self._store.begin(recipients, DESTINATION)
            outcomes = await self._outcomes(mail)
        except StoreUnavailable as error:
            # Neither a begin nor the content is to be had: the message's fault it is not.
            self._recorder.unavailable(error)
            self._recorder.park(recipients, 0)
            return
        now, may_expire = self._clock.now(), self._store.may_expire()
        attempt = Attempt(
            destination=DESTINATION,
            phase=Phase.DOT,
            attempt_ms=self._clock.monotonic() - begun,
            at=now,
        )
        settlements = [
            Settlement(
                recipient=each,
                verdict=verdict_on(each, outcome, attempt, self._terms.schedule, now, may_expire=may_expire),
            )
            for each, outcome in zip(recipients, outcomes, strict=True)
        ]
        self._recorder.settle(settlements)

    async def _outcomes(self, mail: Mail) -> Sequence[Outcome]:
        """One for each recipient, whatever the program's functions do. Raises StoreUnavailable."""
        count = len(mail.recipients)
        try:
            for policy in self._terms.policies:
                decided = await policy(mail)
                if isinstance(decided, Reply):
                    return [_outcome(decided)] * count
                mail = decided or mail
            replied = await self._terms.relay(mail)
            replies = [replied] * count if isinstance(replied, Reply) else replied
            return [_outcome(each) for each in (replies if len(replies) == count else [_COUNT] * count)]
        except StoreUnavailable:
            raise
        except Exception as error:
            name = format_spid(mail.envelope.spid)
            log.warning(
                "%s: the relay failed", name, exc_info=None if isinstance(error, MqcdError) else error
            )
            return [_outcome(_FAULT)] * count


def _outcome(reply: Reply) -> Outcome:
    """Raises ValueError, or what Python does, for what is no reply."""
    if not 200 <= reply.code < 600:
        raise ValueError(f"no SMTP reply: {reply}")
    if reply.code < 300:
        return Outcome(result=Result.DELIVERED, reply=reply, phase=Phase.DOT)
    return failure(reply, Phase.DOT)

"""A server in miniature for the crash tests: it loads one shard from all sides until it is killed.

    python -m tests.crash.worker ROOT SEED load|drain SEGMENTSIZE SEGMENTS counts|links

It tells on its standard output, one line each, what the outside world has seen: what it acknowledged
(`A spid recipients`) and what a receiver got to know (`D`, `F`, `B` spid qid: delivered, deferred, bounced
at the end of an attempt, before the verdict is settled). SIGTERM stops it in order. `drain` takes nothing
new in, delivers what there is, and stops when the queue is empty.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path

from mqcd.config.settings import JournalSettings, QueueSettings, SpoolSettings
from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import (
    Attempt,
    Bounced,
    Deferred,
    Delivered,
    Discarded,
    Envelope,
    Expired,
    Origin,
    Phase,
    Recipient,
    Reported,
    Settlement,
    Submission,
    Verdict,
)
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.smtp.reply import Reply
from mqcd.eventlog.files import Source
from mqcd.net.clock import SystemClock
from mqcd.queue.memory.shard_state import Options
from mqcd.queue.store import ClusterStore
from tests.fakes.observer import RecordingObserver

SENDER = "sender@example.com"
INLINE_MAX = 8192
_MOST_QUEUED = 1200
_SUSPENDED = "d3.example"


def options(root: Path, segmentsize: int, segments: int, *, links: bool = False) -> Options:
    """A shard whose every step comes within a fraction of a second; `links` is its `hardlinks`."""
    settings = QueueSettings(
        rootpath=root / "queue",
        maxclustersize=8192,
        retry_granularity=1000,
        spool=SpoolSettings(rootpath=root / "spool", bufsize=4096, maxspidcache=50, hardlinks=links),
        journal=JournalSettings(
            segmentsize=segmentsize, segments=segments, inline_max=INLINE_MAX, seal_age=50, evacuate_age=100
        ),
    )
    schedule = RetrySchedule(delays=(20, 40, 80), maxtime=3_600_000, maxtime_reports=3_600_000)
    return Options(settings=settings, schedule=schedule, source=Source("crash", 0), events=root / "events")


def body_of(spid: int, size: int) -> bytes:
    """The content of a message is known from its name, so that any reader can check it."""
    return (b"%016X\r\n" % spid * (size // 18 + 1))[:size]


def tell(word: str, spid: int, number: int) -> None:
    """One line to the outside world; a pipe takes it whole or, after a kill, not at all."""
    os.write(1, b"%s %016X %d\n" % (word.encode(), spid, number))


class Worker:
    """Loads a store from all sides."""

    def __init__(self, store: ClusterStore, seed: int, *, draining: bool) -> None:
        self._store = store
        self._random = random.Random(seed)
        self._clock = SystemClock()
        self._draining = draining
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        senders = [] if self._draining else [self._send() for _ in range(3)]
        for loop in (*senders, self._deliver(), self._deliver(), self._report()):
            self._tasks.append(asyncio.ensure_future(loop))

    async def ended(self) -> None:
        """Wait for a fault, or until the queue is empty when it is drained."""
        await self._store.recovered()
        while not (self._draining and not any(area.recipients for area in self._store.stats().values())):
            done, _ = await asyncio.wait(self._tasks, timeout=0.02, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()

    async def stop(self) -> None:
        """End all activity wherever it stands."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self) -> None:
        while True:
            if sum(area.recipients for area in self._store.stats().values()) > _MOST_QUEUED:
                await self._clock.sleep(5)
                continue
            many = self._random.choice((1, 1, 1, 2, 3, 5))
            size = self._random.randint(20, 2000)
            if self._random.random() < 0.05:
                size = self._random.randint(INLINE_MAX + 1, 3 * INLINE_MAX)
            spid = self._store.reserve(many > 1)
            envelope = Envelope(spid=spid, sender=SENDER, received=self._clock.now())
            submission = Submission(
                envelope=envelope,
                recipients=[f"u{n}@d{self._random.randint(1, 5)}.example" for n in range(many)],
                content=_chunks(body_of(spid, size)),
            )
            try:
                await self._store.enqueue(submission)
            except StoreUnavailable:
                await self._clock.sleep(20)
            else:
                tell("A", spid, many)

    async def _deliver(self) -> None:
        while True:
            now = self._clock.now()
            skip = {_SUSPENDED: now + 60} if self._random.random() < 0.2 else None
            claimed = await self._store.claim(self._random.randint(1, 40), now, skip)
            if not claimed:
                await self._clock.sleep(3)
                continue
            batches: list[Awaitable[None]] = []
            while claimed:
                size = self._random.randint(1, 6)
                batches.append(self._attempt(claimed[:size]))
                claimed = claimed[size:]
            await asyncio.gather(*batches)

    async def _attempt(self, recipients: Sequence[Recipient]) -> None:
        chance = self._random.random()
        if chance < 0.05:
            await self._store.park(recipients, self._clock.now() + 30 if chance < 0.03 else 0)
            return
        if chance < 0.1:
            unreachable = self._deferred(Phase.CONNECT)
            await self._settle([Settlement(recipient=each, verdict=unreachable) for each in recipients])
            return
        for spid in {each.spid for each in recipients}:
            await self._check_content(next(each for each in recipients if each.spid == spid))
        await self._store.begin(recipients, "site.example")
        if self._random.random() < 0.5:
            await self._clock.sleep(self._random.randint(0, 40))
        settlements = [Settlement(recipient=each, verdict=self._verdict(each)) for each in recipients]
        for item in settlements:
            word = {Delivered: "D", Deferred: "F", Bounced: "B", Expired: "B"}[type(item.verdict)]
            tell(word, item.recipient.spid, item.recipient.qid)
        await self._settle(settlements)

    async def _settle(self, settlements: list[Settlement]) -> None:
        await self._store.settle(settlements)

    async def _check_content(self, recipient: Recipient) -> None:
        content = await self._store.content(recipient)
        try:
            octets = b""
            while chunk := await content.read(5000):
                octets += chunk
        finally:
            content.close()
        if not recipient.is_report and octets != body_of(recipient.spid, recipient.size):
            raise AssertionError(f"content of {recipient.spid:016X} is not what was accepted")

    def _verdict(self, recipient: Recipient) -> Verdict:
        chance = self._random.random()
        attempt = Attempt(destination="site.example", phase=Phase.DOT, remote_host="mx.site.example")
        if chance < 0.6 or recipient.attempts > 5:
            return Delivered(reply=Reply(code=250, status="2.0.0", text="ok"), attempt=attempt)
        if chance < 0.88:
            return self._deferred(Phase.DOT)
        if chance < 0.92:
            return Expired(reply=Reply(code=451, status="4.4.1", text="too old"), attempt=attempt)
        return Bounced(reply=Reply(code=550, status="5.1.1", text="no such user"), attempt=attempt)

    def _deferred(self, phase: Phase) -> Deferred:
        return Deferred(
            reply=Reply(code=450, status="4.2.1", text="busy"),
            attempt=Attempt(destination="site.example", phase=phase),
            due=self._clock.now() + self._random.randint(5, 150),
        )

    async def _report(self) -> None:
        while True:
            bounces = await self._store.claim_bounces(self._random.randint(1, 10))
            if not bounces:
                await self._clock.sleep(5)
                continue
            if self._random.random() < 0.1:
                ended = Discarded(reason="setting")
                await self._settle([Settlement(recipient=each, verdict=ended) for each in bounces])
                continue
            spid = self._store.reserve(several=False)
            envelope = Envelope(spid=spid, sender="", received=self._clock.now(), origin=Origin.REPORT)
            report = Submission(
                envelope=envelope, recipients=[SENDER], content=b"Subject: failed\r\n\r\n" * 20
            )
            told = Reported(report_spid=spid)
            await self._store.settle([Settlement(recipient=b, verdict=told) for b in bounces], [report])
            tell("A", spid, 1)


async def _chunks(octets: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(octets), 3000):
        yield octets[start : start + 3000]


async def run(opts: Options, seed: int, mode: str) -> None:
    """Serve until SIGTERM or, when draining, until nothing is left."""
    store = ClusterStore(opts, SystemClock(), RecordingObserver())
    await store.open()
    tell("O", 0, os.getpid())
    worker = Worker(store, seed, draining=mode == "drain")
    worker.start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    waiting = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(worker.ended())]
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await worker.stop()
    await store.close()
    for task in done:
        task.result()
    tell("Z", 0, 0)


if __name__ == "__main__":
    shard = options(Path(sys.argv[1]), int(sys.argv[4]), int(sys.argv[5]), links=sys.argv[6] == "links")
    asyncio.run(run(shard, int(sys.argv[2]), sys.argv[3]))

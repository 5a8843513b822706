"""One life of a queue that takes every step, whatever its disk does: an honest client, delivery and reporter.

They do as the server's parts do: what is refused is sent again, a message whose content cannot be had or
whose attempt cannot be recorded is given back, a verdict is told once. Nothing runs beside the event loop
and the clock is a fake, so a life without illness is the same each time, call by call.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from mqcd.config.settings import JournalSettings, QueueSettings, SpoolSettings
from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import (
    Area,
    Discarded,
    Envelope,
    Origin,
    Recipient,
    Reported,
    Settlement,
    Submission,
    Verdict,
)
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.eventlog.files import Source
from mqcd.queue.memory.shard_state import Options
from mqcd.queue.store import ClusterStore
from tests.contract.mail import bounced, deferred, delivered, read_all
from tests.crash.ledger import World, check_between_lives, check_empty, check_lives, read_events
from tests.crash.sick_disk import SickDisk
from tests.crash.worker import INLINE_MAX, SENDER, body_of
from tests.fakes.clock import FakeClock
from tests.fakes.killed import copy_as_killed
from tests.fakes.observer import RecordingObserver
from tests.fakes.workers import InlineWorkers

SECOND = 1000
ILL_MS = 25 * SECOND
"""How long a lasting illness lasts from the moment that somebody waits for its end."""
PATIENCE_MS = 40 * SECOND
"""How long after it everything may take: a probe comes every 10 s."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A message that the client wants to be rid of."""

    addresses: Sequence[str]
    size: int


FIRST = (
    Wish(("now@a.test",), 300),
    Wish(("now@a.test", "late@b.test", "no@c.test"), 900),
    Wish(("later@a.test",), INLINE_MAX * 2),
    Wish(("now@a.test", "later@b.test"), INLINE_MAX + 5),
    Wish(("no@c.test",), 100),
)
SECOND_LOT = (
    Wish(("late@a.test", "now@b.test"), 700),
    Wish(("now@a.test",), INLINE_MAX + 1),
    # So many that they are synced together, contents and clusters.
    *(Wish(("late@d.test",), 60) for _ in range(11)),
)


def options(root: Path, *, links: bool) -> Options:
    """A small shard; its segments are sealed when the life says so."""
    return Options(
        settings=QueueSettings(
            rootpath=root / "queue",
            minfree=1,
            mininodes=1,
            maxclustersize=200,
            retry_granularity=SECOND,
            spool=SpoolSettings(rootpath=root / "spool", bufsize=4096, maxspidcache=1, hardlinks=links),
            journal=JournalSettings(
                segmentsize=64 << 10, segments=5, inline_max=INLINE_MAX, seal_age=3_600_000
            ),
        ),
        schedule=RetrySchedule(delays=(SECOND,), maxtime=3_600_000_000, maxtime_reports=3_600_000_000),
        source=Source("node", 0),
        events=root / "events",
    )


class Life:
    """From the first start of an empty queue to its last stop."""

    def __init__(self, root: Path, *, links: bool) -> None:
        root.mkdir(parents=True)
        self._root = root
        self.disk = SickDisk(root)
        self.clock = FakeClock()
        self.world = World()
        self.refusals: list[str] = []
        """What the client and the starter were told."""
        self._store = ClusterStore(
            options(root, links=links), self.clock, RecordingObserver(), self.disk, InlineWorkers(self.disk)
        )
        self._open = False
        self._tries: dict[str, int] = {}
        self._ill_since: int | None = None
        self._kills = 0

    async def run(self) -> None:
        """All of it; raises AssertionError where a promise is broken."""
        await self._start()
        await self._take_in(FIRST)
        await self._all_tried()
        await self._empty()
        await self._take_in(SECOND_LOT)
        await self._deliver_until(lambda: self._left() <= 14)
        await self._empty()
        await self._leave_one_begun()
        await self._stop()
        await self._start()
        await self._deliver_until(lambda: not self._left())
        await self._empty()
        await self._stop()

    async def check(self, *, late: bool = False) -> None:
        """When the disk is well again: a start and a stop leave nothing behind but the truth.

        `late`: a stop while nothing could be removed has left files that only their age gives away.
        """
        self.disk.mend()
        if late:
            self.clock.advance(30 * 24 * 3600 * SECOND)
        await self._start()
        await self._stop()
        self.disk.dispose()
        assert not self.disk.relapses, f"written again after an EIO: {self.disk.relapses}"
        check_empty(self._root)
        check_lives(self._root, self.world)
        told = {
            (int(event["spid"], 16), event["qid"])
            for event in read_events(self._root / "events")
            if event["event"] == "accepted"
        }
        assert told == self.world.accepted, "accepted, but nobody was told so"

    # ------------------------------------------------------------ patience

    async def _persist(self, done: Callable[[], bool], work: Callable[[], Awaitable[None]]) -> None:
        """Work, again and again, until it is done. The disk is mended meanwhile if it takes too long."""
        begun = self.clock.monotonic()
        task: asyncio.Future[None] | None = None
        while True:
            if task is None or task.done():
                if task is not None:
                    task.result()
                if done():
                    return
                task = asyncio.ensure_future(work())
            await self.clock.run_for(SECOND, turns=100)
            now = self.clock.monotonic()
            if self.disk.ill:
                self._ill_since = now if self._ill_since is None else self._ill_since
                if now - self._ill_since < ILL_MS:
                    continue
                await self._look_as_killed()
                self.disk.mend()
                begun = now
            assert now - begun < PATIENCE_MS, f"it does not go on: {task}, {self._store.refusing()}"

    async def _look_as_killed(self) -> None:
        """While the disk is ill the server is killed; what another disk would find must be whole."""
        self._kills += 1
        copy = self._root.with_name(f"{self._root.name}-killed{self._kills}")
        copy_as_killed(self._root, copy)
        if (copy / "queue" / "MANIFEST").exists():
            await _open_and_close(copy)
            check_between_lives(copy, self.world)
        else:
            assert not self.world.accepted
        shutil.rmtree(copy)

    # ------------------------------------------------------------ start and stop

    async def _start(self) -> None:
        async def start() -> None:
            try:
                await self._store.open()
                await self._store.recovered()
                self._open = True
            except StoreUnavailable as error:
                # Who supervises the server starts it again.
                await self._store.close()
                self.disk.forget()
                self.refusals.append(str(error))

        await self._persist(lambda: self._open, start)

    async def _stop(self) -> None:
        async def stop() -> None:
            self._open = False
            await self._store.close()
            self.disk.forget()

        await self._persist(lambda: not self._open, stop)

    # ------------------------------------------------------------ the client

    async def _take_in(self, wishes: Sequence[Wish]) -> None:
        left = list(wishes)

        async def send() -> None:
            wish = left[0]
            spid = self._store.reserve(len(wish.addresses) > 1)
            envelope = Envelope(spid=spid, sender=SENDER, received=self.clock.now())
            content = _chunks(body_of(spid, wish.size))
            submission = Submission(envelope=envelope, recipients=wish.addresses, content=content)
            try:
                taken = await self._store.enqueue(submission)
            except StoreUnavailable as error:
                self.refusals.append(str(error))
                return
            self.world.accepted |= {recipient.key for recipient in taken}
            del left[0]

        await self._persist(lambda: not left, send)

    # ------------------------------------------------------------ delivery and reports

    def _left(self) -> int:
        return sum(area.recipients for area in self._store.stats().values())

    async def _all_tried(self) -> None:
        def done() -> bool:
            return not self._store.stats()[Area.INCOMING].recipients

        await self._persist(done, self._deliver)

    async def _deliver_until(self, done: Callable[[], bool]) -> None:
        async def work() -> None:
            await self._deliver()
            await self._report()

        await self._persist(done, work)

    async def _deliver(self) -> None:
        for recipient in await self._store.claim(20, self.clock.now()):
            try:
                content = await self._store.content(recipient)
                with closing(content):
                    octets = await read_all(content)
                await self._store.begin([recipient], "site.test")
            except StoreUnavailable:
                await self._store.park([recipient], 0)
                continue
            if not recipient.is_report:
                assert octets == body_of(recipient.spid, recipient.size)
            verdict = self._verdict(recipient)
            if verdict == delivered():
                self.world.delivered[recipient.key] += 1
            elif verdict == bounced():
                self.world.refused.add(recipient.key)
            await self._store.settle([Settlement(recipient=recipient, verdict=verdict)])

    def _verdict(self, recipient: Recipient) -> Verdict:
        name = recipient.address.partition("@")[0]
        wanted = {"late": 1, "later": 2}.get(name, 0)
        if name == "no":
            return bounced()
        if recipient.attempts - recipient.unknowns < wanted:
            return deferred(self.clock.now() + 5 * SECOND)
        return delivered()

    async def _report(self) -> None:
        for number, bounce in enumerate(await self._store.claim_bounces(20)):
            if number:
                await self._store.settle([Settlement(recipient=bounce, verdict=Discarded(reason="setting"))])
                continue
            spid = self._store.reserve(several=False)
            envelope = Envelope(spid=spid, sender="", received=self.clock.now(), origin=Origin.REPORT)
            report = Submission(envelope=envelope, recipients=[SENDER], content=b"Subject: no\r\n\r\n")
            told = Settlement(recipient=bounce, verdict=Reported(report_spid=spid))
            await self._store.settle([told], [report])
            self.world.accepted.add((spid, 1))

    async def _leave_one_begun(self) -> None:
        """An attempt that the stop cuts off behind its final dot."""
        await self._take_in((Wish(("now@e.test",), 50),))
        begun: list[Recipient] = []

        async def begin() -> None:
            for recipient in await self._store.claim(1, self.clock.now()):
                try:
                    await self._store.begin([recipient], "site.test")
                except StoreUnavailable:
                    await self._store.park([recipient], 0)
                else:
                    begun.append(recipient)

        await self._persist(lambda: bool(begun), begin)

    # ------------------------------------------------------------ upkeep

    async def _empty(self) -> None:
        """Seal, and see everything go to clusters and spool by itself."""
        assert self._store._open is not None
        parts = self._store._open
        shard = parts.shard
        shard.journal.seal()
        last = max(shard.ring.segments, default=0)
        self.clock.advance(shard.options.settings.journal.evacuate_age)
        parts.checkpointer.wake()

        async def wait() -> None:
            await asyncio.sleep(0)

        await self._persist(lambda: all(number > last for number in shard.ring.segments), wait)


async def _chunks(octets: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(octets), 3000):
        yield octets[start : start + 3000]


async def _open_and_close(root: Path) -> None:
    """A start and a stop by whom the illness does not concern."""
    disk = SickDisk(root)
    clock = FakeClock()
    clock.advance(3_600_000)
    store = ClusterStore(options(root, links=False), clock, RecordingObserver(), disk, InlineWorkers(disk))
    await store.open()
    await store.recovered()
    await store.close()
    disk.dispose()

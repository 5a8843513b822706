"""A shard on a disk in memory, driven step by step, and what the world outside sees of it.

Nothing here waits for real time: the clock is moved by hand, and the helper's tasks run in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from mqcd.config.settings import JournalSettings, QueueSettings, SpoolSettings
from mqcd.core.events import Verb, format_time
from mqcd.core.model import (
    Action,
    Amended,
    Batch,
    Delivered,
    Envelope,
    Key,
    Origin,
    Purged,
    Recipient,
    Reported,
    Settlement,
    Submission,
    Verdict,
)
from mqcd.core.ports import Reservation
from mqcd.core.queueing.idempotency import name_of
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk
from mqcd.eventlog.files import Source, parse
from mqcd.eventlog.lossy_files import Line, LossyFiles
from mqcd.eventlog.retention import Retain, Retention
from mqcd.queue.admin.ownership import Owned, owned
from mqcd.queue.helper import jobs
from mqcd.queue.helper.helper import Helper
from mqcd.queue.memory.shard_state import Options, Shard
from mqcd.queue.store import ClusterStore
from tests.contract.mail import deferred
from tests.crash.histories import LETTERS
from tests.crash.memory import MemoryDisk, Trace
from tests.crash.model import Mark, State
from tests.crash.worker import body_of
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.observer import Heard, RecordingObserver
from tests.fakes.workers import InlineHelper, InlineWorkers

SENDER = "sender@example.com"
TOP = Path("/mail")
ROOTS = (TOP / "queue", TOP / "spool", TOP / "events")
"""Each lies on a file system of its own: what is synced on one is not synced on another."""
ARCHIVE = TOP / "archive"
"""Where a reader keeps the event files: it has copied each before it is removed."""
KEY = b"a key of at least 16 octets"
EVENTS = 1800
"""Octets of event files that are kept with `links`."""
INLINE_MAX = 1200
SEGMENT = 20 << 10
EVACUATE_AGE = 60_000
DAY_MS = 86_400_000
_TURNS = 20_000
"""After so many turns of the loop, what is waited for does not come."""


def warning_of(key: tuple[int, int]) -> str:
    """How a report on a delay names the recipient that it is about."""
    return f"{key[0]:016X}-{key[1]}"


def key_name(number: int) -> bytes:
    """The name of a story's key."""
    return name_of("story", str(number))


def options(*, links: bool = False, segments: int = 4) -> Options:
    """A shard as small as can be, so that every file and frame has few sectors.

    With `links` its event files name nobody, and only so many of them are kept.
    """
    settings = QueueSettings(
        rootpath=ROOTS[0],
        maxclustersize=700,
        retry_granularity=1000,
        spool=SpoolSettings(rootpath=ROOTS[1], bufsize=1024, maxspidcache=3, hardlinks=links),
        journal=JournalSettings(
            segmentsize=SEGMENT,
            segments=segments,
            inline_max=INLINE_MAX,
            seal_age=DAY_MS,
            evacuate_age=EVACUATE_AGE,
        ),
    )
    schedule = RetrySchedule(delays=(20_000, 40_000, 80_000), maxtime=DAY_MS, maxtime_reports=DAY_MS)
    return Options(
        settings=settings,
        schedule=schedule,
        source=Source("crash", 0, KEY if links else b""),
        events=ROOTS[2],
        retention=Retention(maxsize=EVENTS if links else 0),
    )


REFUSED = Line(
    Verb.REFUSED,
    f'"event":"refused","at":"{format_time(START_MS)}","reason":"relay","code":550,"class":"policy"}}',
)
"""One at each start."""


class WatchedHelper(InlineHelper):
    """Does the helper's tasks at once, and lets a story do something meanwhile."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self.before: Callable[[jobs.Task], None] = lambda _task: None
        """Told of each task before it is done."""

    async def run(self, task: jobs.Task) -> jobs.Result:
        self.before(task)
        if isinstance(task, Retain):
            self._archive(task.directory)
        return await super().run(task)

    def _archive(self, events: Path) -> None:
        self._disk.mkdir(ARCHIVE)
        for name in self._disk.names(events):
            file = parse(name)
            if file is not None and not file.best_effort:
                self._disk.link(events / name, ARCHIVE / name)
        self._disk.sync_dir(ARCHIVE)


class WatchedWorkers(InlineWorkers):
    """Nothing runs beside the loop."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self.watched = WatchedHelper(disk)

    def helper(self, lock_fd: int) -> Helper:
        return self.watched


class Reserved:
    """A connection of which nothing is wanted."""

    destination = "site.example"
    begins = True

    def use(self, content: bytes | None) -> None:
        """The story goes on with it."""

    def release(self) -> None:
        """Nothing was reserved."""


class Witness(RecordingObserver):
    """Marks each transition in the trace when the store tells of it: from then on it must stand."""

    def __init__(self, disk: MemoryDisk) -> None:
        super().__init__()
        self._disk = disk

    def hear(self, heard: Heard) -> None:
        letter = LETTERS.get(heard.verb.value)
        if letter is not None and heard.recipient is not None:
            self._disk.mark(letter, *heard.recipient.key)


class Actor:
    """One life of a store after another, on one disk."""

    def __init__(self, *, links: bool = False, disk: MemoryDisk | None = None, since: int = START_MS) -> None:
        self.options = options(links=links)
        self.clock = FakeClock(since)
        self.batches = 0
        self.disk = disk or MemoryDisk(roots=ROOTS)
        if disk is None:
            self.disk.trace = Trace(State())
        self.workers = WatchedWorkers(self.disk)
        self.arrival = 0
        """Octets of a message that comes in at each start; 0 = none does."""
        self._store: ClusterStore | None = None

    @property
    def store(self) -> ClusterStore:
        assert self._store is not None
        return self._store

    @property
    def shard(self) -> Shard:
        assert self.store._open is not None
        return self.store._open.shard

    def owned(self) -> AbstractAsyncContextManager[Owned]:
        """The queue for oneself, as the commands that change it have it."""
        return owned(self.options, self.clock, Witness(self.disk), self.disk, self.workers)

    @property
    def trace(self) -> Trace:
        assert self.disk.trace is not None
        return self.disk.trace

    async def start(self) -> None:
        self.clock.advance(1000)
        self._store = ClusterStore(self.options, self.clock, Witness(self.disk), self.disk, self.workers)
        await self._store.open()
        refusals = LossyFiles(self.disk, ROOTS[2], self.options.source, 0)
        refusals.prepare()
        refusals.write([REFUSED], self.clock.now())
        if self.arrival:
            # Mail comes in while what was left is still being read.
            await self.accept(1, self.arrival)
        await self._store.recovered()
        await self.calm()

    async def stop(self) -> None:
        await self.store.close()
        self._store = None

    async def kill(self) -> None:
        """End it by SIGKILL: what was written stays in the page cache, nothing more is synced."""
        corpse = self.disk
        self.disk = MemoryDisk(corpse.state.clone(), roots=ROOTS)
        self.disk.trace, corpse.trace = corpse.trace, None
        self.workers = WatchedWorkers(self.disk)
        await self.stop()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Let everybody work until something is so."""
        for _ in range(_TURNS):
            if reached():
                return
            await asyncio.sleep(0)
        raise AssertionError("what was waited for does not come")

    async def calm(self) -> None:
        """Let everybody work until nothing is being done."""
        checkpointer, shard = self.store._open.checkpointer if self.store._open else None, self.shard
        assert checkpointer is not None
        checkpointer.wake()
        await self.until(lambda: not checkpointer._wake.is_set())
        for _ in range(3):
            await shard.journal.quiet()
            await shard.deleter.settled(lambda: True)
            await asyncio.sleep(0)

    async def accept(self, many: int, size: int, domain: str = "example.org") -> int:
        """Mail comes in. Returns its SPID."""
        spid = self.store.reserve(many > 1)
        envelope = Envelope(spid=spid, sender=SENDER, received=self.clock.now())
        addresses = [f"u{number}@{domain}" for number in range(many)]
        content = body_of(spid, size)
        await self.store.enqueue(Submission(envelope=envelope, recipients=addresses, content=content))
        return spid

    async def accept_once(self, number: int, size: int) -> int:
        """Mail comes in under a key. Returns the SPID that its client was given."""
        spid = self.store.reserve(False)
        envelope = Envelope(spid=spid, sender=SENDER, received=self.clock.now())
        key = Key(name=key_name(number), digest=bytes(8))
        content = body_of(spid, size)
        [taken] = await self.store.enqueue(
            Submission(envelope=envelope, recipients=["u@example.org"], content=content, key=key)
        )
        self.disk.mark("Y", taken.spid, number)
        return taken.spid

    async def hand_over(self, many: int, size: int) -> list[Recipient]:
        """Mail comes in that goes straight to a connection, if it may. Returns recipients so begun."""
        taken: list[Recipient] = []

        def find(recipients: Sequence[Recipient]) -> Reservation:
            taken.extend(recipients)
            return Reserved()

        self.store.hand_over(find)
        try:
            await self.accept(many, size)
        finally:
            self.store.hand_over(lambda _: None)
        return taken

    async def claim(self, room: int, skip: dict[str, int] | None = None) -> list[Recipient]:
        """So many recipients that are due, exactly."""
        claimed: list[Recipient] = []
        for _ in range(_TURNS):
            claimed += await self.store.claim(room - len(claimed), self.clock.now(), skip)
            if len(claimed) == room:
                return claimed
            await asyncio.sleep(0)
        raise AssertionError(f"{len(claimed)} of {room} recipients are due")

    async def begin(self, recipients: Sequence[Recipient]) -> None:
        """An attempt: from here on, the final dot may be sent."""
        await self.store.begin(recipients, "site.example")

    def seen(self, recipient: Recipient) -> None:
        """A receiver has taken the message."""
        self.disk.mark("S", *recipient.key)

    async def settle(self, recipients: Sequence[Recipient], verdicts: Sequence[Verdict]) -> None:
        for recipient, verdict in zip(recipients, verdicts, strict=True):
            if isinstance(verdict, Delivered):
                self.seen(recipient)
        await self.store.settle(
            [Settlement(recipient=r, verdict=v) for r, v in zip(recipients, verdicts, strict=True)]
        )

    async def try_all(self, *verdicts: Verdict) -> list[Recipient]:
        """Claim as many as there are verdicts, and settle them."""
        claimed = await self.claim(len(verdicts))
        await self.begin(claimed)
        await self.settle(claimed, verdicts)
        return claimed

    async def park(self, recipients: Sequence[Recipient], until: int) -> None:
        """Give recipients back; an attempt of theirs that had begun ends without an outcome."""
        for each in recipients:
            self.disk.mark("P", *each.key)
        await self.store.park(recipients, until)

    async def act(self, action: Action, selection: Selection | None = None, **details: Any) -> int:
        """Carry out an operator's action; returns how many recipients it has changed."""
        self.batches += 1
        order = Batch(
            id=f"{action}-{self.batches}", action=action, at=self.clock.now(), by="uid:1", **details
        )
        changed = 0
        async with aclosing(self.store.pick(selection or Selection(), order)) as parts:
            async for part in parts:
                await self.store.settle(
                    [Settlement(recipient=each, verdict=Amended(batch=order)) for each in part.recipients]
                )
                changed += part.changed + len(part.recipients)
        return changed

    async def purge(self) -> None:
        """End the removals whose grace is over."""
        while found := await self.store.claim_removed(9):
            await self.store.settle([Settlement(recipient=each, verdict=Purged()) for each in found])

    async def report(self, size: int = 500) -> int:
        """Report on one bounce. Returns the report's SPID."""
        [bounce] = await self.store.claim_bounces(1)
        spid = self.store.reserve(several=False)
        envelope = Envelope(spid=spid, sender="", received=self.clock.now(), origin=Origin.REPORT)
        report = Submission(envelope=envelope, recipients=[SENDER], content=body_of(spid, size))
        told = Settlement(recipient=bounce, verdict=Reported(report_spid=spid))
        await self.store.settle([told], [report])
        return spid

    async def warn(self, due: int) -> None:
        """An attempt fails, and the sender is told of the delay. Whom that is about, the report says as its
        user, which its event tells."""
        [recipient] = await self.claim(1)
        await self.begin([recipient])
        spid = self.store.reserve(several=False)
        now = self.clock.now()
        envelope = Envelope(
            spid=spid, sender="", received=now, origin=Origin.REPORT, client=warning_of(recipient.key)
        )
        report = Submission(envelope=envelope, recipients=[SENDER], content=body_of(spid, 300))
        told = Settlement(recipient=recipient, verdict=replace(deferred(due), warning=now + DAY_MS))
        await self.store.settle([told], [report])

    async def seal(self) -> None:
        self.shard.journal.seal()
        await self.calm()

    async def evacuate(self) -> None:
        """Seal, and let all that is sealed be evacuated."""
        await self.seal()
        self.clock.advance(EVACUATE_AGE + 1)
        await self.calm()
        await self.until(lambda: self.shard.ring.oldest_sealed is None)
        await self.calm()

    def later(self, ms: int) -> int:
        return self.clock.now() + ms


def resumed(trace: Trace, prefix: int, links: bool = False) -> Actor:
    """The server is killed before call number `prefix`; whatever comes next adds to the trace."""
    state = trace.start.clone()
    for op in trace.ops[:prefix]:
        state.apply(op)
    disk = MemoryDisk(state, roots=ROOTS)
    disk.trace = Trace(trace.start, trace.past, trace.ops[:prefix])
    return Actor(links=links, disk=disk, since=START_MS + DAY_MS // 2)


def survivor(state: State, links: bool = False, past: tuple[Mark, ...] = ()) -> Actor:
    """The power was cut, and this is what was left; the trace begins here, and the world has a past."""
    disk = MemoryDisk(state, roots=ROOTS)
    disk.trace = Trace(state.clone(), (*past, Mark("C", 0, 0)))
    return Actor(links=links, disk=disk, since=START_MS + DAY_MS // 2)

"""The power goes before any call that changes the disk: what is left always opens, and nothing is lost.

One short scenario that takes every step once (accept, spool, attempt, verdicts, evacuation, take, report,
sweep) is recorded; then each prefix of its trace is opened, with what was not synced kept and dropped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from mqcd.core.model import Envelope, Origin, Recipient, Reported, Settlement, Submission, Verdict
from mqcd.queue.durable import Disk
from mqcd.queue.shard import Options
from mqcd.queue.store import ClusterStore
from tests.contract.mail import bounced, deferred, delivered, read_all
from tests.crash.ledger import read_events
from tests.crash.trace import LocalHelper, Op, Power, RecordingDisk, prefixes
from tests.crash.worker import INLINE_MAX, SENDER, body_of, options
from tests.fakes.clock import FakeClock
from tests.fakes.observer import RecordingObserver

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

Key = tuple[int, int]
_LATER_MS = 600_000
_SIZE = 64 << 10


class Seen:
    """What the outside world has seen up to a mark."""

    def __init__(self) -> None:
        self.accepted: dict[Key, int] = {}
        self.ended: set[Key] = set()

    def hear(self, op: Op) -> None:
        if op.mark is not None:
            word, spid, number = op.mark
            if word == "A":
                self.accepted |= {(spid, qid): spid for qid in range(1, number + 1)}
            else:
                self.ended.add((spid, number))


async def _open(opts: Options, clock: FakeClock, disk: Disk) -> ClusterStore:
    store = ClusterStore(opts, clock, RecordingObserver(), disk)
    await store.open()
    assert store._open is not None
    store._open.shard.helper = LocalHelper(disk)
    await store.recovered()
    return store


class Scenario:
    """Everything once."""

    def __init__(self, root: Path, *, links: bool = False) -> None:
        self.disk = RecordingDisk()
        self.clock = FakeClock()
        self._options = options(root, _SIZE, 4, links=links)

    async def run(self) -> list[Op]:
        """The trace."""
        first = await self._start()
        for many, size in ((1, 300), (3, 900), (1, INLINE_MAX * 2), (2, INLINE_MAX + 5), (1, 100)):
            await self._accept(first, many, size)
        due = self.clock.now() + 1000
        await self._settle(first, 4, [delivered(), deferred(due), bounced(), deferred(due)])
        await self._settle(first, 1, [delivered()])
        await first.close()
        second = await self._start()
        await self._accept(second, 2, 200)
        self.clock.advance(2000)
        await self._settle(second, 3, [delivered(), delivered(), deferred(self.clock.now() + 1)])
        [bounce] = await second.claim_bounces(5)
        spid = second.reserve(several=False)
        envelope = Envelope(spid=spid, sender="", received=self.clock.now(), origin=Origin.REPORT)
        report = Submission(envelope=envelope, recipients=[SENDER], content=body_of(spid, 500))
        told = Settlement(recipient=bounce, verdict=Reported(report_spid=spid))
        self.disk.mark("E", *bounce.key)
        await second.settle([told], [report])
        self.disk.mark("A", spid, 1)
        # Enough to begin a third segment in the slot of the first, once that has been evacuated.
        for _ in range(20):
            await self._accept(second, 1, 7500)
            for _ in range(20):
                await asyncio.sleep(0)
        await second.close()
        third = await self._start()
        self.clock.advance(5000)
        while claimed := await third.claim(9, self.clock.now()):
            await self._give(third, claimed, [delivered()] * len(claimed))
        await third.close()
        return self.disk.trace

    async def _start(self) -> ClusterStore:
        self.clock.advance(1000)
        return await _open(self._options, self.clock, self.disk)

    async def _accept(self, store: ClusterStore, many: int, size: int) -> None:
        spid = store.reserve(many > 1)
        envelope = Envelope(spid=spid, sender=SENDER, received=self.clock.now())
        addresses = [f"u{number}@example.org" for number in range(many)]
        content = body_of(spid, size)
        await store.enqueue(Submission(envelope=envelope, recipients=addresses, content=content))
        self.disk.mark("A", spid, many)

    async def _settle(self, store: ClusterStore, room: int, verdicts: list[Verdict]) -> None:
        claimed: list[Recipient] = []
        while len(claimed) < room:
            claimed += await store.claim(room - len(claimed), self.clock.now())
            await asyncio.sleep(0)
        await self._give(store, claimed, verdicts)

    async def _give(
        self, store: ClusterStore, claimed: Sequence[Recipient], verdicts: Sequence[Verdict]
    ) -> None:
        await store.begin(claimed, "site.example")
        for recipient, verdict in zip(claimed, verdicts, strict=True):
            if verdict == delivered():
                self.disk.mark("E", *recipient.key)
        await store.settle(
            [Settlement(recipient=r, verdict=v) for r, v in zip(claimed, verdicts, strict=True)]
        )


async def _check(root: Path, seen: Seen, clock: FakeClock) -> None:
    """What lies below `root` opens, and holds all that was accepted and has not ended, once."""
    store = await _open(options(root, _SIZE, 4), clock, Disk())
    found: list[Recipient] = []
    queued = sum(area.recipients for area in store.stats().values())
    while len(found) < queued:
        found += await store.claim(50, clock.now() + _LATER_MS)
        found += await store.claim_bounces(50)
        # What is being evacuated at this moment is handed out a moment later.
        await asyncio.sleep(0)
    homes = Counter(recipient.key for recipient in found)
    assert not [key for key, count in homes.items() if count > 1]
    assert not seen.accepted.keys() - homes.keys() - seen.ended
    for recipient in found:
        octets = await read_all(await store.content(recipient))
        assert octets == body_of(recipient.spid, recipient.size)
    await store.close()
    told = Counter(
        (int(event["spid"], 16), event["qid"])
        for event in read_events(root / "events")
        if event["event"] == "accepted"
    )
    assert not seen.accepted.keys() - told.keys(), "accepted, but the events do not say so"
    assert not [key for key, count in told.items() if count > 1]


async def _cut(
    root: Path, top: Path, power: Power, seen: Seen, clock: FakeClock, *, data: bool, names: bool
) -> None:
    top.mkdir()
    power.restore(root, top, unsynced_data=data, unsynced_names=names)
    await _check(top, seen, clock)


def _counts(op: Op, number: int) -> bool:
    # The silos are 32 times the same.
    return op.site != "spool.make_silos" or number % 16 == 0


@pytest.mark.parametrize("links", [False, True], ids=["counts", "links"])
async def test_every_prefix_opens_and_loses_nothing(tmp_path: Path, links: bool) -> None:
    root = tmp_path / "run"
    root.mkdir()
    scenario = Scenario(root, links=links)
    trace = await scenario.run()
    seen = Seen()
    cuts = 0
    for number, power in prefixes(trace):
        after = trace[number] if number < len(trace) else None
        if after is None or after.mark is not None or (after.syncs and _counts(after, number)):
            for data, names in ((False, False), (False, True), (True, False)):
                top = tmp_path / f"cut-{number}-{data:d}{names:d}"
                await _cut(root, top, power, seen, scenario.clock, data=data, names=names)
                cuts += 1
        if after is not None:
            seen.hear(after)
    assert cuts > 300
    assert seen.accepted.keys() == seen.ended


@pytest.mark.parametrize("share", [0.4, 0.55, 0.7, 0.85])
async def test_every_prefix_of_a_recovery_opens_and_loses_nothing(tmp_path: Path, share: float) -> None:
    root = tmp_path / "run"
    root.mkdir()
    scenario = Scenario(root)
    trace = await scenario.run()
    seen = Seen()
    cut = next(
        number for number, op in enumerate(trace) if number > share * len(trace) and op.name == "write"
    )
    half = tmp_path / "half"
    half.mkdir()
    for number, power in prefixes(trace):
        if number == cut:
            power.restore(root, half, unsynced_data=True, unsynced_names=True)
            break
        seen.hear(trace[number])
    disk = RecordingDisk()
    disk.adopt(half)
    base = len(disk.trace)
    store = await _open(options(half, _SIZE, 4), scenario.clock, disk)
    await store.close()
    for number, power in prefixes(disk.trace):
        if number >= base and (number == len(disk.trace) or disk.trace[number].syncs):
            for data, names in ((False, False), (True, True), (False, True)):
                top = tmp_path / f"again-{number}-{data:d}{names:d}"
                top.mkdir()
                power.restore(half, top, unsynced_data=data, unsynced_names=names)
                await _check(top, seen, scenario.clock)

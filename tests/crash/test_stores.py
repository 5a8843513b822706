"""The power goes before any call of a store of files: what was acknowledged is there, whole, and no more than
once; what had not ended is tried again.

One story with each kind of change is cut off at every call, with the baselines and some deviations of what
the disk keeps.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from mqcd.core.model import (
    Delivered,
    Discarded,
    Recipient,
    Reported,
    Settlement,
    Submission,
    Verdict,
)
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk
from mqcd.stores.backend import Backend
from mqcd.stores.files import FilesStore
from mqcd.stores.queue.stored_queue import StoredQueue
from mqcd.stores.symlinks import SymlinksStore
from tests.contract.harness import HOUR, SCHEDULE
from tests.contract.mail import Post, bounced, chunks, deferred, delivered, read_all
from tests.crash.lab import Witness
from tests.crash.matrix import crash_points, some_cuts
from tests.crash.memory import MemoryDisk, Trace
from tests.crash.oracle import World
from tests.fakes.clock import FakeClock

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(300)]

TOP = Path("/mail")
DEVIATIONS = 3
"""Of each call, so many cuts besides the baselines."""
AGAIN = 0.1
"""Of the calls of a start, so many are cut off in their turn."""
Make = Callable[[Disk], Backend]

STORES: Mapping[str, Make] = {
    "files": lambda disk: FilesStore(TOP / "env", TOP / "meta", disk=disk),
    "symlinks": lambda disk: SymlinksStore(TOP / "mail", disk=disk),
    "symlinks, one sync": lambda disk: SymlinksStore(TOP / "mail", one_sync_above=0, disk=disk),
    "files, one directory": lambda disk: FilesStore(TOP / "mail", disk=disk),
}


ENDS = frozenset("DRX")
END_ASKED, CHANGE_ASKED = "e", "f"
"""The store has been asked to end it, or to change it."""


async def settle(
    disk: MemoryDisk, queue: StoredQueue, verdicts: Mapping[Recipient, Verdict], *reports: Submission
) -> None:
    for each, verdict in verdicts.items():
        ends = isinstance(verdict, Delivered | Reported | Discarded)
        disk.mark(END_ASKED if ends else CHANGE_ASKED, each.spid, each.qid)
    settlements = [Settlement(recipient=each, verdict=verdict) for each, verdict in verdicts.items()]
    await queue.settle(settlements, reports)


async def begin(disk: MemoryDisk, queue: StoredQueue, recipients: Sequence[Recipient]) -> None:
    for each in recipients:
        disk.mark(CHANGE_ASKED, each.spid, each.qid)
    await queue.begin(recipients, "mx.example.org")


def body(address: str) -> bytes:
    return f"Subject: for {address}\r\n\r\n".encode() + address.encode() * 300


async def opened(disk: MemoryDisk, make: Make, clock: FakeClock) -> tuple[StoredQueue, Post]:
    disk.mkdir(TOP)
    queue = StoredQueue(make(disk), clock, Witness(disk), SCHEDULE)
    await queue.open()
    await queue.recovered()
    return queue, Post(queue, clock)


async def story(disk: MemoryDisk, make: Make) -> None:
    """Each kind of change, and a restart."""
    clock = FakeClock()
    queue, post = await opened(disk, make, clock)
    for address in ("a@x.example", "b@x.example", "c@y.example"):
        await post.send(address, content=body(address))
    await post.store.enqueue(post.submission("d@x.example", content=chunks(body("d@x.example"), 1000)))
    several = await post.send("e@x.example", "f@y.example", "g@z.example", content=body("e@x.example"))
    claimed = {each.address: each for each in await post.claim_all()}
    await begin(disk, queue, list(claimed.values()))
    others: dict[Recipient, Verdict] = {
        claimed["b@x.example"]: deferred(clock.now() + HOUR),
        claimed["c@y.example"]: bounced(),
        claimed["f@y.example"]: bounced(),
    }
    await settle(disk, queue, others)
    await settle(disk, queue, {claimed[each]: delivered() for each in ("a@x.example", "e@x.example")})
    disk.mark(CHANGE_ASKED, claimed["d@x.example"].spid, 1)
    await queue.park([claimed["d@x.example"]], 0)
    first, second = sorted(await post.claim_bounces(), key=lambda each: each.spid)
    report = post.submission("sender@example.com", sender="", content=body("sender@example.com"))
    await settle(disk, queue, {first: Reported(report_spid=report.envelope.spid)}, report)
    await settle(disk, queue, {second: Discarded(reason="setting")})
    await queue.close()
    assert len(several) == 3

    queue, post = await opened(disk, make, clock)
    left = await post.claim_all(clock.now() + 2 * HOUR)
    alone = [each for each in left if each.spid != several[0].spid]
    together = [each for each in left if each.spid == several[0].spid]
    for some in ([each] for each in alone):
        await begin(disk, queue, some)
        await settle(disk, queue, dict.fromkeys(some, delivered()))
    await begin(disk, queue, together)
    await settle(disk, queue, dict.fromkeys(together, delivered()))
    await queue.close()


async def judged(disk: MemoryDisk, make: Make, world: World) -> list[str]:
    """What is wrong with what a start finds there."""
    queue, post = await opened(disk, make, FakeClock())
    there = await post.scan(Selection())
    wrong = []
    for key, told in world.told.items():
        ended = bool(ENDS & set(told))
        if told.startswith("A") and not told.endswith(END_ASKED) and not ended and key not in there:
            wrong.append(f"{key} is lost after {told}")
        if ended and key in there:
            wrong.append(f"{key} is back after {told}")
    for key, each in there.items():
        first = "e@x.example" if each.address[0] in "fg" else each.address
        if await read_all(await queue.content(each)) != body(first):
            wrong.append(f"{key} has another content")
        told = world.told.get(key, "")
        if told.removesuffix(END_ASKED).endswith("T") and not each.unknowns:
            wrong.append(f"{key} has an attempt that is forgotten")
        if told.endswith(("F", "B")) and each.unknowns:
            wrong.append(f"{key} has a verdict that is forgotten")
    several = [key for key, each in there.items() if each.address[0] in "efg"]
    if several and len(several) < 3 and not any(key in world.told for key in several):
        wrong.append(f"{several} are part of a message that was not accepted")
    await queue.close()
    return wrong


@pytest.mark.parametrize("name", STORES)
async def test_crashes_of_a_store(name: str) -> None:
    make, disk, chance = STORES[name], MemoryDisk(), random.Random(1000)
    disk.trace = Trace(disk.state.clone())
    await story(disk, make)
    known: set[bytes] = set()
    wrong: list[str] = []
    points = 0
    for prefix, state, world in crash_points(disk.trace):
        for cut in some_cuts(prefix, state.undecided(), DEVIATIONS, chance):
            points += 1
            image = state.image(cut.choice(state.undecided()))
            key = image.key() + repr(sorted(world.told.items())).encode()
            if key in known:
                continue
            known.add(key)
            found = await judged(MemoryDisk(image.state()), make, world)
            after = disk.trace.ops[prefix - 1].site if prefix else ""
            wrong += [f"prefix {prefix} after {after}, {cut.baseline.value}: {each}" for each in found]
    assert wrong[:5] == []
    assert points > 1000


@pytest.mark.parametrize("name", STORES)
async def test_crashes_of_a_start_after_a_crash(name: str) -> None:
    make, disk, chance = STORES[name], MemoryDisk(), random.Random(2000)
    disk.trace = Trace(disk.state.clone())
    await story(disk, make)
    wrong: list[str] = []
    points = 0
    for prefix, state, world in crash_points(disk.trace):
        cuts = list(some_cuts(prefix, state.undecided(), 1, chance))
        again = MemoryDisk(state.image(chance.choice(cuts).choice(state.undecided())).state())
        again.trace = Trace(again.state.clone())
        await judged(again, make, world)
        for second, between, _ in crash_points(again.trace):
            if chance.random() > AGAIN:
                continue
            cuts = list(some_cuts(second, between.undecided(), 1, chance))
            image = between.image(chance.choice(cuts).choice(between.undecided()))
            points += 1
            found = await judged(MemoryDisk(image.state()), make, world)
            wrong += [f"prefix {prefix}, then {second}: {each}" for each in found]
    assert wrong[:5] == []
    assert points > 50


def forgetful(operation: str, by: str) -> MemoryDisk:
    """A disk that does not sync where this function asks for it; "" = where any does."""
    sync = getattr(MemoryDisk, operation)

    def skip(disk: MemoryDisk, *args: object) -> None:
        if by not in ("", sys._getframe(1).f_code.co_name):
            sync(disk, *args)

    made = type("Forgetful", (MemoryDisk,), {operation: skip})()
    assert isinstance(made, MemoryDisk)
    return made


MUTANTS = [
    *((name, operation, "") for name in ("files", "symlinks") for operation in ("sync_dir", "datasync")),
    *(("symlinks", "sync_dir", by) for by in ("_accept", "_replace", "_forget", "_end")),
    ("symlinks", "sync_dir", "_remove_ended"),
    ("symlinks", "sync_dir", "_write_values"),
    ("symlinks, one sync", "sync_filesystem", ""),
]
"""Store, what is left out, and in which of its functions."""


@pytest.mark.parametrize(("name", "operation", "by"), MUTANTS)
async def test_a_missing_sync_is_found(name: str, operation: str, by: str) -> None:
    make, disk, chance = STORES[name], forgetful(operation, by), random.Random(1000)
    disk.trace = Trace(disk.state.clone())
    await story(disk, make)
    for prefix, state, world in crash_points(disk.trace):
        for cut in some_cuts(prefix, state.undecided(), DEVIATIONS, chance):
            try:
                image = state.image(cut.choice(state.undecided()))
                if await judged(MemoryDisk(image.state()), make, world):
                    return
            except Exception:
                return
    pytest.fail("no crash shows it")

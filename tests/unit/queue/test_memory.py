"""What the queue holds in memory is bounded by `memorybudget`, whatever arrives and however little leaves."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path

import pytest

from mqcd.config.settings import JournalSettings
from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Area, Recipient
from mqcd.queue.memory.buckets import BACK_AT_ONCE
from mqcd.queue.recovery.open import ENTRY_OCTETS
from mqcd.queue.requests.mail import ASKED_AT_ONCE
from mqcd.queue.requests.passing import PASSED_AT_ONCE
from mqcd.queue.wal.segments import JournalEntry
from tests.contract.harness import HOUR, MINUTE
from tests.contract.mail import deferred
from tests.unit.queue.support import Rig

SEGMENTS = 8
ROOMY = JournalSettings(segmentsize=16 << 20, segments=SEGMENTS, seal_age=HOUR)
"""So large that nothing leaves it by itself."""


def in_memory() -> int:
    """Entries that anything still holds on to."""
    gc.collect()
    return sum(type(each) is JournalEntry for each in gc.get_objects())


async def arrive(rig: Rig, *addresses: str) -> None:
    """Send one message; while the door is closed, wait until it may be open."""
    woken = asyncio.Event()
    rig.store.watch(woken.set)
    while True:
        try:
            await rig.post.send(*addresses, content=b"x")
            return
        except StoreUnavailable:
            await woken.wait()
            woken.clear()


@pytest.mark.slow
@pytest.mark.parametrize("asked", [True, False], ids=["claims", "nobody claims"])
async def test_an_outage_stays_within_the_budget_while_mail_arrives(tmp_path: Path, asked: bool) -> None:
    rig = await Rig(tmp_path / "q", memorybudget=2 << 20).open()
    most = (2 << 20) // ENTRY_OCTETS
    until = rig.clock.now() + HOUR
    skip = {"example.org": until}
    sent = 0
    for number in range(3000):
        addresses = [f"u{number}.{each}@example.org" for each in range(1 if number % 5 else 6)]
        await arrive(rig, *addresses)
        sent += len(addresses)
        if asked and number % 20 == 0:
            assert await rig.store.claim(50, rig.clock.now(), skip) == []
        assert rig.shard.ring.entries <= most
        if number % 500 == 499:
            assert in_memory() <= 1.3 * most + 1000
    stats = rig.store.stats()
    assert sum(stats[area].recipients for area in Area) == sent == 6000
    assert len(rig.listed()) == sent
    await rig.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_an_entry_takes_no_more_than_the_budget_counts_for_it(tmp_path: Path) -> None:
    rig = await Rig(tmp_path / "q", memorybudget=1 << 30, journal=ROOMY).open()
    many = 4500

    def taken() -> int:
        rig.observer.heard.clear()
        rig.disk.calls.clear()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    async def arrived() -> int:
        for number in range(many):
            await rig.post.send(f"u{number}@example.org", content=b"x")
        return taken()

    async def rested() -> int:
        for each in await rig.post.claim_all():
            await rig.post.settle(deferred(rig.clock.now() + HOUR + each.spid % 1000), each)
        return taken()

    tracemalloc.start()
    try:
        # The first round fills what is kept whatever the number: caches, mail decoded for its first attempt.
        await arrived()
        before = await rested()
        assert await arrived() - before < many * ENTRY_OCTETS
        assert await rested() - before < many * ENTRY_OCTETS
    finally:
        tracemalloc.stop()
    assert rig.shard.ring.entries == 2 * many
    await rig.close()


async def test_what_was_evacuated_leaves_the_line_of_those_that_wait(rig: Rig) -> None:
    for number in range(40):
        await rig.post.send(f"u{number}@example.org")
    before = in_memory()
    await rig.evacuate()
    assert in_memory() <= before - 40


# ---------------------------------------------------------------- claims


async def test_one_claim_skips_a_bounded_number(tmp_path: Path) -> None:
    rig = await Rig(tmp_path / "q", journal=ROOMY).open()
    for _ in range(5):
        await rig.post.send(*(f"u{number}@slow.example" for number in range(500)), content=b"x")
    await rig.post.send("a@quick.example")
    await rig.evacuate()
    told = asyncio.Event()
    rig.store.watch(told.set)
    until = rig.clock.now() + HOUR
    claims, found = 0, list[Recipient]()
    while not found:
        told.clear()
        found = list(await rig.store.claim(10, rig.clock.now(), {"slow.example": until}))
        claims += 1
        assert rig.shard.ring.entries <= claims * 1020
        if not found:
            await asyncio.wait_for(told.wait(), 60)
    assert [each.address for each in found] == ["a@quick.example"]
    assert claims > 1
    await rig.close()


async def test_a_backlog_of_dead_destinations_delays_no_new_mail(tmp_path: Path) -> None:
    rig = await Rig(tmp_path / "q", journal=ROOMY).open()
    due = rig.clock.now() + MINUTE
    for _ in range(6):
        await rig.post.send(*(f"u{number}@slow.example" for number in range(500)), content=b"x")
    await rig.post.settle(deferred(due), *await rig.post.claim_all(step=500))
    await rig.evacuate()
    rig.clock.advance(MINUTE)
    await rig.post.send("a@quick.example")
    [claimed] = await rig.store.claim(10, rig.clock.now(), {"slow.example": due + HOUR})
    assert claimed.address == "a@quick.example"
    await rig.close()


async def test_a_skipped_backlog_returns_in_small_parts(rig: Rig) -> None:
    for number in range(3):
        await rig.post.send(*(f"u{number}.{each}@slow.example" for each in range(500)), content=b"x")
    until = rig.clock.now() + HOUR
    await rig.store.claim(10, rig.clock.now(), {"slow.example": until})
    # In a later claim the time is a little later, and the line is the same.
    while rig.store.next_due() == 0:
        assert await rig.store.claim(10, rig.clock.now(), {"slow.example": until + 1}) == []
    rig.clock.advance(HOUR - 1)
    assert await rig.post.claim_all() == []
    back = []
    for wait in (1, 499, 1, 499, 1, HOUR):
        rig.clock.advance(wait)
        back.append(len(await rig.post.claim_all()))
    assert sum(back) == 1500
    assert max(back) <= 501
    assert [count > 0 for count in back] == [True, False, True, False, True, False]


async def test_a_domain_is_skipped_again_in_one_step(tmp_path: Path) -> None:
    rig = await Rig(tmp_path / "q", journal=ROOMY).open()
    for number in range(4):
        await rig.post.send(*(f"u{number}.{each}@slow.example" for each in range(500)), content=b"x")
    until = rig.clock.now() + MINUTE
    claims = 0
    while rig.store.next_due() == 0:
        assert await rig.store.claim(10, rig.clock.now(), {"slow.example": until}) == []
        claims += 1
    assert claims == 2000 // PASSED_AT_ONCE
    rig.clock.advance(MINUTE)
    rig.disk.calls.clear()
    again = until + MINUTE
    born = until - MINUTE
    found = await rig.store.claim(10, rig.clock.now(), {"slow.example": again}, lambda _: True, born - 1)
    assert (found, rig.store.next_due(), rig.disk.calls) == ([], again, [])
    rig.clock.advance(MINUTE)
    assert len(await rig.post.claim_all()) == BACK_AT_ONCE
    await rig.close()


async def test_skipped_old_mail_is_asked_for_in_small_parts(tmp_path: Path) -> None:
    rig = await Rig(tmp_path / "q", journal=ROOMY).open()
    many = 3 * ASKED_AT_ONCE
    sent = await rig.post.send(*(f"u{each}@slow.example" for each in range(many)), content=b"x")
    begun = rig.clock.now()
    skip = {"slow.example": begun + MINUTE}
    assert await rig.store.claim(500, begun, skip) == []
    rig.clock.advance(MINUTE)
    skip = {"slow.example": begun + HOUR}
    asked: list[Recipient] = []

    def overdue(each: Recipient) -> bool:
        asked.append(each)
        return each.qid % 2 == 0

    told = asyncio.Event()
    rig.store.watch(told.set)
    claimed: list[Recipient] = []
    for call in range(1, 4):
        told.clear()
        claimed += await rig.store.claim(500, rig.clock.now(), skip, overdue, begun)
        assert len(asked) == call * ASKED_AT_ONCE
        await asyncio.wait_for(told.wait(), 60)
    assert await rig.store.claim(500, rig.clock.now(), skip, overdue, begun) == []
    assert [each.key for each in claimed] == [each.key for each in sent if each.qid % 2 == 0]
    assert len(asked) == many
    await rig.close()


async def test_a_claim_that_fails_gives_back_what_it_has_found(rig: Rig) -> None:
    sent = await rig.post.send("a@example.org", "b@slow.example")

    def overdue(_: Recipient) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await rig.store.claim(10, rig.clock.now(), {"slow.example": rig.clock.now() + HOUR}, overdue)
    assert {each.key for each in await rig.post.claim_all()} == {each.key for each in sent}


async def test_passing_over_leaves_the_last_slots_to_verdicts(tmp_path: Path) -> None:
    rig = await Rig(tmp_path / "q", memorybudget=1 << 20).open()
    for number in range(600):
        await arrive(rig, *(f"u{number}.{each}@slow.example" for each in range(5)))
    await rig.evacuate()
    # Nothing more leaves the journal from here on.
    rig.disk.fail("rename", "*.mqc", times=None)
    until = rig.clock.now() + HOUR
    for _ in range(50):
        await rig.store.claim(10, rig.clock.now(), {"slow.example": until})
    assert rig.shard.ring.free_slots >= 1
    assert len(rig.shard.ring.segments) < SEGMENTS
    rig.disk.mend()
    await rig.close()


@pytest.mark.parametrize("at_rest", [False, True])
async def test_neither_new_nor_due_mail_starves_the_other(rig: Rig, at_rest: bool) -> None:
    due = rig.clock.now() + MINUTE
    for number in range(60):
        await rig.post.defer_new(f"old{number}@example.org", due)
    if at_rest:
        await rig.evacuate()
    rig.clock.advance(MINUTE)
    served = 0
    for _ in range(12):
        # More new mail than there is room for, each time.
        for number in range(20):
            await rig.post.send(f"new{number}@example.org")
        claimed = await rig.store.claim(10, rig.clock.now())
        assert len(claimed) == 10
        old = sum(1 for each in claimed if each.attempts)
        assert old == 5
        served += old
    assert served == 60


async def test_one_claim_gives_no_more_than_maxmemoryqueue(tmp_path: Path) -> None:
    rig = await Rig(tmp_path / "q", maxmemoryqueue=7).open()
    await rig.post.send(*(f"u{number}@example.org" for number in range(20)))
    assert len(await rig.store.claim(100, rig.clock.now())) == 7
    assert len(await rig.store.claim(3, rig.clock.now())) == 3
    await rig.close()

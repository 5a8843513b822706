"""Claims: how their room is shared, and what becomes of a record that cannot be read."""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import replace
from itertools import product

import pytest

from mqcd.core.model import Recipient, Settlement
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.requests.mail import (
    ASKED_AT_ONCE,
    ODD_PLACES,
    ROWS,
    Odd,
    Room,
    due_share,
    ended_share,
    older_share,
    overdue_share,
)
from mqcd.queue.wal.entry_states import State
from mqcd.queue.wal.segments import JournalEntry
from tests.contract.harness import HOUR
from tests.contract.mail import deferred
from tests.fakes.clock import turns
from tests.unit.queue.support import Rig

DOMAIN = "a.atrn.example"


async def test_a_resting_record_that_cannot_be_read_keeps_no_other_back_and_rests_until_its_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.post.send(f"a@{DOMAIN}")
    await rig.seal()
    await rig.post.send(f"b@{DOMAIN}")
    entries = [each for segment in rig.shard.ring for each in segment.entries.values()]
    for entry in entries:
        entry.recipient = None
    end = rig.store.next_due()
    recipient = Shard.recipient

    async def sick(shard: Shard, entry: JournalEntry) -> Recipient:
        if entry is entries[0]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return await recipient(shard, entry)

    with monkeypatch.context() as patch:
        patch.setattr(Shard, "recipient", sick)
        assert [each.address for each in await rig.store.claim_held(DOMAIN, 2)] == [f"b@{DOMAIN}"]
    assert rig.store.next_due() == end
    assert [each.address for each in await rig.store.claim_held(DOMAIN, 2)] == [f"a@{DOMAIN}"]


@pytest.mark.parametrize(
    ("room", "due_first", "overdue", "ended", "due"),
    [
        (2, True, 0, 1, 1),
        (2, False, 1, 1, 1),
        (3, True, 0, 1, 2),
        (3, False, 1, 1, 1),
        (4, True, 1, 1, 2),
        (5, False, 1, 1, 2),
        (500, True, 125, 125, 250),
        (501, True, 125, 125, 251),
        (501, False, 125, 125, 250),
    ],
)
def test_the_odd_place_goes_to_each_side_in_turn(
    room: int, due_first: bool, overdue: int, ended: int, due: int
) -> None:
    odd = Odd(due_first, older_first=False, early_first=False)
    shares = tuple(share(Room(room, odd)) for share in (overdue_share, ended_share, due_share))
    assert shares == (overdue, ended, due)


def test_each_row_has_the_only_place_of_a_claim_in_turn() -> None:
    filled = [
        (next(row.find.__name__ for row in ROWS if row.share(Room(1, odd))), odd.older_first)
        for odd in ODD_PLACES
    ]
    rows = ("overdue", "ended", "due_at_first", "new")
    assert sorted(filled) == sorted(product(rows, (False, True)))


@pytest.mark.parametrize(
    ("most", "found", "several", "shares"),
    [
        (10, 0, False, (10, 10)),
        (10, 4, False, (10, 10)),
        (10, 0, True, (5, 5)),
        (10, 4, True, (7, 7)),
        (10, 9, True, (10, 9)),
        (0, 0, True, (0, 0)),
    ],
)
def test_older_mail_of_several_tenants_leaves_half(
    most: int, found: int, several: bool, shares: tuple[int, int]
) -> None:
    assert tuple(older_share(most, found, several, older_first=first) for first in (True, False)) == shares


async def test_what_a_batch_gives_back_while_a_claim_reads_it_is_found_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.post.defer_new("a@example.org", rig.clock.now())
    for _ in range(3):
        # It is passed over, and the suspension is renewed twice: then a claim reads it.
        now = rig.clock.now()
        assert await rig.store.claim(1, now, {"example.org": now + HOUR}, lambda _: False, 0) == []
        rig.clock.advance(HOUR)
    [entry] = [each for segment in rig.shard.ring for each in segment.entries.values()]
    assert entry.state is State.PASSED_OVER
    reading, go_on = asyncio.Event(), asyncio.Event()
    recipient = Shard.recipient

    async def slow_and_sick(shard: Shard, entry: JournalEntry) -> Recipient:
        monkeypatch.setattr(Shard, "recipient", recipient)
        reading.set()
        await go_on.wait()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Shard, "recipient", slow_and_sick)
    now = rig.clock.now()
    skip = {"example.org": now + HOUR}
    asking = asyncio.ensure_future(rig.store.claim(1, now, skip, lambda _: True, now))
    await reading.wait()
    claims = rig.store._live.claims
    woken: list[None] = []
    claimed, _ = await claims.entries([entry])
    rig.store.watch(lambda: woken.append(None))
    claims.give_back(claimed)
    assert woken
    go_on.set()
    assert await asking == []
    assert len(await rig.post.claim_all()) == 1


async def test_mail_of_a_domain_that_opens_while_it_is_read_is_claimed_later(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.post.defer_new("a@example.org", rig.clock.now())
    now = rig.clock.now()
    skip = {"example.org": now + HOUR}
    recipient = Shard.recipient

    async def slow(shard: Shard, entry: JournalEntry) -> Recipient:
        await asyncio.sleep(0)
        skip.clear()
        return await recipient(shard, entry)

    monkeypatch.setattr(Shard, "recipient", slow)
    assert await rig.store.claim(1, now, skip, lambda _: False) == []
    assert not skip
    assert rig.store.next_due() == now + HOUR
    rig.clock.advance(HOUR)
    assert len(await rig.store.claim(1, rig.clock.now(), skip)) == 1


@pytest.mark.parametrize("opens", [False, True])
async def test_a_claim_that_lets_nothing_expire_wakes_none_for_old_mail(rig: Rig, opens: bool) -> None:
    left, start = 10, rig.clock.now()
    many = ASKED_AT_ONCE + left
    await rig.post.send(*(f"{number}@example.org" for number in range(many)))
    assert await rig.store.claim(many, start, {"example.org": start + HOUR}) == []
    rig.clock.advance(HOUR)
    now = rig.clock.now()
    skip = {"example.org": now + HOUR}
    woken: list[None] = []
    rig.store.watch(lambda: woken.append(None))
    assert await rig.store.claim(many, now, skip, lambda _: False, now) == []
    await turns()
    assert woken
    woken.clear()
    assert await rig.store.claim(many, now, {}) == []
    await turns()
    assert not woken
    if opens:
        rig.clock.advance(HOUR)
        assert len(await rig.post.claim_all()) == many
        assert rig.store.next_due() is None
        assert not rig.shard.entries.waiting.has_aged
    else:
        assert len(await rig.store.claim(many, now, skip, lambda _: True, now)) == left


async def deferred_of(rig: Rig, tenant: str, count: int, due: int) -> None:
    """So many recipients of a tenant, due at times from `due` on."""
    for number in range(0, count, 100):
        addresses = [f"{tenant}{each}@example.org" for each in range(number, min(number + 100, count))]
        given = rig.post.submission(*addresses)
        await rig.store.enqueue(replace(given, envelope=replace(given.envelope, listener=tenant)))
    await rig.store.settle(
        [
            Settlement(recipient=recipient, verdict=deferred(due + number))
            for number, recipient in enumerate(await rig.post.claim_all())
        ]
    )


@pytest.mark.parametrize("single", ["journal", "a segment of its own", "the same segment"])
async def test_a_retry_does_not_wait_for_another_tenant_with_many(rig: Rig, single: str) -> None:
    soon = rig.clock.now() + HOUR
    await deferred_of(rig, "many", 500, soon)
    if single != "the same segment":
        await rig.evacuate()
    await deferred_of(rig, "single", 1, soon + HOUR)
    if single != "journal":
        await rig.evacuate()
    rig.clock.advance(3 * HOUR)
    found = await rig.store.claim(20, rig.clock.now())
    others = [int(each.address.split("@")[0][4:]) for each in found if each.envelope.tenant == "many"]
    assert others == list(range(19))
    later = await rig.killed()
    again = await later.store.claim(20, rig.clock.now())
    assert "single" in {each.envelope.tenant for each in again}


async def test_tenants_with_little_share_their_clusters(rig: Rig) -> None:
    for number in range(30):
        await deferred_of(rig, f"small{number}", 3, rig.clock.now() + HOUR)
    await deferred_of(rig, "many", 300, rig.clock.now() + HOUR)
    await rig.evacuate()
    clusters = rig.shard.cluster_index.clusters.values()
    assert sorted((each.tenant, each.left) for each in clusters) == [("", 90), ("many", 300)]


async def test_claims_of_one_place_reach_each_tenant(rig: Rig) -> None:
    await deferred_of(rig, "many", 300, rig.clock.now() + HOUR)
    await rig.evacuate()
    await deferred_of(rig, "single", 1, rig.clock.now() + 2 * HOUR)
    await rig.post.send("new@example.org")
    rig.clock.advance(3 * HOUR)
    found = [each for _ in range(6) for each in await rig.store.claim(1, rig.clock.now())]
    assert {each.address for each in found} >= {"single0@example.org", "new@example.org", "many0@example.org"}

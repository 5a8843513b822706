"""Claims: how their room is shared, and what becomes of a record that cannot be read."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from mqcd.core.model import Recipient
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.requests.claim import due_share, ended_share, older_share, overdue_share
from mqcd.queue.wal.entry_states import State
from mqcd.queue.wal.segments import JournalEntry
from tests.contract.harness import HOUR
from tests.unit.queue.support import Rig

DOMAIN = "a.atrn.example"


async def test_a_resting_record_that_cannot_be_read_is_put_off(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.post.send(f"a@{DOMAIN}")

    async def sick(shard: Shard, entry: JournalEntry) -> Recipient:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for entry in [each for segment in rig.shard.ring for each in segment.entries.values()]:
        entry.recipient = None
    with monkeypatch.context() as patch:
        patch.setattr(Shard, "recipient", sick)
        assert not await rig.store.claim_held(DOMAIN, 1)
    due = rig.store.next_due()
    assert due is not None
    assert rig.clock.now() < due < rig.clock.now() + HOUR


@pytest.mark.parametrize(
    ("room", "due_first", "overdue", "ended", "due"),
    [
        (1, True, 0, 1, 1),
        (1, False, 1, 1, 0),
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
    shares = overdue_share(room, due_first), ended_share(room), due_share(room, due_first)
    assert shares == (overdue, ended, due)


@pytest.mark.parametrize(
    ("most", "found", "several", "share"),
    [
        (10, 0, False, 10),
        (10, 4, False, 10),
        (10, 0, True, 5),
        (10, 4, True, 7),
        (10, 9, True, 10),
        (0, 0, True, 0),
    ],
)
def test_older_mail_of_several_tenants_leaves_half(most: int, found: int, several: bool, share: int) -> None:
    assert older_share(most, found, several) == share


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
    claims.give_back(await claims.entries([entry]))
    go_on.set()
    assert await asking == []
    assert len(await rig.post.claim_all()) == 1

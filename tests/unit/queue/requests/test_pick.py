"""What a batch makes of records in clusters, and what moves between them and the journal meanwhile."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from contextlib import aclosing
from itertools import count
from typing import Any

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Action, Amended, Area, Recipient, Settlement
from mqcd.core.ports import Picked
from mqcd.core.selecting.selection import Selection
from mqcd.queue.admin.fsck.survey import survey
from mqcd.queue.format.frame import Replacement, pack_replacement
from mqcd.queue.memory import slices
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.requests import pick, replace
from mqcd.queue.wal.segments import JournalEntry
from tests.contract.harness import HOUR
from tests.contract.mail import batch, carry_out, deferred, where
from tests.fakes.clock import turns
from tests.unit.queue.support import Rig

MANY = 40


async def in_clusters(rig: Rig) -> None:
    """Deferred mail of two domains, all of it in clusters."""
    for domain in ("x.example", "y.example"):
        await rig.post.send(*(f"u{number}@{domain}" for number in range(MANY // 2)))
    now = rig.clock.now()
    for number, recipient in enumerate(await rig.post.claim_all()):
        await rig.post.settle(deferred(now + HOUR + number * 60_000), recipient)
    await rig.evacuate()


def areas(rig: Rig) -> dict[Area, int]:
    return {area: each.recipients for area, each in rig.store.stats().items() if each.recipients}


async def test_records_of_clusters_are_changed_without_the_journal(rig: Rig) -> None:
    await in_clusters(rig)
    order = batch(Action.HOLD, rig.post)
    assert await carry_out(rig.store, order, Selection(domain="x.example")) == (MANY // 2, 0)
    assert areas(rig) == {Area.DEFERRED: MANY // 2, Area.HELD: MANY // 2}
    assert not rig.shard.ring.entries
    assert rig.observer.count(Verb.HELD) == MANY // 2
    found = survey(rig.disk, rig.options)
    unlisted = rig.shard.cluster_index.clusters.keys() - rig.shard.manifest.state.clusters.keys()
    assert unlisted
    assert found.ok
    assert not {rig.queue / name for name in unlisted}.intersection(found.orphans)
    await rig.evacuate()
    assert rig.shard.manifest.state.replaced == rig.shard.cluster_index.replaced_up_to > 0
    assert survey(rig.disk, rig.options).ok
    assert areas(rig) == {Area.DEFERRED: MANY // 2, Area.HELD: MANY // 2}


async def test_what_a_batch_has_changed_is_counted_wherever_its_events_are(rig: Rig) -> None:
    await in_clusters(rig)
    await rig.post.send("new@x.example")
    order = batch(Action.HOLD, rig.post)
    undo = batch(Action.UNDO, rig.post, id="undo-1", target=order.id)
    assert await carry_out(rig.store, order) == (MANY + 1, 0)
    assert await carry_out(rig.store, undo, Selection(limit=5)) == (5, 0)
    assert await rig.store.changed_by(order.id, order.at) == MANY + 1
    assert await rig.store.changed_by(undo.id, undo.at) == 5
    await rig.evacuate()
    assert not rig.shard.ring.segments
    assert await rig.store.changed_by(order.id, order.at) == MANY + 1
    assert await rig.store.changed_by(undo.id, undo.at) == 5
    assert await carry_out(rig.store, undo) == (MANY - 4, 0)
    assert await rig.store.changed_by(undo.id, undo.at) == MANY + 1
    again = await rig.killed()
    assert await again.store.changed_by(undo.id, undo.at) == MANY + 1
    assert await again.store.changed_by("other", 0) == 0


async def test_a_limit_is_kept_over_clusters(rig: Rig) -> None:
    await in_clusters(rig)
    assert await carry_out(rig.store, batch(Action.HOLD, rig.post), Selection(limit=7)) == (7, 0)
    assert areas(rig) == {Area.DEFERRED: MANY - 7, Area.HELD: 7}


async def test_what_has_no_room_in_a_frame_takes_several(rig: Rig) -> None:
    await in_clusters(rig)
    rig.shard.journal.largest_frame = 1000
    assert await carry_out(rig.store, batch(Action.HOLD, rig.post)) == (MANY, 0)
    assert rig.shard.cluster_index.numbered > MANY // 4
    assert areas(rig) == {Area.HELD: MANY}


async def test_batches_at_once_change_each_record_once(rig: Rig) -> None:
    await in_clusters(rig)
    orders = [(f"hold-{domain}", Selection(domain=f"{domain}.example")) for domain in "xy"]
    carried = [carry_out(rig.store, batch(Action.HOLD, rig.post, id=name), each) for name, each in orders]
    assert await asyncio.gather(*carried) == [(MANY // 2, 0), (MANY // 2, 0)]
    assert areas(rig) == {Area.HELD: MANY}
    assert survey(rig.disk, rig.options).ok


async def test_a_frame_that_fails_leaves_the_clusters(rig: Rig) -> None:
    await in_clusters(rig)
    before = await rig.post.scan()
    order = batch(Action.REMOVE, rig.post)
    rig.disk.fail("datasync", "*/journal/*", times=2)
    acting = asyncio.ensure_future(carry_out(rig.store, order))
    while not acting.done():
        rig.clock.advance(1)
        await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable):
        await acting
    assert await rig.post.scan() == before
    rig.clock.advance(10_000)
    while rig.shard.journal.trouble.failures:
        await asyncio.sleep(0)
    await rig.shard.deleter.settled()
    assert set(rig.clusters()) == set(rig.shard.cluster_index.clusters)
    assert await carry_out(rig.store, order) == (MANY, 0)
    assert areas(rig) == {Area.REMOVED: MANY}


async def test_a_batch_that_waits_ends_when_the_journal_breaks(rig: Rig) -> None:
    await in_clusters(rig)
    [recipient] = await rig.store.claim(1, rig.clock.now() + 2 * HOUR)
    rig.disk.fail("datasync", "*/journal/*", times=None)
    parking = asyncio.ensure_future(rig.store.park([recipient], rig.clock.now() + HOUR))
    while not rig.store.stalled():
        await asyncio.sleep(0)
    other = Selection(domain="y.example" if recipient.domain == "x.example" else "x.example")
    acting = asyncio.ensure_future(carry_out(rig.store, batch(Action.HOLD, rig.post), other))
    await turns()
    assert not acting.done()
    rig.shard.journal.break_off()
    for waiting in (acting, parking):
        with pytest.raises(StoreUnavailable, match="only a restart helps"):
            await asyncio.wait_for(waiting, 30)
    assert not rig.shard.picking.locked()


async def test_a_kill_before_the_next_evacuation_keeps_the_change(rig: Rig) -> None:
    await in_clusters(rig)
    assert await carry_out(rig.store, batch(Action.HOLD, rig.post), Selection(domain="x.example")) == (20, 0)
    after = await rig.killed()
    assert areas(after) == {Area.DEFERRED: MANY // 2, Area.HELD: MANY // 2}
    await after.evacuate()
    assert survey(after.disk, after.options).ok
    undo = batch(Action.UNDO, after.post, id="undo-1", target="hold-1")
    assert await carry_out(after.store, undo) == (20, 0)
    assert areas(after) == {Area.DEFERRED: MANY}


async def test_an_action_yields_to_mail_in_flight(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pick, "AT_ONCE", 10)
    await rig.post.send(*(f"u{number}@x.example" for number in range(20)))
    await rig.post.send("flying@y.example")
    flying = [each for each in await rig.post.claim_all() if each.domain == "y.example"]
    others = [key for key in rig.shard.entries.active if key != flying[0].key]
    await rig.store.park(
        [entry.recipient for key in others if (entry := rig.shard.entries.active[key]).recipient], 0
    )
    parts = rig.store.pick(Selection(domain="x.example"), batch(Action.HOLD, rig.post))
    await settled(rig, await anext(parts))
    rig.clock.advance(7)
    following = asyncio.ensure_future(anext(parts))
    await turns()
    rig.clock.advance(7 * pick.RESTS - 1)
    await turns()
    assert not following.done()
    rig.clock.advance(1)
    await settled(rig, await following)
    await parts.aclose()


async def settled(rig: Rig, part: Picked) -> None:
    why = Amended(batch=batch(Action.HOLD, rig.post))
    await rig.store.settle([Settlement(recipient=each, verdict=why) for each in part.recipients])


async def test_a_record_that_is_loaded_and_evacuated_during_a_pick_is_picked(rig: Rig) -> None:
    await rig.post.send("early@example.org")
    await rig.evacuate()
    await rig.post.send("late@example.org")
    order = batch(Action.HOLD, rig.post)
    changed = 0
    searched_journal, go_on = asyncio.Event(), asyncio.Event()

    async def pick() -> None:
        nonlocal changed
        async with aclosing(rig.store.pick(Selection(), order)) as parts:
            async for part in parts:
                changed += len(part.recipients) + part.changed
                await rig.store.settle(
                    [Settlement(recipient=each, verdict=Amended(batch=order)) for each in part.recipients]
                )
                searched_journal.set()
                await go_on.wait()

    picking = asyncio.create_task(pick())
    await searched_journal.wait()
    [early] = await rig.post.claim_all()
    await rig.store.park([early], rig.clock.now())
    sealed = await rig.seal()
    await rig.enrolled()
    gate = rig.disk.block("*", "*/MANIFEST*")
    evacuation = asyncio.create_task(rig.store._live.checkpointer.evacuate(sealed))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    go_on.set()
    await turns()
    gate.release()
    await asyncio.gather(picking, evacuation)
    assert changed == 2
    assert areas(rig) == {Area.HELD: 2}


@pytest.mark.parametrize("later", range(30, 120, 30))
async def test_an_evacuation_during_a_pick_hides_nobody(rig: Rig, later: int) -> None:
    count = slices.AT_ONCE
    await rig.post.send(*(f"u{number}@{domain}.example" for number in range(count) for domain in "xy"))
    await rig.post.settle(deferred(rig.clock.now() + HOUR), *await rig.post.claim_all())
    evacuation = asyncio.create_task(rig.evacuate())
    await turns(later)
    order = batch(Action.HOLD, rig.post)
    assert await carry_out(rig.store, order, Selection(domain="x.example")) == (count, 0)
    await evacuation
    assert areas(rig) == {Area.DEFERRED: count, Area.HELD: count}


async def test_a_disk_that_takes_no_cluster_leaves_all_as_it_was(rig: Rig) -> None:
    await in_clusters(rig)
    before = await rig.post.scan()
    order = batch(Action.HOLD, rig.post)
    rig.disk.fail("*", "*.tmp", code=errno.ENOSPC)
    with pytest.raises(StoreUnavailable, match="No space left"):
        await carry_out(rig.store, order)
    assert await rig.post.scan() == before
    assert await carry_out(rig.store, order) == (MANY, 0)


async def test_a_cluster_may_end_before_a_pick_comes_to_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await in_clusters(rig)
    rig.clock.advance(10 * HOUR)
    claims = rig.store._live.claims
    reserve = claims.reserve

    async def reserve_late(names: Sequence[str]) -> None:
        assert len(await rig.post.claim_all()) == MANY
        await rig.evacuate()
        await reserve(names)

    monkeypatch.setattr(claims, "reserve", reserve_late)
    assert await carry_out(rig.store, batch(Action.HOLD, rig.post)) == (0, MANY)


async def test_a_cancelled_pick_waits_for_each_of_its_frames(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await in_clusters(rig)
    await in_clusters(rig)
    assert len(rig.clusters()) == 2
    monkeypatch.setattr(slices, "AT_ONCE", 5)
    appended = asyncio.Event()
    append = rig.shard.journal.append

    def appending(*args: Any) -> asyncio.Future[None]:
        appended.set()
        return append(*args)

    monkeypatch.setattr(rig.shard.journal, "append", appending)
    gate = rig.disk.block("datasync", "*/journal/*")
    picking = asyncio.ensure_future(carry_out(rig.store, batch(Action.HOLD, rig.post)))
    await appended.wait()
    picking.cancel()
    await turns()
    assert not picking.done()
    rig.clock.advance(10 * HOUR)
    claiming = asyncio.ensure_future(rig.post.claim_all())
    await turns()
    gate.release()
    with pytest.raises(asyncio.CancelledError):
        await picking
    assert await claiming == []
    assert areas(rig) == {Area.HELD: 2 * MANY}


async def test_a_rest_does_not_last_longer_for_a_disk_that_was_slow(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pick, "AT_ONCE", 10)
    await rig.post.send(*(f"u{number}@x.example" for number in range(20)))
    [*others, flying] = await rig.post.claim_all()
    await rig.store.park(others, 0)
    parts = rig.store.pick(Selection(), batch(Action.HOLD, rig.post))
    await settled(rig, await anext(parts))
    rig.clock.advance(HOUR)
    following = asyncio.ensure_future(anext(parts))
    await turns()
    assert not following.done()
    rig.clock.advance(pick.MOST_REST_MS)
    await settled(rig, await following)
    await parts.aclose()
    assert rig.store.in_flight(flying)


async def test_an_internal_error_removes_no_cluster_of_a_durable_frame(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await in_clusters(rig)
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))

    def fails(*_: object) -> None:
        raise ValueError("an observer's fault")

    monkeypatch.setattr(rig.observer, "amended", fails)
    with pytest.raises(StoreUnavailable, match="internal error"):
        await carry_out(rig.store, batch(Action.HOLD, rig.post))
    await rig.shard.deleter.settled()
    after = await rig.killed()
    assert areas(after) == {Area.HELD: MANY}
    assert len(await after.post.scan()) == MANY
    assert [str(fault["exception"]) for fault in faults] == ["an observer's fault"]


async def test_an_internal_error_between_two_frames_removes_what_no_frame_has_named(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await in_clusters(rig)
    await in_clusters(rig)
    packed: list[bytes] = []

    def fails(replacement: Replacement) -> bytes:
        if packed:
            raise ZeroDivisionError
        packed.append(pack_replacement(replacement))
        return packed[0]

    monkeypatch.setattr(replace, "pack_replacement", fails)
    with pytest.raises(ZeroDivisionError):
        await carry_out(rig.store, batch(Action.HOLD, rig.post))
    assert areas(rig) == {Area.DEFERRED: MANY, Area.HELD: MANY}
    await rig.shard.deleter.settled()
    assert set(rig.clusters()) == set(rig.shard.cluster_index.clusters)


async def test_a_cancelled_pick_removes_what_a_failed_frame_has_named(rig: Rig) -> None:
    await in_clusters(rig)
    journal = rig.shard.journal
    rig.disk.fail("datasync", "*/journal/*", times=2)
    picking = asyncio.ensure_future(carry_out(rig.store, batch(Action.HOLD, rig.post)))
    while not journal.trouble.failures:
        await asyncio.sleep(0)
    picking.cancel()
    while not picking.done():
        rig.clock.advance(1)
        await asyncio.sleep(0)
    assert picking.cancelled()
    assert len(rig.clusters()) > len(rig.shard.cluster_index.clusters)
    rig.clock.advance(10_000)
    while journal.trouble.failures:
        await asyncio.sleep(0)
    await rig.shard.deleter.settled()
    assert set(rig.clusters()) == set(rig.shard.cluster_index.clusters)
    assert areas(rig) == {Area.DEFERRED: MANY}


@pytest.mark.parametrize("lasts", [False, True])
async def test_a_removal_whose_record_cannot_be_read_is_undone_later_or_named_and_keeps_its_grace(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lasts: bool
) -> None:
    await rig.post.send("u@x.example")
    removal = batch(Action.REMOVE, rig.post)
    assert await carry_out(rig.store, removal) == (1, 0)
    await rig.seal()
    await rig.post.send("other@y.example")
    recipient, reads = Shard.recipient, count()

    async def sick(shard: Shard, entry: JournalEntry) -> Recipient:
        if next(reads) and not lasts:
            return await recipient(shard, entry)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    undo = batch(Action.UNDO, rig.post, id="undo-1", target=removal.id)
    with monkeypatch.context() as patch:
        patch.setattr(Shard, "recipient", sick)
        assert await carry_out(rig.store, undo) == (int(not lasts), 0)
    assert any("leaves out" in each.message for each in caplog.records) is lasts
    rig.clock.advance(HOUR - 1)
    assert await rig.store.claim_removed(9) == []
    rig.clock.advance(1)
    assert len(await rig.store.claim_removed(9)) == int(lasts)


async def test_what_is_tried_between_two_parts_is_judged_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pick, "AT_ONCE", 1)
    await rig.post.send("a@x.example", "b@x.example")
    parts = rig.store.pick(where("attempts = 0"), batch(Action.HOLD, rig.post))
    await settled(rig, await anext(parts))
    [tried] = await rig.post.claim_all()
    await rig.post.settle(deferred(rig.clock.now() + HOUR), tried)
    assert [recipient async for part in parts for recipient in part.recipients] == []
    assert areas(rig) == {Area.DEFERRED: 1, Area.HELD: 1}

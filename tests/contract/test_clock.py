"""Leaps of the wall clock: nothing expires, and nothing waits for a time that has gone with the old clock."""

from __future__ import annotations

import pytest

from mqcd.core.clockwatch import HOLD_MS
from mqcd.core.ports import QueueStore
from mqcd.core.queueing.spid import time_of
from tests.contract.harness import HOUR, MINUTE, SCHEDULE, Harness, Restart
from tests.contract.mail import Post, deferred

DAY = 24 * HOUR
Restarting = tuple[Harness, Restart]


@pytest.mark.parametrize("leap", [-2 * MINUTE, 2 * HOUR, 3650 * DAY])
async def test_nothing_expires_after_a_clock_leap(store: QueueStore, harness: Harness, leap: int) -> None:
    harness.clock.advance(10 * DAY)
    assert store.may_expire()
    harness.clock.leap(leap)
    assert not store.may_expire()
    harness.clock.advance(HOUR)
    assert not store.may_expire()
    harness.clock.leap(-leap)
    assert store.may_expire()


async def test_a_new_time_that_is_kept_is_believed(store: QueueStore, harness: Harness) -> None:
    harness.clock.leap(-DAY)
    assert not store.may_expire()
    harness.clock.advance(HOLD_MS)
    assert store.may_expire()


async def test_due_mail_does_not_wait_for_a_clock_that_has_gone_back(
    store: QueueStore, harness: Harness, post: Post
) -> None:
    first = await post.defer_new("a@example.org", harness.clock.now() + 15 * MINUTE)
    second = await post.defer_new("b@example.org", harness.clock.now() + 30 * MINUTE)
    harness.clock.leap(-30 * DAY)
    latest = harness.clock.now() + SCHEDULE.longest
    assert store.next_due() == latest
    harness.clock.advance(SCHEDULE.longest - 1)
    assert await post.claim_all() == []
    harness.clock.advance(1)
    assert {each.key for each in await post.claim_all()} == {first.key, second.key}


async def test_mail_of_a_false_future_comes_when_the_clock_is_right(
    store: QueueStore, harness: Harness, post: Post
) -> None:
    harness.clock.leap(3650 * DAY)
    await post.defer_new("a@example.org", harness.clock.now() + 15 * MINUTE)
    harness.clock.leap(-3650 * DAY)
    due = store.next_due()
    assert due is not None
    assert due <= harness.clock.now() + SCHEDULE.longest


async def test_spids_do_not_follow_a_leap(store: QueueStore, harness: Harness) -> None:
    before = harness.clock.now()
    harness.clock.leap(3650 * DAY)
    assert time_of(store.reserve(False)) < before + HOUR


async def test_mail_of_a_false_past_does_not_expire_early(
    store: QueueStore, harness: Harness, post: Post
) -> None:
    now = harness.clock.now()
    harness.clock.leap(-3650 * DAY)
    [accepted] = await post.send("a@example.org")
    assert accepted.envelope.received == now
    [claimed] = await post.claim_all()
    assert claimed.envelope.received == now


async def test_due_times_are_brought_forward_at_a_start(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await post.defer_new("journal@example.org", harness.clock.now() + 15 * MINUTE)
    parked = await post.defer_new("far@example.org", harness.clock.now() + 300 * DAY)
    harness.clock.leap(-30 * DAY)
    post = Post(await harness.restart(how), harness.clock)
    latest = harness.clock.now() + SCHEDULE.longest
    assert post.store.next_due() == latest
    claimed = await post.claim_all(latest)
    assert len(claimed) == 2
    await post.settle(deferred(latest + MINUTE), *claimed)
    again = await post.claim_all(latest + MINUTE)
    assert parked.key in {each.key for each in again}


async def test_a_long_stop_is_no_leap(restarting: Restarting) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await post.send("a@example.org")
    harness.clock.advance(29 * DAY)
    post = Post(await harness.restart(how), harness.clock)
    assert post.store.may_expire()
    assert len(await post.claim_all()) == 1

"""Leaps of the wall clock in the queue on disk: what is suspended, what is told, what a restart keeps."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from pathlib import Path

import pytest

from mqcd.core.clockwatch import HOLD_MS
from mqcd.core.model import Area
from mqcd.core.queueing.spid import spid_at
from mqcd.disk.durable import Disk
from mqcd.eventlog.retention import Retention
from mqcd.queue.manifest import log as manifests
from tests.contract.harness import HOUR, MINUTE, SCHEDULE
from tests.contract.mail import BODY, deferred
from tests.fakes.clock import START_MS, FakeClock, turns
from tests.unit.queue.support import Rig, held, spool_path

DAY = 24 * HOUR
YEARS = 3650 * DAY


def manifest_clock(rig: Rig) -> int:
    state = manifests.read(Disk(), rig.queue / "MANIFEST")
    assert state is not None
    return state.clock


async def rested(rig: Rig, *due: int) -> None:
    """One recipient for each due time, all in clusters."""
    for number in range(len(due)):
        await rig.post.send(f"u{number}@example.org")
    for each, when in zip(await rig.post.claim_all(), due, strict=True):
        await rig.post.settle(deferred(when), each)
    await rig.evacuate()


# ---------------------------------------------------------------- across a restart


@pytest.mark.parametrize("leap", [-DAY, YEARS])
async def test_a_clock_leap_while_stopped_is_noticed_at_start(rig: Rig, leap: int) -> None:
    await rig.post.send("a@example.org")
    rig.clock.leap(leap)
    again = await rig.killed()
    assert not again.store.may_expire()
    assert again.store.engine().clock_leap_seconds == leap / 1000


@pytest.mark.parametrize("leap", [-DAY, YEARS])
async def test_a_doubt_outlives_edits_and_restarts(rig: Rig, leap: int) -> None:
    rig.clock.leap(leap)
    await rig.post.send("a@example.org")
    rig.clock.advance(MINUTE)
    await rig.evacuate()
    assert manifest_clock(rig) == START_MS + MINUTE
    again = await rig.killed()
    assert not again.store.may_expire()
    rig.clock.leap(-leap)
    third = await again.killed()
    assert third.store.may_expire()
    assert manifest_clock(third) == START_MS + MINUTE


async def test_a_kept_time_is_in_the_next_manifest_edit(rig: Rig) -> None:
    rig.clock.leap(YEARS)
    await rig.post.send("a@example.org")
    assert not rig.store.may_expire()
    rig.clock.advance(HOLD_MS)
    await rig.evacuate()
    assert manifest_clock(rig) == rig.clock.now()
    assert (await rig.killed()).store.may_expire()


@pytest.mark.parametrize(("days", "believed"), [(29, True), (31, False)])
async def test_a_start_believes_a_month_and_no_more(rig: Rig, days: int, believed: bool) -> None:
    rig.clock = FakeClock(START_MS + days * DAY)
    again = await rig.killed()
    assert again.store.may_expire() is believed


async def test_frames_of_a_false_future_do_not_use_up_the_spids(rig: Rig) -> None:
    rig.clock.leap(YEARS)
    await rig.post.send("a@example.org")
    rig.clock.leap(-YEARS)
    again = await rig.killed()
    assert again.store.reserve(False) < spid_at(START_MS + 2 * DAY)


# ---------------------------------------------------------------- what is told, what is suspended


async def test_a_leap_is_reported_once_and_so_is_its_end(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.clock.leap(-2 * HOUR)
    for _ in range(3):
        rig.clock.advance(MINUTE)
        assert not rig.store.may_expire()
    errors = [each.message for each in caplog.records if each.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "2:00:00 behind" in errors[0]
    rig.clock.leap(2 * HOUR)
    assert rig.store.may_expire()
    assert "the clock agrees again" in caplog.text
    assert rig.store.engine().clock_leap_seconds == 0


async def test_no_spool_file_expires_while_the_clock_is_in_doubt(rig: Rig) -> None:
    path = spool_path(rig.spool, spid_at(START_MS))
    path.write_bytes(b"x")
    os.utime(path, (START_MS / 1000, START_MS / 1000))
    rig.clock.advance(2 * HOUR)
    rig.clock.leap(YEARS)
    for stays in (True, False):
        rig.clock.advance(HOUR)
        rig.store._live.checkpointer.wake()
        await turns()
        await rig.shard.deleter.settled()
        assert path.exists() is stays
        rig.clock.leap(-YEARS)
        rig.clock.advance(10 * DAY)


# ---------------------------------------------------------------- due times


async def test_records_in_clusters_do_not_wait_for_the_old_clock(rig: Rig) -> None:
    now = rig.clock.now()
    await rested(rig, now + MINUTE, now + HOUR, now + 3 * HOUR)
    rig.clock.leap(-2 * HOUR)
    latest = rig.clock.now() + SCHEDULE.longest
    assert rig.store.next_due() == rig.clock.now() + 2 * HOUR + MINUTE
    rig.clock.advance(2 * HOUR + MINUTE)
    assert len(await rig.post.claim_all()) == 1
    assert rig.store.next_due() == now + HOUR
    rig.clock.advance(HOUR - MINUTE)
    assert len(await rig.post.claim_all()) == 1
    assert rig.store.next_due() == latest
    rig.clock.advance(latest - rig.clock.now())
    assert len(await rig.post.claim_all()) == 1
    assert rig.store.next_due() is None


async def test_what_was_brought_forward_is_so_after_a_kill_too(rig: Rig) -> None:
    now = rig.clock.now()
    await rested(rig, now + 20 * DAY, now + 30 * DAY)
    again = await rig.killed()
    latest = now + SCHEDULE.longest
    assert again.store.next_due() == latest
    assert again.shard.time.look()
    assert await again.post.claim_all(latest - 1) == []
    assert len(await again.post.claim_all(latest)) == 2
    assert held(dict(again.store.stats())) == {"deferred": (2, 2 * len(BODY))}


async def test_an_evacuated_record_keeps_its_earlier_due_time(rig: Rig) -> None:
    await rig.post.defer_new("a@example.org", rig.clock.now() + 4 * HOUR)
    rig.clock.leap(-30 * DAY)
    assert rig.store.next_due() == rig.clock.now() + SCHEDULE.longest
    await rig.evacuate()
    [record] = rig.listed()
    assert record.due == rig.clock.now() + SCHEDULE.longest
    assert record.attempts == 1


@pytest.mark.parametrize("fails", [False, True])
async def test_a_leap_during_an_evacuation_counts_for_what_moves(rig: Rig, fails: bool) -> None:
    await rig.post.defer_new("a@example.org", rig.clock.now() + 4 * HOUR)
    await rig.seal()
    await rig.enrolled()
    gate = rig.disk.block("pwritev", "*/MANIFEST")
    if fails:
        rig.disk.fail("pwritev", "*/MANIFEST")
    evacuation = asyncio.ensure_future(rig.evacuate())
    while not gate.reached.is_set():
        await asyncio.sleep(0)
    rig.clock.leap(-30 * DAY)
    assert rig.store.next_due() is None
    gate.release()
    await asyncio.wait([evacuation])
    assert (evacuation.exception() is not None) is fails
    latest = rig.clock.now() + SCHEDULE.longest
    assert rig.store.next_due() == latest
    assert await rig.post.claim_all(latest - 1) == []
    assert len(await rig.post.claim_all(latest)) == 1


@pytest.mark.parametrize("taken", [False, True])
async def test_skipped_mail_keeps_its_time_when_evacuated(rig: Rig, taken: bool) -> None:
    await rig.post.send("a@example.org")
    if taken:
        await rig.evacuate()
    until = rig.clock.now() + HOUR
    assert await rig.store.claim(10, rig.clock.now(), {"example.org": until}) == []
    await rig.evacuate()
    [record] = rig.listed()
    assert (record.due, record.area, record.attempts) == (until, Area.DEFERRED, 0)
    assert held(dict(rig.store.stats())) == {"deferred": (1, record.size)}
    again = await rig.killed()
    assert again.store.next_due() == until
    assert await again.post.claim_all() == []
    assert len(await again.post.claim_all(until)) == 1


async def test_a_new_schedule_bounds_due_times_from_then_on(rig: Rig) -> None:
    rig.store.reload(dataclasses.replace(SCHEDULE, delays=(10 * DAY,)), Retention())
    due = rig.clock.now() + 9 * DAY
    await rested(rig, due)
    rig.clock.leap(-2 * HOUR)
    assert rig.store.next_due() == due


async def test_a_schedule_that_comes_before_the_open_counts(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.store.reload(dataclasses.replace(SCHEDULE, delays=(10 * DAY,)), Retention())
    opening = asyncio.ensure_future(rig.open())
    # While it opens: the shard is made with the schedule that was there before.
    while not opening.done() and not (tmp_path / "queue" / "lock").exists():
        await asyncio.sleep(0)
    rig.store.reload(dataclasses.replace(SCHEDULE, delays=(20 * DAY,)), Retention())
    await opening
    assert rig.shard.options.schedule.delays == (20 * DAY,)
    await rig.close()

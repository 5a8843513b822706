"""Requests that wait for a carry: what one of them changes meanwhile is no longer the other's to change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqcd.core.model import Settlement
from tests.contract.mail import ATTEMPT, delivered
from tests.unit.queue.support import Rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = await Rig(tmp_path / "queue").open()
    yield rig
    await rig.close()


async def test_of_two_requests_behind_a_carry_one_fails_whole(rig: Rig) -> None:
    await rig.post.send("a@example.org", "b@example.org")
    one, other = await rig.post.claim_all()
    carries = rig.store._live.writer.carries
    carried: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    carries.under_way = carried
    parks = [
        asyncio.ensure_future(rig.store.park([one], 0)),
        asyncio.ensure_future(rig.store.park([other, one], 0)),
    ]
    await asyncio.sleep(0)
    carries.under_way = None
    carried.set_result(None)
    first, second = await asyncio.gather(*parks, return_exceptions=True)
    assert first is None
    assert isinstance(second, ValueError)
    await rig.post.settle(delivered(), other)
    assert len(rig.listed()) == 1
    await rig.evacuate()


async def test_what_is_cancelled_behind_a_carry_is_recorded_all_the_same(rig: Rig) -> None:
    await rig.post.send("a@example.org", "b@example.org")
    one, other = await rig.post.claim_all()
    carries = rig.store._live.writer.carries
    carried: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    carries.under_way = carried
    settlement = Settlement(recipient=one, verdict=delivered())
    requests = [
        rig.store.begin([one], ATTEMPT.destination),
        rig.store.settle([settlement]),
        rig.store.park([other], 0),
    ]
    callers = [asyncio.ensure_future(each) for each in requests]
    await asyncio.sleep(0)
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    carries.under_way = None
    carried.set_result(None)
    await rig.evacuate()
    assert await rig.post.claim_all() == [other]

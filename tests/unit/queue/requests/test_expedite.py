"""Mail made due at once while it lies in clusters, or is on its way there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from mqcd.core.model import Action
from mqcd.core.selecting.selection import Selection
from tests.contract.harness import HOUR
from tests.contract.mail import batch, carry_out, deferred
from tests.fakes.clock import turns
from tests.unit.queue.support import Rig

COUNT = 600


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = await Rig(tmp_path / "queue").open()
    yield rig
    await rig.close()


async def put_off(rig: Rig, *names: str) -> None:
    """`COUNT` in all, every one in its own minute or so, domains in turn."""
    now = rig.clock.now()
    each = COUNT // len(names)
    await rig.post.send(*[f"r{number}@{name}.example" for number in range(each) for name in names])
    for number, recipient in enumerate(await rig.post.claim_all()):
        await rig.post.settle(deferred(now + HOUR + number * 1000), recipient)


async def claimed(rig: Rig) -> set[str]:
    return {each.address for each in await rig.post.claim_all()}


async def test_of_a_cluster_only_those_selected_are_due(rig: Rig) -> None:
    await put_off(rig, "x", "y")
    await rig.evacuate()
    done = await rig.store.expedite(Selection(domain="x.example"))
    assert (done.matched, done.changed, done.domains) == (COUNT // 2, COUNT // 2, frozenset({"x.example"}))
    assert await claimed(rig) == {f"r{number}@x.example" for number in range(COUNT // 2)}
    rig.clock.advance(HOUR - 1000)
    assert await claimed(rig) == set()
    rig.clock.advance(COUNT * 1000)
    assert len(await claimed(rig)) == COUNT // 2


async def test_lines_behind_the_last_one_selected_stay_where_they_are(rig: Rig) -> None:
    await put_off(rig, "x")
    await rig.evacuate()
    await rig.store.expedite(Selection(recipient="r2@x.example"))
    assert await claimed(rig) == {"r2@x.example"}
    assert sum(state.left for state in rig.shard.cluster_index.clusters.values()) == COUNT - 3


async def test_two_requests_are_both_heard(rig: Rig) -> None:
    await put_off(rig, "x")
    await rig.evacuate()
    for number in (3, 300):
        await rig.store.expedite(Selection(recipient=f"r{number}@x.example"))
    assert await claimed(rig) == {"r3@x.example", "r300@x.example"}


async def test_no_request_of_many_is_forgotten(rig: Rig) -> None:
    await put_off(rig, "x")
    await rig.evacuate()
    wanted = {f"r{number}@x.example" for number in range(3, 103, 3)}
    for address in sorted(wanted):
        done = await rig.store.expedite(Selection(recipient=address))
        assert done.matched == 1
    assert wanted <= await claimed(rig)
    assert sum(state.left for state in rig.shard.cluster_index.clusters.values()) == COUNT - 103


@pytest.mark.parametrize("turns", range(0, 90, 9))
async def test_an_evacuation_meanwhile_hides_nobody(rig: Rig, turns: int) -> None:
    await put_off(rig, "x", "y")
    evacuation = asyncio.ensure_future(rig.evacuate())
    for _ in range(30 + turns):
        await asyncio.sleep(0)
    done = await rig.store.expedite(Selection(domain="x.example"))
    assert (done.matched, done.changed) == (COUNT // 2, COUNT // 2)
    await evacuation
    assert await claimed(rig) == {f"r{number}@x.example" for number in range(COUNT // 2)}


async def test_a_kill_leaves_the_older_due_times(rig: Rig) -> None:
    await put_off(rig, "x")
    await rig.evacuate()
    await rig.store.expedite(Selection())
    later = await rig.killed()
    assert len(later.listed()) == COUNT
    later.clock.advance(HOUR + COUNT * 1000)
    assert len(await claimed(later)) == COUNT


async def test_a_cluster_that_cannot_be_read_is_left_out(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("x", "x"):
        await put_off(rig, name)
        await rig.evacuate()
    name = rig.clusters()[0]
    (rig.queue / name).unlink()
    done = await rig.store.expedite(Selection(domain="x.example"))
    assert done.matched == COUNT
    assert name in caplog.text


async def test_what_a_batch_divides_before_it_is_looked_into_is_due(rig: Rig) -> None:
    await put_off(rig, "x", "y")
    await rig.evacuate()
    await rig.post.send("new@z.example")
    async with rig.shard.retiring:
        # It knows which clusters there are, and waits for the journal.
        retrying = asyncio.ensure_future(rig.store.expedite(Selection()))
        await turns()
        order = batch(Action.HOLD, rig.post)
        assert await carry_out(rig.store, order, Selection(domain="x.example")) == (COUNT // 2, 0)
    done = await retrying
    assert (done.matched, done.changed) == (1 + COUNT // 2, COUNT // 2)
    assert await claimed(rig) == {"new@z.example", *(f"r{number}@y.example" for number in range(COUNT // 2))}


async def test_what_a_batch_divides_while_it_is_looked_into_is_due_and_counts_once(rig: Rig) -> None:
    await put_off(rig, "x", "y")
    await rig.evacuate()
    index = rig.shard.cluster_index
    [name] = index.clusters
    gate = rig.disk.block("pread", f"*/{name}")
    retrying = asyncio.ensure_future(rig.store.expedite(Selection(domain="y.example")))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    state = index.clusters[name]
    lines = (rig.queue / name).read_bytes()
    rest = replace(state, name=name.replace(".mqc", "1.mqc"))
    (rig.queue / rest.name).write_bytes(lines)
    index.replaced(name, (), (rest,), 1)
    gate.release()
    done = await retrying
    assert (done.matched, done.changed) == (COUNT // 2, COUNT // 2)
    assert await claimed(rig) == {f"r{number}@y.example" for number in range(COUNT // 2)}

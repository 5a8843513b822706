"""What an account reads of the queue itself: how many records are put aside that name nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqcd.pipeline.queue_state.recorded import Recorded, record
from tests.unit.queue.admin.kit import cluster_of, filled, look, mend
from tests.unit.queue.support import Rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = await Rig(tmp_path / "q").open()
    yield made
    await made.close()


def recorded(rig: Rig, target: str = "account") -> Recorded:
    return record(rig.queue, rig.spool, rig.options.source, rig.root / target)


async def test_a_lost_stretch_counts_what_it_may_have_held(rig: Rig) -> None:
    await rig.post.send("before@a.example")
    at = rig.shard.ring.segments[max(rig.shard.ring.segments)].end
    for number in range(5):
        await rig.post.send(f"lost{number}@a.example")
    await rig.post.send("behind@a.example")
    await rig.seal()
    path = rig.shard.ring.segments[max(rig.shard.ring.segments)].path
    data = path.read_bytes()
    end = data.index(b"behind@a.example") - 500
    path.write_bytes(data[:at] + bytes(end - at) + data[end:])
    before = recorded(rig, "before").damaged
    left = await rig.killed()
    found = recorded(left)
    names = [each.address for each in left.listed()]
    assert "lost0@a.example" not in names
    assert {"before@a.example", "behind@a.example"} <= set(names)
    assert found.damaged >= 7 - len(names)
    assert before == found.damaged, "also before a start has put it aside"
    assert look(left).quarantined >= 7 - len(names)


@pytest.mark.parametrize(("harm", "unread"), [("zeroed", 3), ("one octet", 0), ("its names gone", 3)])
async def test_quarantined_lines_count_as_their_records(rig: Rig, harm: str, unread: int) -> None:
    path = cluster_of(await filled(rig), "deferred")
    data = path.read_bytes()
    if harm == "zeroed":
        path.write_bytes(bytes(len(data)))
    elif harm == "one octet":
        path.write_bytes(data.replace(b".example", b".exam\nle", 1))
    else:
        path.write_bytes(data.replace(b"|d|", b"|X|"))
    await mend(rig)
    assert recorded(rig).damaged == unread


@pytest.mark.parametrize(("name", "unread"), [("incoming-M1-0.mqc-15.bad", 2), ("segment-3-4096.bad", 0)])
async def test_an_older_versions_quarantine_counts_by_lines(rig: Rig, name: str, unread: int) -> None:
    await filled(rig)
    path = rig.queue / "quarantine" / name
    path.parent.mkdir()
    path.write_bytes(b"nothing\nto be read\n")
    assert recorded(rig).damaged == unread

"""A queue that is only looked at: shown as it is, and not one octet of it changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Area, Settlement
from mqcd.core.selecting.selection import Selection
from mqcd.queue.read_only import ReadOnlyStore
from mqcd.queue.store import ClusterStore
from tests.contract.harness import HOUR
from tests.contract.mail import BODY, delivered
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FaultyDisk
from tests.fakes.observer import RecordingObserver
from tests.unit.queue.support import Rig, options, tally

WRITING = ("pwritev", "rename", "unlink", "link", "datasync", "sync_dir", "mkdir", "rmdir", "reserve")


def octets(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


async def test_it_shows_everything_and_changes_nothing(rig: Rig) -> None:
    await rig.post.defer_new("late@example.org", rig.clock.now() + HOUR)
    await rig.evacuate()
    await rig.post.send("a@example.org", "b@example.org")
    await rig.enrolled()
    before, figures = octets(rig.root), dict(rig.store.stats())
    disk = FaultyDisk()
    looking = ReadOnlyStore(replace(options(rig.root), settings=rig.options.settings), disk)
    await looking.open()
    assert dict(looking.stats()) == figures
    assert tally([each async for each in looking.scan(Selection())]) == tally(rig.listed())
    assert [each.address async for each in looking.scan(Selection(area=Area.DEFERRED))] == [
        "late@example.org"
    ]
    assert await looking.claim(10, rig.clock.now() + 10 * HOUR) == ()
    assert await looking.claim_bounces(10) == ()
    assert looking.next_due() is None
    assert looking.may_expire()
    assert looking.refusing()
    await looking.close()
    assert octets(rig.root) == before
    assert [call for call in disk.calls if call.operation in WRITING] == []


async def test_every_change_is_refused(rig: Rig) -> None:
    [accepted] = await rig.post.send("a@example.org")
    looking = ReadOnlyStore(rig.options)
    await looking.open()
    verdict = Settlement(recipient=accepted, verdict=delivered())
    with pytest.raises(StoreUnavailable, match="read_only"):
        await looking.enqueue(rig.post.submission("b@example.org", content=BODY))
    with pytest.raises(StoreUnavailable, match="read_only"):
        looking.reserve(False)
    with pytest.raises(StoreUnavailable, match="read_only"):
        looking.begin([accepted], "x")
    with pytest.raises(StoreUnavailable, match="read_only"):
        looking.settle([verdict])
    with pytest.raises(StoreUnavailable, match="read_only"):
        looking.park([accepted], 0)


async def test_where_there_is_no_queue_none_is_made(tmp_path: Path) -> None:
    looking = ReadOnlyStore(options(tmp_path / "q", read_only=True))
    with pytest.raises(StoreUnavailable, match="holds no queue"):
        await looking.open()
    assert not (tmp_path / "q").exists()


async def test_a_queue_that_may_only_be_looked_at_is_not_recovered(tmp_path: Path) -> None:
    store = ClusterStore(options(tmp_path / "q", read_only=True), FakeClock(), RecordingObserver())
    with pytest.raises(StoreUnavailable, match="read_only"):
        await store.open()
    assert not (tmp_path / "q").exists()

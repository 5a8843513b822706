"""The shards of a queue read as one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Area
from mqcd.core.queueing.spid import SpidSource, shard_of
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk
from mqcd.queue.read_only import ReadOnlyStore
from mqcd.queue.reading.shards import Snapshots
from tests.contract.harness import HOUR
from tests.fakes.disk import FaultyDisk
from tests.unit.queue.support import Rig, options


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    """A queue of two shards: in the first a and b, in the other c, whose content is in the spool, and d."""
    first, other = Rig(tmp_path / "q"), Rig(tmp_path / "other")
    await first.open()
    await first.post.defer_new("b@example.org", first.clock.now() + HOUR)
    first.clock.advance(1000)
    await first.post.send("a@example.org", content=b"Subject: a\r\n")
    await first.close()
    # Both are shard 0 here, so their SPIDs must be of other times.
    other.clock.advance(HOUR)
    await other.open()
    await other.post.send("c@example.org", content=b"x" * 500_000)
    await other.post.send("d@example.org", content=b"Subject: d\r\n")
    await other.close()
    other.queue.rename(first.queue / "shard-1")
    other.spool.rename(first.spool / "shard-1")
    return tmp_path / "q"


@pytest.fixture
def snapshots(root: Path) -> Iterator[Snapshots]:
    with closing(Snapshots(Disk(), root / "queue", root / "spool")) as opened:
        yield opened


def names(snapshots: Snapshots, selection: Selection) -> list[str]:
    return [item.recipient.address[0] for item in snapshots.items(selection)]


async def test_recipients_of_all_shards(snapshots: Snapshots) -> None:
    assert sorted(names(snapshots, Selection())) == ["a", "b", "c", "d"]
    assert names(snapshots, Selection(area=Area.DEFERRED)) == ["b"]
    assert snapshots.left_out == 0


@pytest.mark.parametrize("limit", range(6))
async def test_a_limit_holds_for_all_shards(snapshots: Snapshots, limit: int) -> None:
    assert len(names(snapshots, Selection(limit=limit))) == min(limit, 4)


async def test_figures_are_of_all_shards(snapshots: Snapshots) -> None:
    stats = snapshots.stats()
    assert stats[Area.INCOMING].recipients == 3
    assert stats[Area.DEFERRED].recipients == 1
    oldest = [each.stats()[Area.INCOMING].oldest for each in snapshots.parts]
    assert stats[Area.INCOMING].oldest == min(each for each in oldest if each is not None)


async def test_contents_of_all_shards(snapshots: Snapshots) -> None:
    sizes = {}
    for item in snapshots.items(Selection()):
        octets = b"".join(snapshots.content(item.recipient.spid))
        assert len(octets) == item.recipient.size
        sizes[item.recipient.address[0]] = len(octets)
    assert sizes["c"] == 500_000
    with pytest.raises(StoreUnavailable, match="not in the queue"):
        list(snapshots.content(0x1234))


async def test_a_shard_that_cannot_be_read_leaves_nothing_open(root: Path) -> None:
    (root / "queue" / "shard-1" / "uuid").unlink(missing_ok=True)
    (root / "queue" / "shard-1" / "MANIFEST").write_bytes(b"no MANIFEST\n")
    disk = FaultyDisk()
    with pytest.raises(Exception, match="shard-1"):
        Snapshots(disk, root / "queue", root / "spool")
    assert disk.count("open") == disk.count("close")


def test_a_spid_names_its_shard() -> None:
    for shard in (0, 1, 255):
        assert shard_of(SpidSource(shard, 0).next(1_800_000_000_000, several=True)) == shard


async def test_a_read_only_store_shows_all_shards(root: Path) -> None:
    store = ReadOnlyStore(options(root))
    await store.open()
    assert store.stats()[Area.INCOMING].recipients == 3
    found = [each.address[0] async for each in store.scan(Selection())]
    assert sorted(found) == ["a", "b", "c", "d"]
    await store.close()

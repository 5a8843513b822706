"""Where shards lie: below the roots of the queue, or by links from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.disk.durable import Disk
from mqcd.queue.roots import Roots, check_place, existing, link_place, roots_of


def made(roots: Roots) -> Roots:
    for root in (roots.queue, roots.spool):
        root.mkdir(parents=True)
    (roots.queue / "MANIFEST").touch()
    return roots


@pytest.fixture
def below(tmp_path: Path) -> Roots:
    return roots_of(1, tmp_path / "queue", tmp_path / "spool")


@pytest.fixture
def own(tmp_path: Path) -> Roots:
    return Roots(1, tmp_path / "d" / "queue", tmp_path / "d" / "spool")


def test_a_new_shard_may_lie_anywhere(below: Roots, own: Roots) -> None:
    check_place(below, own)
    check_place(below, below)


def test_readers_find_a_shard_by_its_links(tmp_path: Path, below: Roots, own: Roots) -> None:
    made(own)
    link_place(Disk(), below, own)
    assert existing(tmp_path / "queue", tmp_path / "spool")[1:] == [below]
    assert (below.queue.readlink(), below.spool.readlink()) == (own.queue, own.spool)
    check_place(below, own)
    check_place(below, below)


def test_a_shard_below_the_roots_has_no_link(below: Roots) -> None:
    made(below)
    link_place(Disk(), below, below)
    check_place(below, below)
    assert not below.queue.is_symlink()


def test_a_link_follows_a_shard_that_was_moved(tmp_path: Path, below: Roots, own: Roots) -> None:
    other = Roots(1, tmp_path / "e" / "queue", tmp_path / "e" / "spool")
    made(own)
    link_place(Disk(), below, own)
    own.queue.parent.rename(tmp_path / "e")
    check_place(below, other)
    link_place(Disk(), below, other)
    assert below.queue.readlink() == other.queue


def test_mail_left_behind_is_refused(below: Roots, own: Roots) -> None:
    made(below)
    with pytest.raises(StoreUnavailable, match="shard 1"):
        check_place(below, own)
    made(own)
    with pytest.raises(StoreUnavailable, match="shard 1"):
        check_place(below, own)


def test_a_disk_that_is_not_mounted_is_refused(tmp_path: Path, below: Roots, own: Roots) -> None:
    made(own)
    link_place(Disk(), below, own)
    own.queue.rename(tmp_path / "gone")
    with pytest.raises(StoreUnavailable, match="mounted"):
        check_place(below, own)
    assert [each.shard for each in existing(tmp_path / "queue", tmp_path / "spool")] == [0, 1]


def test_what_is_in_the_place_of_a_link_is_refused(below: Roots, own: Roots) -> None:
    made(own)
    below.spool.mkdir(parents=True)
    with pytest.raises(StoreUnavailable, match="move it away"):
        check_place(below, own)

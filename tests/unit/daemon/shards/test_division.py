"""How one configuration is divided among shards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mqcd.config.settings import (
    QueueSettings,
    Settings,
    SpoolSettings,
)
from mqcd.daemon.shards import division
from mqcd.queue.roots import existing


def settings_at(root: Path, number: int) -> Settings:
    queue = QueueSettings(
        rootpath=root / "queue", shards=number, spool=SpoolSettings(rootpath=root / "spool")
    )
    return replace(Settings(), queue=queue)


def made(root: Path, name: str) -> None:
    (root / "queue" / name).mkdir(parents=True)
    (root / "queue" / name / "MANIFEST").touch()


def test_shard_0_is_the_queue_as_one(tmp_path: Path) -> None:
    settings = settings_at(tmp_path, 4)
    first, third = (division.settings_of(settings, shard, 4) for shard in (0, 3))
    assert first.queue.rootpath == tmp_path / "queue"
    assert first.queue.spool.rootpath == tmp_path / "spool"
    assert third.queue.rootpath == tmp_path / "queue" / "shard-3"
    assert third.queue.spool.rootpath == tmp_path / "spool" / "shard-3"


def test_what_bounds_the_whole_server_is_divided(tmp_path: Path) -> None:
    settings = settings_at(tmp_path, 4)
    parts = [division.settings_of(settings, shard, 4) for shard in range(4)]
    assert sum(part.queue.memorybudget for part in parts) == settings.queue.memorybudget
    assert sum(part.queue.spool.maxspidcache for part in parts) == settings.queue.spool.maxspidcache
    assert sum(part.deliver.queuecache for part in parts) == settings.deliver.queuecache
    assert sum(part.deliver.maxconnections for part in parts) == settings.deliver.maxconnections


def test_no_limit_stays_no_limit(tmp_path: Path) -> None:
    settings = settings_at(tmp_path, 4)
    queue = replace(settings.queue, spool=replace(settings.queue.spool, maxspidcache=0))
    assert division.settings_of(replace(settings, queue=queue), 1, 4).queue.spool.maxspidcache == 0


def test_no_two_processes_share_a_file(tmp_path: Path) -> None:
    settings = settings_at(tmp_path, 3)
    settings = replace(settings, deliver=replace(settings.deliver, audit=tmp_path / "audit.log"))
    parts = [division.settings_of(settings, shard, 3) for shard in range(3)]
    assert len({part.deliver.audit for part in parts}) == 3
    assert len({part.ops.control.path for part in parts} | {settings.ops.control.path}) == 4


@pytest.mark.parametrize(("wanted", "run"), [(1, [0, 2, 5]), (3, [0, 1, 2, 5]), (6, [0, 1, 2, 3, 4, 5])])
def test_shards_that_exist_are_run(tmp_path: Path, wanted: int, run: list[int]) -> None:
    made(tmp_path, "shard-2")
    made(tmp_path, "shard-5")
    (tmp_path / "queue" / "shard-7").mkdir()
    settings = settings_at(tmp_path, wanted)
    assert list(division.numbers(settings)) == run
    for shard in run:
        # Also where a shard takes no mail: they say how long its mail is held, and whose clients are trusted.
        assert division.settings_of(settings, shard, wanted).submit == settings.submit


def test_auto_is_one_a_processor_up_to_four(tmp_path: Path) -> None:
    assert 1 <= division.count(settings_at(tmp_path, 0)) <= division.MOST_BY_ITSELF


def test_only_directories_with_a_manifest_are_shards(tmp_path: Path) -> None:
    made(tmp_path, "shard-1")
    (tmp_path / "queue" / "incoming").mkdir()
    found = existing(tmp_path / "queue", tmp_path / "spool")
    assert [each.shard for each in found] == [0, 1]

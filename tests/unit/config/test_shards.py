"""The list of shards: where each lies."""

import dataclasses
from pathlib import Path

import pytest

from mqcd.config.show import as_xml
from tests.unit.config.samples import VAR, errors, loaded

QUEUE, SPOOL = VAR / "queue", VAR / "spool"
OTHER = '<shard rootpath="/d/queue" spool="/d/spool"/>'


def document(shards: str, more: str = "") -> str:
    return f"<mailserver><mta><queue>{more}<shards>{shards}</shards></queue></mta></mailserver>"


def test_a_list_says_how_many_shards_there_are() -> None:
    queue = loaded(document(f"<shard/>{OTHER}<shard/>")).settings.queue
    assert queue.shards == 3
    assert [place.rootpath for place in queue.places] == [None, Path("/d/queue"), None]
    assert [place.spool for place in queue.places] == [None, Path("/d/spool"), None]
    assert (queue.rootpath, queue.spool.rootpath) == (QUEUE, SPOOL)


def test_the_first_shard_lies_in_the_roots_of_the_queue() -> None:
    first = '<shard rootpath="/c/queue" spool="/c/spool"/>'
    queue = loaded(document(first + OTHER)).settings.queue
    assert (queue.rootpath, queue.spool.rootpath) == (Path("/c/queue"), Path("/c/spool"))
    assert errors(document(first + OTHER, "<rootpath>/c/queue</rootpath>")) == ()


@pytest.mark.parametrize("shards", [f"<shard/>{OTHER}", f"{OTHER}<shard/>", "3", "auto"])
def test_what_is_shown_means_the_same(shards: str) -> None:
    settings = loaded(document(shards)).settings
    assert loaded(as_xml(settings)).settings == settings


@pytest.mark.parametrize(
    ("shards", "path"),
    [
        ("4<shard/>", "mta/queue/shards"),
        ('<shard name="x"/>', "mta/queue/shards/shard[1]@name"),
        ("<part/>", "mta/queue/shards/part"),
        (f"<shard/>{OTHER}{OTHER}", "mta/queue/shards/shard[2]@rootpath"),
        ('<shard/><shard rootpath="/d" spool="/d"/>', "mta/queue/shards/shard[2]@spool"),
        (f'<shard/><shard rootpath="{QUEUE}"/>', "mta/queue/shards/shard[2]@rootpath"),
        (f'<shard/><shard/><shard rootpath="{QUEUE}/shard-1"/>', "mta/queue/shards/shard[3]@rootpath"),
        ("<shard/>" * 65, "mta/queue/shards"),
    ],
)
def test_lists_that_cannot_be(shards: str, path: str) -> None:
    assert path in [remark.path for remark in errors(document(shards))]


def test_roots_that_differ_for_the_first_shard_are_refused() -> None:
    bad = errors(document(f"{OTHER}<shard/>", "<rootpath>/c/queue</rootpath>"))
    assert [remark.path for remark in bad] == ["mta/queue/shards/shard[1]@rootpath"]


def test_a_list_is_one_value_of_the_queue() -> None:
    queue = loaded(document(f"<shard/>{OTHER}")).settings.queue
    assert dataclasses.replace(queue, places=()).shards == 2

"""The element `store`: a class, and settings of which the configuration knows only the names."""

from pathlib import Path

import pytest

from mqcd.config.show import as_xml
from mqcd.daemon.changes import compare
from mqcd.daemon.shards.division import count, numbers
from tests.unit.config.samples import VAR, errors, loaded


def document(store: str, more: str = "") -> str:
    return f"<mailserver><mta><queue>{more}{store}</queue></mta></mailserver>"


FILES = '<store class="files"><rootpath>%DIRVAR%/mail</rootpath><sync_ms>5s</sync_ms></store>'


def test_settings_of_a_store_are_kept_as_text_and_path() -> None:
    store = loaded(document(FILES)).settings.queue.store
    assert store.kind == "files"
    assert [(each.name, each.text) for each in store.given] == [
        ("rootpath", f"{VAR}/mail"),
        ("sync_ms", "5s"),
    ]
    assert store.given[0].path == Path(f"{VAR}/mail")


@pytest.mark.parametrize("store", ["", '<store class="memory"/>', FILES])
def test_a_store_is_shown_as_it_was_given(store: str) -> None:
    settings = loaded(document(store)).settings
    assert loaded(as_xml(settings)).settings == settings


def test_another_store_needs_a_restart() -> None:
    memory, files = (loaded(document(each)).settings for each in ('<store class="memory"/>', FILES))
    changes = compare(memory, files)
    assert changes.settings == memory
    names = ("class", "rootpath", "sync_ms")
    assert {path.rpartition("/")[2].rpartition("@")[2] for path in changes.needs_restart} == {*names}


def test_settings_of_the_clustered_file_queue_have_no_effect_beside_another_store() -> None:
    more = (
        "<rootpath>/x</rootpath><retry_maxtime>1d</retry_maxtime><memorybudget>1M</memorybudget>"
        "<spool><bufsize>1K</bufsize></spool>"
        "<journal><segments>9</segments><inline_max>9K</inline_max></journal>"
    )
    warned = [each.path for each in loaded(document(FILES, more)).warnings if "store" in each.text]
    names = ("journal/segments", "memorybudget", "rootpath", "spool/bufsize")
    assert sorted(warned) == [f"mta/queue/{name}" for name in names]
    assert not any("store" in each.text for each in loaded(document("", more)).warnings)


def test_another_store_has_one_shard() -> None:
    settings = loaded(document(FILES)).settings
    assert (count(settings), numbers(settings)) == (1, [0])


@pytest.mark.parametrize(
    ("xml", "path"),
    [
        (document(FILES, "<shards>2</shards>"), "mta/queue/shards"),
        (document(FILES, "<shards><shard/></shards>"), "mta/queue/shards"),
        (document(FILES, "<read_only>Y</read_only>"), "mta/queue/read_only"),
        (document("<store><rootpath>x</rootpath></store>"), "mta/queue/store/rootpath"),
        (document('<store class="files"><a>1</a><a>2</a></store>'), "mta/queue/store/a"),
        (document('<store class="files"><a><b>1</b></a></store>'), "mta/queue/store/a/b"),
        (document('<store class="files"><a b="1"/></store>'), "mta/queue/store/a@b"),
        (document('<store class="files"><a>%DIRVRA%/a</a></store>'), "mta/queue/store/a"),
        (document('<store class="redis"><url>redis://a:b@c/0</url></store>'), "mta/queue/store/url"),
        (document('<store class="postgres"><url>x://h/d?password=b</url></store>'), "mta/queue/store/url"),
    ],
)
def test_what_a_store_cannot_be(xml: str, path: str) -> None:
    assert path in [remark.path for remark in errors(xml)]


def test_a_password_is_not_in_the_error() -> None:
    [bad] = errors(document('<store class="redis"><url>redis://:hidden@host/0</url></store>'))
    assert "hidden" not in str(bad)

"""The store that a configuration names."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from mqcd.cli.main import main
from mqcd.config.blocks import Given
from mqcd.config.settings import StoreSettings
from mqcd.stores.choose import STORES, BadStore, directories, make_backend, missing, target_of
from mqcd.stores.mapping import MappingStore
from tests.contract.harness import HARNESSES
from tests.fakes.settable_store import SettableStore

pytestmark = pytest.mark.usefixtures("process_as_before")

FAKE = "tests.fakes.settable_store:SettableStore"
ROOT = Given(name="rootpath", text="mail", path=Path("/var/mail"))


def settings(kind: str, **given: str) -> StoreSettings:
    others = [Given(name=name, text=text, path=Path("/") / text) for name, text in given.items()]
    return StoreSettings(kind=kind, given=(ROOT, *others) if kind == FAKE else tuple(others))


def test_each_store_holds_the_contract_and_is_documented() -> None:
    assert set(STORES) <= HARNESSES.keys()
    [kind] = [each for each in fields(StoreSettings) if each.name == "kind"]
    assert [each for each in STORES if each not in kind.metadata["gloss"]] == []
    page = (Path(__file__).parents[3] / "docs" / "stores.md").read_text(encoding="utf-8")
    assert [each for each in STORES if f"\n## {each}\n" not in page] == []


def test_memory_is_a_mapping() -> None:
    assert isinstance(make_backend(settings("memory", max_octets="64M")), MappingStore)


def test_a_setting_has_the_type_of_its_parameter() -> None:
    given = {
        "wait_ms": "1m",
        "part_octets": "64K",
        "most": "7",
        "share": "0.25",
        "eager": "Y",
        "password_file": "secret",
        "name": "a b",
    }
    made = make_backend(settings(FAKE, **given))
    assert isinstance(made, SettableStore)
    expected = (Path("/var/mail"), 60_000, 65536, 7, 0.25, True, Path("/secret"), "a b")
    assert made.given == expected


@pytest.mark.parametrize(
    ("kind", "given", "name"),
    [
        ("nothing", {}, ""),
        ("no_such_module:Store", {}, ""),
        ("mqcd.stores.mapping:NoStore", {}, ""),
        ("mqcd.stores.mapping:Promises", {}, ""),
        ("memory", {"rootpath": "x"}, "rootpath"),
        ("memory", {"mapping": "x"}, "mapping"),
        ("memory", {"max_octets": "many"}, "max_octets"),
        (FAKE, {"wait_ms": "5 apples"}, "wait_ms"),
        (FAKE, {"share": "half"}, "share"),
        (FAKE, {"eager": "perhaps"}, "eager"),
        (FAKE, {"factory": "x"}, "factory"),
        (FAKE, {"name": "refused"}, ""),
    ],
)
def test_what_cannot_be_is_named(kind: str, given: dict[str, str], name: str) -> None:
    with pytest.raises(BadStore) as caught:
        make_backend(settings(kind, **given))
    assert caught.value.name == name


def test_a_setting_that_is_missing_is_named() -> None:
    with pytest.raises(BadStore, match="<rootpath>"):
        make_backend(StoreSettings(kind=FAKE))


def test_a_missing_library_is_named() -> None:
    with pytest.raises(BadStore, match="more"):
        make_backend(settings("tests.fakes.settable_store:NeedsMore"))


@pytest.mark.parametrize("kind", ["leveldb", "redis", "s3", "postgres"])
def test_a_missing_extra_names_the_command(kind: str) -> None:
    error = ImportError("No module named 'more'", name="more")
    assert f"pip install 'mqcd[{kind}]'" in missing(kind, error)


@pytest.mark.parametrize(("kind", "url"), [("redis", "redis://127.0.0.1"), ("postgres", "postgresql:///")])
def test_a_check_finds_a_bad_url_and_a_missing_password_file(kind: str, url: str) -> None:
    with pytest.raises(BadStore, match="/no-such-file"):
        make_backend(settings(kind, url=url, password_file="no-such-file"))
    with pytest.raises(BadStore, match=f"the url must be {kind}"):
        make_backend(settings(kind, url="http://127.0.0.1"))


def test_a_store_is_found_by_its_word() -> None:
    assert target_of("s3") == "mqcd.stores.s3:S3Store"
    assert target_of("my.module:Store") == "my.module:Store"


def test_directories_are_paths_but_those_of_files() -> None:
    given = settings(FAKE, password_file="secret")
    assert directories(given) == [Path("/var/mail")]
    assert directories(StoreSettings()) == []


CONF = """<mailserver>
  <application><announcehost>mx.test</announcehost></application>
  <mta><queue>
    <store class="{kind}">
      <max_octets>{most}</max_octets>
    </store>
  </queue></mta>
</mailserver>
"""


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(
    ("kind", "most", "place"),
    [
        ("nothing", "1", "4: mta/queue/store@class: "),
        ("memory", "x", "5: mta/queue/store/max_octets: "),
    ],
)
def test_a_store_that_cannot_be_has_its_place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str, kind: str, most: str, place: str
) -> None:
    conf = tmp_path / "mqcd.xml"
    conf.write_text(CONF.format(kind=kind, most=most))
    assert main(["-c", str(conf), "--var", str(tmp_path / "var"), command]) == 1
    found = capfd.readouterr()
    assert f"{conf}:{place}" in found.err + found.out


def test_check_warns_of_what_a_store_does_not_promise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "mqcd.xml"
    conf.write_text(CONF.format(kind="memory", most="1M"))
    assert main(["-c", str(conf), "check"]) == 0
    found = capsys.readouterr()
    assert found.err.count("mta/queue/store: the store memory") == 2
    assert '<store class="memory">' in found.out


@pytest.mark.parametrize("words", [["fsck"], ["import", "eml", "."]])
def test_commands_on_files_say_which_store_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    conf = tmp_path / "mqcd.xml"
    conf.write_text(CONF.format(kind="memory", most="1M"))
    assert main(["-c", str(conf), "--var", str(tmp_path / "var"), *words]) == 1
    assert "store is memory" in capsys.readouterr().err

"""Tokens: their form, their file, their last use."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from mqcd.disk.durable import Disk
from mqcd.page.access.file import changing, read_tokens, read_uses
from mqcd.page.access.holders import LOOK_MS, Holders
from mqcd.page.access.tokens import (
    SHAPE,
    BadTokens,
    Role,
    Token,
    check_name,
    digest_of,
    parse_tokens,
    secret_of,
    show_tokens,
)
from tests.fakes.clock import FakeClock
from tests.unit.page.support import AT, Site, secret

GOOD = f"ops roles=read,inject sha256={'a' * 64} made={AT}"


def test_a_file_is_read_as_it_was_written() -> None:
    tokens = parse_tokens(f"# comment\n\n{GOOD}\n")
    assert tokens["ops"].roles == {Role.READ, Role.INJECT}
    assert parse_tokens(show_tokens(tokens.values())) == tokens


@pytest.mark.parametrize(
    "line",
    ["ops", GOOD.replace("read", "root"), GOOD.replace("a" * 64, "a" * 63), f"{GOOD} more",
     f"{GOOD} roles=read", GOOD.replace(AT, "now"), GOOD.replace("ops", "-ops"), f"{GOOD}\n{GOOD}"],
)  # fmt: skip
def test_a_wrong_line_is_named_and_not_shown(line: str) -> None:
    with pytest.raises(BadTokens, match=r"line [23]") as caught:
        parse_tokens(f"# comment\n{line}\n")
    assert "aaaa" not in str(caught.value)


def test_a_secret_has_a_form_of_its_own() -> None:
    made = secret_of(bytes(range(32)))
    assert SHAPE.fullmatch(made)
    assert len(digest_of(made)) == 64


@pytest.mark.parametrize("name", ["", "a b", "a,b", "é", "x" * 65, "#x", "a\n"])
def test_a_name_is_one_word(name: str) -> None:
    with pytest.raises(BadTokens):
        check_name(name)


def test_operating_includes_reading_alone() -> None:
    token = Token(name="x", roles=frozenset({Role.OPERATE}), digest="", made=AT)
    assert [token.may(role) for role in Role] == [True, True, False]


def test_a_file_of_tokens_is_private(tmp_path: Path) -> None:
    path = Site(tmp_path).tokens
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret("reader") not in path.read_text()
    path.chmod(0o644)
    with pytest.raises(BadTokens, match="chmod 600"):
        read_tokens(path)


def test_nothing_changes_where_the_block_fails(tmp_path: Path) -> None:
    path = Site(tmp_path).tokens
    before = path.read_bytes()
    with pytest.raises(KeyError), changing(path, Disk()) as tokens:
        del tokens["reader"], tokens["none"]
    assert path.read_bytes() == before


def test_a_damaged_file_leaves_the_old_tokens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = Site(tmp_path)
    assert site.holders.find(digest_of(secret("reader")))
    site.tokens.write_text("damage")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            site.clock.advance(LOOK_MS)
            assert site.holders.find(digest_of(secret("reader")))
    assert len(caplog.records) == 1
    site.tokens.unlink()
    site.clock.advance(LOOK_MS)
    assert site.holders.find(digest_of(secret("reader"))) is None


async def test_last_uses_are_kept_for_tokens_that_are_there(tmp_path: Path) -> None:
    site = Site(tmp_path)
    reader = site.holders.find(digest_of(secret("reader")))
    site.holders.find(digest_of(secret("operator")))
    await site.holders.save()
    with changing(site.tokens, Disk()) as tokens:
        del tokens["operator"]
    later = Holders(site.tokens, FakeClock(), Disk())
    assert later.find(digest_of(secret("injector")))
    await later.save()
    uses = read_uses(site.tokens)
    assert reader is not None
    assert uses.keys() == {reader.digest, digest_of(secret("injector"))}


def test_uses_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    for text in ("{", "[]", '{"a": 1}'):
        path.with_name("tokens.used").write_text(text)
        assert read_uses(path) == {}

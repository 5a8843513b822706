"""`mqcd token`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click import UsageError
from click.testing import CliRunner, Result

from mqcd.cli.main import cli
from mqcd.page.access.file import read_tokens
from mqcd.page.access.tokens import BadTokens, digest_of


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "mqcd.xml"
    path.write_text(f'<mailserver><ops><page tokens="{tmp_path}/tokens"/></ops></mailserver>')
    return path


def token(conf: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["-c", str(conf), "token", *words], standalone_mode=False)


def test_a_token_is_shown_once_listed_and_removed(conf: Path) -> None:
    shown = token(conf, "add", "ci", "--role", "read", "--role", "inject").stdout.strip()
    tokens, _ = read_tokens(conf.with_name("tokens"))
    assert tokens["ci"].digest == digest_of(shown)
    listed = token(conf, "list", "--json").stdout
    assert shown not in listed
    assert digest_of(shown) not in listed
    fields = json.loads(listed)
    assert (fields["name"], fields["roles"], fields["used"]) == ("ci", ["inject", "read"], None)
    assert "used never" in token(conf, "list").stdout
    assert token(conf, "remove", "ci").return_value == 0
    assert token(conf, "list").stdout == ""


@pytest.mark.parametrize("words", [("add", "ci", "--role", "read"), ("remove", "other")])
def test_a_name_is_added_once_and_removed_once(conf: Path, words: tuple[str, ...]) -> None:
    token(conf, "add", "ci", "--role", "read")
    assert isinstance(token(conf, *words).exception, BadTokens)


def test_a_token_needs_a_role(conf: Path) -> None:
    assert isinstance(token(conf, "add", "ci").exception, UsageError)

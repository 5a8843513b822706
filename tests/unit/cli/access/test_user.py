"""`mqcd user`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click import UsageError
from click.testing import CliRunner, Result

from mqcd.cli.main import cli


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "mqcd.xml"
    path.write_text(
        "<mailserver><mta><submit><listeners><listener><server>"
        f'<users file="{tmp_path}/users"/></server></listener></listeners></submit></mta></mailserver>'
    )
    return path


def user(conf: Path, *words: str, text: str = "") -> Result:
    return CliRunner().invoke(cli, ["-c", str(conf), "user", *words], input=text, standalone_mode=False)


def code(conf: Path, *words: str, text: str = "") -> int:
    """The command's exit code."""
    result = user(conf, *words, text=text)
    return int(result.exit_code or result.return_value)


def test_a_user_is_added_checked_listed_and_removed(conf: Path) -> None:
    assert code(conf, "add", "alice", text="wonderland\n") == 0
    assert code(conf, "check", "alice", text="wonderland\n") == 0
    assert code(conf, "check", "alice", text="wrong\n") == 1
    listed = user(conf, "list", "--json").stdout
    assert json.loads(listed) == {"name": "alice", "scram": True, "plain": False}
    assert code(conf, "remove", "alice") == 0
    assert user(conf, "list").stdout == ""


def test_a_password_is_changed(conf: Path) -> None:
    user(conf, "add", "alice", "--plain", text="old\n")
    assert code(conf, "passwd", "alice", text="new\n") == 0
    assert code(conf, "check", "alice", text="old\n") == 1
    assert code(conf, "check", "alice", text="new\n") == 0
    assert '"plain":false' in user(conf, "list", "--json").stdout


def test_no_command_prints_a_secret(conf: Path) -> None:
    for words in (["add", "a", "--plain"], ["check", "a"], ["passwd", "a"], ["list"], ["remove", "a"]):
        result = user(conf, *words, text="wonderland\n")
        assert "wonderland" not in result.output
        assert "argon2" not in result.output


@pytest.mark.parametrize("words", [["passwd", "nobody"], ["remove", "nobody"], ["check", "nobody"]])
def test_an_unknown_user_is_an_error(conf: Path, words: list[str]) -> None:
    user(conf, "add", "alice", text="old\n")
    assert code(conf, *words, text="x\n") == 1


@pytest.mark.parametrize(("name", "password"), [("alice", "other"), ("a b", "x"), ("bob", ""), ("bob", "\t")])
def test_a_user_that_cannot_be_is_refused(conf: Path, name: str, password: str) -> None:
    user(conf, "add", "alice", text="old\n")
    assert code(conf, "add", name, text=f"{password}\n") == 1
    assert len(user(conf, "list").stdout.splitlines()) == 1


def test_without_a_file_in_the_configuration_it_is_asked_for(conf: Path, tmp_path: Path) -> None:
    conf.write_text("<mailserver/>")
    assert isinstance(user(conf, "list").exception, UsageError)
    assert code(conf, "add", "alice", "--file", str(tmp_path / "own"), text="x\n") == 0

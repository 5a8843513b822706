"""Files of users that cannot be read are errors with their place, at check, start and reload."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcd.cli.main import main

CONF = """<mailserver>
  <application><announcehost>mx.test</announcehost></application>
  <mta><submit><listeners>
    <listener name="b" port="0">
      <server>
        {inner}
      </server>
    </listener>
  </listeners></submit></mta>
</mailserver>
"""


def run(tmp_path: Path, inner: str, command: str = "check") -> int:
    conf = tmp_path / "mqcd.xml"
    conf.write_text(CONF.format(inner=inner))
    return main(["-c", str(conf), "--var", str(tmp_path / "var"), command])


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize("text", [None, "alice plain=secret\n"])
def test_users_that_cannot_be_read_are_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "users").write_text(text)
        (tmp_path / "users").chmod(0o600)
    assert run(tmp_path, f'<users file="{tmp_path}/users"/>', command) == 1
    found = capfd.readouterr()
    said = found.err + found.out
    assert "6: mta/submit/listeners/listener[1]/server/users@file: " in said
    assert f"{tmp_path}/users" in said
    assert "secret" not in said
    assert ("line 1" in said) == (text is not None)


@pytest.mark.parametrize(
    ("inner", "path"),
    [
        ('<authtypes mandatory="Y"/>', "users@file"),
        ("<authtypes>plain</authtypes>", "users@file"),
        ('<senders><sender user="a" addresses="*"/></senders>', "users@file"),
        ('<users file="u"/><authtypes mandatory="Y">-</authtypes>', "authtypes"),
    ],
)
def test_logins_that_cannot_be_are_errors(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], inner: str, path: str
) -> None:
    assert run(tmp_path, inner) == 1
    assert f"server/{path}: " in capfd.readouterr().err


@pytest.mark.parametrize("inner", ["<authtypes>-</authtypes>", '<authtypes mandatory="N"/>', "<authtypes/>"])
def test_no_logins_are_fine(tmp_path: Path, inner: str) -> None:
    assert run(tmp_path, inner) == 0


@pytest.mark.parametrize(
    ("server", "network", "wrong"),
    [
        ("N", "", []),
        ("Y", "", ["blacklist@file"]),
        ("N", '<blacklist enabled="Y"/>', ["remotenets/remotenet[1]/blacklist@file"]),
        ("N", '<blacklist file="m"/>', []),
        ("Y", '<blacklist enabled="N" file="m"/>', ["blacklist@file"]),
        ("N", '<blacklist enabled="Y" file="m"/>', ["remotenets/remotenet[1]/blacklist@file"]),
    ],
)
def test_only_blacklists_that_count_are_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], server: str, network: str, wrong: list[str]
) -> None:
    nets = f'<remotenets><remotenet ip="192.0.2.1">{network}</remotenet></remotenets>'
    assert run(tmp_path, f'<blacklist file="missing" enabled="{server}"/>{nets}') == bool(wrong)
    said = capfd.readouterr().err
    assert [
        line.split(": ")[1].partition("/server/")[2] for line in said.splitlines() if "cannot be read" in line
    ] == wrong

"""`mqcd conf`, and the systemd unit that it prints."""

from __future__ import annotations

import configparser
from pathlib import Path

import click
import pytest

from mqcd.cli.conf import shipped
from mqcd.cli.main import cli, main
from tests.unit.cli.test_docs import commands

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "conf" / "packaging" / "mqcd.service"


def test_conf_prints_the_example(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["conf"]) == 0
    assert capfd.readouterr().out == (ROOT / "conf" / "mqcd.xml").read_text()


def test_conf_lists_and_prints_every_file(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["conf", "--list"]) == 0
    names = capfd.readouterr().out.split()
    assert {"mqcd.xml", "prometheus/alerts.yml", "grafana/mqcd.json", "packaging/mqcd.service"} <= {*names}
    for name in names:
        assert main(["conf", name]) == 0
        assert capfd.readouterr().out == (ROOT / "conf" / name).read_text()


@pytest.mark.parametrize("name", ["other.xml", "../pyproject.toml"])
def test_conf_prints_nothing_else(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["conf", name]) == 2
    assert "prometheus/alerts.yml" in capfd.readouterr().err


def test_the_unit_runs_commands_that_exist() -> None:
    unit = configparser.RawConfigParser(strict=False, delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(UNIT)
    service = unit["Service"]
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    assert service["User"] == "mqcd"
    assert int(service["LimitNOFILE"]) >= 65536
    assert {"NoNewPrivileges", "ProtectSystem", "PrivateTmp", "SystemCallFilter"} <= {*service}
    for line in ("ExecStart", "ExecStartPre"):
        assert service[line].split()[-1] in cli.commands


def test_every_summary_fits_its_line() -> None:
    groups = {words.rpartition(" ")[0] for words, _ in commands(cli)}
    for words in groups:
        group: click.Command = cli
        for name in words.split()[1:]:
            assert isinstance(group, click.Group)
            group = group.commands[name]
        with click.Context(group, info_name=words, terminal_width=80) as context:
            listed = group.get_help(context).partition("Commands:")[2]
        assert listed.strip()
        assert [line for line in listed.splitlines() if line.endswith("...") or len(line) > 80] == []


def test_the_files_lie_below_one_directory() -> None:
    assert {path.relative_to(ROOT / "conf") for path in shipped().values()} == {
        Path(name) for name in shipped()
    }

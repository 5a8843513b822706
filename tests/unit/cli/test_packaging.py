"""What a package has besides the program: manual pages, completions, files for systemd and logrotate."""

from __future__ import annotations

import configparser
import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import click
import pytest

from mqcd.cli.main import cli, main
from mqcd.config.settings import ListenerSettings
from mqcd.sendmail.maildrop import MODE
from mqcd.sendmail.main import MAILDROP
from tests.unit.cli.test_docs import commands, options

HERE = Path(__file__).parents[3] / "conf" / "packaging"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", HERE / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def groups(command: click.Command, name: str) -> set[str]:
    inner = command.commands if isinstance(command, click.Group) else {}
    return (
        {name}
        if not inner
        else {name}.union(*(groups(each, f"{name}-{word}") for word, each in inner.items()))
    )


def test_each_command_has_a_page_with_its_options(tmp_path: Path, generate: ModuleType) -> None:
    generate.main(["man", str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.1" for name in groups(cli, "mqcd")}
    for words, command in commands(cli):
        text = (tmp_path / f"{words.replace(' ', '-')}.1").read_text().replace("\\-", "-")
        assert text.startswith(".TH MQCD-")
        assert {option for option in options(command) if option in text} == options(command)


@pytest.mark.needs("groff")
def test_pages_are_good_roff(tmp_path: Path, generate: ModuleType) -> None:
    generate.main(["man", str(tmp_path)])
    for page in tmp_path.iterdir():
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z", str(page)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == "", page.name


def test_each_shell_has_a_completion(
    tmp_path: Path, generate: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    generate.main(["completion", str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {"mqcd", "_mqcd", "mqcd.fish"}
    bash = shutil.which("bash")
    assert bash is not None
    subprocess.run([bash, "-n", str(tmp_path / "mqcd")], check=True)
    assert "_MQCD_COMPLETE=bash_complete" in (tmp_path / "mqcd").read_text()
    # What the script calls.
    for name, value in {
        "_MQCD_COMPLETE": "bash_complete",
        "COMP_WORDS": "mqcd queue c",
        "COMP_CWORD": "2",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main()
    assert "plain,cat" in capsys.readouterr().out.split()


def read_unit(name: str) -> configparser.RawConfigParser:
    unit = configparser.RawConfigParser(strict=False, delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(HERE / name)
    return unit


def test_the_socket_unit_names_a_listener() -> None:
    unit = read_unit("mqcd.socket")["Socket"]
    assert unit["FileDescriptorName"] == ListenerSettings().name
    assert unit["ListenStream"].rpartition(":")[2] == str(ListenerSettings().port)
    assert read_unit("mqcd.service")["Service"]["Type"] == "notify"


def test_the_maildrop_has_its_mode() -> None:
    lines = [line.split() for line in (HERE / "mqcd.tmpfiles").read_text().splitlines() if line[:1] == "d"]
    assert ["d", f"/var/lib/mqcd/{MAILDROP}", f"{MODE:o}", "mqcd", "mqcd"] in lines


@pytest.mark.needs("systemd-analyze")
def test_the_unit_is_confined() -> None:
    done = subprocess.run(
        [
            "systemd-analyze",
            "security",
            "--offline=true",
            "--no-pager",
            "--threshold=20",
            str(HERE / "mqcd.service"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout

"""Where options may stand, what they stand for, and the exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mqcd
from mqcd.cli import main
from tests.unit.daemon.support import write_conf

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MQCD_CONF", raising=False)
    monkeypatch.delenv("MQCD_VAR", raising=False)


def queue_root(capsys: Capture) -> str:
    """The queue's directory as `check` has just told it."""
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    return next(line for line in lines if line.startswith("<rootpath>"))


def test_the_options_stand_before_or_after_the_words(tmp_path: Path, capsys: Capture) -> None:
    conf, var = str(write_conf(tmp_path)), str(tmp_path / "elsewhere")
    for words in (
        ["-c", conf, "--var", var, "check"],
        ["check", "-c", conf, "--var", var],
        ["--var", var, "check", "--conf", conf],
    ):
        assert main(words) == 0
        assert queue_root(capsys) == f"<rootpath>{var}/queue</rootpath>"


def test_of_two_the_later_wins(tmp_path: Path, capsys: Capture) -> None:
    conf = str(write_conf(tmp_path))
    assert main(["-c", "nowhere.xml", "check", "-c", conf]) == 0
    assert queue_root(capsys) == f"<rootpath>{tmp_path}/var/queue</rootpath>"


def test_the_environment_stands_behind_the_words(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQCD_CONF", str(write_conf(tmp_path)))
    monkeypatch.setenv("MQCD_VAR", str(tmp_path / "a"))
    assert main(["check"]) == 0
    assert queue_root(capsys) == f"<rootpath>{tmp_path}/a/queue</rootpath>"
    assert main(["check", "--var", str(tmp_path / "b")]) == 0
    assert queue_root(capsys) == f"<rootpath>{tmp_path}/b/queue</rootpath>"


def test_without_any_it_is_conf_beside_the_current_directory(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_conf(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["check"]) == 0
    assert queue_root(capsys) == f"<rootpath>{tmp_path}/var/queue</rootpath>"


@pytest.mark.parametrize(("user", "code"), [("root", 0), ("nobody-of-that-name", 1)])
def test_check_looks_whether_the_user_is_there(tmp_path: Path, capsys: Capture, user: str, code: int) -> None:
    conf = write_conf(tmp_path, application=f"<user>{user}</user>")
    assert main(["-c", str(conf), "check"]) == code
    assert (f'there is no user "{user}"' in capsys.readouterr().err) is bool(code)


def test_check_names_what_cannot_work_here(tmp_path: Path, capsys: Capture) -> None:
    conf = write_conf(tmp_path)
    conf.write_text(conf.read_text().replace('interface="127.0.0.1"', 'interface="192.0.2.1"'))
    assert main(["check", "-c", str(conf)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "192.0.2.1" in said.err
    assert f"{conf}:" in said.err


def test_a_file_that_is_not_there_says_how_to_name_one(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["queue", "ls"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "conf/mqcd.xml: cannot be read" in said.err
    assert "-c FILE" in said.err


def test_check_tells_every_error_at_once(tmp_path: Path, capsys: Capture) -> None:
    conf = write_conf(tmp_path, retry_delays="soon", port="many")
    assert main(["check", "-c", str(conf)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert [line.split(": ")[0] for line in said.err.splitlines()] == [f"{conf}:5", f"{conf}:10"]


def test_check_shows_what_loads_to_the_same_again(tmp_path: Path, capsys: Capture) -> None:
    conf = write_conf(tmp_path)
    assert main(["check", "-c", str(conf)]) == 0
    shown = capsys.readouterr().out
    conf.write_text(shown)
    assert main(["check", "-c", str(conf)]) == 0
    assert capsys.readouterr().out == shown


def test_warnings_go_to_standard_error(tmp_path: Path, capsys: Capture) -> None:
    conf = write_conf(tmp_path)
    conf.write_text(conf.read_text().replace(' interface="127.0.0.1" port="0"', ' port="0"', 1))
    assert main(["check", "-c", str(conf)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("<mailserver>")
    assert said.err.startswith(f"warning: {conf}:")


@pytest.mark.parametrize(
    "words",
    [
        ["no-such-command"],
        ["check", "--no-such-option"],
        ["queue", "ls", "--area", "nowhere"],
        ["queue", "ls", "--older", "soon"],
        ["queue", "ls", "--limit", "-1"],
        ["queue", "ls", "--spid", "12"],
        ["queue", "cat"],
        ["queue", "cat", "not-a-spid"],
        ["sink", "--port", "65536"],
        ["sink", "--rule", "nonsense"],
    ],
)
def test_a_wrong_command_line_is_exit_code_2(words: list[str], capsys: Capture) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Error: " in said.err


def test_the_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mqcd {mqcd.__version__}\n"


def test_looking_at_the_queue_loads_nothing_of_the_server() -> None:
    probe = (
        "import sys; from mqcd.cli import main; import mqcd.queue.reading.snapshot, mqcd.config.load; "
        "print([name for name in ('uvloop', 'aiosmtpd', 'dns', 'rich.table', 'prometheus_client') "
        "if name in sys.modules])"
    )
    asked = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert asked.stdout == "[]\n"


@pytest.mark.parametrize("own", [True, False])
def test_only_a_process_of_its_own_gives_way(own: bool) -> None:
    probe = (
        "import os; from mqcd.cli.options import Place; before = os.nice(0); "
        f"Place(own_process={own}).give_way(); print(os.nice(0) > before)"
    )
    asked = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert asked.stdout == f"{own}\n"


def test_a_demo_refuses_a_directory_in_use(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "mine").write_text("")
    assert main(["demo", "--keep", str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err

"""The command against a server that answers by a script, and without one."""

from __future__ import annotations

import errno
import io
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mqcd.sendmail.maildrop import decode
from mqcd.sendmail.main import MAILDROP, SOCKET, run

MESSAGE = b"Subject: s\n\n.body\n"


class Scripted:
    """Answers commands by their first word, else 250; keeps what it heard."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = {"": "220 mx.example.org hello", "DATA": "354 go", **answers}
        self.heard: list[str] = []

    def serve(self, listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with suppress(ConnectionError), connection, connection.makefile("rwb") as stream:
            in_content = False

            def say(key: str) -> bool:
                answer = self.answers.get(key, "250 2.0.0 ok")
                if answer:
                    stream.write(answer.encode() + b"\r\n")
                    stream.flush()
                return bool(answer) and not answer.startswith(("221", "421"))

            going = say("")
            for octets in stream if going else ():
                line = octets.decode().rstrip("\r\n")
                self.heard.append(line)
                if in_content and line != ".":
                    continue
                key = (
                    "."
                    if in_content
                    else next((each for each in self.answers if each and line.startswith(each)), "x")
                )
                in_content = key == "DATA" and self.answers["DATA"].startswith("354")
                if not say(key):
                    return


@contextmanager
def server(directory: Path, answers: dict[str, str]) -> Iterator[Scripted]:
    scripted = Scripted(answers)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(directory / SOCKET))
        listening.listen()
        thread = threading.Thread(target=scripted.serve, args=(listening,))
        thread.start()
        yield scripted
        thread.join(30)


@pytest.fixture
def send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    (tmp_path / MAILDROP).mkdir()

    def call(*words: str, text: bytes = MESSAGE) -> int:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        return run(["--var", str(tmp_path), *words], lambda line: len(line))

    return call


def dropped(directory: Path) -> list[Path]:
    return sorted((directory / MAILDROP).iterdir())


def test_a_message_goes_to_the_server(tmp_path: Path, send: Callable[..., int]) -> None:
    with server(tmp_path, {}) as heard:
        assert send("-f", "me@x", "-N", "never", "-R", "full", "-V", "a b+", "b@x", "c@x") == 0
    assert heard.heard[:5] == [
        "EHLO localhost",
        "MAIL FROM:<me@x> SIZE="
        + heard.heard[1].partition("SIZE=")[2].split()[0]
        + " RET=FULL ENVID=a+20b+2B",
        "RCPT TO:<b@x> NOTIFY=NEVER",
        "RCPT TO:<c@x> NOTIFY=NEVER",
        "DATA",
    ]
    content = heard.heard[5:]
    assert content[0].startswith("From: ")
    assert content[1:] == ["Subject: s", "", "..body", "."]
    assert dropped(tmp_path) == []


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ({"MAIL": "553 5.7.1 not yours"}, 77),
        ({"RCPT": "550 5.1.1 nobody"}, 67),
        ({"RCPT TO:<b": "550 5.1.1 nobody"}, 67),
        ({"MAIL": "552 5.3.4 too large"}, 65),
        ({".": "554 5.6.0 bad"}, 65),
        ({"DATA": "554 no"}, 69),
    ],
)
def test_a_refusal_is_an_exit_code(
    tmp_path: Path,
    send: Callable[..., int],
    answers: dict[str, str],
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with server(tmp_path, answers):
        assert send("b@x", "c@x") == code
    assert next(iter(answers.values())) in capsys.readouterr().err
    assert dropped(tmp_path) == []


@pytest.mark.parametrize(
    "answers",
    [
        {"": "421 4.3.2 stopping"},
        {"MAIL": "451 4.3.2 later"},
        {"RCPT TO:<c": "451 4.3.2 later"},
        {".": "451 4.3.1 full"},
        {".": ""},
        {"DATA": ""},
        {"": "HTTP/1.1 400 Bad"},
    ],
)
def test_a_server_that_cannot_take_it_leaves_it_to_the_maildrop(
    tmp_path: Path, send: Callable[..., int], answers: dict[str, str]
) -> None:
    with server(tmp_path, answers):
        assert send("-f", "me@x", "b@x", "c@x") == 0
    (made,) = dropped(tmp_path)
    letter = decode(made.read_bytes())
    assert (letter.sender, letter.recipients) == ("me@x", ("b@x", "c@x"))


def test_without_a_server_it_goes_into_the_maildrop(tmp_path: Path, send: Callable[..., int]) -> None:
    assert send("b@x") == 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stale:
        stale.bind(str(tmp_path / SOCKET))
    assert send("b@x") == 0
    assert len(dropped(tmp_path)) == 2


def test_without_either_the_program_is_to_try_again(
    tmp_path: Path, send: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / MAILDROP).rmdir()
    assert send("b@x") == 75
    assert "MQCD_VAR" in capsys.readouterr().err


def test_what_has_no_room_in_the_maildrop_is_not_for_want_of_it(
    tmp_path: Path,
    send: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mqcd.sendmail.maildrop.MAX_ENVELOPE", 10)
    assert send("b@x") == 75
    said = capsys.readouterr().err
    assert "fewer recipients" in said
    assert "MQCD_VAR" not in said
    assert dropped(tmp_path) == []


def test_a_path_of_any_length(tmp_path: Path, send: Callable[..., int]) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    around = os.open(deep, os.O_PATH | os.O_DIRECTORY)
    with server(Path(f"/proc/self/fd/{around}"), {}) as heard:
        assert send("--var", str(deep), "b@x") == 0
    os.close(around)
    assert heard.heard[-1] == "."


@pytest.mark.parametrize(("words", "code"), [(["-f"], 64), ([], 64), (["-t"], 65), (["-bi"], 0)])
def test_what_is_no_message_ends_at_once(send: Callable[..., int], words: list[str], code: int) -> None:
    assert send(*words) == code


def test_the_queue_is_listed_by_its_own_command(tmp_path: Path) -> None:
    lines: list[list[str]] = []

    def commands(line: list[str]) -> int:
        lines.append(line)
        return 1

    assert (run(["-bp"], commands), run(["-q", "--var", "/v"], commands)) == (1, 1)
    assert lines == [["queue", "ls"], ["--var", "/v", "queue", "retry"]]
    run(["-qRb.example"], commands)
    assert lines[-1] == ["queue", "retry", "--recipient", "*b.example*"]


def test_the_dialogue_is_shown(
    tmp_path: Path, send: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with server(tmp_path, {}):
        assert send("-v", "b@x") == 0
    assert ">>> RCPT TO:<b@x>" in capsys.readouterr().out.splitlines()


class Full(io.StringIO):
    """An output on a disk without room."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_dialogue_that_cannot_be_shown_sends_nothing_twice(
    tmp_path: Path, send: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(tmp_path, {}) as heard:
        monkeypatch.setattr(sys, "stdout", Full())
        assert send("-v", "b@x") == 0
    assert heard.heard[-1] == "."
    assert dropped(tmp_path) == []


def speak(directory: Path, monkeypatch: pytest.MonkeyPatch, commands: str, target: Path) -> int:
    """-bs with files for its input and output."""
    source = directory / "commands"
    source.write_text(commands)
    with source.open() as given, target.open("w") as shown:
        monkeypatch.setattr(sys, "stdin", given)
        monkeypatch.setattr(sys, "stdout", shown)
        return run(["--var", str(directory), "-bs"], len)


def test_replies_are_read_while_commands_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(tmp_path, {}) as heard:
        assert speak(tmp_path, monkeypatch, "NOOP\r\n" * 60_000, tmp_path / "replies") == 0
    assert len(heard.heard) == 60_000
    assert (tmp_path / "replies").read_text().count("250 ") == 60_000


@pytest.mark.parametrize(
    ("answers", "target"), [({"NOOP": ""}, "replies"), ({}, "/dev/full")], ids=["connection", "output"]
)
def test_a_dialogue_that_breaks_is_to_be_tried_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answers: dict[str, str],
    target: str,
) -> None:
    with server(tmp_path, answers):
        assert speak(tmp_path, monkeypatch, "NOOP\r\n" * 60_000, tmp_path / target) == 75
    assert capsys.readouterr().err.startswith("sendmail: ")


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ({"QUIT": "221 2.0.0 bye"}, 0),
        ({"QUIT": ""}, 75),
        ({"DATA": ""}, 75),
        ({"NOOP": "421 4.3.2 stop"}, 75),
    ],
)
def test_a_server_that_closes_before_it_was_told_quit_has_gone_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, str], code: int
) -> None:
    """With an input that is open, and all of it read by the server."""
    commands = b"NOOP\r\n" if "NOOP" in answers else b"DATA\r\n" if "DATA" in answers else b"QUIT\r\n"
    reading, writing = os.pipe()
    os.write(writing, commands)
    with server(tmp_path, answers), os.fdopen(reading) as given, (tmp_path / "replies").open("w") as shown:
        monkeypatch.setattr(sys, "stdin", given)
        monkeypatch.setattr(sys, "stdout", shown)
        assert run(["--var", str(tmp_path), "-bs"], len) == code
    os.close(writing)


@pytest.mark.parametrize(("answer", "code"), [("250 2.0.0 ok", 0), ("550 5.7.1 no", 0), ("", 75)])
def test_an_input_that_ends_with_a_content_needs_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    with server(tmp_path, {".": answer}):
        assert speak(tmp_path, monkeypatch, "DATA\r\nhello\r\n.\r\n", tmp_path / "replies") == code


@pytest.mark.parametrize("quits", ["QUIT", "quit "])
def test_a_quit_at_the_end_of_the_input_needs_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quits: str
) -> None:
    with server(tmp_path, {quits: ""}):
        assert speak(tmp_path, monkeypatch, f"NOOP\r\n{quits}\r\n", tmp_path / "replies") == 75


def test_little_is_loaded() -> None:
    """What costs time at each message of cron: no click, no lxml, no asyncio."""
    script = "import sys, mqcd.__main__; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"click", "lxml", "asyncio", "email", "socket", "mqcd.config", "mqcd.cli"} & set(loaded)
    assert len([name for name in loaded if name.startswith("mqcd")]) <= 5

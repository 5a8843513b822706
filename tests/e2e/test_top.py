"""`mqcd top` in a real terminal (tmux), beside a live server and sink."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import poll

pytestmark = pytest.mark.needs("tmux")
TOP = [sys.executable, "-m", "mqcd", "top", "--interval", "0.5"]


class Terminal:
    """One window of a tmux of its own."""

    def __init__(self, directory: Path) -> None:
        self._socket = directory / "tmux"

    def run(self, words: list[str], width: int = 80, height: int = 24, **environment: str) -> None:
        """Run a command in the window; what its end was is shown below it."""
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
        line = f"{settings} {shlex.join(words)}; echo ended with $?; exec cat"
        self("new-session", "-d", "-x", str(width), "-y", str(height), line)

    def __call__(self, *words: str) -> str:
        command = ["tmux", "-f", "/dev/null", "-S", str(self._socket), *words]
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        environment.pop("TMUX", None)
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def lines(self) -> list[str]:
        return self("capture-pane", "-p").splitlines()

    def until(self, shows: Callable[[str], object], what: str) -> list[str]:
        """The lines once the screen shows it."""

        def look() -> list[str] | None:
            lines = self.lines()
            # Half a picture may be there; its last line comes last.
            whole = " q quits" in lines[-1:] or any("ended with" in line for line in lines)
            return lines if whole and shows("\n".join(lines)) else None

        try:
            return poll(look, what)
        finally:
            print("\n".join(self.lines()))

    def end(self) -> None:
        subprocess.run(["tmux", "-S", str(self._socket), "kill-server"], capture_output=True)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.end()


@pytest.fixture
def server(make_server: MakeServer, make_receiver: MakeReceiver) -> Server:
    """One that has delivered a message and put one off."""
    receiver = make_receiver("*@busy.test=450 4.2.1 the mailbox is busy, come back some time later")
    made = make_server(Plan(relays=relay(receiver.port), queue={"retry_delays": "1h"})).start()
    mail.send(made.port, mail.message("hello"), "a@ours.test")
    mail.send(made.port, mail.message("hello"), "b@busy.test")
    made.event("delivered")
    made.event("deferred")
    return made


def place(server: Server) -> list[str]:
    return ["-c", str(server.conf), "--var", str(server.var)]


def test_it_shows_a_live_server_and_grows_with_the_window(terminal: Terminal, server: Server) -> None:
    # As a shell exports them that has looked once; the window's own size is what counts.
    terminal.run([*TOP, *place(server)], COLUMNS="100", LINES="30")
    lines = terminal.until(lambda text: re.search(r"(?m)^ deferred +1 ", text), "the deferred recipient")
    assert max(map(cell_len, lines)) <= 80
    text = "\n".join(lines)
    assert re.match(
        r" mqcd \S+  var/control\.sock  ready +up \d+s  20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$", lines[0]
    )
    assert re.search(r"(?m)^ incoming +0 ", text)
    assert re.search(r"(?m)^ 127\.0\.0\.1:\d+ .* put off +450 4\.2\.1 the mailbox is b…$", text)
    assert lines[23] == " q quits"
    mail.send(server.port, mail.message("hello"), "c@ours.test")
    terminal.until(lambda text: re.search(r"(?m)^ out +(0\.)?[1-9]\S*/s", text), "a delivery in the rates")

    terminal("resize-window", "-x", "140", "-y", "40")
    wide = "450 4.2.1 the mailbox is busy, come back some time later"
    lines = terminal.until(lambda text: wide in text, "the whole reply in a wider window")
    assert lines[39] == " q quits"
    terminal("resize-window", "-x", "60", "-y", "20")
    lines = terminal.until(lambda text: text.count("\n") == 19, "a small window")
    assert max(map(cell_len, lines)) <= 60

    assert server.stop() == 0
    terminal.until(lambda text: "no server runs at" in text, "the server's being gone")
    server.start()
    terminal("send-keys", "q")
    lines = terminal.until(lambda text: "ended with" in text, "its end")
    assert "ended with 0" in "\n".join(lines)
    assert "q quits" not in "\n".join(lines), "the terminal is not as it was before"


@pytest.mark.parametrize("how", ["C-c", "TERM"])
def test_however_it_ends_the_terminal_is_given_back(terminal: Terminal, server: Server, how: str) -> None:
    terminal.run([*TOP, *place(server)])
    terminal.until(lambda text: " q quits" in text, "the picture")
    if how == "TERM":
        shell = terminal("display-message", "-p", "#{pane_pid}").strip()
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        os.kill(int(children[0]), 15)
    else:
        terminal("send-keys", how)
    terminal.until(lambda text: "ended with 0" in text, "its end")
    assert terminal("display-message", "-p", "#{alternate_on} #{cursor_flag}").split() == ["0", "1"]


@pytest.mark.parametrize("no_color", ["", "1"])
def test_colour_is_for_terminals_that_want_it(terminal: Terminal, server: Server, no_color: str) -> None:
    terminal.run([*TOP, "--once", *place(server)], height=40, NO_COLOR=no_color, COLUMNS="80", LINES="40")
    terminal.until(lambda text: "ended with 0" in text, "its end")
    coloured = "\x1b[32mready" in terminal("capture-pane", "-p", "-e")
    assert coloured is not bool(no_color)


def test_nobody_there_is_one_clear_line(terminal: Terminal) -> None:
    done = subprocess.run([*TOP, "--url", "http://127.0.0.1:1"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "no server answers at 127.0.0.1:1: Connection refused\n"


def test_a_pipe_gets_one_picture_without_colour(server: Server) -> None:
    done = subprocess.run([*TOP, *place(server)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert done.stdout.splitlines()[-1].endswith("450 4.2.1 the mailbox is b…")

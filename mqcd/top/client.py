"""`mqcd top`: polls a server and shows its state.

A request takes at most ASK_SECONDS. While the server does not answer, the last picture stays with the reason
above it. The terminal is always restored.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import os
import select
import signal
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.text import Text

from mqcd.core.errors import ConfigError
from mqcd.core.ports import Clock
from mqcd.core.samples import Rows, Sample, View, parse, view
from mqcd.net.control.client import Control, NoAnswer, ask, why
from mqcd.top.screen import screen

ASK_SECONDS = 3.0
KEPT = 300
"""Samples that trends are drawn from."""
_LOOK_SECONDS = 0.25
"""How often keys and the window's size are looked at."""
_LEAVE = ("q", "Q", "\x04")
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOCAL = "shown over the control socket only"
Get = Callable[[str], tuple[int, str]]
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


class Server:
    """The pages of one server: over its control socket, else some of them over its ops listener."""

    def __init__(self, host: str, port: int, control: Path | None = None) -> None:
        """`port` 0: there is nothing but the control socket."""
        self._host, self._port = host, port
        self._control = Control(control) if control is not None else None

    @classmethod
    def at(cls, url: str) -> Server:
        """By its URL, of which only host and port count. Raises ConfigError."""
        try:
            parts = urlsplit(url if "//" in url else f"//{url}")
            host, port = parts.hostname, parts.port or 80
        except ValueError as error:
            raise ConfigError(f'"{url}" names no server: {error}') from None
        if not host or parts.scheme not in ("", "http"):
            raise ConfigError(f'"{url}" names no server: expected http://host:port')
        return cls(host, port)

    @classmethod
    def of(cls, interface: str, port: int, control: Path) -> Server:
        return cls(_ANY.get(interface, interface), port, control)

    def __str__(self) -> str:
        if not self._port and self._control is not None:
            return "/".join(self._control.path.parts[-2:])
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    def sample(self, clock: Clock) -> Sample:
        """Its pages now. Raises NoAnswer."""
        get, hidden = self._way()
        ready, against = get("/readyz")
        status, page = get("/metrics")
        if status not in (http.HTTPStatus.OK, http.HTTPStatus.SERVICE_UNAVAILABLE):
            raise NoAnswer(f"{self} is no mqcd: /metrics gives {status}")
        open_ = status == http.HTTPStatus.OK
        return Sample(
            taken=clock.monotonic() / 1000,
            at=clock.now(),
            metrics=parse(page) if open_ else {},
            destinations=_rows(get("/v1/destinations")) if open_ and not hidden else (),
            stuck=_rows(get("/v1/stuck")) if open_ and not hidden else (),
            hidden=hidden,
            against="" if ready == http.HTTPStatus.OK else against.strip() or "no reason given",
        )

    def _way(self) -> tuple[Get, str]:
        """How to get pages now, and why destinations are not among them; "" = they are."""
        if self._control is None:
            return self._over_tcp, _LOCAL
        try:
            self._control.get("/healthz", ASK_SECONDS)
        except NoAnswer as error:
            if not self._port:
                raise
            return self._over_tcp, f"{_LOCAL}: {error}"
        return self._over_socket, ""

    def _over_socket(self, path: str) -> tuple[int, str]:
        return self._control.get(path, ASK_SECONDS) if self._control is not None else self._over_tcp(path)

    def _over_tcp(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=ASK_SECONDS)
        try:
            return ask(connection, "GET", path)
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(f"no server answers at {self}: {why(error)}") from error
        finally:
            connection.close()


def _rows(page: tuple[int, str]) -> Rows:
    status, text = page
    try:
        rows: Rows = json.loads(text) if status == http.HTTPStatus.OK else []
    except ValueError:
        rows = []
    return rows


def look(server: Server, clock: Clock, interval: float, sleep: Callable[[float], None] = time.sleep) -> View:
    """One view, with rates of one interval (seconds). Raises NoAnswer."""
    first = server.sample(clock)
    sleep(interval)
    return view([first, server.sample(clock)])


def as_json(shown: View) -> dict[str, object]:
    """A view as one object; areas as `queue stat --json` has them."""
    fields = dataclasses.asdict(shown)
    fields["areas"] = [
        {"area": area, "recipients": recipients, "bytes": octets, "oldest_age": oldest}
        for area, (recipients, octets, oldest) in shown.areas.items()
    ]
    del fields["trends"]
    return fields


def watch(server: Server, clock: Clock, interval: float, console: Console) -> None:
    """Show it until q or Ctrl-C. Raises NoAnswer if it does not answer at first."""
    watching = Watching(server, clock, interval)
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        shown: object = None
        wait = 0.0
        while pressed(wait) not in _LEAVE:
            wait = min(watching.look(), _LOOK_SECONDS)
            _measure(console)
            if (state := (watching.looks, console.size)) != shown:
                shown = state
                live.update(Group(*watching.lines(console.width, console.height)), refresh=True)


def _measure(console: Console) -> None:
    """Take the window's own size: COLUMNS and LINES, which a shell may export, say what it once was."""
    with suppress(OSError):
        width, height = os.get_terminal_size(console.file.fileno())
        if width and height:
            console.size = ConsoleDimensions(width, height)


class Watching:
    """The samples of a server, the first one taken when it is made."""

    def __init__(self, server: Server, clock: Clock, interval: float) -> None:
        """`interval`: seconds between samples. Raises NoAnswer."""
        self._server = server
        self._clock = clock
        self._interval = interval * 1000
        self._samples = deque([server.sample(clock)], maxlen=KEPT)
        self._due = clock.monotonic() + self._interval
        self._trouble = ""
        self.looks = 0
        """The number of samples since."""

    def look(self) -> float:
        """Take a sample if one is due; returns the seconds until the next."""
        if self._clock.monotonic() >= self._due:
            self._due += self._interval
            self.looks += 1
            try:
                self._samples.append(self._server.sample(self._clock))
                self._trouble = ""
            except NoAnswer as error:
                self._trouble = str(error)
            # A sample that took longer than the interval is not made up for.
            self._due = max(self._due, self._clock.monotonic())
        return max(self._due - self._clock.monotonic(), 0) / 1000

    def lines(self, width: int, height: int) -> list[Text]:
        return screen(view(list(self._samples)), str(self._server), width, height, trouble=self._trouble)


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """What waits so many seconds for a key and gives it, "" for none; "q" once the process is to end."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    ending = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal ending
        ending = True

    def pressed(seconds: float) -> str:
        if ending:
            return "q"
        ready, _, _ = select.select([fd], [], [], seconds)
        if not ready:
            return ""
        # The terminal is gone when there is nothing to be read.
        return os.read(fd, 1).decode("ascii", "replace") or "q"

    handlers = {number: signal.signal(number, end) for number in _ENDINGS}
    try:
        tty.setcbreak(fd)
        yield pressed
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)

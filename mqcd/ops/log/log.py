"""The log: one event a line, business events and programs' messages alike, on one stream.

Business events (`LogObserver`) cost the path of mail one append: they are rendered and handed to a thread
together, at most FLUSH_MS after the first of them, and at `stop`. Messages of `logging` are written at once,
with earlier events, so that the reason of a crash is not lost; messages with `extra` carry its session or
SPID. A stream that cannot be written to stops nothing (see `outlet`).

Settings read: format and level of `LogSettings`; `reload` sets them anew (SIGHUP).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol, TextIO

from mqcd.config.settings import LogFormat, LogLevel, LogSettings
from mqcd.core.events import format_time
from mqcd.core.ports import Clock
from mqcd.ops.log.lines import Fields, Render, as_json, logfmt
from mqcd.ops.log.outlet import Line, Outlet

FLUSH_MS = 500
MAX_WAITING = 2_000
"""Events that wait for the flush; with more the oldest are written at once, so that a burst bounds its
memory."""
AT_ONCE = 100
"""Events that are rendered in one turn of the loop: all mail waits while it lasts."""

_RENDER: dict[LogFormat, Render] = {LogFormat.LOGFMT: logfmt, LogFormat.JSON: as_json}
_LEVELS = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}
_CARRIED = ("session", "spid")
"""What a message of `logging` may be about, as its `extra` says."""
_OWN = "mqcd"
"""The logger that the level is set for; of others only warnings are heard."""

Event = Callable[[], Fields]
"""An event that is not rendered yet."""


MOST_REASON = 200
"""Characters of an operator's reason that are kept."""


class LogEvent(Protocol):
    """Writes one event to the log."""

    def __call__(self, event: str, **fields: str | int) -> None: ...


class Log(logging.Handler):
    """Writes the log of one server to `stream`. Its lines are whole: it writes no part of one."""

    def __init__(
        self,
        clock: Clock,
        stream: TextIO,
        settings: LogSettings,
        environment: Mapping[str, str] | None = None,
        shard: int | None = None,
    ) -> None:
        """`environment` shows whether `stream` is the journal; None is the process's own.
        `shard`: of several; each line names it."""
        super().__init__()
        self._clock = clock
        self._outlet = Outlet(stream, self._loss, os.environ if environment is None else environment)
        self._render: Render = logfmt
        self._shard = shard
        self._waiting: deque[Event] = deque()
        self._writing = threading.RLock()
        self._wake = asyncio.Event()
        self._stopping = False
        self.threshold = logging.INFO
        """The level in `logging`'s numbers; business events below it are not needed."""
        self.reload(settings)

    def reload(self, settings: LogSettings) -> None:
        self.flush()
        self._render = _RENDER[settings.format]
        self.threshold = _LEVELS[settings.level]
        logging.getLogger(_OWN).setLevel(self.threshold)

    def attach(self) -> None:
        """Receive everything that is logged in this process, instead of earlier handlers."""
        root = logging.getLogger()
        for handler in list(root.handlers):
            root.removeHandler(handler)
        root.addHandler(self)
        root.setLevel(logging.WARNING)

    def event(self, event: Event) -> None:
        """Queue a business event for writing. Called from the loop's thread."""
        self._waiting.append(event)
        if self._stopping or len(self._waiting) >= MAX_WAITING:
            self._flush(AT_ONCE)
        elif not self._wake.is_set():
            self._wake.set()

    def say(self, event: str, **fields: str | int) -> None:
        """Write an event of the server itself at once, at level info; as `LogEvent`."""
        if self.threshold <= logging.INFO:
            at = format_time(self._clock.now())
            self.event(lambda: {"at": at, "level": "info", "event": event, **fields})
            self.flush()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message of `logging` at once. From any thread."""
        fields: dict[str, str | int | bool] = {
            "at": format_time(self._clock.now()),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        for name in _CARRIED:
            if (value := getattr(record, name, None)) is not None:
                fields[name] = str(value)
        fields["msg"] = _message(record)
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = logging.Formatter().formatException(record.exc_info)
        self._waiting.append(lambda: fields)
        self.flush()

    def flush(self) -> None:
        """Write everything that waits. From any thread; waits for it, but not for a stream that is stuck."""
        self._flush(len(self._waiting), wait=True)

    def _flush(self, most: int, *, wait: bool = False) -> None:
        with self._writing:
            lines: list[Line] = []
            while self._waiting and len(lines) < most:
                lines.append(self._line(self._waiting.popleft()()))
            if lines:
                self._outlet.put(lines, wait=wait)

    def _line(self, fields: Fields) -> Line:
        if self._outlet.is_journal:
            fields = {name: value for name, value in fields.items() if name != "at"}
        if self._shard is not None:
            fields = {**fields, "shard": self._shard}
        return Line(str(fields.get("level", "info")), self._render(fields))

    @property
    def lost(self) -> int:
        """How many lines could not be written, from the beginning on."""
        return self._outlet.lost

    async def run(self) -> None:
        """Write events in time, until `stop`."""
        while not self._stopping:
            await self._wake.wait()
            if not self._stopping:
                await self._clock.sleep(FLUSH_MS)
            self._wake.clear()
            while self._waiting:
                self._flush(AT_ONCE)
                await asyncio.sleep(0)

    def stop(self) -> None:
        """Write waiting events and make `run` return; later events are written at once."""
        self._stopping = True
        self.flush()
        self._outlet.close()
        self._wake.set()

    def _loss(self, lost: int) -> Line:
        at = format_time(self._clock.now())
        return self._line({"at": at, "level": "error", "msg": "log lines could not be written", "lost": lost})


def _message(record: logging.LogRecord) -> str:
    """The message; arguments that do not fit its format are a mistake that must not cost the line."""
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        return f"{record.msg} {record.args}"

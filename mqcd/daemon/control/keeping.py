"""The server itself: its settings and where they are set, and the level of its log, which may be changed for
a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

from mqcd.config.settings import LogLevel, LogSettings, Settings
from mqcd.config.show import rows
from mqcd.core.events import format_time
from mqcd.core.ports import Clock
from mqcd.daemon.control.api.binding import Given
from mqcd.ops.http.server import Request
from mqcd.ops.log.log import LogEvent


class Keeping:
    """The handlers."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        reload_log: Callable[[LogSettings], None],
        clock: Clock,
        log_event: LogEvent,
    ) -> None:
        self._settings = settings
        self.lines: Mapping[str, int] = {}
        """By path, where the configuration file sets a value."""
        self._reload_log = reload_log
        self._clock = clock
        self._log_event = log_event
        self._chosen: tuple[LogLevel, int, Settings] | None = None
        """The level that was asked for, until when, ms (0 = no such time), and the settings then."""
        self._reset: asyncio.Task[None] | None = None

    def settings(self, _request: Request, _given: Given) -> Sequence[Mapping[str, object]]:
        """All of them."""
        return [{**asdict(row), "line": self.lines.get(row.path)} for row in rows(self._settings())]

    def level(self, _request: Request, _given: Given) -> Mapping[str, object]:
        """The level of the log."""
        level, until = self._level()
        return {"level": level.value, "until": format_time(until) if until else None}

    def set_level(self, request: Request, given: Given) -> Mapping[str, object]:
        """Change it."""
        level, span = LogLevel(given["level"]), given.get("for", 0)
        if self._reset is not None:
            self._reset.cancel()
            self._reset = None
        settings = self._settings()
        self._chosen = level, self._clock.now() + span if span else 0, settings
        self._reload_log(replace(settings.ops.log, level=level))
        if span:
            self._reset = asyncio.get_running_loop().create_task(self._return(span))
        time = {"for_ms": span} if span else {}
        self._log_event("loglevel", threshold=level.value, by=request.by, **time)
        return self.level(request, given)

    def close(self) -> None:
        """Wait for no time any more."""
        if self._reset is not None:
            self._reset.cancel()

    def _level(self) -> tuple[LogLevel, int]:
        settings = self._settings()
        if self._chosen is None or self._chosen[2] is not settings:
            # A reload has set the configured level.
            return settings.ops.log.level, 0
        return self._chosen[:2]

    async def _return(self, span: int) -> None:
        await self._clock.sleep(span)
        self._chosen = self._reset = None
        self._reload_log(self._settings().ops.log)

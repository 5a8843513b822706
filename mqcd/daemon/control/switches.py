"""Pauses of accepting, delivering and reporting, each by itself, until somebody resumes it.

A pause is a file, made durable before it takes effect, so it stands over restarts, and for all shards alike:
they share the directory. While accepting is paused, doors answer MAIL with 450. While delivery is paused no
attempt begins and nothing expires; waiting mail is not in flight, so that actions reach all of it; attempts
under way end. While reporting is paused no bounce is reported; reports of delays and deliveries belong to
attempts.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path

from mqcd.core.display import printable
from mqcd.core.errors import StoreUnavailable
from mqcd.core.events import format_time
from mqcd.core.model import Area
from mqcd.core.ports import Clock, QueueStore
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.daemon.control.api.binding import Given
from mqcd.deliver.service import Deliverer
from mqcd.disk.durable import Disk, describe
from mqcd.ops.http.server import Request
from mqcd.ops.log.log import MOST_REASON, LogEvent
from mqcd.report.task import ReportTask
from mqcd.submit.door import Door

log = logging.getLogger(__name__)

CLOSED = Reply(code=450, status="4.3.2", text="No mail is taken for now, try again later")
_DRAINED = (Area.INCOMING, Area.DEFERRED, Area.BOUNCES)


class Part(StrEnum):
    """What can be paused."""

    ACCEPT = "accept"
    DELIVER = "deliver"
    REPORT = "report"


@value
class Pause:
    """Who has paused a part, when and why."""

    by: str
    at: int
    """ms."""
    reason: str = ""


class Switches:
    """Of one process."""

    def __init__(
        self,
        directory: Path,
        store: QueueStore,
        clock: Clock,
        log_event: LogEvent,
        turn: Mapping[Part, Callable[[bool], None]],
        disk: Disk | None = None,
    ) -> None:
        """`turn`: pauses a part, or resumes it."""
        self._directory = directory
        self._store = store
        self._clock = clock
        self._log_event = log_event
        self._turn = turn
        self._disk = disk or Disk()
        self._changing = asyncio.Lock()
        self.paused: dict[Part, Pause] = {}

    def start(self) -> None:
        """Take up the pauses of the last run. A file that cannot be read pauses its part, too."""
        for part in Part:
            path = self._path(part)
            if not self._disk.exists(path):
                continue
            try:
                fields = json.loads(self._disk.read_file(path))
                pause = Pause(by=str(fields["by"]), at=int(fields["at"]), reason=str(fields["reason"]))
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.error("%s says nothing of who paused it: %s", path, error)
                pause = Pause(by="unknown", at=self._clock.now())
            self.paused[part] = pause
            self._turn[part](True)
            log.warning("%s stays paused: %s", part, self._why(pause))

    def counts(self) -> Mapping[str, int]:
        """For the metrics: 1 for each part that is paused."""
        return {part.value: int(part in self.paused) for part in Part}

    def reasons(self) -> Sequence[str]:
        """For /readyz."""
        return [f"{part} is paused: {self._why(pause)}" for part, pause in sorted(self.paused.items())]

    async def change(self, request: Request, given: Given) -> object:
        """Pause a part, or resume it."""
        part, paused = Part(given["part"]), given["paused"]
        reason = printable(given.get("reason", ""))[:MOST_REASON]
        pause = Pause(by=request.by, at=self._clock.now(), reason=reason)
        async with self._changing:
            try:
                await asyncio.to_thread(self._write if paused else self._remove, self._path(part), pause)
            except OSError as error:
                raise StoreUnavailable(f"the pause cannot be recorded: {describe(error)}") from error
            if paused:
                self.paused[part] = pause
            else:
                self.paused.pop(part, None)
            self._turn[part](paused)
        why = {"reason": reason} if reason else {}
        self._log_event("paused" if paused else "resumed", part=part.value, by=pause.by, **why)
        return self.state(request, {})

    def state(self, _request: Request, _given: Given) -> Mapping[str, object]:
        """What is paused, by whom and since when; and what a drain still waits for."""
        stats = self._store.stats()
        waiting = sum(stats[area].recipients for area in _DRAINED)
        return {
            "parts": [_row(part, self.paused.get(part)) for part in Part],
            "waiting": waiting,
            "areas": {area.value: stats[area].recipients for area in _DRAINED},
            "drained": Part.ACCEPT in self.paused and not waiting,
        }

    def _path(self, part: Part) -> Path:
        return self._directory / f"{part}.json"

    def _write(self, path: Path, pause: Pause) -> None:
        self._disk.mkdir(self._directory)
        self._disk.replace_file(path, [json.dumps(asdict(pause)).encode()])

    def _remove(self, path: Path, _: Pause) -> None:
        if self._disk.exists(path):
            self._disk.unlink(path)
            self._disk.sync_dir(path.parent)

    @staticmethod
    def _why(pause: Pause) -> str:
        return f"by {pause.by} since {format_time(pause.at)}{f': {pause.reason}' if pause.reason else ''}"


def _row(part: Part, pause: Pause | None) -> dict[str, object]:
    return {
        "part": part.value,
        "paused": pause is not None,
        "by": pause.by if pause is not None else None,
        "since": format_time(pause.at) if pause is not None else None,
        "reason": pause.reason if pause is not None else None,
    }


def turns_of(
    doors: Sequence[Door], deliverer: Deliverer, reports: ReportTask
) -> Mapping[Part, Callable[[bool], None]]:
    """What `Switches` turns."""

    def accept(paused: bool) -> None:
        for door in doors:
            if paused:
                door.close_door(CLOSED)
            else:
                door.open_door()

    return {Part.ACCEPT: accept, Part.DELIVER: deliverer.halt, Part.REPORT: reports.halt}

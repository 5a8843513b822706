"""The audit logs: one line for each recipient delivered, one for each that failed for good.

A line is written once a recipient has reached its end: its delivery; the report on its failure, or that
without a report. An observer that never waits: lines go to a thread. While a file cannot be written,
WAITING lines are kept for it and those after them are counted; the log says so once, and again, with the
count, when the file can be written. Mail goes on: the ledger is the journal, not this.

Settings read: audit, audit_rot and audit_maxfile of `deliver` and `report`; `reload` sets them anew.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from mqcd.config.settings import AuditSettings
from mqcd.core.model import Bounced, Delivered, Expired, Recipient
from mqcd.core.observing.null_observer import NullObserver
from mqcd.core.queueing.spid import format_spid
from mqcd.ops.audit.file import AuditFile
from mqcd.ops.audit.line import delivery, failed_report, failure
from mqcd.ops.audit.rotation import Names
from mqcd.ops.log.writer import Writer

log = logging.getLogger(__name__)

WAITING = 10_000
"""Lines that wait for a file that cannot be written."""
GATHER_SECONDS = 0.5
"""Time for which lines are gathered and written together."""

Line = tuple[int, bytes]
"""Its time (ms), and its octets with the line end."""


class AuditLog:
    """One of the two, with its thread."""

    def __init__(self, path: Path, settings: AuditSettings) -> None:
        """`path` is the template that the settings give."""
        self._path = path
        self._file = AuditFile(Names(path, settings.audit_rot), settings.audit_maxfile)
        self._writer: Writer[Line] = Writer("audit log", self._append, limit=WAITING, gather=GATHER_SECONDS)
        self._failing = False

    def put(self, at: int, line: str) -> None:
        """Write a line of the time `at` (ms)."""
        self._writer.put([(at, f"{line}\n".encode("utf-8", "backslashreplace"))])

    def finish(self) -> None:
        """Write waiting lines and take no more. Does not wait."""
        self._writer.finish()

    @property
    def lost(self) -> int:
        return self._writer.lost

    @property
    def ending(self) -> bool:
        """After `finish`: whether the thread is still writing."""
        return self._writer.running

    def close(self, seconds: float) -> None:
        """Write waiting lines within this time."""
        if not self._writer.close(seconds):
            log.error("audit log %s: the last lines could not be written", self._path)

    def _append(self, batch: Sequence[Line]) -> int:
        """Runs in the thread; returns the number of lines written."""
        done = 0
        for path, group in groupby(batch, key=lambda line: self._file.path(line[0])):
            lines = [octets for _, octets in group]
            while lines:
                try:
                    count = self._file.append(path, lines)
                except OSError as error:
                    self._fail(path, error)
                    return done
                done += count
                del lines[:count]
        self._recover()
        return done

    def _fail(self, path: Path, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            why = error.strerror or error
            log.error("audit log %s cannot be written, its lines wait: %s", error.filename or path, why)

    def _recover(self) -> None:
        lost = self._writer.refused()
        if self._failing or lost:
            self._failing = False
            log.warning("audit log %s is written again; %d lines of it were lost", self._path, lost)


class Audit(NullObserver):
    """`core.ports.Observer` of final events only."""

    def __init__(self, deliver: AuditSettings, report: AuditSettings) -> None:
        self._deliver = deliver
        self._report = report
        self._deliveries = _log_of(deliver)
        self._failures = _log_of(report)
        self._ending: list[AuditLog] = []
        self._lost = 0
        """Lines lost by logs that were removed."""

    def reload(self, deliver: AuditSettings, report: AuditSettings) -> None:
        if _audit(deliver) != _audit(self._deliver):
            self._end(self._deliveries)
            self._deliveries = _log_of(deliver)
        if _audit(report) != _audit(self._report):
            self._end(self._failures)
            self._failures = _log_of(report)
        self._deliver, self._report = deliver, report

    def _end(self, old: AuditLog | None) -> None:
        if old is not None:
            old.finish()
            ending = []
            for each in (*self._ending, old):
                if each.ending:
                    ending.append(each)
                else:
                    self._lost += each.lost
            self._ending = ending

    @property
    def lost(self) -> int:
        """How many lines could not be written, from the beginning on."""
        return self._lost + sum(each.lost for each in self._logs())

    def _logs(self) -> list[AuditLog]:
        now = (self._deliveries, self._failures)
        return [*self._ending, *(each for each in now if each is not None)]

    def close(self, seconds: float) -> None:
        """Write waiting lines within about this time."""
        logs = self._logs()
        for each in logs:
            each.close(seconds / len(logs))

    def delivered(self, at: int, recipient: Recipient, verdict: Delivered) -> None:
        if self._deliveries is not None:
            self._deliveries.put(at, delivery(at, recipient, verdict))

    def bounced(self, at: int, recipient: Recipient, verdict: Bounced) -> None:
        """One line if this is the end of it: a report that fails is not reported."""
        if self._failures is not None and recipient.is_report:
            self._failures.put(at, failed_report(at, recipient, verdict))

    def expired(self, at: int, recipient: Recipient, verdict: Expired) -> None:
        if self._failures is not None and recipient.is_report:
            self._failures.put(at, failed_report(at, recipient, verdict))

    def reported(self, at: int, recipient: Recipient, report_spid: int) -> None:
        if self._failures is not None:
            self._failures.put(at, failure(at, recipient, report=format_spid(report_spid)))

    def discarded(self, at: int, recipient: Recipient, reason: str) -> None:
        if self._failures is not None:
            self._failures.put(at, failure(at, recipient, reason=reason))


def directories(deliver: AuditSettings, report: AuditSettings) -> list[Path]:
    """The directories that lines will be written below."""
    each = [(settings.audit, settings.audit_rot) for settings in (deliver, report)]
    return [Names(path, rotation).directory for path, rotation in each if path is not None]


def _audit(settings: AuditSettings) -> tuple[object, ...]:
    return settings.audit, settings.audit_rot, settings.audit_maxfile


def _log_of(settings: AuditSettings) -> AuditLog | None:
    return None if settings.audit is None else AuditLog(settings.audit, settings)

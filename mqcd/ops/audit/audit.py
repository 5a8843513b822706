"""The audit logs: one line for each recipient delivered, one for each that failed for good.

A line is written once a recipient has reached its end: its delivery; the report on its failure, or that
without a report. An observer that never waits: lines go to a thread. While a file cannot be written,
WAITING lines are kept for it and those after them are counted; the log says so once, and again, with the
count, when the file can be written. Mail goes on: the ledger is the journal, not this.

Each line goes to the file of its own time (`rotation`), and with a limit on size to the last of that time's
files that has room. A line is in a file whole or not at all: a line cut off by a full disk is truncated, and
one torn by a power failure is ended before the next line. No file stays open between two writes, so files can
be moved away or removed at any time. Files 0600, directories 0700; what exists keeps its rights. Nothing is
synced: an audit log is not the ledger.

A line is logfmt, with every field in the same order; "" where there is nothing to say. Names are those of the
event files. No text of a peer can break a line (`lines.text`).

Settings read: audit, audit_rot and audit_maxfile of `deliver` and `report`; `reload` sets them anew.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from mqcd.config.settings import AuditSettings
from mqcd.core.events import Verb, format_time
from mqcd.core.model import Bounced, Delivered, Expired, Recipient
from mqcd.core.observing.null_observer import NullObserver
from mqcd.core.queueing.spid import format_spid
from mqcd.core.queueing.transition import ended_as, last_attempt, speaker
from mqcd.core.smtp.reply import Reply
from mqcd.ops.audit.rotation import Names, last_number, numbered
from mqcd.ops.log.lines import text
from mqcd.ops.log.writer import Writer

Write = Callable[[int, memoryview], int]

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY


class AuditFile:
    """Where the lines of one audit log go; used by one thread at a time."""

    def __init__(self, names: Names, maxfile: int, *, write: Write = os.write) -> None:
        """`maxfile`: octets from which the next file is begun; 0 = no limit."""
        self._names = names
        self._maxfile = maxfile
        self._write = write

    def path(self, at: int) -> Path:
        """The file of the moment `at`, ms, or the first of that time's files."""
        return self._names.path(at)

    def append(self, path: Path, lines: Sequence[bytes]) -> int:
        """Write lines of the time of `path`, as many as one file takes, at least one; gives how many.

        Each line with its line end. Raises OSError; then none of them is in a file.
        """
        fd = self._open(self._with_room(path, len(lines[0])) if self._maxfile else path)
        try:
            size = os.fstat(fd).st_size
            count = self._fitting(size, lines)
            self._put(fd, size, b"".join(lines[:count]))
        finally:
            os.close(fd)
        return count

    def _with_room(self, path: Path, length: int) -> Path:
        """The last file of this time, or the one after it."""
        try:
            number = last_number(path, path.parent.iterdir())
            last = numbered(path, number)
            size = last.stat().st_size
        except FileNotFoundError:
            return path
        return numbered(path, number + 1) if size and size + length > self._maxfile else last

    def _fitting(self, size: int, lines: Sequence[bytes]) -> int:
        if self._maxfile:
            for count, line in enumerate(lines):
                size += len(line)
                if count and size > self._maxfile:
                    return count
        return len(lines)

    def _open(self, path: Path) -> int:
        try:
            return os.open(path, _FLAGS, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(path, _FLAGS, 0o600)

    def _put(self, fd: int, size: int, octets: bytes) -> None:
        try:
            if size and os.pread(fd, 1, size - 1) != b"\n":
                octets = b"\n" + octets
            rest = memoryview(octets)
            while rest:
                rest = rest[self._write(fd, rest) :]
        except OSError:
            # Where even this fails, the next write closes the torn end.
            with contextlib.suppress(OSError):
                os.ftruncate(fd, size)
            raise


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


def delivery(at: int, recipient: Recipient, verdict: Delivered) -> str:
    """A recipient that the next hop has taken at `at`, ms."""
    attempt = verdict.attempt
    return (
        f"{_head(at, Verb.DELIVERED, recipient, recipient.attempts + 1)}"
        f" destination={text(attempt.destination)} zone={text(attempt.zone)}"
        f" remote_host={text(attempt.remote_host)} remote_addr={text(attempt.remote_addr)}"
        f" tls={text(attempt.tls)} {_said(verdict.reply)}"
    )


def failure(at: int, recipient: Recipient, *, report: str = "", reason: str = "") -> str:
    """A bounce that ends at `at`, ms: with the report on it, or the reason why there is none."""
    reply = Reply(code=recipient.code, status=recipient.status, text=recipient.reply)
    verb = Verb.EXPIRED if ended_as(recipient) is Verb.EXPIRED else Verb.BOUNCED
    last = last_attempt(recipient)
    return (
        f"{_head(at, verb, recipient, recipient.attempts)}"
        f" remote_host={text(last.host)} phase={text(last.phase)} {_said(reply)}"
        f" report={text(report)} reason={text(reason)}"
    )


def failed_report(at: int, recipient: Recipient, verdict: Bounced | Expired) -> str:
    """Mail with the null sender that failed: it ends with its verdict, without a report."""
    verb = Verb.BOUNCED if isinstance(verdict, Bounced) else Verb.EXPIRED
    return (
        f"{_head(at, verb, recipient, recipient.attempts + 1)}"
        f" remote_host={text(speaker(verdict))} phase={verdict.attempt.phase.value} {_said(verdict.reply)}"
        f' report="" reason="null sender"'
    )


def _head(at: int, verb: Verb, recipient: Recipient, attempts: int) -> str:
    envelope = recipient.envelope
    return (
        f"at={format_time(at)} event={verb.value} spid={envelope.spid:016X} qid={recipient.qid}"
        f" sender={text(envelope.sender)} recipient={text(recipient.address)} size={recipient.size}"
        f" origin={envelope.origin.value} client={text(envelope.client)} user={text(envelope.user)}"
        f" attempts={attempts} queued_ms={max(at - envelope.received, 0)}"
    )


def _said(reply: Reply) -> str:
    return f"code={reply.code} status={text(reply.status)} reply={text(reply.text)}"

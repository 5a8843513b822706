"""The observer that has each business event written to the log, one line per recipient.

Acceptance, verdicts and refusals are logged at level info, unknown outcomes at warning; attempts and
connections, which verdicts imply, at debug. Field names are those of the event files, so that one
search works on both.

Lines on refusals are bounded (`Crowd`): a few a minute for each client, then one with the count of the rest.
Lines that were left out are counted in one line when their minute has passed and another one is logged: an
idle server writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Protocol

from mqcd.core.events import Verb, format_time
from mqcd.core.model import Amended, Attempt, Attempted, Bounced, Deferred, Delivered, Expired, Recipient
from mqcd.core.observing.null_observer import NullObserver
from mqcd.core.ports import Refusal
from mqcd.core.queueing.amendment import verb_of
from mqcd.core.queueing.spid import format_spid
from mqcd.core.smtp.reply import Reply
from mqcd.ops.log.log import Event

WINDOW_MS = 60_000
MOST = 20
"""Lines on one client within a window."""
CLIENTS = 1000
"""Clients that are counted each for itself; all others count together, as ""."""


class Crowd:
    """Recent refusals by client."""

    __slots__ = ("_counts", "_until")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._until = 0

    def admits(self, at: int, client: str) -> bool:
        """Whether one more refusal of `client`, at wall time `at`, has a line of its own."""
        if not self._counts:
            self._until = at + WINDOW_MS
        if client not in self._counts and len(self._counts) >= CLIENTS:
            client = ""
        count = self._counts[client] = self._counts.get(client, 0) + 1
        return count <= MOST

    def is_over(self, at: int) -> bool:
        """Whether a window has passed in which something was refused."""
        return bool(self._counts) and not self._until - WINDOW_MS <= at < self._until

    def left_out(self) -> Mapping[str, int]:
        """How many lines each client was denied; the next window begins with the next refusal."""
        counts, self._counts = self._counts, {}
        return {client: count - MOST for client, count in counts.items() if count > MOST}


Row = dict[str, str | int | bool]

# Under load several events share each millisecond, and writing a date is the dearest part of a line.
_time = lru_cache(maxsize=64)(format_time)


class Sink(Protocol):
    """Where events go, such as a `Log`."""

    @property
    def threshold(self) -> int:
        """Events below it are not needed, in `logging`'s numbers."""

    def event(self, event: Event) -> None:
        """One event, not rendered yet."""


class LogObserver(NullObserver):
    """`core.ports.Observer` that writes to a `Log`."""

    def __init__(self, log: Sink) -> None:
        self._log = log
        self._crowd = Crowd()

    def _write(self, level: int, at: int, event: Event) -> None:
        if self._log.threshold <= level:
            self._log.event(event)
        if self._crowd.is_over(at):
            self._sum_up(at)

    def _sum_up(self, at: int) -> None:
        for client, count in self._crowd.left_out().items():
            self._log.event(partial(_left_out, at, client, count))

    def accepted(self, at: int, recipients: Sequence[Recipient]) -> None:
        if self._log.threshold <= logging.INFO:
            for recipient in recipients:
                self._log.event(partial(_accepted, at, recipient))
        if self._crowd.is_over(at):
            self._sum_up(at)

    def attempted(self, at: int, recipients: Sequence[Recipient], destination: str) -> None:
        if self._log.threshold <= logging.DEBUG:
            for recipient in recipients:
                self._log.event(partial(_attempted, at, recipient, destination))

    def delivered(self, at: int, recipient: Recipient, verdict: Delivered) -> None:
        self._write(logging.INFO, at, partial(_verdict, at, Verb.DELIVERED, recipient, verdict))

    def deferred(self, at: int, recipient: Recipient, verdict: Deferred) -> None:
        self._write(logging.INFO, at, partial(_deferred, at, recipient, verdict))

    def bounced(self, at: int, recipient: Recipient, verdict: Bounced) -> None:
        self._write(logging.INFO, at, partial(_verdict, at, Verb.BOUNCED, recipient, verdict))

    def expired(self, at: int, recipient: Recipient, verdict: Expired) -> None:
        self._write(logging.INFO, at, partial(_verdict, at, Verb.EXPIRED, recipient, verdict))

    def reported(self, at: int, recipient: Recipient, report_spid: int) -> None:
        self._write(
            logging.INFO,
            at,
            lambda: _row(at, Verb.REPORTED, recipient) | {"report": format_spid(report_spid)},
        )

    def discarded(self, at: int, recipient: Recipient, reason: str) -> None:
        self._write(logging.INFO, at, lambda: _row(at, Verb.DISCARDED, recipient) | {"reason": reason})

    def amended(self, at: int, recipient: Recipient, verdict: Amended) -> None:
        """At debug: a batch has a line of its own, and may be large."""
        batch = verdict.batch
        self._write(
            logging.DEBUG,
            at,
            lambda: _row(at, verb_of(batch), recipient, "debug") | {"batch": batch.id, "by": batch.by},
        )

    def outcome_unknown(self, at: int, recipient: Recipient) -> None:
        """At warning: the next attempt may be a duplicate."""
        self._write(logging.WARNING, at, lambda: _row(at, Verb.OUTCOME_UNKNOWN, recipient, "warning"))

    def refused(self, at: int, refusal: Refusal) -> None:
        if self._log.threshold > logging.INFO:
            return
        if self._crowd.is_over(at):
            self._sum_up(at)
        if self._crowd.admits(at, refusal.client):
            self._log.event(partial(_refused, at, refusal))

    def connected(self, at: int, attempt: Attempt) -> None:
        self._write(
            logging.DEBUG,
            at,
            lambda: (
                _head(at, Verb.CONNECTED, "debug")
                | _of_connection(attempt)
                | {"connect_ms": attempt.connect_ms}
            ),
        )

    def connect_failed(self, at: int, attempt: Attempt, reason: str) -> None:
        self._write(
            logging.INFO,
            at,
            lambda: _head(at, Verb.CONNECT_FAILED) | _of_connection(attempt) | {"reason": reason},
        )


def _head(at: int, verb: Verb, level: str = "info") -> Row:
    return {"at": _time(at), "level": level, "event": verb}


def _row(at: int, verb: Verb, recipient: Recipient, level: str = "info") -> Row:
    envelope = recipient.envelope
    return {
        "at": _time(at),
        "level": level,
        "event": verb,
        "spid": format_spid(envelope.spid),
        "qid": recipient.qid,
        "sender": envelope.sender,
        "recipient": recipient.address,
    }


def _accepted(at: int, recipient: Recipient) -> Row:
    row = _row(at, Verb.ACCEPTED, recipient)
    envelope = recipient.envelope
    row["size"] = recipient.size
    row["origin"] = envelope.origin
    if envelope.listener:
        row["listener"] = envelope.listener
    if envelope.client:
        row["client"] = envelope.client
    if envelope.user:
        row["user"] = envelope.user
    if envelope.tls:
        row["tls"] = envelope.tls
    if envelope.session:
        row["session"] = envelope.session
    if envelope.message_id:
        row["message_id"] = envelope.message_id
    return row


def _attempted(at: int, recipient: Recipient, destination: str) -> Row:
    row = _row(at, Verb.ATTEMPTED, recipient, "debug")
    row["attempt"] = recipient.attempts + 1
    row["destination"] = destination
    return row


def _verdict(at: int, verb: Verb, recipient: Recipient, verdict: Attempted) -> Row:
    row = _row(at, verb, recipient)
    row["attempt"] = recipient.attempts + 1
    row |= _of_attempt(verdict.attempt)
    row |= _of_reply(verdict.reply)
    row["queued_ms"] = at - recipient.envelope.received
    return row


def _deferred(at: int, recipient: Recipient, verdict: Deferred) -> Row:
    row = _verdict(at, Verb.DEFERRED, recipient, verdict)
    row["due"] = format_time(verdict.due)
    if verdict.possibly_delivered:
        row["possibly_delivered"] = True
    return row


def _of_attempt(attempt: Attempt) -> Row:
    row: Row = {"destination": attempt.destination, "phase": attempt.phase}
    if attempt.session:
        row["session"] = attempt.session
    if attempt.zone:
        row["zone"] = attempt.zone
    if attempt.remote_host:
        row["remote_host"] = attempt.remote_host
    if attempt.remote_addr:
        row["remote_addr"] = attempt.remote_addr
    if attempt.tls:
        row["tls"] = attempt.tls
    row["connect_ms"] = attempt.connect_ms
    row["attempt_ms"] = attempt.attempt_ms
    return row


def _of_connection(attempt: Attempt) -> Row:
    session: Row = {"session": attempt.session} if attempt.session else {}
    return {
        **session,
        "destination": attempt.destination,
        "remote_host": attempt.remote_host,
        "remote_addr": attempt.remote_addr,
    }


def _of_reply(reply: Reply) -> Row:
    return {"code": reply.code, "status": reply.status, "reply": reply.text}


def _refused(at: int, refusal: Refusal) -> Row:
    row = _head(at, Verb.REFUSED) | {"reason": refusal.reason}
    optional = {
        "session": refusal.session,
        "listener": refusal.listener,
        "client": refusal.client,
        "user": refusal.user,
        "sender": refusal.sender,
        "recipient": refusal.recipient,
        "command": refusal.command,
    }
    row |= {name: value for name, value in optional.items() if value}
    return row | _of_reply(refusal.reply)


def _left_out(at: int, client: str, count: int) -> Row:
    row = _head(at, Verb.REFUSED)
    if client:
        row["client"] = client
    return row | {"left_out": count}

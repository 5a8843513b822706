"""The note of a settle entry: a verdict's details, as the events need them. Pure.

Fields are escaped and joined by `|` like a record's:
destination|zone|phase|remote host|remote address|source address|tls|connect ms|attempt ms|code|status|
extra|reply
Fields behind these are of a later version, whose readers find them here; this one passes over them.
`extra` is the due time of a deferral (ms, with a trailing `?` when it may have been delivered), the SPID
of a report, the reason of a discard.

The note of an operator's action is another:
batch|by|reason|until|target|the event that an undo takes back
"""

from __future__ import annotations

from typing import NamedTuple

from mqcd.core.errors import DecodeError
from mqcd.core.events import Verb
from mqcd.core.model import (
    Action,
    Amended,
    Attempt,
    Attempted,
    Bounced,
    Deferred,
    Delivered,
    Discarded,
    Expired,
    Purged,
    PutOff,
    Recipient,
    Reported,
    Verdict,
)
from mqcd.core.queueing.amendment import undone, verb_of
from mqcd.core.queueing.spid import format_spid
from mqcd.queue.format.frame import Mark
from mqcd.queue.format.record import escape, join, unescape

ROUTE = ("destination", "zone", "phase", "remote_host", "remote_addr", "source_addr", "tls")
"""The fields that say where an attempt went: the first of a note."""
_BARS = 12
_NO_ATTEMPT = "|" * 8

MARKS: dict[type[Verdict], Mark] = {
    Delivered: Mark.DELIVERED,
    Deferred: Mark.DEFERRED,
    Bounced: Mark.BOUNCED,
    Expired: Mark.EXPIRED,
    Reported: Mark.REPORTED,
    Discarded: Mark.DISCARDED,
    Purged: Mark.PURGED,
}
"""Marks of all verdicts but operators' actions, see `mark_of`."""
_MARK_OF_VERB = {
    Verb.HELD: Mark.HELD,
    Verb.RELEASED: Mark.RELEASED,
    Verb.REMOVED: Mark.REMOVED,
    Verb.RESTORED: Mark.RESTORED,
    Verb.REDIRECTED: Mark.REDIRECTED,
    Verb.RESCHEDULED: Mark.RESCHEDULED,
}
AMENDMENTS = frozenset(_MARK_OF_VERB.values())
"""Marks of operators' actions."""


def mark_of(verdict: Verdict) -> Mark:
    """The mark of a verdict's entry."""
    return _MARK_OF_VERB[verb_of(verdict.batch)] if isinstance(verdict, Amended) else MARKS[type(verdict)]


def attempt_part(attempt: Attempt) -> str:
    """What the recipients that travelled together share."""
    a = attempt
    route = join(a.destination, a.zone, a.phase, a.remote_host, a.remote_addr, a.source_addr, a.tls)
    return f"{route}|{a.connect_ms}|{a.attempt_ms}"


def foreign_part(host: str) -> str:
    """The same of another server's attempt: the host is known, but not the phase nor the times."""
    return f"{join('', '', '', host, '', '', '')}|0|0"


def encode(verdict: Verdict, shared: str = "", before: Recipient | None = None) -> bytes:
    """The note for a verdict; `shared` is its `attempt_part` if the caller has it.

    `before`: the recipient that an operator's action changes.
    """
    if isinstance(verdict, Attempted):
        reply, extra = verdict.reply, ""
        if isinstance(verdict, PutOff):
            extra = f"{verdict.due}{'?' if verdict.possibly_delivered else ''}"
        head = shared or attempt_part(verdict.attempt)
        return f"{head}|{reply.code}|{join(reply.status, extra, reply.text)}".encode()
    if isinstance(verdict, Amended):
        batch = verdict.batch
        taken_back = undone(before, batch) if before is not None and batch.action is Action.UNDO else ""
        return join(batch.id, batch.by, batch.reason, str(batch.until), batch.target, taken_back).encode()
    if isinstance(verdict, Purged):
        return b""
    if isinstance(verdict, Reported):
        return f"{_NO_ATTEMPT}|0||{format_spid(verdict.report_spid)}|".encode()
    return f"{_NO_ATTEMPT}|0||{escape(verdict.reason)}|{verdict.undone}".encode()


class Note(NamedTuple):
    """What a note holds, as it stands there: texts are escaped. "" or "0" where nothing applies."""

    route: str
    """The fields of ROUTE."""
    connect_ms: str
    attempt_ms: str
    code: str
    status: str
    extra: str
    reply: str


class AmendmentNote(NamedTuple):
    """What the note of an operator's action holds, escapes undone."""

    batch: str
    by: str
    reason: str
    until: str
    target: str
    undone: str


def split_amendment(note: bytes) -> AmendmentNote:
    """Raises DecodeError."""
    try:
        fields = note.decode().split("|")[: len(AmendmentNote._fields)]
        return AmendmentNote(*map(unescape, fields))
    except (ValueError, TypeError) as error:
        raise DecodeError(f"not the note of an action: {note[:120]!r}") from error


def split(note: bytes) -> Note:
    """The details that a note holds. Raises DecodeError."""
    bars = note.count(b"|")
    if bars > _BARS:
        note = b"|".join(note.split(b"|")[: _BARS + 1])
    try:
        parts = note.decode().rsplit("|", 6)
    except ValueError as error:
        raise DecodeError(f"not a verdict's note: {note[:120]!r}") from error
    if bars < _BARS:
        raise DecodeError(f"not a verdict's note: {note[:120]!r}")
    return Note(*parts)

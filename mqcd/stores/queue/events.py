"""Events of a queue without a journal, as lines of the event log: each is written with the change it reports.

Lines lie in the documents, beside the recipients' values, until they are in an event file (`exporting`). So
a change and its events are durable together, whatever the store. Numbers of events are never used again.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqcd.core.model import Recipient, Verdict
from mqcd.eventlog.files import Source
from mqcd.queue.events.lines import EventText
from mqcd.queue.format import record, verdict
from mqcd.queue.format.frame import ALIVE, IN_SPOOL, Entry, Mark

Line = tuple[int, bytes]
"""SPID of the message whose document has it, and the line."""


class EventLines:
    """Makes the lines of one run."""

    def __init__(self, source: Source, sequence: int) -> None:
        """`sequence`: no event has had a number above it."""
        self._text = EventText(source)
        self.sequence = sequence

    def accepted(self, at: int, recipients: Sequence[Recipient]) -> Sequence[Line]:
        """A new message."""
        envelope = recipients[0].envelope
        part = record.encode_envelope(envelope)
        lines = [record.encode(each, part) for each in recipients]
        made: list[str] = []
        self._text.accepted(self._next(len(lines)), at, lines, record.encode_memo(envelope), made)
        return [(envelope.spid, line.encode()) for line in made]

    def attempted(self, at: int, recipients: Sequence[Recipient], destination: str) -> Sequence[Line]:
        """Attempts begin."""
        made: list[str] = []
        keys = [(each.spid, each.qid, each.attempts + 1) for each in recipients]
        self._text.attempted(self._next(len(keys)), at, keys, destination, made)
        return [(each.spid, line.encode()) for each, line in zip(recipients, made, strict=True)]

    def ended(self, at: int, old: Recipient, new: Recipient | None, why: Verdict) -> Line:
        """A verdict."""
        flags, line = (ALIVE, record.encode(new)) if new is not None else (0, record.encode(old))
        entry = Entry(verdict.mark_of(why), flags, 0, 0, IN_SPOOL, line, verdict.encode(why, "", old))
        return old.spid, self._text.ended(self._next(1), at, entry).encode()

    def unknown(self, at: int, new: Recipient) -> Line:
        """An outcome that a crash has hidden; `new` is the record after it."""
        entry = Entry(Mark.UNKNOWN, ALIVE, 0, 0, IN_SPOOL, record.encode(new))
        return new.spid, self._text.ended(self._next(1), at, entry).encode()

    def _next(self, count: int) -> int:
        first = self.sequence + 1
        self.sequence += count
        return first

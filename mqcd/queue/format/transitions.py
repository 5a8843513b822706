"""Which transitions a frame records: one verb per entry. Pure.

The event log, the ledger's totals and recovery all read frames through this table, so that they cannot
disagree about what happened.
"""

from __future__ import annotations

from collections.abc import Iterator

from mqcd.core.events import Verb
from mqcd.queue.format.frame import Accepted as AcceptedPart
from mqcd.queue.format.frame import (
    Entry,
    Kind,
    Mark,
    read_entries,
    read_replacement,
    read_submission,
    read_take,
)

VERB_OF: dict[Mark, Verb] = {
    Mark.DELIVERED: Verb.DELIVERED,
    Mark.DEFERRED: Verb.DEFERRED,
    Mark.BOUNCED: Verb.BOUNCED,
    Mark.EXPIRED: Verb.EXPIRED,
    Mark.REPORTED: Verb.REPORTED,
    Mark.DISCARDED: Verb.DISCARDED,
    Mark.UNKNOWN: Verb.OUTCOME_UNKNOWN,
    Mark.HELD: Verb.HELD,
    Mark.RELEASED: Verb.RELEASED,
    Mark.REMOVED: Verb.REMOVED,
    Mark.RESTORED: Verb.RESTORED,
    Mark.REDIRECTED: Verb.REDIRECTED,
    Mark.RESCHEDULED: Verb.RESCHEDULED,
}
"""Marks that are transitions. The others have no event: PURGED ends a record, the rest move one."""


def submissions(kind: Kind, body: memoryview) -> tuple[list[AcceptedPart], int]:
    """The messages that a frame accepts, and where its entries begin. Raises DecodeError."""
    if kind is Kind.ACCEPT:
        accepted, end = read_submission(body, 0)
        return [accepted], end
    if kind is Kind.REPORT:
        count, offset = int.from_bytes(body[:4], "little"), 4
        parts = []
        for _ in range(count):
            accepted, offset = read_submission(body, offset)
            parts.append(accepted)
        return parts, offset
    if kind is Kind.TAKE:
        return [], read_take(body)[1]
    if kind is Kind.REPLACE:
        return [], read_replacement(body)[1]
    return [], 0


WITH_ENTRIES = frozenset(
    {Kind.TAKE, Kind.SETTLE, Kind.PARK, Kind.CARRY, Kind.UNKNOWN, Kind.REPORT, Kind.REPLACE},
)


def entries(kind: Kind, body: memoryview, offset: int, count: int) -> Iterator[tuple[int, Entry]]:
    """The entries of a frame, each with where its line stands in the body; none for other kinds."""
    return read_entries(body, offset, count) if kind in WITH_ENTRIES else iter(())

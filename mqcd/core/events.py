"""The business events: their verbs, and which fields each carries. Pure.

One verb per transition of a recipient. The first group comes exactly once per transition, also after a
crash, because the event log is derived from the journal; the second group is best effort.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

SCHEMA_VERSION = 1
"""`v` of each event; grows when a field changes its meaning, not when one is added."""


class Verb(StrEnum):
    """What happened."""

    ACCEPTED = "accepted"
    ATTEMPTED = "attempted"
    DELIVERED = "delivered"
    DEFERRED = "deferred"
    BOUNCED = "bounced"
    EXPIRED = "expired"
    REPORTED = "reported"
    DISCARDED = "discarded"
    REMOVED = "removed"
    OUTCOME_UNKNOWN = "outcome-unknown"

    REFUSED = "refused"
    CONNECTED = "connected"
    CONNECT_FAILED = "connect-failed"


TRANSITIONS = frozenset(Verb) - {Verb.REFUSED, Verb.CONNECTED, Verb.CONNECT_FAILED}
"""Verbs that come exactly once per transition."""


def format_time(ms: int) -> str:
    """RFC 3339 UTC with milliseconds, as all times in files and JSON are written."""
    at = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"

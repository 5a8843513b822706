"""The business events: their verbs, and what is common to all of them. Pure.

One verb per transition of a recipient. The first group comes exactly once per transition, also after a
crash, because the event log is derived from the journal; the second group is best effort. Which fields each
verb carries is in `events.schema.json` beside this module (docs/events.md).
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache

SCHEMA_VERSION = 1
"""`v` of each event; grows when a field changes its meaning, not when one is added."""
SCHEMA_FILE = "events.schema.json"
"""The JSON Schema of an event, a resource of the package `mqcd.core`."""


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
    OUTCOME_UNKNOWN = "outcome-unknown"
    HELD = "held"
    RELEASED = "released"
    REMOVED = "removed"
    RESTORED = "restored"
    REDIRECTED = "redirected"
    RESCHEDULED = "rescheduled"

    REFUSED = "refused"
    CONNECTED = "connected"
    CONNECT_FAILED = "connect-failed"


BEST_EFFORT = frozenset({Verb.REFUSED, Verb.CONNECTED, Verb.CONNECT_FAILED})
"""Verbs of what is not in the journal: rate limited, and lost with a crash."""
TRANSITIONS = frozenset(Verb) - BEST_EFFORT
"""Verbs that come exactly once per transition."""
MIGRATED = "migrated"
"""The reason of a `discarded` that takes back the acceptance: another store has accepted the recipient."""
LIFE_ENDS = (Verb.DELIVERED, Verb.BOUNCED, Verb.EXPIRED, Verb.REMOVED)
"""Verbs that end a recipient's life, of which each has one: the ledger counts it by them."""
LAST = frozenset({Verb.DELIVERED, Verb.REPORTED, Verb.DISCARDED})
"""Verbs after which the queue has no record of a recipient, and nothing more happens to it."""
REPORT_LAST = LAST | {Verb.BOUNCED, Verb.EXPIRED}
"""The same for mail that is never reported on."""
ATTEMPT_ENDS = (Verb.DELIVERED, Verb.DEFERRED, Verb.BOUNCED, Verb.EXPIRED)
"""Verbs that end an attempt; in tables and figures its verdicts stand in this order."""
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, after which RFC 3339 has no times."""


def site_of(destination: str) -> str:
    """The site in the name of a destination: the set of MX hosts behind it; "" for a configured relay.

    A relay is named `host:port`. A site is named after its hosts, and has `/domain` behind that when the
    domain's own address is tried after them (see `deliver.routing`); an address literal stands in brackets.
    """
    bracket = destination.rfind("]") + 1
    return "" if ":" in destination[bracket:] else destination.partition("/")[0]


def format_time(ms: int) -> str:
    """RFC 3339 UTC with milliseconds, as all times in files and JSON are written.

    A time that cannot be, as damage leaves it, is shown as the nearest that can: nothing stops for it.
    """
    if not 0 <= ms <= _LAST_MS:
        ms = min(max(ms, 0), _LAST_MS)
    return _second(ms // 1000) + _fraction(ms % 1000)


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    """Times come close together: thousands share a second, and writing one out costs more than the rest."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


@lru_cache(maxsize=1000)
def _fraction(ms: int) -> str:
    return f".{ms:03d}Z"

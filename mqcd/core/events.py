"""The business events: their verbs, and what is common to all of them. Pure.

One verb per transition of a recipient. The first group comes exactly once per transition, also after a
crash, because the event log is derived from the journal; the second group is best effort. Which fields each
verb carries is in `events.schema.json` beside this module (docs/events.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache

from mqcd.core.value import value

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


@value
class Meaning:
    """What an event says of a recipient's life."""

    in_journal: bool = True
    """Whether it is a transition, and comes exactly once. Others are rate limited, and lost with a crash."""
    ends_attempt: bool = False
    ends_life: bool = False
    """Whether the ledger counts a recipient's end by it; each has one, unless a later event takes it back."""
    failed: bool = False
    """Whether that end is a failure of delivery."""
    is_last: bool = False
    """Whether the queue has no record of a recipient after it, and nothing more happens to it."""


_OTHER, _LOSSY = Meaning(), Meaning(in_journal=False)
_FAILED = Meaning(ends_attempt=True, ends_life=True, failed=True)
MEANINGS: Mapping[Verb, Meaning] = {
    Verb.ACCEPTED: _OTHER,
    Verb.ATTEMPTED: _OTHER,
    Verb.DELIVERED: Meaning(ends_attempt=True, ends_life=True, is_last=True),
    Verb.DEFERRED: Meaning(ends_attempt=True),
    Verb.BOUNCED: _FAILED,
    Verb.EXPIRED: _FAILED,
    Verb.REPORTED: Meaning(is_last=True),
    Verb.DISCARDED: Meaning(is_last=True),
    Verb.OUTCOME_UNKNOWN: _OTHER,
    Verb.HELD: _OTHER,
    Verb.RELEASED: _OTHER,
    Verb.REMOVED: Meaning(ends_life=True),
    Verb.RESTORED: _OTHER,
    Verb.REDIRECTED: _OTHER,
    Verb.RESCHEDULED: _OTHER,
    Verb.REFUSED: _LOSSY,
    Verb.CONNECTED: _LOSSY,
    Verb.CONNECT_FAILED: _LOSSY,
}
TRANSITIONS = frozenset(verb for verb in Verb if MEANINGS[verb].in_journal)
"""Verbs that come exactly once per transition."""
BEST_EFFORT = frozenset(Verb) - TRANSITIONS
"""Verbs of what is not in the journal."""
MIGRATED = "migrated"
"""The reason of a `discarded` that takes back the acceptance: another store has accepted the recipient."""
LIFE_ENDS = tuple(verb for verb in Verb if MEANINGS[verb].ends_life)
FAILURES = frozenset(verb for verb in Verb if MEANINGS[verb].failed)
LAST = frozenset(verb for verb in Verb if MEANINGS[verb].is_last)
REPORT_LAST = LAST | FAILURES
"""The same for mail that is never reported on."""
ATTEMPT_ENDS = tuple(verb for verb in Verb if MEANINGS[verb].ends_attempt)
"""In tables and figures verdicts stand in this order."""
NOT_DELIVERED = tuple(verb for verb in ATTEMPT_ENDS if verb is not Verb.DELIVERED)
"""Ends of attempts without a delivery."""
PUT_OFF = tuple(verb for verb in NOT_DELIVERED if verb not in FAILURES)
"""Those after which there will be another attempt."""
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

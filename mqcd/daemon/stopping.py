"""How long a stop may last: each part of a server, the server as a whole, the process.

A part that takes longer is cancelled, which is logged, and the stop goes on. The other steps of a stop cancel
tasks or close ports, and have no limit: where one of them hangs, or a part that was cancelled, the process
ends after CUT_OFF_SECONDS.
"""

from __future__ import annotations

from collections.abc import Mapping

MAIL, MAILDROP, REPORTS, QUEUE, AUDIT = "mail", "the maildrop", "reports", "the queue", "audit logs"

GRACE_MS = 7_000
"""For attempts and commits under way."""
LIMITS: Mapping[str, int] = {
    # After the grace what the attempts have come to is recorded.
    MAIL: GRACE_MS + 1_100,
    MAILDROP: 300,
    REPORTS: 300,
    # At least; what the parts above have not used is the queue's, too.
    QUEUE: 900,
    # Their disk may be stuck.
    AUDIT: 100,
}
"""Milliseconds, in the order of the stop: one part ends before the next one's time begins."""
STOP_MS = sum(LIMITS.values())
CUT_OFF_SECONDS = 9.9
"""From the signal on; more than STOP_MS."""

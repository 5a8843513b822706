"""The last reply by which each destination deferred or refused mail. An observer.

`top` shows it beside a destination, so that the reason need not be searched in the log. Bounded: of more
than MOST destinations the most recent are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mqcd.core.model import Bounced, Deferred, Expired, NotDelivered, Recipient
from mqcd.core.observing.null_observer import NullObserver
from mqcd.core.smtp.reply import Reply

MOST = 1000


class LastReply(NamedTuple):
    """One reply, and when it came, ms."""

    at: int
    reply: Reply


class LastReplies(NullObserver):
    """`core.ports.Observer` that remembers replies."""

    def __init__(self) -> None:
        self._by_name: dict[str, LastReply] = {}

    @property
    def by_name(self) -> Mapping[str, LastReply]:
        return self._by_name

    def deferred(self, at: int, recipient: Recipient, verdict: Deferred) -> None:
        self._keep(at, verdict)

    def bounced(self, at: int, recipient: Recipient, verdict: Bounced) -> None:
        self._keep(at, verdict)

    def expired(self, at: int, recipient: Recipient, verdict: Expired) -> None:
        self._keep(at, verdict)

    def _keep(self, at: int, verdict: NotDelivered) -> None:
        destination = verdict.attempt.destination
        # Removed first: a dictionary keeps the order of insertion, so the first is the oldest.
        self._by_name.pop(destination, None)
        self._by_name[destination] = LastReply(at, verdict.reply)
        if len(self._by_name) > MOST:
            del self._by_name[next(iter(self._by_name))]

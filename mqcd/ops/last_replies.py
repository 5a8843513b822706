"""What each destination said last to put mail off or refuse it. An observer.

For whoever looks at a destination that does not get on: the reason, before they ask for a log. Bounded: of
more than MOST destinations those that said something last are remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mqcd.core.model import Bounced, Deferred, Expired, Recipient
from mqcd.core.null_observer import NullObserver
from mqcd.core.reply import Reply

MOST = 1000


class Word(NamedTuple):
    """One reply, and when it came, ms."""

    at: int
    reply: Reply


class LastWords(NullObserver):
    """`core.ports.Observer` that remembers replies."""

    def __init__(self) -> None:
        self._said: dict[str, Word] = {}

    @property
    def said(self) -> Mapping[str, Word]:
        """By destination."""
        return self._said

    def deferred(self, at: int, recipient: Recipient, verdict: Deferred) -> None:
        """Remembered."""
        self._remember(at, verdict)

    def bounced(self, at: int, recipient: Recipient, verdict: Bounced) -> None:
        """Remembered."""
        self._remember(at, verdict)

    def expired(self, at: int, recipient: Recipient, verdict: Expired) -> None:
        """Remembered."""
        self._remember(at, verdict)

    def _remember(self, at: int, verdict: Deferred | Bounced | Expired) -> None:
        destination = verdict.attempt.destination
        # Taken out first: a dictionary's order is then the order of speaking.
        self._said.pop(destination, None)
        self._said[destination] = Word(at, verdict.reply)
        if len(self._said) > MOST:
            del self._said[next(iter(self._said))]

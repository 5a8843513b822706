"""One observer that passes each event on to several, in their order.

A part that reports events knows one observer; the composition root chooses the observers (metrics, log,
audit). Observers do not raise, so one cannot keep an event from the next.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqcd.core.model import Amended, Attempt, Bounced, Deferred, Delivered, Expired, Recipient
from mqcd.core.observing.null_observer import NullObserver
from mqcd.core.ports import Observer, Refusal


class Fanout:
    """`core.ports.Observer` over several."""

    def __init__(self, *observers: Observer) -> None:
        self._set(observers)

    def _set(self, observers: tuple[Observer, ...]) -> None:
        self._observers = observers
        # What happens to every message is not passed to observers that ignore it.
        self._of_accepted = [each.accepted for each in observers if _hears(each, "accepted")]
        self._of_attempted = [each.attempted for each in observers if _hears(each, "attempted")]
        self._of_delivered = [each.delivered for each in observers if _hears(each, "delivered")]

    def add(self, observer: Observer) -> None:
        """One more, from the next event on."""
        self._set((*self._observers, observer))

    def remove(self, observer: Observer) -> None:
        """One less."""
        self._set(tuple(each for each in self._observers if each is not observer))

    def accepted(self, at: int, recipients: Sequence[Recipient]) -> None:
        for accepted in self._of_accepted:
            accepted(at, recipients)

    def attempted(self, at: int, recipients: Sequence[Recipient], destination: str) -> None:
        for attempted in self._of_attempted:
            attempted(at, recipients, destination)

    def delivered(self, at: int, recipient: Recipient, verdict: Delivered) -> None:
        for delivered in self._of_delivered:
            delivered(at, recipient, verdict)

    def deferred(self, at: int, recipient: Recipient, verdict: Deferred) -> None:
        for observer in self._observers:
            observer.deferred(at, recipient, verdict)

    def bounced(self, at: int, recipient: Recipient, verdict: Bounced) -> None:
        for observer in self._observers:
            observer.bounced(at, recipient, verdict)

    def expired(self, at: int, recipient: Recipient, verdict: Expired) -> None:
        for observer in self._observers:
            observer.expired(at, recipient, verdict)

    def reported(self, at: int, recipient: Recipient, report_spid: int) -> None:
        for observer in self._observers:
            observer.reported(at, recipient, report_spid)

    def discarded(self, at: int, recipient: Recipient, reason: str) -> None:
        for observer in self._observers:
            observer.discarded(at, recipient, reason)

    def amended(self, at: int, recipient: Recipient, verdict: Amended) -> None:
        for observer in self._observers:
            observer.amended(at, recipient, verdict)

    def purged(self, at: int, recipient: Recipient) -> None:
        for observer in self._observers:
            observer.purged(at, recipient)

    def outcome_unknown(self, at: int, recipient: Recipient) -> None:
        for observer in self._observers:
            observer.outcome_unknown(at, recipient)

    def refused(self, at: int, refusal: Refusal) -> None:
        for observer in self._observers:
            observer.refused(at, refusal)

    def connected(self, at: int, attempt: Attempt) -> None:
        for observer in self._observers:
            observer.connected(at, attempt)

    def connect_failed(self, at: int, attempt: Attempt, reason: str) -> None:
        for observer in self._observers:
            observer.connect_failed(at, attempt, reason)


def _hears(observer: Observer, event: str) -> bool:
    """Whether an observer does anything with an event."""
    return getattr(type(observer), event, None) is not getattr(NullObserver, event)

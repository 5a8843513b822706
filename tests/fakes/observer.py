"""An observer that remembers everything it hears, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mqcd.core.events import Verb
from mqcd.core.model import Amended, Attempt, Bounced, Deferred, Delivered, Expired, Recipient, Verdict
from mqcd.core.ports import Refusal
from mqcd.core.queueing.amendment import verb_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Heard:
    """One event; a field that its verb does not have is empty."""

    verb: Verb
    at: int
    """Time of the transition, ms."""
    recipient: Recipient | None = None
    verdict: Verdict | None = None
    destination: str = ""
    attempt: Attempt | None = None
    """Of a connection."""
    reason: str = ""
    """Of a discard or of a failed connection."""
    report_spid: int = 0
    refusal: Refusal | None = None


class RecordingObserver:
    """`mqcd.core.ports.Observer`: one `Heard` per recipient and event."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.purges: list[Recipient] = []
        """Removals whose grace was over: no event."""

    def hear(self, heard: Heard) -> None:
        """One event; all come by here."""
        self.heard.append(heard)

    def of(self, *verbs: Verb) -> list[Heard]:
        """What was heard of these verbs, in order."""
        return [heard for heard in self.heard if heard.verb in verbs]

    def verbs(self, key: tuple[int, int] | None = None) -> list[Verb]:
        """The verbs in order; of one recipient when its (spid, qid) is given."""
        if key is None:
            return [heard.verb for heard in self.heard]
        return [h.verb for h in self.heard if h.recipient is not None and h.recipient.key == key]

    def count(self, verb: Verb) -> int:
        return len(self.of(verb))

    def accepted(self, at: int, recipients: Sequence[Recipient]) -> None:
        for recipient in recipients:
            self.hear(Heard(verb=Verb.ACCEPTED, at=at, recipient=recipient))

    def attempted(self, at: int, recipients: Sequence[Recipient], destination: str) -> None:
        for recipient in recipients:
            self.hear(Heard(verb=Verb.ATTEMPTED, at=at, recipient=recipient, destination=destination))

    def delivered(self, at: int, recipient: Recipient, verdict: Delivered) -> None:
        self.hear(Heard(verb=Verb.DELIVERED, at=at, recipient=recipient, verdict=verdict))

    def deferred(self, at: int, recipient: Recipient, verdict: Deferred) -> None:
        self.hear(Heard(verb=Verb.DEFERRED, at=at, recipient=recipient, verdict=verdict))

    def bounced(self, at: int, recipient: Recipient, verdict: Bounced) -> None:
        self.hear(Heard(verb=Verb.BOUNCED, at=at, recipient=recipient, verdict=verdict))

    def expired(self, at: int, recipient: Recipient, verdict: Expired) -> None:
        self.hear(Heard(verb=Verb.EXPIRED, at=at, recipient=recipient, verdict=verdict))

    def reported(self, at: int, recipient: Recipient, report_spid: int) -> None:
        self.hear(Heard(verb=Verb.REPORTED, at=at, recipient=recipient, report_spid=report_spid))

    def discarded(self, at: int, recipient: Recipient, reason: str) -> None:
        self.hear(Heard(verb=Verb.DISCARDED, at=at, recipient=recipient, reason=reason))

    def amended(self, at: int, recipient: Recipient, verdict: Amended) -> None:
        verb = verb_of(verdict.batch)
        self.hear(Heard(verb=verb, at=at, recipient=recipient, verdict=verdict))

    def purged(self, at: int, recipient: Recipient) -> None:
        self.purges.append(recipient)

    def outcome_unknown(self, at: int, recipient: Recipient) -> None:
        self.hear(Heard(verb=Verb.OUTCOME_UNKNOWN, at=at, recipient=recipient))

    def refused(self, at: int, refusal: Refusal) -> None:
        self.hear(Heard(verb=Verb.REFUSED, at=at, refusal=refusal))

    def connected(self, at: int, attempt: Attempt) -> None:
        self.hear(Heard(verb=Verb.CONNECTED, at=at, attempt=attempt))

    def connect_failed(self, at: int, attempt: Attempt, reason: str) -> None:
        self.hear(Heard(verb=Verb.CONNECT_FAILED, at=at, attempt=attempt, reason=reason))

"""An observer that ignores every event: a base for observers that need only a few."""

from __future__ import annotations

from collections.abc import Sequence

from mqcd.core.model import Amended, Attempt, Bounced, Deferred, Delivered, Expired, Recipient
from mqcd.core.ports import Refusal


class NullObserver:
    """`core.ports.Observer` that does nothing."""

    def accepted(self, at: int, recipients: Sequence[Recipient]) -> None:
        """Passed over."""

    def attempted(self, at: int, recipients: Sequence[Recipient], destination: str) -> None:
        """Passed over."""

    def delivered(self, at: int, recipient: Recipient, verdict: Delivered) -> None:
        """Passed over."""

    def deferred(self, at: int, recipient: Recipient, verdict: Deferred) -> None:
        """Passed over."""

    def bounced(self, at: int, recipient: Recipient, verdict: Bounced) -> None:
        """Passed over."""

    def expired(self, at: int, recipient: Recipient, verdict: Expired) -> None:
        """Passed over."""

    def reported(self, at: int, recipient: Recipient, report_spid: int) -> None:
        """Passed over."""

    def discarded(self, at: int, recipient: Recipient, reason: str) -> None:
        """Passed over."""

    def amended(self, at: int, recipient: Recipient, verdict: Amended) -> None:
        """Passed over."""

    def purged(self, at: int, recipient: Recipient) -> None:
        """Passed over."""

    def outcome_unknown(self, at: int, recipient: Recipient) -> None:
        """Passed over."""

    def refused(self, at: int, refusal: Refusal) -> None:
        """Passed over."""

    def connected(self, at: int, attempt: Attempt) -> None:
        """Passed over."""

    def connect_failed(self, at: int, attempt: Attempt, reason: str) -> None:
        """Passed over."""

"""A selection of recipient records, as `queue ls` and its siblings take it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from mqcd.core.model import Area, Recipient


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """All given conditions must hold; None or "" does not restrict. Addresses compare lowered."""

    area: Area | None = None
    spid: int | None = None
    sender: str | None = None
    """ "" selects the null sender."""
    recipient: str = ""
    domain: str = ""
    received_before: int | None = None
    """Accepted before this time, ms."""
    limit: int | None = None
    """At most this many."""

    def matches(self, recipient: Recipient) -> bool:
        """Whether `recipient` is selected; `limit` is left to the reader."""
        envelope = recipient.envelope
        return (
            (self.area is None or recipient.area is self.area)
            and (self.spid is None or envelope.spid == self.spid)
            and (self.sender is None or envelope.sender.lower() == self.sender.lower())
            and (not self.recipient or recipient.address.lower() == self.recipient.lower())
            and (not self.domain or recipient.domain == self.domain.lower())
            and (self.received_before is None or envelope.received < self.received_before)
        )

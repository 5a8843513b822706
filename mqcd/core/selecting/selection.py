"""A selection of recipient records, as `queue ls` and its siblings take it. Pure.

Addresses and domains may be shell patterns (`*@here.example`), see `pattern`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqcd.core.address import domain_of
from mqcd.core.model import Area, Recipient
from mqcd.core.selecting.pattern import fits
from mqcd.core.value import value

if TYPE_CHECKING:
    # Programs that embed a queue seldom need the parser.
    from mqcd.core.selecting.where import Where


@value
class Selection:
    """All given conditions must hold; None or "" does not restrict."""

    area: Area | None = None
    spid: int | None = None
    sender: str | None = None
    """ "" selects the null sender."""
    recipient: str = ""
    domain: str = ""
    received_before: int | None = None
    """Accepted before this time, ms."""
    unknowns: int = 0
    """Crashes have hidden at least so many outcomes of its attempts."""
    where: Where | None = None
    limit: int | None = None
    """At most this many."""

    @property
    def everything(self) -> bool:
        """Whether nothing is left out, but for `limit`."""
        return self == Selection(limit=self.limit)

    def matches(self, recipient: Recipient) -> bool:
        """Whether `recipient` is selected; `limit` is left to the reader."""
        envelope = recipient.envelope
        return (
            recipient.unknowns >= self.unknowns
            and self.admits(
                recipient.area, envelope.spid, envelope.sender, recipient.address, envelope.received
            )
            and (self.where is None or self.where.matches(recipient))
        )

    def admits(self, area: Area, spid: int, sender: str, address: str, received: int) -> bool:
        """The same without a `Recipient`; the caller checks `unknowns` and `where`."""
        return (
            (self.area is None or area is self.area)
            and (self.spid is None or spid == self.spid)
            and (self.sender is None or fits(self.sender, sender))
            and (not self.recipient or fits(self.recipient, address))
            and (not self.domain or fits(self.domain, domain_of(address)))
            and (self.received_before is None or received < self.received_before)
        )

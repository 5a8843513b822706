"""A selection of recipient records, as `queue ls` and its siblings take it. Pure.

An address or domain with `*` or `?` in it is a shell pattern (`*@here.example`): `[ab]` then stands for one
of several characters, and `[[]` for a bracket. Any other text compares as a whole, with the brackets of an
address literal as they are. Case never matters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from mqcd.core.address import domain_of
from mqcd.core.model import Area, Recipient


@dataclass(frozen=True, kw_only=True, slots=True)
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
    limit: int | None = None
    """At most this many."""

    @property
    def everything(self) -> bool:
        """Whether nothing is left out, but for `limit`."""
        return self == Selection(limit=self.limit)

    def matches(self, recipient: Recipient) -> bool:
        """Whether `recipient` is selected; `limit` is left to the reader."""
        envelope = recipient.envelope
        return recipient.unknowns >= self.unknowns and self.admits(
            recipient.area, envelope.spid, envelope.sender, recipient.address, envelope.received
        )

    def admits(self, area: Area, spid: int, sender: str, address: str, received: int) -> bool:
        """The same without a `Recipient`; the caller checks `unknowns`."""
        return (
            (self.area is None or area is self.area)
            and (self.spid is None or spid == self.spid)
            and (self.sender is None or fits(self.sender, sender))
            and (not self.recipient or fits(self.recipient, address))
            and (not self.domain or fits(self.domain, domain_of(address)))
            and (self.received_before is None or received < self.received_before)
        )


def fits(wanted: str, text: str) -> bool:
    """Whether a text is the wanted one, or matches it as a shell pattern."""
    return _matcher(wanted)(text.lower())


@lru_cache(maxsize=64)
def _matcher(wanted: str) -> Callable[[str], bool]:
    lowered = wanted.lower()
    if not {"*", "?"} & {*lowered}:
        return lowered.__eq__
    pattern = re.compile(translate(lowered))
    return lambda text: pattern.match(text) is not None

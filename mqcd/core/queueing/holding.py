"""Domains whose mail rests in area held instead of being retried: one rule for all stores. Pure.

| mode | new mail | leaves by |
|---|---|---|
| hold | is held at acceptance | an operator's release |
| etrn | is tried, and held once no host can be reached | ETRN (RFC 1985), a probe, its age limit |
| atrn | is held at acceptance | ATRN (RFC 2645), its own age limit |

A held record with a due time rests for its domain: `core.ports.QueueStore.claim_held` gives it out, and an
ordinary claim does so at that time, which is the end of its life. One without waits for an operator alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from mqcd.core.model import Area, Recipient, Word
from mqcd.core.units import DAY, MINUTE
from mqcd.core.value import value

LONGEST = 200
"""Octets of a domain that can be held: many file systems refuse a directory's name of more than 255."""


class HoldMode(Word):
    """What becomes of a domain's mail."""

    HOLD = "hold"
    ETRN = "etrn"
    ATRN = "atrn"


@value(kw_only=False)
class HeldDomain:
    """A domain whose mail is held."""

    name: str
    """A domain, `*.domain` for all below it, or `*` for all; the closest one counts."""
    mode: HoldMode
    users: tuple[str, ...] = ()
    """Users that may ask for its mail, see `calls`."""


@value
class Holding:
    """Which domains are held. The default: none."""

    domains: tuple[HeldDomain, ...] = ()
    maxtime: int = 5 * DAY
    """Age at which mail for an atrn domain expires, ms."""
    probe_interval: int = 15 * MINUTE
    """Time between two probes of an etrn domain, ms."""
    _by_name: Mapping[str, HeldDomain] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {held.name: held for held in self.domains})

    def __bool__(self) -> bool:
        return bool(self.domains)

    def mode(self, domain: str) -> HoldMode | None:
        """The mode of a domain in comparable form; None = its mail takes the ordinary way."""
        held = self.of(domain)
        return None if held is None else held.mode

    def of(self, domain: str) -> HeldDomain | None:
        """The setting that holds a domain; None = there is none."""
        named = self._by_name
        if not named or not _names_a_directory(domain):
            return None
        if (held := named.get(domain)) is not None:
            return held
        rest = domain
        while rest:
            rest = rest.partition(".")[2]
            if (held := named.get(f"*.{rest}" if rest else "*")) is not None:
                return held
        return None

    def rests(self, recipient: Recipient) -> bool:
        """Whether it is held when its destination cannot be reached. An operator's next hop is another
        destination than the domain's."""
        return bool(self._by_name) and not recipient.route and self.mode(recipient.domain) is HoldMode.ETRN

    def queue_of(self, domain: str, due: int) -> str:
        """Whose queue a held record is in: that of its domain, or "" for what waits for an operator: one of
        these before mail that rests would keep it from every claim."""
        return domain if due and _names_a_directory(domain) else ""

    def ends(self, recipient: Recipient) -> bool:
        """Whether a held recipient that a claim gives out at its due time ends without an attempt."""
        return recipient.area is Area.HELD and self.mode(recipient.lane_key) is HoldMode.ATRN


def _names_a_directory(domain: str) -> bool:
    """Whether the clusters of a domain may lie in a directory of its name."""
    return "/" not in domain and len(domain.encode(errors="surrogatepass")) <= LONGEST

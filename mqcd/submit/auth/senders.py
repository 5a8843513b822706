"""Which reverse-paths a user that has logged in may send with. Pure.

* A user that `<senders>` lists: what stands there, `*` = any.
* Any other user: the address that is the user's own name; of a name without a domain, that local part in the
  server's own domain or in one of `relay_domains`.
* The null reverse-path always: it is that of a receipt or an automatic answer (RFC 5321, 4.5.5).

Settings read: senders.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mqcd.config.settings import SenderRightSettings
from mqcd.core.address import sent_by

ANY = "*"


class Senders:
    """The rights of all users of one listener."""

    __slots__ = ("_domains", "_rights")

    def __init__(self, rights: Sequence[SenderRightSettings], domains: Collection[str]) -> None:
        """`domains`: those in which a name without a domain is an address."""
        self._domains = domains
        self._rights: dict[str, list[str]] = {}
        for each in rights:
            for user in each.user:
                self._rights.setdefault(user, []).extend(each.addresses)

    def allows(self, user: str, sender: str) -> bool:
        """Whether the user may send with this reverse-path."""
        if not sender:
            return True
        listed = [*self._rights.get(user, ()), *self._rights.get(ANY, ())]
        if listed:
            return ANY in listed or sent_by(listed, sender)
        return sent_by([user] if "@" in user else [f"{user}@{domain}" for domain in self._domains], sender)

"""How much mail clients, networks, users and tenants may send in a time, and over how many sessions. Pure.

* A quota of N in a time may be used up at once; what is used comes back evenly over that time.
* Of the quotas of one kind of party (`by`) the first in the file that matches the party counts.
* A message, its recipients and octets are used when its content has come, and given back where the queue does
  not take it, or has it already, but not where the session is cut off on the way; MAIL and RCPT are refused
  before that where no room is left. One message larger than a whole quota of octets is taken when none of it
  is used.
* Sessions count from their first MAIL on.
* What is used is kept in bounded memory that all processes share (`core.ports.UsedRates`): where it is full,
  parties share a place, and less goes than allowed, never more. Sessions are `core.ports.Tokens`, or counted
  here where there is one process.

Settings read: quotas, tenant.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from fnmatch import fnmatchcase
from typing import Self

from mqcd.config.kinds.fields import RateKind
from mqcd.config.settings import QuotaBy, QuotaSettings, Rate, ServerSettings
from mqcd.core.clients import client_network, wide_network
from mqcd.core.ports import Tokens, UsedRates
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.submit.checks.listed import NetworkList
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.policy.tenancy import Tenancy

_NS = 1_000_000
"""In a ms."""
_WHOSE = {
    QuotaBy.CLIENT: "your address",
    QuotaBy.NETWORK: "your network",
    QuotaBy.USER: "this user",
    QuotaBy.TENANT: "this tenant",
}

Refused = tuple[Reason, Reply]
Places = MutableMapping[str, int]
"""The places that a session holds: by name of the party, its token."""


@value
class Parties:
    """Whose a session or message is; "" = nobody's."""

    client: str
    user: str
    tenant: str = ""


class SessionPlaces:
    """Sessions by party; over all processes where there are tokens."""

    __slots__ = ("_count", "_tokens")

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._count: Counter[str] = Counter()
        self._tokens = tokens

    def take(self, name: str, most: int) -> int | None:
        """A place, unless `most` are taken: then None."""
        if self._tokens is not None:
            return self._tokens.take(name, most)
        if self._count[name] >= most:
            return None
        self._count[name] += 1
        return 0

    def leave(self, held: Places) -> None:
        """Give back what a session holds."""
        for name, token in held.items():
            if self._tokens is not None:
                self._tokens.give(token, at_once=True)
                continue
            self._count[name] -= 1
            if not self._count[name]:
                del self._count[name]
        held.clear()


class Quotas:
    """Those of one listener. `now` is monotonic, in ms."""

    def __init__(
        self,
        settings: ServerSettings,
        listener: str,
        used: UsedRates,
        places: SessionPlaces,
        now: Callable[[], int],
    ) -> None:
        self._listener = listener
        self._tenancy = Tenancy(settings)
        self._used = used
        self._places = places
        self._now = now
        self._by: dict[QuotaBy, list[tuple[QuotaSettings, NetworkList]]] = {}
        for quota in settings.quotas:
            networks = quota.match if quota.by in (QuotaBy.CLIENT, QuotaBy.NETWORK) else ()
            inside = NetworkList(ipaddress.ip_network(each, strict=False) for each in networks)
            self._by.setdefault(quota.by, []).append((quota, inside))

    def parties(self, client: str, user: str, named: Sequence[str] = ()) -> Parties:
        """Whose a message is; `named`: the values of the header field that names the tenant."""
        tenant = self._tenancy.with_listener(self._tenancy.name(user, named), self._listener)
        return Parties(client=client, user=user, tenant=tenant)

    def begin(self, parties: Parties, held: Places) -> Refused | None:
        """Why no message may begin now; counts the session, whose places are `held`."""
        for quota, name in self._that_count(parties):
            if quota.sessions and f"{name} sessions" not in held:
                place = self._places.take(f"{name} sessions", quota.sessions)
                if place is None:
                    text = f"{_WHOSE[quota.by]} has {quota.sessions} sessions already, try again later"
                    return Reason.SESSIONS, Reply(code=450, status="4.7.1", text=_sentence(text))
                held[f"{name} sessions"] = place
        return self._short(parties, {"messages": 1})

    def add(self, parties: Parties, recipients: int) -> Refused | None:
        """Why a message may not have as many recipients."""
        return self._short(parties, {"recipients": recipients})

    def take(self, parties: Parties, amounts: Mapping[str, int]) -> Refused | None:
        """Use what a message needs, or nothing of it: why it is refused."""
        refused = self._short(parties, amounts)
        if refused is None:
            self.use(parties, amounts)
        return refused

    def use(self, parties: Parties, amounts: Mapping[str, int]) -> None:
        """Use some of the rates, also beyond them."""
        now = self._now() * _NS
        for name, ns in self._costs(parties, amounts):
            self._used.use(name, ns, now)

    def give_back(self, parties: Parties, amounts: Mapping[str, int]) -> None:
        """Undo a use."""
        for name, ns in self._costs(parties, amounts):
            self._used.give_back(name, ns)

    def _short(self, parties: Parties, amounts: Mapping[str, int]) -> Refused | None:
        now = self._now() * _NS
        for quota, name in self._that_count(parties):
            for what, amount in amounts.items():
                rate: Rate | None = getattr(quota, what)
                if rate is None:
                    continue
                ahead = self._used.ahead(f"{name} {what}", now)
                short = ahead + _cost(rate, amount) > rate.per * _NS
                if short and (ahead or what != "octets"):
                    return _refusal(quota, what, rate)
        return None

    def _costs(self, parties: Parties, amounts: Mapping[str, int]) -> Iterator[tuple[str, int]]:
        """Each rate that counts these amounts, and the ns in which as much comes back."""
        for quota, name in self._that_count(parties):
            for what, amount in amounts.items():
                rate: Rate | None = getattr(quota, what)
                if rate is not None and amount:
                    yield f"{name} {what}", _cost(rate, amount)

    def _that_count(self, parties: Parties) -> Iterator[tuple[QuotaSettings, str]]:
        """The quotas that hold for these, each with the name under which it is counted."""
        for by, quotas in self._by.items():
            party = _party(by, parties)
            for quota, networks in quotas if party else ():
                if _matches(quota, networks, parties.client, party):
                    yield quota, f"{self._listener} {by.value} {party}"
                    break


class Use:
    """What one message uses of the quotas: given back at the end, unless it is kept."""

    __slots__ = ("_amounts", "_parties", "_quotas")

    def __init__(self, quotas: Quotas | None) -> None:
        self._quotas = quotas
        self._parties: Parties | None = None
        self._amounts: Mapping[str, int] = {}

    def begin(
        self, client: str, user: str, named: Sequence[str], recipients: int, octets: int
    ) -> Refused | None:
        """Use what a message needs, or nothing of it: why it is refused. For `named` see `Quotas.parties`."""
        if self._quotas is None:
            return None
        parties = self._quotas.parties(client, user, named)
        amounts = {"messages": 1, "recipients": recipients, "octets": octets}
        refused = self._quotas.take(parties, amounts)
        if refused is None:
            self._parties, self._amounts = parties, amounts
        return refused

    def keep(self, octets: int) -> None:
        """The message is accepted, with so many octets that were not known when it began."""
        if self._quotas is not None and self._parties is not None:
            self._quotas.use(self._parties, {"octets": octets})
            self._parties = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._quotas is not None and self._parties is not None:
            self._quotas.give_back(self._parties, self._amounts)


def _party(by: QuotaBy, parties: Parties) -> str:
    if by is QuotaBy.USER:
        return parties.user
    if by is QuotaBy.TENANT:
        return parties.tenant
    return (client_network if by is QuotaBy.CLIENT else wide_network)(parties.client)


def _matches(quota: QuotaSettings, networks: NetworkList, client: str, party: str) -> bool:
    if not quota.match:
        return True
    if quota.by in (QuotaBy.CLIENT, QuotaBy.NETWORK):
        return networks.has(client)
    return any(fnmatchcase(party.lower(), each.lower()) for each in quota.match)


def _cost(rate: Rate, amount: int) -> int:
    """The ns in which as much comes back."""
    return amount * rate.per * _NS // rate.count


def _refusal(quota: QuotaSettings, what: str, rate: Rate) -> Refused:
    text = f"{_WHOSE[quota.by]} may send {RateKind().show(rate)} {what}, try again later"
    return Reason.QUOTA, Reply(code=450, status="4.7.1", text=_sentence(text))


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]

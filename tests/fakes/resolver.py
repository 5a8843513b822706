"""A resolver that knows what a test tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from mqcd.core.errors import LookupShortage, NameNotFound, ResolveFailed
from mqcd.core.ports import MxHost


class FakeResolver:
    """`mqcd.core.ports.Resolver` from three tables; IP addresses stand for themselves.

    Names in `failing` give no answer (ResolveFailed); names in no table do not exist (NameNotFound).
    """

    def __init__(
        self,
        mx: Mapping[str, Sequence[tuple[int, str]]] | None = None,
        addresses: Mapping[str, Sequence[str]] | None = None,
        failing: Sequence[str] = (),
        names: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.mx_records = dict(mx or {})
        self.address_records = dict(addresses or {})
        self.failing = set(failing)
        self.names_of = dict(names or {})
        self.short = False
        """This machine has no descriptor left to ask with."""
        self.asked: Counter[str] = Counter()

    async def mx(self, domain: str) -> Sequence[MxHost]:
        """What the table says; a name with addresses alone has no MX."""
        self._ask(domain)
        if domain in self.mx_records:
            found = [MxHost(preference=each, host=host) for each, host in self.mx_records[domain]]
            return sorted(found, key=lambda mx: (mx.preference, mx.host))
        if domain in self.address_records:
            return ()
        raise NameNotFound(f"{domain} does not exist")

    async def addresses(self, host: str) -> Sequence[str]:
        if host.replace(".", "").isdecimal() or ":" in host:
            return (host,)
        self._ask(host)
        found = self.address_records.get(host, ())
        if not found:
            raise NameNotFound(f"{host} has no address")
        return found

    async def names(self, address: str) -> Sequence[str]:
        self._ask(address)
        if address not in self.names_of:
            raise NameNotFound(f"{address} has no name")
        return self.names_of[address]

    def _ask(self, name: str) -> None:
        self.asked[name] += 1
        if self.short:
            raise LookupShortage(f"{name} look-up failed")
        if name in self.failing:
            raise ResolveFailed(f"no answer for {name}")

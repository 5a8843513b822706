"""The port `Resolver`: what needs no DNS, and a cache before `stub`, which asks the name servers.

Guarantees
* Answers are kept by their TTL, negative ones by the zone's (RFC 2308), none longer than `MAX_TTL_MS`,
  at most `max_entries`; failures are kept `FAILURE_MS`, so that a dead server is not asked per recipient.
* The same question asked while it is under way is not asked twice; at most `most` are asked at once, since
  each needs a socket.
* IP addresses and "localhost" (RFC 6761) need no DNS. What the hosts file says of a host goes before DNS,
  as on any machine; MX records only DNS has.

Settings read: deliver/dns (servers, timeout). Without servers those of the system's resolv.conf; with them
the hosts file is not asked either: then the whole of name service is what the setting says.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from mqcd.config.settings import DnsSettings
from mqcd.core.errors import LookupShortage, MqcdError, NameNotFound, ResolveFailed
from mqcd.core.ports import Clock, MxHost
from mqcd.net.dialer import reason_of
from mqcd.net.hosts import HostsFile

if TYPE_CHECKING:
    from mqcd.net.stub import Answer, Stub

MAX_TTL_MS = 3_600_000
MIN_TTL_MS = 1000
FAILURE_MS = 5000
MAX_ENTRIES = 20_000
MOST = 500

_Key = tuple[str, str]


class DnsResolver:
    """`mqcd.core.ports.Resolver` for real."""

    def __init__(
        self,
        settings: DnsSettings,
        clock: Clock,
        *,
        max_entries: int = MAX_ENTRIES,
        most: int = MOST,
        hosts: HostsFile | None = None,
    ) -> None:
        self._clock = clock
        self._hosts = hosts if settings.servers else hosts or HostsFile(clock)
        self._settings = settings
        self._stub: Stub | None = None
        self._max_entries = max_entries
        self._kept: OrderedDict[_Key, tuple[int, Answer]] = OrderedDict()
        self._asking: dict[_Key, asyncio.Task[Answer]] = {}
        self._turns = asyncio.Semaphore(most)

    async def mx(self, domain: str) -> Sequence[MxHost]:
        """The MX records by preference; none when the domain exists without. A null MX has host ""."""
        found = []
        for record in await self._records(domain, "MX"):
            preference, _, host = record.partition(" ")
            found.append(MxHost(preference=int(preference), host=host.rstrip(".").lower()))
        return sorted(found, key=lambda mx: (mx.preference, mx.host))

    async def addresses(self, host: str) -> Sequence[str]:
        """IPv6 and IPv4 addresses in turns; one family that fails is passed over when the other has some.

        In turns, because a caller that tries only the first few must come to both: a host may have more
        addresses of a family that does not work here than a caller tries (RFC 8305, 4).
        """
        known = _without_dns(host) or (self._hosts.addresses(host) if self._hosts is not None else ())
        if known:
            return known
        answers = await asyncio.gather(self._answer(host, "AAAA"), self._answer(host, "A"))
        families = [answer for answer in answers if isinstance(answer, tuple)]
        found = [address for turn in zip_longest(*families) for address in turn if address]
        if found:
            return found
        for answer in answers:
            if isinstance(answer, ResolveFailed):
                raise type(answer)(str(answer))
        raise NameNotFound(f"{host} has no address")

    async def names(self, address: str) -> Sequence[str]:
        """The names of an IP address (RFC 1035, 3.5; RFC 3596, 2.5). Raises NameNotFound, ResolveFailed."""
        names = await self._records(ipaddress.ip_address(address).reverse_pointer, "PTR")
        if not names:
            raise NameNotFound(f"{address} has no name")
        return [name.rstrip(".").lower() for name in names]

    async def _records(self, name: str, kind: str) -> tuple[str, ...]:
        answer = await self._answer(name, kind)
        if isinstance(answer, MqcdError):
            raise type(answer)(str(answer))
        return answer

    async def _answer(self, name: str, kind: str) -> Answer:
        key = (name.lower().rstrip("."), kind)
        kept = self._kept.get(key)
        if kept is not None and kept[0] > self._clock.monotonic():
            return kept[1]
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.get_running_loop().create_task(self._ask(key))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        # A cancelled caller must not cancel the query of the others.
        return await asyncio.shield(task)

    async def _ask(self, key: _Key) -> Answer:
        async with self._turns:
            answer, ttl_ms = await self._asked(*key)
        lifetime = FAILURE_MS if ttl_ms is None else min(max(ttl_ms, MIN_TTL_MS), MAX_TTL_MS)
        self._kept[key] = (self._clock.monotonic() + lifetime, answer)
        self._kept.move_to_end(key)
        if len(self._kept) > self._max_entries:
            self._kept.popitem(last=False)
        return answer

    async def _asked(self, name: str, kind: str) -> tuple[Answer, int | None]:
        if self._stub is None:
            try:
                self._stub = await asyncio.to_thread(_stub, self._settings)
            except OSError as error:
                # Asked again after MIN_TTL_MS, as for `stub.SOON`, which cannot be imported here.
                return LookupShortage(f"look-up of {name} failed: {reason_of(error)}"), 0
        return await self._stub.ask(name, kind)


def _stub(settings: DnsSettings) -> Stub:
    """Imports dnspython; the loop must not wait for that. Raises OSError: its files could not be read."""
    from mqcd.net.stub import Stub

    return Stub(settings)


def _without_dns(host: str) -> tuple[str, ...]:
    if host.lower().rstrip(".") == "localhost":
        return ("127.0.0.1", "::1")
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        return ()

"""DNS by dnspython behind the port `Resolver`, with a cache of its own.

Guarantees
* "There is none" (NameNotFound) is only said when a server said so; everything else is ResolveFailed.
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

import dns.asyncresolver
import dns.exception
import dns.message
import dns.name
import dns.nameserver
import dns.resolver

from mqcd.config.settings import DnsSettings
from mqcd.core.errors import LookupShortage, MqcdError, NameNotFound, ResolveFailed
from mqcd.core.ports import Clock, MxHost
from mqcd.net.dialer import SHORTAGES, reason_of
from mqcd.net.hosts import HostsFile

MAX_TTL_MS = 3_600_000
MIN_TTL_MS = 1000
FAILURE_MS = 5000
MAX_ENTRIES = 20_000
MOST = 500

_Key = tuple[str, str]
_Answer = tuple[str, ...] | MqcdError
"""Records as text, none of them when the name exists without; or why there is no answer."""


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
        self._timeout = settings.timeout / 1000
        self._settings = settings
        self._dns: dns.asyncresolver.Resolver | None = None
        self._max_entries = max_entries
        self._kept: OrderedDict[_Key, tuple[int, _Answer]] = OrderedDict()
        self._asking: dict[_Key, asyncio.Task[_Answer]] = {}
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

    async def _answer(self, name: str, kind: str) -> _Answer:
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

    async def _ask(self, key: _Key) -> _Answer:
        async with self._turns:
            answer, ttl_ms = await self._query(*key)
        self._kept[key] = (self._clock.monotonic() + min(max(ttl_ms, MIN_TTL_MS), MAX_TTL_MS), answer)
        self._kept.move_to_end(key)
        if len(self._kept) > self._max_entries:
            self._kept.popitem(last=False)
        return answer

    async def _query(self, name: str, kind: str) -> tuple[_Answer, int]:
        """The answer and its lifetime, ms."""
        try:
            absolute = dns.name.from_text(name)
        except (dns.exception.DNSException, UnicodeError):
            return NameNotFound(f"{name} is not a domain name"), FAILURE_MS
        try:
            # Made late: a server that only knows relays by address needs no name servers at all.
            self._dns = self._dns or _stub(self._settings)
            answer = await self._dns.resolve(
                absolute, kind, raise_on_no_answer=False, lifetime=self._timeout, search=False
            )
        except dns.resolver.NXDOMAIN as error:
            return NameNotFound(f"{name} does not exist"), _negative_ttl_ms(error, absolute)
        except dns.resolver.NoResolverConfiguration:
            why = "no name servers are known: give deliver/dns servers=, or a resolv.conf"
            return ResolveFailed(f"look-up of {name} failed: {why}"), FAILURE_MS
        except dns.exception.Timeout:
            return ResolveFailed(f"no answer for {name} ({kind}) within {self._timeout:g} s"), FAILURE_MS
        except (dns.exception.DNSException, OSError, EOFError) as error:
            if short := _shortage(error):
                return LookupShortage(f"look-up of {name} failed: {reason_of(short)}"), MIN_TTL_MS
            return ResolveFailed(f"no usable answer for {name} ({kind}): {type(error).__name__}"), FAILURE_MS
        ttl_ms = answer.chaining_result.minimum_ttl * 1000
        return tuple(record.to_text() for record in answer.rrset or ()), ttl_ms


def _shortage(error: Exception) -> OSError | None:
    """The resource that this machine lacked, from one query's failures."""
    failures = error.kwargs.get("errors", ()) if isinstance(error, dns.exception.DNSException) else ()
    for each in (error, *(failure[3] for failure in failures)):
        if isinstance(each, OSError) and each.errno in SHORTAGES:
            return each
    return None


def _without_dns(host: str) -> tuple[str, ...]:
    if host.lower().rstrip(".") == "localhost":
        return ("127.0.0.1", "::1")
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        return ()


def _negative_ttl_ms(error: dns.resolver.NXDOMAIN, name: dns.name.Name) -> int:
    """The zone's lifetime for negative answers."""
    response = error.kwargs.get("responses", {}).get(name)
    if not isinstance(response, dns.message.QueryMessage):
        return FAILURE_MS
    try:
        return response.resolve_chaining().minimum_ttl * 1000
    except dns.exception.DNSException:
        return FAILURE_MS


def _stub(settings: DnsSettings) -> dns.asyncresolver.Resolver:
    """The resolver that asks; its servers share the time of one question. Raises dnspython's errors."""
    if settings.servers:
        stub = dns.asyncresolver.Resolver(configure=False)
        stub.nameservers = [
            dns.nameserver.Do53Nameserver(server.host, server.port) for server in settings.servers
        ]
    else:
        stub = dns.asyncresolver.Resolver()
    stub.timeout = max(settings.timeout / 1000 / (2 * max(len(stub.nameservers), 1)), 0.1)
    stub.lifetime = settings.timeout / 1000
    stub.use_edns(0, 0, 1232)
    return stub

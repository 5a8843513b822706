"""One question to the name servers, by dnspython.

Guarantees
* "There is none" (NameNotFound) is only said when a server said so, or of what is no domain name, which no
  server is asked for; everything else is ResolveFailed, or LookupShortage when this machine lacked what the
  question needed.
* A question takes the configured time at most, shared by the servers.

A server that knows its relays by address asks nothing: `resolver` imports this module with the first
question, as dnspython costs an eighth of the processor time of a start.
"""

from __future__ import annotations

import dns.asyncresolver
import dns.exception
import dns.message
import dns.name
import dns.nameserver
import dns.resolver

from mqcd.config.settings import DnsSettings
from mqcd.core.errors import LookupShortage, MqcdError, NameNotFound, ResolveFailed
from mqcd.net.dialer import SHORTAGES, reason_of

Answer = tuple[str, ...] | MqcdError
"""Records as text, none of them when the name exists without; or why there is no answer."""

SOON = 0
"""Lifetime, ms, of an answer that may be another one at the next moment: `resolver` asks again after its
MIN_TTL_MS."""


class Stub:
    """The stub resolver (RFC 1034, 5.3.1) of one `deliver/dns`."""

    def __init__(self, settings: DnsSettings) -> None:
        self._settings = settings
        self._dns: dns.asyncresolver.Resolver | None = None

    async def ask(self, name: str, kind: str) -> tuple[Answer, int | None]:
        """The answer and its lifetime, ms; None when no server gave one."""
        try:
            absolute = dns.name.from_text(name)
        except (dns.exception.DNSException, UnicodeError):
            return NameNotFound(f"{name} is not a domain name"), None
        timeout = self._settings.timeout / 1000
        try:
            self._dns = self._dns or _configured(self._settings)
            answer = await self._dns.resolve(
                absolute, kind, raise_on_no_answer=False, lifetime=timeout, search=False
            )
        except dns.resolver.NXDOMAIN as error:
            return NameNotFound(f"{name} does not exist"), _negative_ttl_ms(error, absolute)
        except dns.resolver.NoResolverConfiguration:
            why = "no name servers are known: give deliver/dns servers=, or a resolv.conf"
            return ResolveFailed(f"look-up of {name} failed: {why}"), None
        except dns.exception.Timeout:
            return ResolveFailed(f"no answer for {name} ({kind}) within {timeout:g} s"), None
        except (dns.exception.DNSException, OSError, EOFError) as error:
            if short := _shortage(error):
                return LookupShortage(f"look-up of {name} failed: {reason_of(short)}"), SOON
            return ResolveFailed(f"no usable answer for {name} ({kind}): {type(error).__name__}"), None
        ttl_ms = answer.chaining_result.minimum_ttl * 1000
        return tuple(record.to_text() for record in answer.rrset or ()), ttl_ms


def _configured(settings: DnsSettings) -> dns.asyncresolver.Resolver:
    """The resolver of dnspython; its servers share the time of one question. Raises dnspython's errors."""
    if settings.servers:
        resolver = dns.asyncresolver.Resolver(configure=False)
        resolver.nameservers = [
            dns.nameserver.Do53Nameserver(server.host, server.port) for server in settings.servers
        ]
    else:
        resolver = dns.asyncresolver.Resolver()
    resolver.timeout = max(settings.timeout / 1000 / (2 * max(len(resolver.nameservers), 1)), 0.1)
    resolver.lifetime = settings.timeout / 1000
    resolver.use_edns(0, 0, 1232)
    return resolver


def _shortage(error: Exception) -> OSError | None:
    """The resource that this machine lacked, from one query's failures."""
    failures = error.kwargs.get("errors", ()) if isinstance(error, dns.exception.DNSException) else ()
    for each in (error, *(failure[3] for failure in failures)):
        if isinstance(each, OSError) and each.errno in SHORTAGES:
            return each
    return None


def _negative_ttl_ms(error: dns.resolver.NXDOMAIN, name: dns.name.Name) -> int | None:
    """The zone's lifetime for negative answers (RFC 2308, 5); None when the answer has none."""
    response = error.kwargs.get("responses", {}).get(name)
    if not isinstance(response, dns.message.QueryMessage):
        return None
    try:
        return response.resolve_chaining().minimum_ttl * 1000
    except dns.exception.DNSException:
        return None

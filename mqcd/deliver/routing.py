"""Where a recipient's mail goes: a configured relay, or the site that serves its domain. Pure.

A destination is what recipients are scheduled by: all that go to one share its lane, its connections and
its fate. For mail routed by MX it is the site, the set of the domain's MX hosts, so that the domains of
one provider are one destination. Relays come before MX, the domain's own relay before the default one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mqcd.core.address import literal_ip
from mqcd.core.errors import DecodeError
from mqcd.core.ports import MxHost
from mqcd.core.reply import Reply


@dataclass(frozen=True, kw_only=True, slots=True)
class Destination:
    """A next hop, as one or several hosts that will do."""

    name: str
    """What its lane is called; the same name means the same lane."""
    hosts: tuple[tuple[str, ...], ...]
    """Host names or IP addresses: groups of equal preference, the most preferred first."""
    port: int
    relay: bool = False
    """Configured, not found by DNS: that it cannot be resolved is a mistake of ours, hence temporary."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unroutable:
    """There is nowhere to go, for good (a 5yz reply) or for now (4yz)."""

    reply: Reply


Route = Destination | Unroutable


@dataclass(frozen=True, kw_only=True, slots=True)
class Relays:
    """The configured next hops."""

    by_domain: Mapping[str, Destination]
    default: Destination | None

    def find(self, domain: str) -> Destination | None:
        """The relay for a recipient domain in comparable form; None = ask DNS."""
        return self.by_domain.get(domain, self.default)


def relays(entries: Iterable[tuple[str, int, Sequence[str]]]) -> Relays:
    """Relays from (host, port, recipient domains) each; no domains = the default relay."""
    by_domain: dict[str, Destination] = {}
    default: Destination | None = None
    for host, port, domains in entries:
        shown = f"[{host}]" if ":" in host else host
        relay = Destination(name=f"{shown}:{port}", hosts=((host,),), port=port, relay=True)
        if not domains:
            default = relay
        by_domain.update((domain, relay) for domain in domains)
    return Relays(by_domain=by_domain, default=default)


def literal(domain: str, port: int) -> Route | None:
    """The route of an address literal (RFC 5321, 4.1.3); None when `domain` is a name."""
    try:
        address = literal_ip(domain)
    except DecodeError as error:
        return permanent("5.1.2", str(error))
    return Destination(name=domain, hosts=((address,),), port=port) if address else None


def by_mx(domain: str, found: Sequence[MxHost], port: int, fallback_address: bool) -> Route:
    """The route that MX records give; none at all means the domain's own address (RFC 5321, 5.1).

    With `fallback_address` the domain itself comes last, and has a lane of its own: what is then tried
    is no longer the same for all domains of the site.
    """
    if any(not mx.host for mx in found):
        return permanent("5.1.10", f"{domain} does not accept mail (null MX)")
    if not found:
        return Destination(name=domain, hosts=((domain,),), port=port)
    groups: dict[int, list[str]] = {}
    for mx in sorted(found, key=lambda mx: (mx.preference, mx.host)):
        groups.setdefault(mx.preference, []).append(mx.host)
    hosts = tuple(tuple(dict.fromkeys(group)) for group in groups.values())
    name = site_name([host for group in hosts for host in group])
    if fallback_address:
        return Destination(name=f"{name}/{domain}", hosts=(*hosts, (domain,)), port=port)
    return Destination(name=name, hosts=hosts, port=port)


def site_name(hosts: Sequence[str]) -> str:
    """A short name for a set of hosts, best first: the best one, and what tells the set from others."""
    if len(set(hosts)) == 1:
        return hosts[0]
    mark = zlib.crc32(" ".join(sorted(set(hosts))).encode())
    return f"{hosts[0]}+{len(set(hosts)) - 1}-{mark:08x}"


def order(destination: Destination, turn: int) -> list[str]:
    """The hosts in the order to try them: by preference, equals taking the lead in turns."""
    ordered: list[str] = []
    for group in destination.hosts:
        first = turn % len(group)
        ordered += group[first:] + group[:first]
    return ordered


def permanent(status: str, text: str) -> Unroutable:
    """Nowhere to go, for good."""
    return Unroutable(reply=Reply(code=550, status=status, text=text))


def temporary(status: str, text: str) -> Unroutable:
    """Nowhere to go for now."""
    return Unroutable(reply=Reply(code=451, status=status, text=text))

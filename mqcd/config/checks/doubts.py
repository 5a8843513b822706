"""Settings that load but are most likely not meant: warnings. Pure.

* A listener accepts mail from no client; or from every client, which is an open relay.
* A listener has users, and no way to log in; or STARTTLS, and no certificate.
* The page is enabled where there can be none.
* A message may have more recipients than a segment has room for.
* A file written for Mailismus relies on a default that differs here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable

from mqcd.config.checks.faults import Remarks, listeners
from mqcd.config.settings import CLUSTER, HostPattern, Network, ServerSettings, Settings

_WIDE = {4: 28, 6: 112}
"""Bits of more addresses than any site has: a sixteenth of all of IPv4, a /16 of IPv6."""
_LEAST_PREFIX = 4
"""A wider network around a host's address is far more than a site, in either family."""
_PUBLIC_IPV6 = ipaddress.IPv6Network("2000::/3")
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")

_SERVER_DEFAULTS = {
    "validate_sender": "N, and Y in Mailismus: domains of senders are not looked up",
    "validate_recip": "N, and Y in Mailismus: domains of recipients are not looked up",
    "maxmsgsize": "50M, and no limit in Mailismus",
    "maxrecips": "1000, and no limit in Mailismus",
    "maxpeerconnections": "50, and no limit in Mailismus",
}
_ANONSSL = "mta/deliver/client/anonssl"


def doubts(settings: Settings) -> Remarks:
    """Who may send; settings after `complete`."""
    if settings.queue.read_only:
        if settings.ops.page.enabled:
            yield "ops/page@enabled", "no effect: a server of a read-only queue has no page"
        return
    most = settings.queue.journal.most_recipients
    for at, listener in listeners(settings):
        server, path = listener.server, f"{at}/server"
        if not (server.relay_clients or server.relay_domains or server.users):
            text = "no client may send here: name clients, or accepted domains in relay_domains"
            yield f"{path}/relay_clients", text
        if server.users and not listener.ssl.certfile and set(server.authtypes) <= set(server.authtypes_ssl):
            text = "nobody can log in: authtypes_ssl allows no mechanism without TLS; give ssl a certfile"
            yield f"{path}/users@file", text
        if listener.ssl.latent and not listener.ssl.certfile:
            yield f"{at}/ssl@certfile", "not given: clients are offered no STARTTLS"
        if server.maxrecips > most and settings.queue.store.kind == CLUSTER:
            text = f"about {most} recipients fit into a quarter of segmentsize; more get 554"
            yield f"{path}/maxrecips", text
        if share := _openness(server.relay_clients):
            text = f"an open relay: {share} may send to any domain; name your own networks only"
            yield f"{path}/relay_clients", text


def _openness(clients: Iterable[HostPattern]) -> str:
    """The part of the internet that clients are; "" where it is one that a site may have."""
    networks: list[Network] = []
    for each in clients:
        if not isinstance(each, str):
            networks.append(_unmapped(each))
        elif "/" in each and int(each.rpartition("/")[2]) < _LEAST_PREFIX:
            return f"{each}, a part of the internet"
    four = _count(net for net in networks if isinstance(net, ipaddress.IPv4Network))
    six = _count(net for net in networks if isinstance(net, ipaddress.IPv6Network))
    for version, total, count in ((4, 32, four), (6, 125, six)):
        if count > 1 << _WIDE[version]:
            share = 100 * count / (1 << total)
            part = "all" if share >= 99 else f"{share:.2g} percent"
            return f"{part} of IPv{version}"
    return ""


def _unmapped(network: Network) -> Network:
    """An IPv6 network of IPv4 addresses as the IPv4 network."""
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        bits = int(network.network_address) & 0xFFFF_FFFF
        return ipaddress.IPv4Network((bits, network.prefixlen - 96))
    return network


def _count(networks: Iterable[Network]) -> int:
    """Public addresses in these networks, none counted twice."""
    total = 0
    for network in ipaddress.collapse_addresses(networks):  # type: ignore[type-var]
        if isinstance(network, ipaddress.IPv6Network):
            if network.supernet_of(_PUBLIC_IPV6):
                network = _PUBLIC_IPV6
            elif not network.subnet_of(_PUBLIC_IPV6):
                continue
        total += network.num_addresses
    return total


def other_defaults(settings: Settings, given: Collection[str]) -> Remarks:
    """Defaults that a file for Mailismus goes by and that are others here, unless `given` names them."""
    for at, listener in listeners(settings):
        path = f"{at}/server"
        for name, text in _SERVER_DEFAULTS.items():
            if f"{path}/{name}" not in given:
                yield f"{path}/{name}", f"left out: here it is {text}"
        if domains := _only_routed(settings, listener.server):
            text = f"Mailismus takes mail for the destdomains of relays, mqcd does not: name {domains} here"
            yield f"{path}/relay_domains", text
    if _ANONSSL not in given:
        yield _ANONSSL, "left out: here it is Y, and N in Mailismus: TLS is used where it is offered"


def _only_routed(settings: Settings, server: ServerSettings) -> str:
    """Domains that a relay is set for and a listener takes no mail for, some of them as text."""
    routed = {domain for relay in settings.deliver.relays for domain in relay.destdomains}
    names = sorted(routed.difference(server.relay_domains))
    return " | ".join(names[:3]) + (" and others" if len(names) > 3 else "")

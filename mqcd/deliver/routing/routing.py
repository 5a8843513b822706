"""Where a recipient's mail goes: a configured relay, or the site that serves its domain. Pure.

A destination is what recipients are scheduled by: all that go to one share its lane, its connections and
its fate. For mail routed by MX it is the site, the set of the domain's MX hosts, so that the domains of
one provider are one destination.

Relays come before MX: first relays that a message's origin chooses (its reverse-path, the network that it
came from), then the recipient domain's own, then the default one. Of several that the origin chooses, one
that names the whole address goes before one that names the domain, and that before one that names networks
only; then the first in the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from hashlib import blake2s
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address
from itertools import chain
from random import Random

from mqcd.config.settings import AuthSettings, Network, RelaySettings, SslSettings
from mqcd.core.address import literal_ip
from mqcd.core.errors import DecodeError
from mqcd.core.model import Envelope
from mqcd.core.ports import MxHost
from mqcd.core.selecting.live import unrouted
from mqcd.core.selecting.where import Node, all_of
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.deliver.routing.conditions import Mail, among, sent_by, tested, whole

NO_LOGIN = AuthSettings()
NO_SSL = SslSettings()
MAX_HOSTS = 20
"""Most MX hosts of a domain that are used, the most preferred: each costs two look-ups."""
_THIS_NETWORK = IPv4Network("0.0.0.0/8")


@value
class Destination:
    """A next hop: one or several equivalent hosts."""

    name: str
    """What its lane is called; the same name means the same lane."""
    hosts: tuple[tuple[str, ...], ...]
    """Host names or IP addresses: groups of equal preference, the most preferred first."""
    port: int
    relay: bool = False
    """Configured, not found by DNS: that it cannot be resolved is a mistake of the operator, hence
    temporary."""
    lmtp: bool = False
    auth: AuthSettings = NO_LOGIN
    ssl: SslSettings = NO_SSL

    def shares_hosts(self, other: Destination) -> bool:
        """Whether the other one has the same hosts, of whatever preference, and the same port."""
        if self is other:
            return True
        same = self.hosts == other.hosts or set(chain(*self.hosts)) == set(chain(*other.hosts))
        return same and self.port == other.port


@value
class Unroutable:
    """There is no route, for good (a 5yz reply) or for now (4yz)."""

    reply: Reply


Route = Destination | Unroutable


class Rule(Enum):
    """The rule that chose a destination."""

    SENDER = "relay by sender"
    DOMAIN = "relay by domain"
    DEFAULT = "default relay"
    LITERAL = "address literal"
    MX = "MX"
    ADDRESS = "address of the domain"
    OPERATOR = "chosen by an operator"


def _origins(entry: RelaySettings) -> Iterator[tuple[int, Node]]:
    """The conditions on the mail that a relay takes for its origin, and how exactly each names it."""
    parts = [unrouted(), *among("client", entry.sendernets), *among("domain", entry.destdomains)]
    if not entry.senders and entry.sendernets:
        yield 1, all_of(*parts)
    exact = whole(entry.senders)
    for rank, wanted in (3, exact), (2, [each for each in entry.senders if each not in exact]):
        if wanted:
            yield rank, all_of(*sent_by(wanted), *parts)


class Relays:
    """The configured next hops."""

    def __init__(self, entries: Iterable[RelaySettings]) -> None:
        self._reach: list[Collection[str]] = []
        """The domains of each relay that an origin chooses; none = all."""
        self._by_domain: dict[str, Destination] = {}
        self._default: Destination | None = None
        self._by_name: dict[str, Destination] = {}
        namesakes: dict[str, list[Destination]] = {}
        ranked: list[tuple[int, Node, Destination]] = []
        for entry in entries:
            relay = _named_apart(_relay(entry), namesakes)
            self._by_name.setdefault(f"{entry.address.host}:{entry.address.port}", relay)
            if entry.senders or entry.sendernets:
                self._reach.append(frozenset(entry.destdomains))
                ranked += [(*each, relay) for each in _origins(entry)]
            elif entry.destdomains:
                self._by_domain.update(dict.fromkeys(entry.destdomains, relay))
            else:
                self._default = relay
        ranked.sort(key=lambda each: -each[0])
        self.origins = [(node, relay) for _, node, relay in ranked]
        """The mail that goes by a relay for its origin, and the relay: the first one that fits counts."""
        self._tests = [(tested(node), relay) for node, relay in self.origins]

    def by_origin(self, domain: str) -> bool:
        """Whether mail for a domain may go by different relays, depending on where it comes from."""
        return any(not domains or domain in domains for domains in self._reach)

    def find(self, envelope: Envelope, domain: str) -> tuple[Destination, Rule] | None:
        """The relay for a recipient domain in comparable form, and why; None = ask DNS."""
        mail = Mail(envelope, domain)
        chosen = next((relay for fits, relay in self._tests if fits(mail)), None)
        return self.of_domain(domain) if chosen is None else (chosen, Rule.SENDER)

    def of_domain(self, domain: str) -> tuple[Destination, Rule] | None:
        """The same for mail that its origin gives none."""
        own = self._by_domain.get(domain)
        if own is not None:
            return own, Rule.DOMAIN
        return None if self._default is None else (self._default, Rule.DEFAULT)

    def named(self, route: str) -> Destination:
        """The next hop that an operator chose, as `host:port`: a configured relay if one has this address."""
        host, _, port = route.rpartition(":")
        return self._by_name.get(route) or Destination(
            name=f"[{host}]:{port}" if ":" in host else route,
            hosts=((host,),),
            port=int(port),
            relay=True,
        )


def _relay(entry: RelaySettings) -> Destination:
    address = entry.address
    shown = f"[{address.host}]" if ":" in address.host else address.host
    name = f"{shown}:{address.port}"
    # A server may apply other limits to other credentials: another lane.
    if entry.auth.enabled:
        name += f" as {entry.auth.username}"
    return Destination(
        name=name,
        hosts=((address.host,),),
        port=address.port,
        relay=True,
        lmtp=entry.lmtp,
        auth=entry.auth,
        ssl=entry.ssl,
    )


def _named_apart(relay: Destination, namesakes: dict[str, list[Destination]]) -> Destination:
    """A relay that is spoken to in another way than one of the same name has a lane and a name of its own,
    for its connections cannot be used for the other's mail. The first one keeps the plain name."""
    known = namesakes.setdefault(relay.name, [])
    if relay not in known:
        known.append(relay)
    number = known.index(relay) + 1
    return relay if number == 1 else replace(relay, name=f"{relay.name} #{number}")


def within(networks: Sequence[Network], address: str) -> bool:
    """Whether an IP address lies in one of the networks; "" lies in none."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    return any(ip in network for network in networks)


def literal(domain: str, port: int) -> Route | None:
    """The route of an address literal (RFC 5321, 4.1.3); None when `domain` is a name."""
    try:
        address = literal_ip(domain)
    except DecodeError as error:
        return permanent("5.1.2", str(error))
    return Destination(name=domain, hosts=((address,),), port=port) if address else None


def rule_of(domain: str, destination: Destination) -> Rule:
    """By which rule DNS, or the domain itself, gave this destination."""
    if domain.startswith("["):
        return Rule.LITERAL
    return Rule.ADDRESS if destination.hosts == ((domain,),) else Rule.MX


def by_mx(
    domain: str,
    found: Sequence[MxHost],
    port: int,
    fallback_address: bool,
    own_names: Collection[str] = (),
) -> Route:
    """The route that MX records give; none at all means the domain's own address (RFC 5321, 5.1).

    With `fallback_address` the domain itself comes last, and has a lane of its own: what is then tried is no
    longer the same for all domains of the site. Where this server is a host of the domain (`own_names`), it
    and all hosts that are preferred no more would send the mail back; so would the domain's own address where
    the domain is this server.

    A null MX counts only alone (RFC 7505, 3): beside others it is ignored, as one of them may accept the
    mail.
    """
    named = [mx for mx in found if mx.host]
    if found and not named:
        return permanent("5.1.10", f"{domain} does not accept mail (null MX)")
    found = named or [MxHost(preference=0, host=domain)]
    own = [mx.preference for mx in found if mx.host in own_names]
    if own:
        found = [mx for mx in found if mx.preference < min(own)]
        if not found:
            text = f"mail for {domain} loops back to this server, its best MX host; no relay takes it"
            return permanent("5.4.6", text)
    groups: dict[int, list[str]] = {}
    for mx in sorted(set(found), key=lambda mx: (mx.preference, mx.host))[:MAX_HOSTS]:
        groups.setdefault(mx.preference, []).append(mx.host)
    hosts = tuple(tuple(dict.fromkeys(group)) for group in groups.values())
    name = site_name([host for group in hosts for host in group])
    if fallback_address and named and not own and domain not in own_names:
        return Destination(name=f"{name}/{domain}", hosts=(*hosts, (domain,)), port=port)
    return Destination(name=name, hosts=hosts, port=port)


def unfit(address: str) -> str:
    """Why no mail goes to an address that a stranger's DNS or a recipient names; "" where it may go.

    Such an address is a service of this machine or of its link, which may trust this machine.
    """
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    kinds = {
        "loopback": ip.is_loopback,
        "unspecified": ip.is_unspecified or ip in _THIS_NETWORK,
        "link-local": ip.is_link_local,
        "multicast": ip.is_multicast,
        "reserved": isinstance(ip, IPv4Address) and ip.is_reserved,
    }
    return next((kind for kind, is_so in kinds.items() if is_so), "")


def site_name(hosts: Sequence[str]) -> str:
    """A name for a set of hosts, best first: the best one, and a mark that distinguishes the set.

    The mark is the same in all runs, for rules and tables name sites, and so long that a stranger finds no
    hosts of his own that give his domain another site's name, and with it its lane.
    """
    if len(set(hosts)) == 1:
        return hosts[0]
    mark = blake2s(" ".join(sorted(set(hosts))).encode(), digest_size=16).hexdigest()
    return f"{hosts[0]}+{len(set(hosts)) - 1}-{mark}"


def order(destination: Destination, turn: int) -> list[str]:
    """The hosts in the order to try them: by preference, equals shuffled anew for each turn (RFC 5321, 5.1).

    Rotation would give the host behind a dead one the work of two.
    """
    ordered: list[str] = []
    for group in destination.hosts:
        # The order is no secret.
        ordered += Random(turn).sample(group, len(group)) if len(group) > 1 else group  # noqa: S311
    return ordered


def permanent(status: str, text: str) -> Unroutable:
    """Nowhere to go, for good."""
    return Unroutable(reply=Reply(code=550, status=status, text=text))


def deferral(status: str, text: str) -> Unroutable:
    """Nowhere to go for now."""
    return Unroutable(reply=Reply(code=451, status=status, text=text))

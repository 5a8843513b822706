"""Relay rules: which client may send to which domain, and the replies that refuse. Pure.

Rules, in the order in which they decide:

* A client that `relay_clients` lists may send to any domain.
* Anybody may send to a domain that `relay_domains` lists. Domains match exactly: `example.org` does
  not open `sub.example.org`, list both. Case, a final dot and U-labels make no difference.
* Anybody may send to `postmaster` without a domain (RFC 5321, 4.5.1). It is our own mail: the server
  completes it with `own_domain`.
* Everything else is "554 5.7.1 Relay access denied", or "451 4.4.3" while a host name in relay_clients
  could not be looked up: the client may be that host. From a client that is not listed so is a local
  part that asks the next hop to pass the mail on (`user%elsewhere@here`, `elsewhere!user@here`,
  `"user@elsewhere"@here`): the next hop may trust us more than it would trust that client. A source
  route is dropped before any rule looks (RFC 5321, 4.1.1.3), so it never decides.

Settings read: relay_clients, relay_domains, announcehost.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from mqcd.config.settings import HostPattern, Network, ServerSettings
from mqcd.core.address import domain_of, normal_domain, split_address
from mqcd.core.reply import Refused, Reply


class Reason(StrEnum):
    """Reasons of refusals at the door: the label of `mqcd_refused_total` and the event's reason."""

    RELAY = "relay"
    """A recipient that this client may not send to."""
    HELO = "helo"
    """A name in EHLO or HELO that validate_helo refuses."""
    SENDER = "sender"
    """A reverse-path that is no address, or that a setting refuses."""
    RECIPIENT = "recipient"
    """A forward-path that is no address, or that validate_recip refuses."""
    BLACKLIST = "blacklist"
    """A client (disconnected) or sender that the blacklist names."""
    SYNTAX = "syntax"
    """A line that is no command, or a parameter that cannot be taken."""
    SEQUENCE = "sequence"
    """A command out of its order, content sent ahead of 354 among them."""
    BAD_COMMANDS = "bad-commands"
    """More bad commands than maxbadreqs: disconnected."""
    REFUSALS = "refusals"
    """Too many recipients refused for good over one connection: disconnected."""
    SIZE = "size"
    """Larger than maxmsgsize."""
    RECIPIENTS = "recipients"
    """More recipients than maxrecips."""
    MESSAGES = "messages"
    """More messages over one connection than maxmessages: disconnected."""
    CONNECTIONS = "connections"
    """More connections from one address than maxpeerconnections: disconnected."""
    GREYLIST = "greylist"
    """A recipient that has to come again later."""
    QUOTA = "quota"
    """More messages, recipients or octets in a time than a quota allows."""
    SESSIONS = "sessions"
    """More sessions at once than a quota allows."""
    TIMEOUT = "timeout"
    """The client was silent for too long: disconnected."""
    CONTENT = "content"
    """Bare CR, NUL or, unless it is normalised, bare LF in the content: others may see two messages in it."""
    LOOP = "loop"
    """maxhops Received headers."""
    SUPPRESSED = "suppressed"
    """A recipient that advice suppresses."""
    FILTER = "filter"
    """The listener's filter refused it."""
    STORE = "store"
    """The queue could not take it."""
    PROXY = "proxy"
    """A proxy without a PROXY header, or one from a client that is no proxy: disconnected."""
    TLS = "tls"
    """TLS that failed, or a command without the TLS that it needs."""
    AUTH = "auth"
    """A login that failed, or a message without the login that it needs."""
    OVERLOAD = "overload"
    """More than can be committed in time, or memory is short."""
    CLOSED = "closed"
    """The door is closed to new mail, or the server is stopping."""
    FAULT = "fault"
    """An internal error, which is logged."""


class DoorRefused(Refused):
    """A refusal that knows its reason."""

    def __init__(self, reason: Reason, reply: Reply, octets: bytes = b"") -> None:
        """`octets`: the reply as it is sent, where it is not the one line of `reply`."""
        super().__init__(reply)
        self.reason = reason
        self.octets = octets or reply.encode()


RELAY_DENIED = Reply(code=554, status="5.7.1", text="Relay access denied")
RELAY_UNCERTAIN = Reply(code=451, status="4.4.3", text="Relay rules are not known yet, try again later")

_MOST_V4_BITS = 32
LOOPBACK = (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128"))


@dataclass(frozen=True, kw_only=True, slots=True)
class RelayPolicy:
    """Clients that may send anywhere, and domains that all clients may send to."""

    networks: Sequence[Network] = ()
    """Clients inside may send anywhere."""
    domains: frozenset[str] = frozenset()
    """Anybody may send here; in comparable form."""
    own_domain: str = "localhost"
    """What completes a bare postmaster."""
    uncertain: bool = False
    """Some client that may send anywhere is not known yet."""

    def trusts(self, client: str) -> bool:
        """Whether the client with this IP address may send to any domain. False for no address."""
        if not self.networks:
            return False
        address = ip_address(client)
        return address is not None and any(address in network for network in self.networks)

    def refusal(self, recipient: str, trusted: bool) -> Reply | None:
        """The reply that refuses `recipient`, a checked address or "postmaster"; None to take it."""
        if trusted or "@" not in recipient:
            return None
        if domain_of(recipient) not in self.domains or asks_to_relay(recipient):
            return RELAY_UNCERTAIN if self.uncertain else RELAY_DENIED
        return None

    def complete(self, path: str) -> str:
        """`path` with our own domain, when it is a bare postmaster; else as it is."""
        return path if not path or "@" in path else f"{path}@{self.own_domain}"


# Parsing an address costs more than looking it up in a few networks, and clients reconnect.
@lru_cache(maxsize=1024)
def ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address; None for another text."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def client_network(client: str) -> str:
    """What counts as one client: an IPv4 address; of IPv6 a /64, the block that one client usually has."""
    if ":" not in client:
        return client
    return str(ipaddress.ip_network(f"{client}/64", strict=False))


@lru_cache(maxsize=1024)
def wide_network(client: str) -> str:
    """The network of many clients that one party may have: an IPv4 /24, an IPv6 /48; "" for no address."""
    if not client:
        return ""
    return str(ipaddress.ip_network(f"{client}/{48 if ':' in client else 24}", strict=False))


def asks_to_relay(address: str) -> bool:
    """Whether the local part names another host to pass the mail on to."""
    local = split_address(address)[0]
    return "%" in local or "!" in local or "@" in local


def host_names(patterns: Sequence[HostPattern]) -> list[str]:
    """The names in `relay_clients` that are to be looked up."""
    names = {pattern.partition("/")[0] for pattern in patterns if isinstance(pattern, str)}
    return sorted(names - {"localhost"})


def relay_policy(settings: ServerSettings, resolved: Mapping[str, Sequence[str]]) -> RelayPolicy:
    """The policy that `settings` state; `resolved` gives the addresses of each host name in them.

    A name without addresses there lets no client in; one that is missing there is not known yet.
    `localhost` is loopback without asking (RFC 6761).
    """
    return RelayPolicy(
        networks=networks_of(settings.relay_clients, resolved),
        domains=frozenset(normal_domain(domain) for domain in settings.relay_domains),
        own_domain=own_domain(settings.announcehost),
        uncertain=any(name not in resolved for name in host_names(settings.relay_clients)),
    )


def networks_of(
    patterns: Sequence[HostPattern], resolved: Mapping[str, Sequence[str]]
) -> tuple[Network, ...]:
    """The networks that patterns mean; `resolved` as in `relay_policy`."""
    networks: list[Network] = []
    for pattern in patterns:
        if not isinstance(pattern, str):
            networks.append(pattern)
        elif pattern == "localhost":
            networks.extend(LOOPBACK)
        else:
            networks.extend(_networks_of(pattern, resolved))
    return tuple(networks)


def _networks_of(pattern: str, resolved: Mapping[str, Sequence[str]]) -> list[Network]:
    name, _, bits = pattern.partition("/")
    networks: list[Network] = []
    for text in resolved.get(name, ()):
        address = ipaddress.ip_address(text)
        # A prefix is written for IPv4 or IPv6; an address that it does not fit stands for itself.
        prefix = min(int(bits), address.max_prefixlen) if bits else address.max_prefixlen
        if address.version == 6 and prefix <= _MOST_V4_BITS:
            prefix = address.max_prefixlen
        networks.append(ipaddress.ip_network(f"{address}/{prefix}", strict=False))
    return networks


def own_domain(announcehost: str) -> str:
    """The domain that the host is of: its name less the first label, where that leaves two or more.

    The same rule as the sender of reports goes by, so that postmaster is one mailbox.
    """
    _, _, parent = announcehost.partition(".")
    return parent if "." in parent else announcehost or "localhost"

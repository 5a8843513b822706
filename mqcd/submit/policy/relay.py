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

from collections.abc import Mapping, Sequence
from dataclasses import field

from mqcd.config.settings import HostPattern, ServerSettings
from mqcd.core.address import domain_of, normal_domain, split_address
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.submit.checks.listed import NetworkList
from mqcd.submit.networks import networks_of

RELAY_DENIED = Reply(code=554, status="5.7.1", text="Relay access denied")
RELAY_UNCERTAIN = Reply(code=451, status="4.4.3", text="Relay rules are not known yet, try again later")


@value
class RelayPolicy:
    """Clients that may send anywhere, and domains that all clients may send to."""

    networks: NetworkList = field(default_factory=NetworkList)
    """Clients inside may send anywhere."""
    domains: frozenset[str] = frozenset()
    """Anybody may send here; in comparable form."""
    own_domain: str = "localhost"
    """What completes a bare postmaster."""
    uncertain: bool = False
    """Some client that may send anywhere is not known yet."""

    def trusts(self, client: str) -> bool:
        """Whether the client with this IP address may send to any domain. False for no address."""
        return self.networks.has(client)

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


def asks_to_relay(address: str) -> bool:
    """Whether the local part names another host to pass the mail on to."""
    local = split_address(address)[0]
    return "%" in local or "!" in local or "@" in local


def host_names(patterns: Sequence[HostPattern]) -> list[str]:
    """The names among these (of `relay_clients` or `remotenets`) that are to be looked up."""
    names = {pattern.partition("/")[0] for pattern in patterns if isinstance(pattern, str)}
    return sorted(names - {"localhost"})


def relay_policy(settings: ServerSettings, resolved: Mapping[str, Sequence[str]]) -> RelayPolicy:
    """The policy that `settings` state; `resolved` gives the addresses of each host name in them.

    A name without addresses there lets no client in; one that is missing there is not known yet.
    `localhost` is loopback without asking (RFC 6761).
    """
    return RelayPolicy(
        networks=NetworkList(networks_of(settings.relay_clients, resolved)),
        domains=frozenset(normal_domain(domain) for domain in settings.relay_domains),
        own_domain=own_domain(settings.announcehost),
        uncertain=any(name not in resolved for name in host_names(settings.relay_clients)),
    )


def own_domain(announcehost: str) -> str:
    """The domain that the host is of: its name less the first label, where that leaves two or more.

    The same rule as the sender of reports goes by, so that postmaster is one mailbox.
    """
    _, _, parent = announcehost.partition(".")
    return parent if "." in parent else announcehost or "localhost"

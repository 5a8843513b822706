"""Networks of clients: which network a client is in, which networks a setting means. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from functools import lru_cache

from mqcd.config.settings import HostPattern, Network

_MOST_V4_BITS = 32
LOOPBACK = (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128"))


# Parsing an address costs more than looking it up in a few networks, and clients reconnect.
@lru_cache(maxsize=1024)
def ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address; None for another text."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


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

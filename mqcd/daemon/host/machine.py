"""Checks a configuration against this machine: what loads and cannot work here.

`mqcd check` asks; the start would fail at the first of these, or, worse, not fail.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterator

from mqcd.config.settings import HostPort, ListenerSettings, Settings
from mqcd.daemon.derived import own_names
from mqcd.net.dialer import is_own_address

_EVERYWHERE = (str(ipaddress.IPv4Address(0)), "::")
_LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")


def misfits(settings: Settings, is_own: Callable[[str], bool] | None = None) -> Iterator[tuple[str, str]]:
    """Path and text of each; `is_own` says whether an address or name is one of this machine."""
    ours = is_own or is_of_this_machine
    for path, address in _addresses(settings):
        if address not in _EVERYWHERE and not ours(address):
            yield path, f"{address} is no address of this machine; `ip address` lists its addresses"
    names = own_names(settings)
    for index, relay in enumerate(settings.deliver.relays, start=1):
        at = relay.address
        for listener in settings.submit.listeners:
            if _comes_back(at, listener) and (at.host in names or ours(at.host)):
                text = f"{at.host} is this machine, with listener {listener.name} on port {at.port}"
                yield f"mta/deliver/relays/relay[{index}]@address", f"{text}: mail would come back"
                break


def _addresses(settings: Settings) -> Iterator[tuple[str, str]]:
    """Where each address that must be our own is written, and the address."""
    for index, listener in enumerate(settings.submit.listeners, start=1):
        yield f"mta/submit/listeners/listener[{index}]@interface", listener.interface
    for index, zone in enumerate(settings.deliver.zones, start=1):
        for source in zone.sources:
            yield f"mta/deliver/zones/zone[{index}]@sources", source.address
    yield "ops@interface", settings.ops.interface


def _comes_back(relay: HostPort, listener: ListenerSettings) -> bool:
    """Whether mail for this machine at the relay's port reaches the listener."""
    return relay.port == listener.port and listener.interface in (*_EVERYWHERE, relay.host)


def is_of_this_machine(host: str) -> bool:
    """Whether an IP address, or one that a name has, is this machine's."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            found = {str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
        except OSError:
            return False
        return any(map(is_own_address, found))
    # All of 127.0.0.0/8 is here; a link-local address belongs to an interface that is not known here.
    return address in _LOOPBACK or address.is_link_local or is_own_address(host)

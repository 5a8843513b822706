"""Lists of clients and senders, and the blacklist that a file holds. Pure.

A file has one entry a line, `#` begins a comment: an IP address, a network (CIDR), `user@domain`, a domain,
`.domain` (all below it), or `<>` (the null sender). Domains are compared in lower case as A-labels.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

from mqcd.core.address import normal_domain, split_address
from mqcd.core.errors import ConfigError
from mqcd.submit.networks import ip_address

MOST_REMARKS = 20
"""Wrong lines of one file that are named."""
_NULL = "<>"
_SENDER = re.compile(r"(?:[^\s<>@,;:|]{1,64}@|\.)?[^\s<>@,;:|/.][^\s<>@,;:|/]{0,252}")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class BadList(ConfigError):
    """A file of entries cannot be read or has wrong lines. Fault: the file."""


class SenderList:
    """Senders to compare with. An address is looked up, however long the list."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[str] = ()) -> None:
        """`entries`: addresses, domains, `.domain` or `<>`."""
        self._entries = frozenset(map(_comparable, entries))

    def __bool__(self) -> bool:
        return bool(self._entries)

    def has(self, sender: str) -> bool:
        """Whether a reverse-path ("" = the null one) is among them."""
        return bool(self._entries) and self.rank(sender) > 0

    def rank(self, sender: str) -> int:
        """How closely an entry names it: 3 by its address, 2 by its domain, 1 by one above that, 0 = not."""
        if not sender:
            return 3 * (_NULL in self._entries)
        local, domain = split_address(sender)
        domain = normal_domain(domain)
        if f"{local.lower()}@{domain}" in self._entries:
            return 3
        if domain in self._entries:
            return 2
        at = domain.find(".")
        while at >= 0:
            if domain[at:] in self._entries:
                return 1
            at = domain.find(".", at + 1)
        return 0


class NetworkList:
    """Networks. A lookup costs one step for each length of prefix among them."""

    __slots__ = ("_by_length",)

    def __init__(self, networks: Iterable[Network] = ()) -> None:
        self._by_length: dict[tuple[int, int], set[int]] = {}
        for each in networks:
            shift = each.max_prefixlen - each.prefixlen
            key = each.version, shift
            self._by_length.setdefault(key, set()).add(int(each.network_address) >> shift)

    def has(self, client: str) -> bool:
        """Whether the client with this IP address is in one; False for no address."""
        if not self._by_length:
            return False
        address = ip_address(client)
        if address is None:
            return False
        number = int(address)
        return any(
            version == address.version and number >> shift in numbers
            for (version, shift), numbers in self._by_length.items()
        )


class Blacklist:
    """Clients and senders that are refused."""

    __slots__ = ("clients", "senders")

    def __init__(self, clients: NetworkList | None = None, senders: SenderList | None = None) -> None:
        self.clients = clients or NetworkList()
        self.senders = senders or SenderList()


def parse_blacklist(text: str, file: str) -> Blacklist:
    """The entries of a file. Raises BadList, which names the file and each wrong line."""
    networks: list[Network] = []
    senders: list[str] = []
    wrong: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        network = _network(entry)
        if network is not None:
            networks.append(network)
        elif _is_sender(entry):
            senders.append(entry)
        else:
            shown = ascii(entry[:80])
            wrong.append(
                f"{file}:{number}: {shown} is no address, network, sender or domain: correct the line"
            )
    if wrong:
        raise BadList("\n".join(_first(wrong)))
    return Blacklist(NetworkList(networks), SenderList(senders))


def _network(entry: str) -> Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None


def _is_sender(entry: str) -> bool:
    # A name of digits and dots, or with a slash, was meant as an address.
    if re.fullmatch(r"[0-9./]+|[0-9A-Fa-f:.]*:.*", entry):
        return False
    return entry == _NULL or _SENDER.fullmatch(entry) is not None


def _comparable(entry: str) -> str:
    if entry == _NULL:
        return entry
    if entry.startswith("."):
        return f".{normal_domain(entry[1:])}"
    local, domain = split_address(entry)
    return f"{local.lower()}@{normal_domain(domain)}" if domain else normal_domain(entry)


def _first(wrong: Sequence[str]) -> Sequence[str]:
    more = len(wrong) - MOST_REMARKS
    return [*wrong[:MOST_REMARKS], f"and {more} more"] if more > 0 else wrong


NOBODY = Blacklist()
"""An empty one."""

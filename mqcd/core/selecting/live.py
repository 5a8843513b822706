"""Conditions on what follows from the configuration and DNS: the site of mail, and its zone. Pure.

Both change while mail waits, so no record has them. Before a condition goes to records, `resolved` puts
conditions on records in their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from mqcd.core.selecting.where import Compare, Node, Not, Where, all_of, any_of, test_of_value
from mqcd.core.selecting.where_fields import IN

SITE, ZONE = "site", "zone"


def resolved(
    where: Where, *, zones: Mapping[str, Node] | None = None, sites: Mapping[str, str] | None = None
) -> Where:
    """The same condition on records.

    `zones`: the condition of each zone, "" = that of mail without one. `sites`: those of the lane keys in the
    queue that are known. None leaves these fields as they are.
    """
    return replace(where, root=_resolved(where.root, zones, sites))


def names(where: Where, field: str) -> frozenset[str]:
    """The values that a condition compares a field with, in lower case; no patterns."""
    return frozenset(value.lower() for each in _compares(where.root, field) for value in each.values)


def _compares(node: Node, field: str) -> Iterator[Compare]:
    if isinstance(node, Compare):
        if node.field == field and node.op != "~":
            yield node
    else:
        for each in (node.part,) if isinstance(node, Not) else node.parts:
            yield from _compares(each, field)


def _resolved(node: Node, zones: Mapping[str, Node] | None, sites: Mapping[str, str] | None) -> Node:
    if isinstance(node, Not):
        return Not(_resolved(node.part, zones, sites))
    if not isinstance(node, Compare):
        return type(node)(tuple(_resolved(each, zones, sites) for each in node.parts))
    if node.field == ZONE and zones is not None:
        meant = test_of_value(node)
        return any_of(*(each for name, each in zones.items() if meant(name)))
    if node.field == SITE and sites is not None:
        meant = test_of_value(node)
        return _of_keys([key for key, site in sites.items() if meant(site)])
    return node


def _of_keys(keys: list[str]) -> Node:
    """Selects recipients by their lane key: a domain, or a next hop that an operator chose."""
    hops = tuple(sorted(key for key in keys if is_hop(key)))
    domains = tuple(sorted(key for key in keys if not is_hop(key)))
    own = [all_of(Compare("domain", IN, domains), unrouted())] if domains else []
    return any_of(*own, *([Compare("route", IN, hops)] if hops else []))


def unrouted() -> Node:
    """Selects recipients for which no operator chose a next hop."""
    return Compare("route", "=", ("",))


def is_hop(key: str) -> bool:
    """Whether a lane key is a next hop (`host:port`), and no domain."""
    return ":" in key and not key.endswith("]")

"""Conditions on what follows from the configuration and DNS: the site of mail, and its zone. Pure.

Both change while mail waits, so no record has them. Before a condition goes to records, `resolved` puts
conditions on records in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from mqcd.core.selecting.where import Compare, Node, Not, Where, all_of, any_of, test_of_value
from mqcd.core.selecting.where_fields import IN

SITE, ZONE = "site", "zone"
Origins = Sequence[tuple[Node, str]]
"""The mail that goes to a site for its origin, and that site: the first one that fits counts."""


def resolved(
    where: Where,
    *,
    zones: Mapping[str, Node] | None = None,
    sites: Mapping[str, str] | None = None,
    origins: Origins = (),
) -> Where:
    """The same condition on records.

    `zones`: the condition of each zone, "" = that of mail without one. `sites`: those of the lane keys in the
    queue that are known, for all mail but that of `origins`. None leaves these fields as they are.
    """
    return replace(where, root=_resolved(where.root, zones, sites, origins))


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


def _resolved(
    node: Node, zones: Mapping[str, Node] | None, sites: Mapping[str, str] | None, origins: Origins
) -> Node:
    if isinstance(node, Not):
        return Not(_resolved(node.part, zones, sites, origins))
    if not isinstance(node, Compare):
        return type(node)(tuple(_resolved(each, zones, sites, origins) for each in node.parts))
    if node.field == ZONE and zones is not None:
        meant = test_of_value(node)
        return any_of(*(each for name, each in zones.items() if meant(name)))
    if node.field == SITE and sites is not None:
        return _of_sites(test_of_value(node), sites, origins)
    return node


def _of_sites(meant: Callable[[str], bool], sites: Mapping[str, str], origins: Origins) -> Node:
    """Selects recipients by their origin, else by their lane key: a domain, or a next hop that an operator
    chose."""
    found: list[Node] = []
    others: list[Node] = []
    for origin, site in origins:
        if meant(site):
            found.append(all_of(origin, *map(Not, others)))
        else:
            others.append(origin)
    keys = sorted(key for key, site in sites.items() if meant(site))
    if domains := tuple(key for key in keys if not is_hop(key)):
        found.append(all_of(Compare("domain", IN, domains), unrouted(), *map(Not, others)))
    if hops := tuple(key for key in keys if is_hop(key)):
        found.append(Compare("route", IN, hops))
    return any_of(*found)


def unrouted() -> Node:
    """Selects recipients for which no operator chose a next hop."""
    return Compare("route", "=", ("",))


def is_hop(key: str) -> bool:
    """Whether a lane key is a next hop (`host:port`), and no domain."""
    return ":" in key and not key.endswith("]")

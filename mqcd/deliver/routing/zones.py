"""Which mail each zone takes, as conditions on records: `Policies.zone_of` for selections. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mqcd.config.settings import ZoneMatchSettings, ZoneSettings
from mqcd.core.address import normal_domain
from mqcd.core.selecting.live import unrouted
from mqcd.core.selecting.where import EVERYTHING, Compare, Node, Not, all_of, any_of
from mqcd.core.selecting.where_fields import IN

_SPECIAL = "*?["


def conditions(zones: Sequence[ZoneSettings]) -> Mapping[str, Node]:
    """By name of a zone the condition on its mail; "" is mail that no zone takes."""
    found: dict[str, Node] = {}
    before: list[Node] = []
    for zone in zones:
        own = any_of(*(_fits(match, zone.name) for match in zone.matches))
        found[zone.name] = all_of(own, *map(Not, before))
        before.append(own)
    return {**found, "": all_of(*map(Not, before)) if before else EVERYTHING}


def _fits(match: ZoneMatchSettings, zone: str) -> Node:
    parts = [
        *([Compare("header-zone", "=", (zone,))] if match.header else ()),
        *([Compare("listener", IN, match.listener)] if match.listener else ()),
        *([Compare("user", IN, match.user)] if match.user else ()),
        *([_domain(match.domain)] if match.domain else ()),
        *([any_of(*map(_sender, match.sender))] if match.sender else ()),
    ]
    return all_of(*parts) if parts else EVERYTHING


def _domain(patterns: Sequence[str]) -> Node:
    names = [normal_domain(each) for each in patterns]
    if "*" in names:
        return EVERYTHING
    below = [Compare("domain", "~", (each,)) for each in names if each.startswith("*.")]
    exact = tuple(each for each in names if not each.startswith("*."))
    # Mail with a next hop of an operator's choice goes by that hop, which none of these names.
    return all_of(any_of(*below, *([Compare("domain", IN, exact)] if exact else ())), unrouted())


def _sender(wanted: str) -> Node:
    if wanted == "<>":
        return Compare("sender", "=", ("",))
    local, _, domain = wanted.rpartition("@")
    at_domain = Compare("sender-domain", "=", (normal_domain(domain),))
    if not local:
        return at_domain
    quoted = "".join(f"[{each}]" if each in _SPECIAL else each for each in local)
    return all_of(at_domain, Compare("sender", "~", (f"{quoted}@*",)))

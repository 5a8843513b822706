"""Which mail each zone takes, as conditions on records: for delivery and for selections. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mqcd.config.settings import ZoneMatchSettings, ZoneSettings
from mqcd.core.address import normal_domain
from mqcd.core.selecting.live import unrouted
from mqcd.core.selecting.where import EVERYTHING, Compare, Node, Not, all_of, any_of
from mqcd.deliver.routing.conditions import among, sent_by


def conditions(zones: Sequence[ZoneSettings]) -> Mapping[str, Node]:
    """By name of a zone the condition on its mail; "" is mail that no zone takes."""
    found: dict[str, Node] = {}
    before: list[Node] = []
    for zone in zones:
        own = taken_by(zone)
        found[zone.name] = all_of(own, *map(Not, before))
        before.append(own)
    return {**found, "": all_of(*map(Not, before)) if before else EVERYTHING}


def taken_by(zone: ZoneSettings) -> Node:
    """The condition on the mail that a zone takes where none before it does."""
    return any_of(*(_fits(match, zone.name) for match in zone.matches))


def _fits(match: ZoneMatchSettings, zone: str) -> Node:
    parts = [
        *([Compare("header-zone", "=", (zone,))] if match.header else ()),
        *among("listener", match.listener),
        *among("user", match.user),
        *([_domain(match.domain)] if match.domain else ()),
        *sent_by(match.sender),
    ]
    return all_of(*parts) if parts else EVERYTHING


def _domain(patterns: Sequence[str]) -> Node:
    names = [normal_domain(each) for each in patterns]
    if "*" in names:
        return EVERYTHING
    below = [Compare("domain", "~", (each,)) for each in names if each.startswith("*.")]
    exact = tuple(each for each in names if not each.startswith("*."))
    # Mail with a next hop of an operator's choice goes by that hop, which none of these names.
    return all_of(any_of(*below, *among("domain", exact)), unrouted())

"""Selections by `site` and `zone`: they become selections by what records have, as mail is routed now.

One rule for commands on files and for a running server; `core.selecting.live` has its words, the router of
delivery decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace

from mqcd.config.settings import Settings
from mqcd.core.errors import DecodeError
from mqcd.core.ports import Clock, QueueStore, Resolver
from mqcd.core.selecting import live
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import Where
from mqcd.core.value import value
from mqcd.daemon.derived import own_names, schedule_of
from mqcd.deliver.routing.router import Router

_AT_ONCE = 50
"""Lane keys that are asked for at a time."""

Keys = Callable[[], Awaitable[Collection[str]]]
"""Gives the lane keys of the queue."""


@value
class Resolved:
    """A selection of records."""

    selection: Selection
    unrouted: int = 0
    """Domains without a route now: their mail is of no site."""

    def fields(self) -> dict[str, object]:
        """What an answer says of it; nothing where all is clear."""
        return {"unrouted": self.unrouted} if self.unrouted else {}


Resolve = Callable[[Selection], Awaitable[Resolved]]
"""Raises StoreUnavailable, DecodeError for a zone that is not configured."""


async def as_it_is(selection: Selection) -> Resolved:
    """Where nothing is known of routes."""
    return Resolved(selection=selection)


async def resolved(selection: Selection, router: Router, keys: Keys) -> Resolved:
    """The selection on records. `keys` is asked where a site is named. Raises as it does, and DecodeError."""
    where = selection.where
    if where is None:
        return Resolved(selection=selection)
    check_zones(where, router)
    where = live.resolved(where, zones=router.zones)
    if live.SITE not in where.fields:
        return Resolved(selection=replace(selection, where=where))
    sites = await sites_of(router, await keys())
    where = live.resolved(where, sites=sites, origins=router.origins)
    unrouted = sum(not site for site in sites.values())
    return Resolved(selection=replace(selection, where=where), unrouted=unrouted)


def check_zones(where: Where, router: Router) -> None:
    """Raises DecodeError where a zone is named that is not configured."""
    zones = router.zones
    for name in live.names(where, live.ZONE):
        if name not in map(str.lower, zones):
            configured = ", ".join(filter(None, zones)) or "none"
            raise DecodeError(f"where: there is no zone {name!r}; configured are: {configured}")


async def sites_of(router: Router, keys: Iterable[str]) -> Mapping[str, str]:
    """By lane key its site; "" for one without a route at this moment."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def site(key: str) -> str:
        async with turn:
            return await router.site(key)

    listed = sorted(keys)
    return dict(zip(listed, await asyncio.gather(*map(site, listed)), strict=True))


def router_of(settings: Settings, resolver: Resolver, clock: Clock) -> Router:
    """Routes as a server with these settings does, but for advice."""
    return Router(settings.deliver, schedule_of(settings), resolver, clock, own_names(settings))


def resolving(store: QueueStore, router: Callable[[], Router]) -> Resolve:
    """What a running server resolves by."""
    return lambda selection: resolved(selection, router(), lambda: store.lane_keys(Selection()))

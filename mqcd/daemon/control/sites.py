"""The sites of domains, for conditions on `site`: as delivery routes mail to each domain now.

No record has its site: it follows from DNS, which changes while mail waits. Relays that a sender chooses are
left out, for a site belongs to a domain here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from mqcd.config.settings import Settings
from mqcd.core.model import Envelope
from mqcd.core.ports import Clock, Resolver
from mqcd.core.selecting.where_fields import site_name
from mqcd.daemon.derived import own_names, schedule_of
from mqcd.deliver.routing.policy import Hop
from mqcd.deliver.routing.router import Router

_AT_ONCE = 50
"""Domains that are asked for at a time."""


async def sites_of(
    settings: Settings, resolver: Resolver, clock: Clock, domains: Iterable[str]
) -> Mapping[str, str]:
    """By domain its site; "" for one without a route at this moment."""
    router = Router(settings.deliver, schedule_of(settings), resolver, clock, own_names(settings))
    envelope = Envelope(spid=0, sender="", received=clock.now())
    turn = asyncio.Semaphore(_AT_ONCE)

    async def site(domain: str) -> str:
        async with turn:
            hop, _ = await router.trace(envelope, domain)
        return site_name(hop.destination.name) if isinstance(hop, Hop) else ""

    listed = sorted(domains)
    return dict(zip(listed, await asyncio.gather(*map(site, listed)), strict=True))

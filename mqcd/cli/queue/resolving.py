"""Conditions on `site` and `zone` in commands that read the queue's files: see `daemon.control.resolving`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

from mqcd.cli.asking import report_unrouted
from mqcd.cli.options import Place
from mqcd.cli.queue.opening import open_queue
from mqcd.net.clock import SystemClock

if TYPE_CHECKING:
    from mqcd.core.selecting.live import Origins
    from mqcd.core.selecting.selection import Selection
    from mqcd.deliver.routing.router import Router


def on_records(selection: Selection, place: Place) -> Selection:
    """The same selection of records. Domains without a route are reported to standard error."""
    from mqcd.daemon.control.resolving import resolved

    async def keys() -> Collection[str]:
        return lane_keys(place)

    found = asyncio.run(resolved(selection, _router(place), keys))
    report_unrouted(found.unrouted)
    return found.selection


def sites_at(place: Place) -> tuple[Mapping[str, str], Origins]:
    """The sites of the mail in a queue, by lane key and by origin."""
    from mqcd.daemon.control.resolving import sites_of

    router = _router(place)
    return asyncio.run(sites_of(router, lane_keys(place))), router.origins


def _router(place: Place) -> Router:
    from mqcd.daemon.control.resolving import router_of
    from mqcd.net.resolver import DnsResolver

    settings, clock = place.load().settings, SystemClock()
    return router_of(settings, DnsResolver(settings.deliver.dns, clock), clock)


def lane_keys(place: Place) -> Collection[str]:
    """Those of the mail in a queue."""
    # What reads the queue becomes its owner for good; the rest of the command is the asker's own.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as reader:
        return reader.submit(_read, place).result()


def _read(place: Place) -> Collection[str]:
    from mqcd.core.selecting.selection import Selection
    from mqcd.queue.reading.listing import lane_key

    with open_queue(place) as queued:
        return {key for batch in queued.project(Selection(), lane_key) for key in batch}

"""Conditions on `site`: they become conditions on the domains of the queue that have such a site."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import TYPE_CHECKING

import click

from mqcd.cli.options import Place

if TYPE_CHECKING:
    from mqcd.core.selecting.selection import Selection
    from mqcd.daemon.control.view import View
    from mqcd.queue.reading.shards import Snapshots


def by_domain(selection: Selection, place: Place) -> Selection:
    """The same selection without `site`."""
    if selection.where is None:
        return selection
    sites = sites_at(place)
    if unknown := sum(not site for site in sites.values()):
        click.echo(f"{unknown} domains have no route now: their mail is of no site", err=True)
    return replace(selection, where=selection.where.resolved(sites))


def sites_at(place: Place) -> Mapping[str, str]:
    """The sites of the domains in a queue."""
    # What reads the queue becomes its owner for good; the rest of the command is the asker's own.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as reader:
        return reader.submit(_read, place).result()


def _read(place: Place) -> Mapping[str, str]:
    from mqcd.cli.queue.opening import open_queue
    from mqcd.daemon.control.sites import sites_of
    from mqcd.net.clock import SystemClock
    from mqcd.net.resolver import DnsResolver

    settings = place.load().settings
    with open_queue(place) as queued:
        domains = _domains(queued)
    clock = SystemClock()
    resolver = DnsResolver(settings.deliver.dns, clock)
    return asyncio.run(sites_of(settings, resolver, clock, domains))


def _domains(queued: Snapshots | View) -> set[str]:
    from mqcd.core.address import domain_of
    from mqcd.core.selecting.selection import Selection
    from mqcd.queue.format import record

    found: set[str] = set()
    for batch in queued.project(Selection(), lambda text, _begun: record.halves(text)[11]):
        found.update(map(domain_of, batch))
    return found

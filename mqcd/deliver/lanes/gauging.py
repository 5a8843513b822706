"""Figures over all lanes, taken in one walk: waiting recipients, connections, oldest mail. Pure.

The walk looks at each lane and each job once, without making anything for it: ten thousand lanes take some
milliseconds.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from mqcd.core.value import value
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import Lane


@value
class Gauges:
    """Delivery at one moment."""

    lanes: int
    """With recipients in the active set or with connections, or suspended."""
    connections: Mapping[str, int]
    """Open or being opened, by zone; "" is mail that no zone takes."""
    site_connections: Mapping[str, int]
    """The same by destination, for the destinations in `sites`; "" are all others."""
    waiting: Mapping[str, int]
    """Recipients that wait in the active set, by destination, likewise."""
    oldest: Mapping[str, int]
    """By destination, when the oldest message in the active set was accepted, ms. All destinations."""


def gauge(lanes: Iterable[Lane], under_way: Iterable[tuple[Job, int]], sites: Container[str]) -> Gauges:
    """The figures of all lanes, with separate ones for the destinations in `sites`."""
    used = 0
    connections: dict[str, int] = {}
    site_connections: dict[str, int] = {}
    waiting: dict[str, int] = {}
    oldest: dict[str, int] = {}
    for lane in lanes:
        queue = lane.queue
        waits = queue.waiting + queue.aside
        if not (waits or lane.connections or lane.suspended):
            continue
        used += 1
        name = lane.hop.destination.name
        site = name if name in sites else ""
        if lane.connections:
            zone = lane.hop.policy.zone
            connections[zone] = connections.get(zone, 0) + lane.connections
            site_connections[site] = site_connections.get(site, 0) + lane.connections
        if waits:
            waiting[site] = waiting.get(site, 0) + waits
        if row := queue.jobs.row:
            received = row[0].envelope.received
            if queue.waiting > 1:
                received = min([job.envelope.received for job in queue.jobs])
            if received < oldest.setdefault(name, received):
                oldest[name] = received
    for job, _ in under_way:
        name, received = job.hop.destination.name, job.envelope.received
        if received < oldest.setdefault(name, received):
            oldest[name] = received
    return Gauges(
        lanes=used,
        connections=connections,
        site_connections=site_connections,
        waiting=waiting,
        oldest=oldest,
    )

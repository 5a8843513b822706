"""The figures of `breakdown` and of mail out, as the metrics that carry several labels. Pure.

What a page costs is bounded by its series: each function here walks over what has a label, not over what
there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest

from mqcd.core.figures import Distribution
from mqcd.ops.metrics.breakdown import NO_NAME, Breakdown
from mqcd.ops.metrics.leaders import OTHER

Labelled = Mapping[tuple[str, ...], float | Distribution]
"""Values by the values of all labels, which stand in the order of `Spec.labels` in `catalogue`: nothing else
says which is which."""

WORST = 10
"""Destinations whose oldest mail is shown."""


def by_label(breakdown: Breakdown) -> dict[str, Labelled]:
    """What has been counted by label."""
    listeners = {name or NO_NAME: each for name, each in breakdown.listeners.items()}
    zones = {name or NO_NAME: each for name, each in breakdown.zones.items()}
    sites = [(printable(name), each) for name, each in breakdown.sites]
    return {
        "mqcd_listener_messages_total": {
            (name, tls): count for name, each in listeners.items() for tls, count in each.messages.items()
        },
        "mqcd_listener_recipients_total": {(name,): each.recipients for name, each in listeners.items()},
        "mqcd_listener_message_size_bytes": {
            (name,): each.sizes.scaled(1) for name, each in listeners.items()
        },
        "mqcd_listener_refused_total": dict(breakdown.refusals),
        "mqcd_zone_verdicts_total": {
            (name, verdict): count for name, each in zones.items() for verdict, count in each.verdicts.items()
        },
        "mqcd_zone_delivered_total": {
            (name, tls): count for name, each in zones.items() for tls, count in each.by_tls.items()
        },
        "mqcd_zone_time_in_queue_seconds": {
            (name,): each.queued.in_seconds() for name, each in zones.items()
        },
        "mqcd_replies_total": {key: count for key, [count] in breakdown.replies.items()},
        "mqcd_site_verdicts_total": {
            (name, verdict): count for name, each in sites for verdict, count in each.verdicts.items()
        },
        "mqcd_site_attempt_duration_seconds": {(name,): each.durations.in_seconds() for name, each in sites},
        "mqcd_site_connections_total": {(name,): each.connections for name, each in sites},
        "mqcd_site_connections_failed_total": {(name,): each.failed_connections for name, each in sites},
    }


def by_site(
    breakdown: Breakdown,
    connections: Mapping[str, int],
    waiting: Mapping[str, int],
    oldest: Mapping[str, int],
    now: int,
) -> dict[str, Labelled]:
    """Figures of delivery by destination: each that has a place, and "" for all others.

    `oldest`: of any destination, when its oldest mail was accepted, ms, as `now` is.
    """
    names = {OTHER: "", **{name: name for name, _ in breakdown.sites if name != OTHER}}
    waits = {**oldest}
    for name, received in breakdown.elders.oldest(now).items():
        if received < waits.get(name, now):
            waits[name] = received
    return {
        "mqcd_site_open_connections": {
            (printable(name),): connections.get(key, 0) for name, key in names.items()
        },
        "mqcd_site_waiting_recipients": {
            (printable(name),): waiting.get(key, 0) for name, key in names.items()
        },
        "mqcd_site_oldest_recipient_age_seconds": {
            (printable(name),): max(now - received, 0) / 1000 for received, name in _worst(waits)
        },
    }


def _worst(waits: Mapping[str, int]) -> Sequence[tuple[int, str]]:
    """The oldest of them. Times alone first: ten thousand pairs would have to be made to be compared."""
    latest = max(nsmallest(WORST, waits.values()), default=0)
    return sorted((received, name) for name, received in waits.items() if received <= latest)[:WORST]


def printable(name: str) -> str:
    """A name as a label's value: what is no text must not keep the whole page from being written."""
    return name.encode("utf-8", "backslashreplace").decode() or NO_NAME

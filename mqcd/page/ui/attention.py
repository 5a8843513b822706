"""What needs an operator's attention, in words, the worst first. Pure.

Each line of `_LOOKS` is one thing that may be wrong, what is said of it, and where the page shows more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any
from urllib.parse import urlencode

from mqcd.core.events import PUT_OFF
from mqcd.core.samples import Sample, View
from mqcd.core.value import value
from mqcd.page.ui.formats import duration, number, octets, plural, rate, share

_HOUR_MS = 3_600_000
_OLD_MS = 4 * _HOUR_MS
"""Age of mail from which it is worth a line."""
_SOON_MS = 12 * _HOUR_MS
"""A disk that is full within this time is worth a line."""
_TREND_S = 300
"""Over so many seconds a trend is judged."""
_FEW = 20
"""Fewer attempts than this say nothing."""
_MANY = 500
"""A queue that grows by less is no flood."""
_LAG_S = 0.5
_JOURNAL = 0.75
_COMMIT_MS = 200.0
_CLASS, _VERDICT = 0, 2
"""Places of labels of mqcd_replies_total: a page has them in the order of their names."""
_SERVER = "/server", "Server"


class Weight(IntEnum):
    """How bad it is; the greatest first."""

    NOTE = 0
    WARNING = 1
    ALARM = 2


@value(kw_only=False)
class Finding:
    """One thing that needs attention."""

    weight: Weight
    text: str
    link: str = ""
    label: str = ""
    """What the link says."""
    advice: str = ""
    """What helps."""

    @property
    def word(self) -> str:
        return self.weight.name.lower()


@value
class State:
    """What is known of the server."""

    view: View
    samples: Sequence[Sample]
    destinations: Sequence[Mapping[str, Any]] = ()
    parts: Sequence[Mapping[str, Any]] = ()
    """Parts of the server, and whether they are paused."""


def findings(state: State) -> list[Finding]:
    """The worst first; none: all is well."""
    found = [each for look in _LOOKS for each in look(state)]
    return sorted(found, key=lambda each: -each.weight)


def queue_link(where: str) -> str:
    """Where the page lists what a condition selects."""
    return f"/queue?{urlencode({'where': where})}"


def _not_ready(state: State) -> Iterator[Finding]:
    paused = [f"{part.get('part')} is paused" for part in state.parts if part.get("paused")]
    for line in state.view.against.splitlines():
        if any(each in line for each in paused):
            # `_paused` says it with its reason, and how it ends.
            continue
        yield Finding(Weight.ALARM, f"Not ready: {line}", *_SERVER)


def _paused(state: State) -> Iterator[Finding]:
    for part in state.parts:
        if part.get("paused"):
            why = f": {part['reason']}" if part.get("reason") else ""
            text = f"Paused by {part.get('by') or 'an operator'}: {part.get('part')}{why}"
            yield Finding(Weight.WARNING, text, "/server", "Resume")


def _disks(state: State) -> Iterator[Finding]:
    by_free: dict[int, list[str]] = {}
    for root, free in state.view.disks.items():
        by_free.setdefault(free, []).append(root)
    # Roots with the same figure are of one file system.
    for free, roots in by_free.items():
        left = full_in_ms(state.samples, roots[0])
        if left is not None and left < _SOON_MS:
            below = " and ".join(roots)
            text = f"The disk below {below} is full in {duration(left)}: {octets(free)} are free"
            advice = "Find what fills it; mail is refused with 4xx before it is full, and none is lost."
            yield Finding(Weight.ALARM if left < _HOUR_MS else Weight.WARNING, text, advice=advice)


def full_in_ms(samples: Sequence[Sample], root: str) -> float | None:
    """When a disk is full if it goes on filling as it did; None: it does not fill."""
    recent = _recent(samples)
    if len(recent) < 2 or recent[-1].taken - recent[0].taken < _TREND_S / 2:
        return None
    first, last = (each.value("mqcd_disk_free_bytes", root) for each in (recent[0], recent[-1]))
    lost = first - last
    return (recent[-1].taken - recent[0].taken) * 1000 * last / lost if lost > 0 else None


def _recent(samples: Sequence[Sample]) -> Sequence[Sample]:
    return [each for each in samples if each.taken >= samples[-1].taken - _TREND_S] if samples else ()


def _suspended(state: State) -> Iterator[Finding]:
    suspended = [row for row in state.destinations if row.get("suspended")]
    if ruled := [row for row in suspended if row.get("rule")]:
        text = f"By rules, {plural(len(ruled), 'destination is', 'destinations are')} suspended"
        yield Finding(Weight.NOTE, text, "/rules", "Rules")
    resting = [row for row in suspended if not row.get("rule")]
    if not resting:
        return
    worst = max(resting, key=lambda row: (row["waiting"], row["oldest_ms"] or 0))
    reply = f", which last said: {worst['reply']}" if worst.get("reply") else ""
    count = plural(len(resting), "destination takes", "destinations take")
    text = f"{count} no mail; chiefly {worst['destination']}{reply}"
    advice = "Each is tried again by one message at a time. Nothing is lost; after an outage, try it now."
    yield Finding(Weight.WARNING, text, "/destinations", "Destinations", advice)


def _stuck(state: State) -> Iterator[Finding]:
    if count := state.view.stuck_recipients:
        text = f"{plural(count, 'recipient makes', 'recipients make')} no progress"
        yield Finding(Weight.ALARM, text, *_SERVER, "See the log for the reason.")


def _failing(state: State) -> Iterator[Finding]:
    """Most attempts fail; else, whether more comes in than goes out."""
    grown = growth(_recent(state.samples), "mqcd_replies_total")
    ends = sum(grown.values())
    deferred = {labels: count for labels, count in grown.items() if labels[_VERDICT] in PUT_OFF}
    put_off = sum(deferred.values())
    if ends < _FEW or put_off < ends / 2:
        yield from _flood(state)
        return
    by_class: dict[str, float] = {}
    for labels, count in deferred.items():
        by_class[labels[_CLASS]] = by_class.get(labels[_CLASS], 0) + count
    chief = max(by_class, key=lambda name: by_class[name])
    part = share(put_off / ends)
    text = (
        f"{part} of the attempts of the last minutes were deferred, chiefly for reasons of {chief or 'other'}"
    )
    link = queue_link(f"area = deferred and class = {chief or 'other'}")
    advice = "If one provider says so, slow it; if all do, look at network, DNS and block lists."
    yield Finding(Weight.WARNING, text, link, "This mail", advice)


def growth(samples: Sequence[Sample], metric: str) -> dict[tuple[str, ...], float]:
    """What the series of a counter have grown by from the first sample to the last, over restarts of the
    server: they begin again at 0. Those of several shards may shrink without one, and come back: where the
    front process is restarted, or misses a shard. They have then grown by what is more than ever before."""
    grown: dict[tuple[str, ...], float] = {}
    most: dict[tuple[str, ...], float] = {}
    before: Sample | None = None
    for sample in samples:
        if not sample.metrics:
            continue
        series = sample.metrics.get(metric, {})
        # Linux gives a process's start up to a second early.
        if before is not None and (sample.value("process_start_time_seconds") + 1) * 1000 > before.at:
            # All shards are newer than the sample before. Had they alone ended, the sums would go on.
            most = {labels: had for labels, had in most.items() if series.get(labels, 0) >= had}
        for labels, figure in series.items():
            if step := max(figure - most.get(labels, 0), 0):
                most[labels] = figure
                if before is not None:
                    grown[labels] = grown.get(labels, 0) + step
        before = sample
    return grown


def _flood(state: State) -> Iterator[Finding]:
    recent = _recent(state.samples)
    if len(recent) < 2:
        return
    before, now = (each.total("mqcd_queue_recipients") for each in (recent[0], recent[-1]))
    if now - before > _MANY and now > before * 1.25:
        rates = state.view.rates
        came, went = rate(rates["accepted"]), rate(rates["delivered"])
        text = f"{number(now - before)} recipients more than 5 minutes ago: {came} come in, {went} go out"
        advice = "Find the sender that most of it is from; hold its mail by a rule while you ask."
        yield Finding(Weight.WARNING, text, queue_link("age < 10m"), "The latest mail", advice)


def _old(state: State) -> Iterator[Finding]:
    ages = {area: seconds * 1000 for area, (_, _, seconds) in state.view.areas.items() if area != "held"}
    oldest = max(ages.values(), default=0)
    if oldest >= _OLD_MS:
        worst = max(state.destinations, key=lambda row: row["oldest_ms"] or 0, default=None)
        to = f", for {worst['destination']}" if worst is not None and worst["oldest_ms"] else ""
        link = queue_link(f"age > {_OLD_MS // _HOUR_MS}h and area != held")
        yield Finding(Weight.NOTE, f"The oldest mail waits for {duration(oldest)}{to}", link, "Old mail")


def _refused(state: State) -> Iterator[Finding]:
    grown = growth(_recent(state.samples), "mqcd_refused_total")
    for (reason, *_), count in grown.items():
        if reason == "store":
            times = plural(count, "message was", "messages were")
            text = f"{times} refused with 4xx: the queue could not store mail"
            yield Finding(Weight.ALARM, text, *_SERVER)


def _engine(state: State) -> Iterator[Finding]:
    view = state.view
    if view.imbalance:
        text = f"The ledger does not balance by {plural(abs(view.imbalance), 'recipient')}"
        yield Finding(Weight.ALARM, text, advice="Run mqcd fsck, and keep its output.")
    if view.unknown:
        count = plural(view.unknown, "attempt")
        yield Finding(Weight.NOTE, f"A crash hid the outcome of {count}: possible duplicates")
    if view.journal > _JOURNAL:
        yield Finding(Weight.WARNING, f"The journal is {share(view.journal)} full: the disk is slow")
    if view.commit_ms is not None and view.commit_ms > _COMMIT_MS:
        yield Finding(Weight.WARNING, f"A commit takes {number(view.commit_ms)} ms: the disk is slow")
    if view.lag > _LAG_S:
        late = number(view.lag * 1000)
        yield Finding(Weight.WARNING, f"The server answers {late} ms late: its processor is busy")


_LOOKS: Sequence[Callable[[State], Iterator[Finding]]] = (
    _not_ready,
    _refused,
    _disks,
    _stuck,
    _engine,
    _paused,
    _suspended,
    _failing,
    _old,
)

"""A proposal: the advice that the tables give at one moment. `Rules` bound what comes to the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from mqcd.config.advice import Advice, Shaping, Suppression, comparable, shaping_id, suppression_id
from mqcd.config.kinds.fields import Duration
from mqcd.core.address import check_address
from mqcd.core.errors import DecodeError
from mqcd.core.events import format_time
from mqcd.core.progress import Progress
from mqcd.core.value import value
from mqcd.pipeline import frames
from mqcd.pipeline.advice import curve, pressure, suppressing, unadvised
from mqcd.pipeline.advice.decisions import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    FirstRetry,
    Histogram,
    Limit,
    Rules,
    Said,
    Step,
    advised_rate,
    best_limit,
    delays_from,
    first_delay,
)
from mqcd.pipeline.advice.unadvised import Unadvised
from mqcd.pipeline.store.store import Store

_LIFE = 30 * DAY
"""Longer than mail waits in any queue."""
_ROWS = 5_000
"""Rows that come to the driver at a time."""


@value
class Proposal:
    """What is advised, and what there was no room for."""

    advice: Advice
    left_out: int
    """Dead recipients beyond `Rules.most`."""
    unadvised: tuple[Unadvised, ...] = ()
    """What was looked at besides."""


@value
class Basis:
    """What advice is made on, besides the tables."""

    now: int
    """ms."""
    delays: tuple[int, ...]
    """Retry delays in force, ms."""
    active: Advice
    """What is in effect."""
    rules: Rules


def make(spark: SparkSession, store: Store, basis: Basis, progress: Progress) -> Proposal:
    """All advice. Raises NoTables."""
    store.require()
    progress("recipients", 0, 3)
    dead, left_out, alone = suppressions(spark, store, basis)
    progress("limits", 1, 3)
    first = basis.now - basis.rules.window
    events = frames.read(spark, store, "events", _days(basis, basis.rules.window)).where(
        F.col("at") <= F.timestamp_millis(F.lit(basis.now))
    )
    found = list(_limits(events, basis, first, alone))
    progress("retry delays", 2, 3)
    found += _delays(events, basis, first, alone)
    shapings = together(found, basis)
    advice = Advice(suppressions=dead, shapings=shapings)
    return Proposal(advice=advice, left_out=left_out, unadvised=tuple(alone))


def _days(basis: Basis, back: int) -> list[str]:
    """The days from so many ms ago until now."""
    return frames.days_of(range((basis.now - back) // HOUR, basis.now // HOUR + 1))


# ---------------------------------------------------------------- recipients


def suppressions(
    spark: SparkSession, store: Store, basis: Basis
) -> tuple[dict[str, Suppression], int, list[Unadvised]]:
    """Those of the worst, by recipient, how many dead ones there are beyond `Rules.most`, and what is not
    advised."""
    since = {piece.id: piece.since for piece in basis.active.suppressions.values()}
    # By the day of acceptance: what ended within the horizon may have come a while before it.
    recipients = frames.read(spark, store, "recipients", _days(basis, basis.rules.horizon + _LIFE))
    sites = frames.read(spark, store, "sites", _days(basis, basis.rules.horizon))
    refused = suppressing.refused(recipients, sites, basis.rules, basis.now).persist()
    try:
        short = {row["short"]: row["count"] for row in refused.groupBy("short").count().collect()}
        count = short.pop(None, 0)
        worst = (
            refused.where(F.col("short").isNull())
            .orderBy(F.desc("messages"), F.desc("last"), "name")
            .limit(basis.rules.most)
        )
        pieces: dict[str, Suppression] = {}
        for row in _in_parts(worst, min(count, basis.rules.most)):
            first = min(since.get(suppression_id(row["name"]), basis.now), basis.now)
            piece = piece_of(row.asDict(recursive=True), basis.rules, first, basis.now)
            if piece is not None:
                pieces[comparable(piece.recipient)] = piece
    finally:
        refused.unpersist()
    return pieces, max(0, count - basis.rules.most), unadvised.recipients(short, basis.rules)


def _in_parts(rows: DataFrame, count: int) -> Iterator[Any]:
    """All rows, worst first, some thousands at a time."""
    parts = -(-count // _ROWS) or 1
    order = F.desc("messages"), F.desc("last"), F.col("name")
    return iter(rows.repartitionByRange(parts, *order).sortWithinPartitions(*order).toLocalIterator())


def piece_of(row: dict[str, Any], rules: Rules, since: int, now: int) -> Suppression | None:
    """The suppression of a row of `suppressing.dead`; None: an advice file has no place for its name."""
    name, said = row["name"], row["said"]
    if not _fits(name):
        return None
    days = format_time(row["first"])[:10], format_time(row["last"])[:10]
    return Suppression(
        id=suppression_id(name),
        recipient=name,
        status=said["status"] or "",
        reply=_reply(said),
        site=said["site"] or "",
        saves=_in_a_month(row["messages"], now - row["first"]),
        reason="refused as no mailbox, and no mail taken since",
        evidence=f"{row['messages']} messages from {days[0]} to {days[1]}, last event {said['event']}",
        since=since,
        until=row["last"] + rules.suppressed,
    )


def _in_a_month(attempts: int, span: int) -> int:
    """How many are to be expected where there were so many in `span`, ms, and no more than there were."""
    return round(attempts * MONTH / max(span, MONTH))


def _fits(name: str) -> bool:
    try:
        return bool(name) and name.isprintable() and ("@" not in name or bool(check_address(name)))
    except DecodeError:
        return False


def _reply(said: dict[str, Any]) -> str:
    return " ".join(str(said[name]) for name in ("code", "status", "reply") if said[name])


# ---------------------------------------------------------------- sites


@value
class Found:
    """What one kind of evidence says of a site."""

    site: str
    limit: Limit | None = None
    delays: tuple[int, ...] = ()
    reason: str
    evidence: str
    saves: int = 0
    """Attempts in vain in 30 days."""


def _limits(events: DataFrame, basis: Basis, first: int, alone: list[Unadvised]) -> Iterator[Found]:
    tried = pressure.attempts(events, first)
    asked = {
        row["site"]: row.asDict(recursive=True) for row in pressure.pressed(tried, basis.rules).collect()
    }
    rare = [site for site, figures in asked.items() if figures["replies"] < basis.rules.throttled]
    alone += [unadvised.asked_rarely(site, asked.pop(site)["replies"], basis.rules) for site in rare]
    if not asked:
        return
    seen: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    for row in pressure.histograms(tried.where(F.col("site").isin(*asked))).toLocalIterator():
        seen.setdefault((row["site"], row["measure"]), {})[row["value"]] = row["calm"], row["off"]
    for site, figures in asked.items():
        of_site: tuple[Histogram, Histogram, Histogram] = (
            seen.get((site, "connections"), {}),
            seen.get((site, "minutes"), {}),
            seen.get((site, "hours"), {}),
        )
        limit = best_limit(*of_site, said=_said(figures))
        if limit is not None:
            reason = f"asks for less above {_in_words(limit)}: {_reply(figures['said'])}"
            sure = f"explains {1 - limit.doubt:.0%} of what it took and put off"
            last = format_time(figures["last"])
            evidence = (
                f"{figures['replies']} such replies since {format_time(first)[:10]}, last {last}; {sure}"
            )
            saves = round(figures["replies"] * MONTH / basis.rules.window)
            yield Found(site=site, limit=limit, reason=reason, evidence=evidence, saves=saves)
        else:
            alone.append(unadvised.unexplained(site, figures["replies"]))


def _said(figures: dict[str, Any]) -> Said:
    half = figures["replies"] / 2
    if figures["of_connections"] > half:
        return Said.CONNECTIONS
    return Said.RATE if figures["of_rate"] > half else Said.NEITHER


def _in_words(limit: Limit) -> str:
    if not limit.per:
        return f"{limit.value} connections at once"
    return f"{limit.value} recipients {'a minute' if limit.per == MINUTE else 'an hour'}"


def _delays(events: DataFrame, basis: Basis, first: int, alone: list[Unadvised]) -> Iterator[Found]:
    rules = basis.rules
    steps: dict[str, list[Step]] = {}
    few: dict[str, Unadvised] = {}
    for row in curve.curves(events, rules, first).orderBy("site", "step").collect():
        site = row["site"]
        if row["all"] < rules.retries or row["days"] < rules.days:
            few[site] = unadvised.too_few_retries(site, row["all"], row["days"], rules)
            continue
        step = Step(begin=row["least"], end=row["vain"], retries=row["retries"], taken=row["taken"])
        steps.setdefault(site, []).append(step)
    alone += few.values()
    for site, each in steps.items():
        found = first_delay(each)
        if found is not None:
            yield _retried(site, found, each, basis)
        elif not sum(step.taken for step in each):
            longest = show(max(step.end for step in each))
            alone.append(unadvised.never_taken(site, sum(step.retries for step in each), longest))


def _retried(site: str, found: FirstRetry, steps: Sequence[Step], basis: Basis) -> Found:
    sooner = found.sooner
    taken = sum(step.taken for step in steps) - sooner.taken
    retries = sum(step.retries for step in steps) - sooner.retries
    seen = "no success" if not sooner.taken else f"{sooner.taken} of {sooner.retries} succeeded"
    reason = f"{seen} at {show(found.vain)}, success at {show(found.works)}"
    if found.probe:
        reason += f", nothing tried between: probe at {show(found.probe)}"
    evidence = f"{sooner.taken} of {sooner.retries} retries before that succeeded, {taken} of {retries} later"
    # A recipient that waits for the delay that works is tried once more, by the probe.
    vain = sooner.retries - sooner.taken - (taken if found.probe else 0)
    return Found(
        site=site,
        delays=delays_from(found.works, basis.delays, probe=found.probe),
        reason=reason,
        evidence=evidence,
        saves=max(0, round(vain * MONTH / basis.rules.window)),
    )


def show(ms: int) -> str:
    """A delay as the configuration has it, in whole minutes."""
    return Duration().show(max(ms // MINUTE, 1) * MINUTE)


def together(found: Sequence[Found], basis: Basis) -> tuple[Shaping, ...]:
    """One piece for each match. What is in effect and neither seen again nor ended stays: it may be the very
    reason why nothing is seen."""
    since = {piece.id: piece.since for piece in basis.active.shapings}
    by_match: dict[str, list[Found]] = {}
    for each in found:
        # A site is named by its best host; an address literal has no element that would match it.
        match = each.site.partition("+")[0]
        if match and match.isprintable() and not match.startswith("["):
            by_match.setdefault(match, []).append(each)
    made = [_shaping(match, all_of_it, basis, since) for match, all_of_it in sorted(by_match.items())]
    known = {each.id for each in made}
    stay = [each for each in basis.active.shapings if each.id not in known and each.until > basis.now]
    return (*made, *stay)


def _shaping(match: str, found: Sequence[Found], basis: Basis, since: dict[str, int]) -> Shaping:
    limits = [each.limit for each in found if each.limit is not None]
    connections = [each.value for each in limits if not each.per]
    rates = [advised_rate(each) for each in limits if each.per]
    piece = shaping_id(match)
    return Shaping(
        id=piece,
        match=match,
        rate=min(rates, key=lambda rate: rate.count / rate.per, default=None),
        maxserverconnections=min(connections, default=None),
        retry_delays=max((each.delays for each in found), default=()),
        reason="; ".join(dict.fromkeys(each.reason for each in found)),
        evidence="; ".join(dict.fromkeys(each.evidence for each in found)),
        saves=sum(each.saves for each in found),
        since=min(since.get(piece, basis.now), basis.now),
        until=basis.now + basis.rules.shaped,
    )

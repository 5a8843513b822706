"""The report in some lines, for a terminal and for programs. Pure."""

from __future__ import annotations

from mqcd.core.display import printable
from mqcd.core.events import format_time
from mqcd.pipeline.report.attention import cause
from mqcd.pipeline.report.figures import Figures
from mqcd.pipeline.report.verdict import verdict
from mqcd.pipeline.report.words import duration, moment, number, plural, share


def summary(figures: Figures) -> list[str]:
    """The report in a few lines, for the terminal."""
    found = verdict(figures)
    lines = [f"{found.title}. {found.said}".strip()]
    coverage, total = figures.coverage, figures.total
    if coverage.since is None:
        return [*lines, "The tables hold no event yet."]
    half, _, most = total.latency or (None, None, None)
    lines += [
        f"{moment(coverage.since)} to {moment(coverage.until)} UTC, {plural(coverage.events, 'event')}: "
        f"{number(figures.accepted)} accepted, {number(total.delivered)} delivered, "
        f"{plural(total.deferred, 'deferral')}, {number(total.bounced)} bounced, "
        f"{number(total.expired)} expired",
        f"first attempts delivered {share(total.first_delivered, total.first_attempts)}, "
        f"median time {duration(half)}, 99 % {duration(most)}, "
        f"TLS {share(total.tls, total.attempts)}",
    ]
    if figures.troubled.rows:
        site = figures.troubled.rows[0]
        kept = f"{number(site.lost + site.waiting)} of {number(site.recipients)} not delivered"
        said = f": {site.last.text}" if site.last.text else ""
        lines.append(printable(f"needs attention: {site.site or 'not known'}, {kept}, {cause(site)}{said}"))
    return [line.replace("\u202f", " ") for line in lines]


def fields(figures: Figures) -> dict[str, object]:
    """The same as one object."""
    coverage, total, account = figures.coverage, figures.total, figures.account
    return {
        "since": None if coverage.since is None else format_time(coverage.since),
        "until": None if coverage.until is None else format_time(coverage.until),
        "events": coverage.events,
        "accepted": figures.accepted,
        "delivered": total.delivered,
        "deferred": total.deferred,
        "bounced": total.bounced,
        "expired": total.expired,
        "stuck": figures.stuck.total,
        "damaged": sum(count for _, count in coverage.damage),
        "imbalance": account.imbalance if account else None,
    }

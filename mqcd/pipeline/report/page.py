"""The report as one HTML file: no script, no request, nothing beside it. Pure.

Its first screen says whether all is well and what needs attention; then charts; then tables; at the end what
it is made of and what it lacks. A policy in its head forbids the browser to load or run anything, should a
reply ever get through the escaping.
"""

from __future__ import annotations

from markupsafe import Markup

from mqcd.pipeline.report import attention, drawn, listed
from mqcd.pipeline.report.figures import Coverage, Figures
from mqcd.pipeline.report.templates import render
from mqcd.pipeline.report.verdict import verdict
from mqcd.pipeline.report.words import duration, moment, number, plural, share

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_SECTIONS = (
    ("charts", "Charts"),
    ("sites", "Sites and replies"),
    ("people", "Senders and recipients"),
)
_LAST = ("made", "What this is made of")


def page(figures: Figures) -> str:
    """The whole file."""
    coverage = figures.coverage
    known = coverage.since is not None
    return render(
        "page.html",
        policy=_POLICY,
        period=_period(coverage),
        nodes=_nodes(coverage),
        sections=((attention.ANCHOR, attention.TITLE), *_SECTIONS, _LAST),
        verdict=verdict(figures),
        sum=_sum(figures),
        attention=attention.attention(figures) if known else "",
        tiles=_tiles(figures) if known else (),
        blocks=_blocks(figures) if known else (),
        coverage=coverage,
        made=moment(coverage.made),
        more_nodes=_more_nodes(coverage),
        tables=_made_of(coverage),
        late_files=plural(coverage.waiting_files, "closed event file"),
        damaged=plural(sum(lines for _, lines in coverage.damage), "line"),
    )


def _sum(figures: Figures) -> list[tuple[str, str]]:
    """The equation of the ledger: counts, and the words behind each."""
    account = figures.account
    if account is None or not account.accepted:
        return []
    names = ("delivered", "bounced", "expired", "removed", "queued", "quarantined")
    ends = [(number(count), name) for name in names if (count := getattr(account, name))]
    sign = "≠" if account.imbalance else "="
    more = [(count, f"{name} +") for count, name in ends[:-1]]
    return [(number(account.accepted), f"accepted {sign}"), *more, *(ends[-1:] or [("0", "")])]


def _tiles(figures: Figures) -> list[tuple[str, str, str]]:
    """Name, value and note of each tile."""
    total, outcomes = figures.total, figures.outcomes
    delivered = share(outcomes.get("delivered", 0), sum(outcomes.values()))
    waits = figures.account.queued if figures.account else outcomes.get("queued", 0)
    half, most = (total.latency[0], total.latency[2]) if total.latency else (None, None)
    return [
        ("accepted", number(figures.accepted), "recipients"),
        ("delivered", number(total.delivered), f"{delivered} of those accepted"),
        (
            "first attempt",
            share(total.first_delivered, total.first_attempts),
            f"of {number(total.first_attempts)}",
        ),
        ("deferrals", number(total.deferred), f"{share(total.deferred, total.attempts)} of attempts"),
        ("bounced", number(total.bounced), f"and {number(total.expired)} expired"),
        ("waiting", number(waits), "in the queue when asked" if figures.account else "by events"),
        ("median time", duration(half), f"99 %: {duration(most)}"),
        ("with TLS", share(total.tls, total.attempts), f"of {plural(total.attempts, 'attempt')}"),
    ]


def _blocks(figures: Figures) -> list[tuple[str, str, list[Markup]]]:
    """Anchor, title and cards of each section."""
    charts = (drawn.flow, drawn.latency, drawn.queue_age, drawn.first_attempts)
    cards = (
        [*(make(figures) for make in charts), listed.classes(figures)],
        [listed.worst(figures), listed.sites(figures), listed.replies(figures)],
        [listed.stuck(figures), listed.duplicates(figures), listed.senders(figures)],
    )
    return [(*section, made) for section, made in zip(_SECTIONS, cards, strict=True)]


def _made_of(coverage: Coverage) -> str:
    batches = plural(coverage.batch, "batch", "batches")
    files = plural(coverage.files, "event file")
    return f"{batches} so far, {files}, {plural(coverage.events, 'event')} in the period"


def _period(coverage: Coverage) -> str:
    if coverage.since is None or coverage.until is None:
        return "no events"
    since, until = moment(coverage.since), moment(coverage.until)
    return f"{since} to {until[11:] if since[:10] == until[:10] else until}"


def _nodes(coverage: Coverage) -> str:
    if coverage.node_count == 1 and coverage.nodes:
        return f"node {coverage.nodes[0]}"
    return plural(coverage.node_count, "node")


def _more_nodes(coverage: Coverage) -> str:
    left = coverage.node_count - len(coverage.nodes)
    return f" and {plural(left, 'other')}" if left > 0 else ""

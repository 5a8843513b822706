"""The report as one HTML file: no script, no request, nothing beside it. Pure.

Its first screen says whether all is well and what needs attention; then charts; then tables; at the end what
it is made of and what it lacks. A policy in its head forbids the browser to load or run anything, should a
reply ever get through the escaping.
"""

from __future__ import annotations

from pathlib import Path

from mqcd.pipeline.report import attention, drawn, listed
from mqcd.pipeline.report.figures import Coverage, Figures
from mqcd.pipeline.report.markup import Markup, joined, stranger, tag
from mqcd.pipeline.report.verdict import verdict
from mqcd.pipeline.report.words import duration, moment, number, plural, share

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_STYLE = Path(__file__).with_name("style.css")
_SECTIONS = (
    ("charts", "Charts"),
    ("sites", "Sites and replies"),
    ("people", "Senders and recipients"),
    ("made", "What this is made of"),
)


def page(figures: Figures) -> str:
    """The whole file. Raises OSError when the style sheet cannot be read."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"Mail report, {_period(figures.coverage)}"),
        tag("style", Markup(_STYLE.read_text(encoding="utf-8"))),
    )
    known = figures.coverage.since is not None
    body = tag(
        "body",
        _header(figures, known=known),
        tag("main", *(_body(figures) if known else [_nothing()])),
        _footer(figures.coverage),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def _header(figures: Figures, *, known: bool) -> Markup:
    coverage = figures.coverage
    sections = ((attention.ANCHOR, attention.TITLE), *_SECTIONS)
    links = [tag("a", name, href=f"#{anchor}") for anchor, name in sections]
    parts = [
        tag("h1", "Mail report"),
        tag("p", f"{_period(coverage)} UTC{_nodes(coverage)}" if known else "", class_="soft"),
    ]
    if known:
        parts += [tag("nav", *links, aria_label="Sections")]
    known_parts = [attention.attention(figures), _tiles(figures)] if known else []
    return tag("header", *parts, _verdict(figures), *known_parts)


def _verdict(figures: Figures) -> Markup:
    found = verdict(figures)
    said = [tag("p", found.said)] if found.said else []
    return tag(
        "section",
        tag("strong", found.title),
        _sum(figures),
        *said,
        class_=f"verdict {found.kind}",
        aria_label="The ledger",
    )


def _sum(figures: Figures) -> Markup:
    """The equation of the ledger."""
    account = figures.account
    if account is None or not account.accepted:
        return joined()
    names = ("delivered", "bounced", "expired", "removed", "queued", "quarantined")
    terms = [(name, getattr(account, name)) for name in names]
    ends = [joined(tag("b", number(count)), f" {name}") for name, count in terms if count]
    sign = "≠" if account.imbalance else "="
    pieces = [joined(tag("b", number(account.accepted)), f" accepted {sign}")]
    pieces += [joined(end, "" if index == len(ends) - 1 else " +") for index, end in enumerate(ends)]
    return tag("p", joined(*(tag("span", piece) for piece in pieces or [joined("0")])), class_="sum")


def _tiles(figures: Figures) -> Markup:
    made = [
        tag("div", tag("dt", name), tag("dd", value), tag("dd", note))
        for name, value, note in _sizes(figures)
    ]
    return tag("dl", *made, class_="tiles")


def _sizes(figures: Figures) -> list[tuple[str, str, str]]:
    """What each tile says: name, value, and a note."""
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


def _body(figures: Figures) -> list[Markup]:
    charts = (drawn.flow, drawn.latency, drawn.queue_age, drawn.first_attempts)
    blocks = (
        [*(make(figures) for make in charts), listed.classes(figures)],
        [listed.worst(figures), listed.sites(figures), listed.replies(figures)],
        [listed.stuck(figures), listed.duplicates(figures), listed.senders(figures)],
    )
    return [
        tag("section", tag("h2", name), tag("div", *cards, class_="cards"), id=anchor)
        for (anchor, name), cards in zip(_SECTIONS, blocks, strict=False)
    ]


def _nothing() -> Markup:
    return tag(
        "section",
        tag("h3", "Nothing to report yet"),
        tag(
            "p",
            "The tables hold no event. The server writes event files as it seals pieces of its journal; "
            "mqcd pipeline run takes them into the tables.",
        ),
        class_="card",
        style="margin-top:20px",
    )


def _footer(coverage: Coverage) -> Markup:
    facts: list[tuple[str, str]] = [
        ("Made", f"{moment(coverage.made)} UTC, by mqcd pipeline report"),
        ("Period", f"{_period(coverage)} UTC" if coverage.since is not None else "none"),
        ("Nodes", joined(*_commas(coverage.nodes), _more_nodes(coverage)) if coverage.nodes else "none"),
        ("Tables", _made_of(coverage)),
        ("Missing", _missing(coverage)),
    ]  # fmt: skip
    terms = [piece for name, value in facts for piece in (tag("dt", name), tag("dd", value))]
    return tag("footer", tag("h2", "What this is made of"), tag("dl", *terms, class_="facts"), id="made")


def _made_of(coverage: Coverage) -> str:
    batches = plural(coverage.batch, "batch", "batches")
    files = plural(coverage.files, "event file")
    return f"{batches} so far, {files}, {plural(coverage.events, 'event')} in the period"


def _missing(coverage: Coverage) -> Markup:
    """What the figures lack, in sentences."""
    said: list[str] = [
        "Charts and tables end with the newest event file: what is younger stands in the server's journal. "
    ]
    if coverage.waiting_files:
        said.append(f"{plural(coverage.waiting_files, 'closed event file')} came too late for this report. ")
    said += [f"No event file {gap} has been seen, but earlier and later ones. " for gap in coverage.gaps]
    if coverage.damage:
        count = sum(number_of for _, number_of in coverage.damage)
        said.append(f"{plural(count, 'line')} of event files could not be used (table damaged): ")
        for index, (why, lines) in enumerate(coverage.damage):
            said += ["; " if index else "", stranger(why, 80), f" ({number(lines)})"]
        said.append(".")
    if len(said) == 1:
        said.append("Nothing else is: no line was damaged, and no file is absent between others.")
    return joined(*said)


def _period(coverage: Coverage) -> str:
    if coverage.since is None or coverage.until is None:
        return "no events"
    since, until = moment(coverage.since), moment(coverage.until)
    return f"{since} to {until[11:] if since[:10] == until[:10] else until}"


def _nodes(coverage: Coverage) -> str:
    if coverage.node_count == 1 and coverage.nodes:
        return f", node {coverage.nodes[0]}"
    return f", {plural(coverage.node_count, 'node')}"


def _more_nodes(coverage: Coverage) -> str:
    left = coverage.node_count - len(coverage.nodes)
    return f" and {plural(left, 'other')}" if left > 0 else ""


def _commas(names: tuple[str, ...]) -> list[str]:
    return [part for name in names for part in (", ", stranger(name, 60))][1:]

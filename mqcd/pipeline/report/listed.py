"""The tables of the page: sites, replies, senders, and recipients for an operator to look at. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from markupsafe import Markup

from mqcd.pipeline.report.cells import (
    Column,
    Columns,
    amount,
    card,
    code,
    rate,
    reply,
    rest_of,
    stacked,
    stranger,
    table,
)
from mqcd.pipeline.report.figures import OF_SENDERS, SUMS, Figures, Listing, Sender, Shape, Site, Tried
from mqcd.pipeline.report.words import NONE, duration, moment, number, octets, plural, share
from mqcd.pipeline.tables.named import Named

_ADDRESS = 100

Summed = TypeVar("Summed", Tried, Sender)


def worst(figures: Figures) -> Markup:
    """Sites that took least, with what they said last."""
    title = "Sites that refuse most"
    if not figures.worst:
        return card(title, absent="Every attempt was a delivery.", wide=True)
    most = max(_trouble(site) for site in figures.worst)
    columns: Columns[Site] = (
        Column("site", "", _site_name),
        Column("not delivered", "m", lambda site: amount(_trouble(site), most, "c")),
        Column("of its attempts", "n", lambda site: share(_trouble(site), site.tried.attempts)),
        Column("newest refusal", "long", _newest),
        Column("when (UTC)", "n", lambda site: moment(site.last.at if site.last else None, seconds=False)),
    )
    made = table("By deferrals, bounces and expiries in the period.", columns, figures.worst)
    return card(title, made, wide=True)


def classes(figures: Figures) -> Markup:
    """Why mail was not taken."""
    title = "Why mail was not taken"
    if not figures.classes:
        return card(title, absent="Every attempt was a delivery.")
    most = max(each.count for each in figures.classes)
    columns: Columns[Shape] = (
        Column("class", "", lambda each: stranger(each.kind, 40)),
        Column("verdicts", "m", lambda each: amount(each.count, most, "c")),
        *_FAILED,
    )
    return card(title, table("Verdicts by class.", columns, figures.classes, narrow=True))


def sites(figures: Figures) -> Markup:
    """Those with the most attempts."""
    listing = figures.sites
    if not listing.rows:
        return card("Sites", absent="No attempt was made.", wide=True)
    # Of times of all others nothing is known, for percentiles cannot be subtracted.
    rest = Tried(**_less(figures.total, [site.tried for site in listing.rows], SUMS))
    cells = rest_of(_SITES, listing.total - len(listing.rows), Site(name="", tried=rest))
    caption = (
        f"{plural(listing.total, 'site')}, by attempts. First attempt: the share that was delivered at once. "
        "Times are those in the queue, of what was delivered."
    )
    return card("Sites", table(caption, _SITES, listing.rows, cells), wide=True)


def replies(figures: Figures) -> Markup:
    """What servers said, clustered."""
    listing = figures.replies
    if not listing.rows:
        return card("Replies", absent="No refusal was received.", wide=True)
    left = listing.total - len(listing.rows)
    count = number(figures.refusals - sum(each.count for each in listing.rows))
    rest = (plural(left, "other"), "", count, NONE, NONE, NONE, "") if left else ()
    made = table("Refusals that say the same are one row.", _REPLIES, listing.rows, rest)
    return card("Replies", made, wide=True)


def senders(figures: Figures) -> Markup:
    """The senders with most recipients."""
    listing = figures.senders
    if not listing.rows:
        return card("Senders", absent="No message was sent.", wide=True)
    rest = Sender(name="", **_less(figures.all_senders, listing.rows, OF_SENDERS))
    cells = rest_of(_SENDERS, listing.total - len(listing.rows), rest)
    caption = (
        f"{plural(listing.total, 'sender')}, by recipients. The share of bounces is of their recipients."
    )
    return card("Senders", table(caption, _SENDERS, listing.rows, cells), wide=True)


def stuck(figures: Figures) -> Markup:
    """Recipients that are not tried any more."""
    late = duration(figures.overdue_ms)
    by_queue, by_events = "ago, and still in the queue", "before the newest event, and not finished since"
    said = f"Due more than {late} {by_queue if figures.account else by_events}."
    absent = (
        f"No recipient was due for more than {late}."
        if figures.overdue_ms
        else "The watchdog is off: none were looked for."
    )
    return _people("Stuck recipients", figures.stuck, said, absent)


def duplicates(figures: Figures) -> Markup:
    """Recipients that may have a message twice."""
    said = (
        "A crash left an attempt's outcome unknown, or a connection broke after the final dot, "
        "and a later attempt was a delivery."
    )
    return _people("Maybe delivered twice", figures.duplicates, said, "None.")


def _people(title: str, listing: Listing[Named], said: str, absent: str) -> Markup:
    if not listing.total:
        return card(title, absent=absent, wide=True)
    left = listing.total - len(listing.rows)
    more = f" {plural(left, 'other')} not shown here." if left else ""
    caption = f"{plural(listing.total, 'recipient')}. {said}{more}"
    return card(title, table(caption, _PEOPLE, listing.rows), wide=True)


# ---------------------------------------------------------------- columns


def _site_name(site: Site) -> Markup:
    return stranger(site.name or "not known", _ADDRESS)


def _newest(site: Site) -> str:
    return reply(site.last.code, site.last.status, site.last.text) if site.last else NONE


def _trouble(site: Site) -> int:
    return site.tried.deferred + site.tried.bounced + site.tried.expired


def _took(percentile: int) -> Callable[[Site], str]:
    """Which of the latencies."""
    return lambda site: duration(site.tried.latency[percentile]) if site.tried.latency else NONE


_SITES: Columns[Site] = (
    Column("site", "", _site_name),
    Column("attempts", "n", lambda site: number(site.tried.attempts)),
    Column("delivered", "n", lambda site: number(site.tried.delivered)),
    Column(
        "first attempt", "m", lambda site: rate(site.tried.first_delivered, site.tried.first_attempts, "b")
    ),
    Column("deferred", "m", lambda site: rate(site.tried.deferred, site.tried.attempts, "c")),
    Column("bounced", "n", lambda site: number(site.tried.bounced)),
    Column("expired", "n", lambda site: number(site.tried.expired)),
    Column("half took", "n", _took(0)),
    Column("90 %", "n", _took(1)),
    Column("99 %", "n", _took(2)),
    Column("TLS", "n", lambda site: share(site.tried.tls, site.tried.attempts)),
)
_FAILED: Columns[Shape] = (
    Column("deferred", "n", lambda each: number(each.deferred)),
    Column("bounced", "n", lambda each: number(each.bounced)),
    Column("expired", "n", lambda each: number(each.expired)),
)
_REPLIES: Columns[Shape] = (
    Column("reply, without what differs", "long", lambda each: reply(each.code, each.status, each.shape)),
    Column("class", "", lambda each: stranger(each.kind, 40)),
    Column("verdicts", "n", lambda each: number(each.count)),
    *_FAILED,
    Column("an example", "long", lambda each: reply(None, None, each.example)),
)
_SENDERS: Columns[Sender] = (
    Column("sender", "", lambda each: stranger(each.name, _ADDRESS) if each.name else "<> (reports)"),
    Column("messages", "n", lambda each: number(each.messages)),
    Column("octets", "n", lambda each: octets(each.octets)),
    Column("recipients", "n", lambda each: number(each.accepted)),
    Column("delivered", "n", lambda each: number(each.delivered)),
    Column("deferrals", "n", lambda each: number(each.deferred)),
    Column("bounced", "m", lambda each: rate(each.bounced, each.accepted, "d")),
    Column("expired", "n", lambda each: number(each.expired)),
)
_PEOPLE: Columns[Named] = (
    Column(
        "recipient, SPID/QID",
        "",
        lambda each: stacked(stranger(each.recipient or NONE, _ADDRESS), code(each.id)),
    ),
    Column("site", "name", lambda each: stranger(each.site or NONE, _ADDRESS)),
    Column("accepted (UTC)", "n", lambda each: moment(each.accepted, seconds=False)),
    Column("due (UTC)", "n", lambda each: moment(each.due, seconds=False)),
    Column("attempts", "n", lambda each: number(each.attempts)),
    Column("last reply", "long", lambda each: reply(None, None, each.reply) if each.reply else NONE),
)


def _less(total: Summed, shown: Sequence[Summed], names: Sequence[str]) -> dict[str, Any]:
    """What is left of some sums."""
    return {name: getattr(total, name) - sum(getattr(each, name) for each in shown) for name in names}

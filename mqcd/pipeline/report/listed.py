"""The tables of the page: sites, replies, senders, and recipients for an operator to look at. Pure."""

from __future__ import annotations

from markupsafe import Markup

from mqcd.pipeline.report.cells import (
    Column,
    Line,
    amount,
    card,
    code,
    rate,
    reply,
    stacked,
    stranger,
    table,
)
from mqcd.pipeline.report.figures import SUMS, Figures, Listing, Named, Reply, Sender, Shape, Site, Tried
from mqcd.pipeline.report.words import NONE, duration, moment, number, octets, plural, share

_ADDRESS = 100


def worst(figures: Figures) -> Markup:
    """Sites that took least, with what they said last."""
    if not figures.worst:
        return card("Sites that refuse most", absent="Every attempt was a delivery.", wide=True)
    columns = (
        Column(name="site"),
        Column(name="not delivered", kind="m"),
        Column(name="of its attempts", kind="n"),
        Column(name="newest refusal", kind="long"),
        Column(name="when (UTC)", kind="n"),
    )
    most = max(_trouble(site.tried) for site in figures.worst)
    lines = [
        Line(
            cells=(
                _site_name(site),
                amount(_trouble(site.tried), most, "c"),
                share(_trouble(site.tried), site.tried.attempts),
                _said(site.last),
                moment(site.last.at if site.last else None, seconds=False),
            )
        )
        for site in figures.worst
    ]
    made = table("By deferrals, bounces and expiries in the period.", columns, lines)
    return card("Sites that refuse most", made, wide=True)


def classes(figures: Figures) -> Markup:
    """Why mail was not taken."""
    if not figures.classes:
        return card("Why mail was not taken", absent="Every attempt was a delivery.")
    columns = (
        Column(name="class"),
        Column(name="verdicts", kind="m"),
        Column(name="deferred", kind="n"),
        Column(name="bounced", kind="n"),
        Column(name="expired", kind="n"),
    )
    most = max(each.count for each in figures.classes)
    lines = [
        Line(cells=(stranger(each.kind, 40), amount(each.count, most, "c"), *_failed(each)))
        for each in figures.classes
    ]
    return card("Why mail was not taken", table("Verdicts by class.", columns, lines, narrow=True))


def sites(figures: Figures) -> Markup:
    """Those with the most attempts."""
    listing = figures.sites
    if not listing.rows:
        return card("Sites", absent="No attempt was made.", wide=True)
    columns = (
        Column(name="site"),
        Column(name="attempts", kind="n"),
        Column(name="delivered", kind="n"),
        Column(name="first attempt", kind="m"),
        Column(name="deferred", kind="m"),
        Column(name="bounced", kind="n"),
        Column(name="expired", kind="n"),
        Column(name="half took", kind="n"),
        Column(name="90 %", kind="n"),
        Column(name="99 %", kind="n"),
        Column(name="TLS", kind="n"),
    )
    lines = [Line(cells=(_site_name(site), *_tried(site.tried))) for site in listing.rows]
    if left := listing.total - len(listing.rows):
        rest = _less(figures.total, [site.tried for site in listing.rows])
        lines.append(Line(cells=(f"{plural(left, 'other')}", *_tried(rest)), rest=True))
    caption = (
        f"{plural(listing.total, 'site')}, by attempts. First attempt: the share that was delivered at once. "
        "Times are those in the queue, of what was delivered."
    )
    return card("Sites", table(caption, columns, lines), wide=True)


def replies(figures: Figures) -> Markup:
    """What servers said, clustered."""
    listing = figures.replies
    if not listing.rows:
        return card("Replies", absent="No refusal was received.", wide=True)
    columns = (
        Column(name="reply, without what differs", kind="long"),
        Column(name="class"),
        Column(name="verdicts", kind="n"),
        Column(name="deferred", kind="n"),
        Column(name="bounced", kind="n"),
        Column(name="expired", kind="n"),
        Column(name="an example", kind="long"),
    )
    lines = [
        Line(
            cells=(
                reply(each.code, each.status, each.shape),
                stranger(each.kind, 40),
                number(each.count),
                *_failed(each),
                reply(None, None, each.example),
            )
        )
        for each in listing.rows
    ]
    if left := listing.total - len(listing.rows):
        count = figures.refusals - sum(each.count for each in listing.rows)
        lines.append(Line(cells=(plural(left, "other"), "", number(count), NONE, NONE, NONE, ""), rest=True))
    return card("Replies", table("Refusals that say the same are one row.", columns, lines), wide=True)


def senders(figures: Figures) -> Markup:
    """The senders with most recipients."""
    listing = figures.senders
    if not listing.rows:
        return card("Senders", absent="No message was sent.", wide=True)
    columns = (
        Column(name="sender"),
        Column(name="messages", kind="n"),
        Column(name="octets", kind="n"),
        Column(name="recipients", kind="n"),
        Column(name="delivered", kind="n"),
        Column(name="deferrals", kind="n"),
        Column(name="bounced", kind="m"),
        Column(name="expired", kind="n"),
    )
    lines = [Line(cells=(_sender_name(each), *_given(each))) for each in listing.rows]
    left = listing.total - len(listing.rows)
    if left and figures.all_senders:
        names = ("messages", "octets", "accepted", "delivered", "deferred", "bounced", "expired")
        total = figures.all_senders
        sums = {name: getattr(total, name) - sum(getattr(s, name) for s in listing.rows) for name in names}
        lines.append(Line(cells=(plural(left, "other"), *_given(Sender(name="", **sums))), rest=True))
    caption = (
        f"{plural(listing.total, 'sender')}, by recipients. The share of bounces is of their recipients."
    )
    return card("Senders", table(caption, columns, lines), wide=True)


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
    columns = (
        Column(name="recipient, SPID/QID"),
        Column(name="site", kind="name"),
        Column(name="accepted (UTC)", kind="n"),
        Column(name="due (UTC)", kind="n"),
        Column(name="attempts", kind="n"),
        Column(name="last reply", kind="long"),
    )
    lines = [
        Line(
            cells=(
                stacked(stranger(each.recipient or NONE, _ADDRESS), code(each.name)),
                stranger(each.site or NONE, _ADDRESS),
                moment(each.accepted, seconds=False),
                moment(each.due, seconds=False),
                number(each.attempts),
                reply(None, None, each.reply) if each.reply else NONE,
            )
        )
        for each in listing.rows
    ]
    left = listing.total - len(listing.rows)
    more = f" {plural(left, 'other')} not shown here." if left else ""
    caption = f"{plural(listing.total, 'recipient')}. {said}{more}"
    return card(title, table(caption, columns, lines), wide=True)


# ---------------------------------------------------------------- cells


def _site_name(site: Site) -> Markup:
    return stranger(site.name or "not known", _ADDRESS)


def _sender_name(sender: Sender) -> str:
    return stranger(sender.name, _ADDRESS) if sender.name else "<> (reports)"


def _said(last: Reply | None) -> str:
    return reply(last.code, last.status, last.text) if last else NONE


def _trouble(tried: Tried) -> int:
    return tried.deferred + tried.bounced + tried.expired


def _failed(each: Shape) -> tuple[str, str, str]:
    return number(each.deferred), number(each.bounced), number(each.expired)


def _tried(tried: Tried) -> tuple[str, ...]:
    times = [duration(each) for each in tried.latency] if tried.latency else [NONE] * 3
    return (
        number(tried.attempts),
        number(tried.delivered),
        rate(tried.first_delivered, tried.first_attempts, "b"),
        rate(tried.deferred, tried.attempts, "c"),
        number(tried.bounced),
        number(tried.expired),
        *times,
        share(tried.tls, tried.attempts),
    )


def _less(total: Tried, shown: list[Tried]) -> Tried:
    """What is left; of times nothing is known, for percentiles cannot be subtracted."""
    return Tried(**{name: getattr(total, name) - sum(getattr(t, name) for t in shown) for name in SUMS})


def _given(each: Sender) -> tuple[str, ...]:
    return (
        number(each.messages),
        octets(each.octets),
        number(each.accepted),
        number(each.delivered),
        number(each.deferred),
        rate(each.bounced, each.accepted, "d"),
        number(each.expired),
    )

"""What the page says below the verdict: which sites keep mail from arriving, why, and what helps. Pure."""

from __future__ import annotations

from markupsafe import Markup

from mqcd.pipeline.report import cells
from mqcd.pipeline.report.cells import Column, Columns, amount, code, reply, stacked, stranger, table, under
from mqcd.pipeline.report.figures import Figures, Troubled
from mqcd.pipeline.report.words import NONE, number, plural, share

ANCHOR, TITLE = "attention", "Needs attention"
_ADVISE = "mqcd pipeline advise"
_WHAT_IF = f"{_ADVISE} --what-if '30m | 2h | 6h'"
_NOTHING = "Nothing: no site has refused mail for good, or puts it off again and again."
_CAUSES: dict[str, tuple[str, str]] = {
    "throttled": ("asks for less mail at a time", _ADVISE),
    "greylisted": ("takes no retry so early", _ADVISE),
    "no-such-user": ("mailboxes that do not exist", _ADVISE),
    "connection": ("cannot be reached, or breaks off", _WHAT_IF),
    "network": ("cannot be reached", _WHAT_IF),
    "blocked": ("refuses this server: reputation or policy", ""),
    "policy": ("refuses by its policy", ""),
    "mailbox-full": ("full mailboxes", ""),
    "no-such-domain": ("domains that do not exist", ""),
    "relay-denied": ("does not take mail for these domains", ""),
    "content": ("refuses the content", ""),
}
"""Of a class: in words, and the command that may help. No name that strangers chose stands in a command."""


def cause(site: Troubled) -> str:
    """Why a site keeps mail, in words."""
    return _CAUSES.get(site.cause, (f"class {site.cause}", ""))[0]


def attention(figures: Figures) -> Markup:
    """The section."""
    listing = figures.troubled
    if not listing.rows:
        return cells.attention(TITLE, ANCHOR, absent=_NOTHING)
    most = max(map(_kept, listing.rows))
    columns: Columns[Troubled] = (
        Column("site", "", lambda site: stranger(site.site or "not known", 100)),
        Column("not delivered", "m", lambda site: under(amount(_kept(site), most, "d"), _parts(site))),
        Column("of its recipients", "n", lambda site: share(_kept(site), site.recipients)),
        Column("period before", "n", _change),
        Column("cause, and its newest reply", "long", _why),
        Column("what may help", "long", _help),
    )
    left = listing.total - len(listing.rows)
    rest = (plural(left, "other"), *[""] * (len(columns) - 1)) if left else ()
    caption = (
        "Sites by recipients of the period that they have refused for good, or put off and not taken yet. "
        f"What {_ADVISE} finds, {_ADVISE} --apply puts in effect."
    )
    return cells.attention(TITLE, ANCHOR, table(caption, columns, listing.rows, rest))


def _kept(site: Troubled) -> int:
    return site.lost + site.waiting


def _why(site: Troubled) -> Markup:
    return stacked(cause(site), reply(site.last.code, site.last.status, site.last.text))


def _help(site: Troubled) -> str:
    command = _CAUSES.get(site.cause, ("", ""))[1]
    return code(command) if command else "its postmaster knows; no advice helps"


def _parts(site: Troubled) -> str:
    parts = ((site.lost, "refused"), (site.waiting, "waiting"))
    return ", ".join(f"{number(count)} {name}" for count, name in parts if count)


def _change(site: Troubled) -> str:
    """How it was before, and which way it goes."""
    if site.before is None:
        return NONE
    kept, of = site.before
    if not of:
        return "no mail"
    more = _kept(site) / site.recipients - kept / of
    way = "as now" if abs(more) < _SAME else "worse now" if more > 0 else "better now"
    return under(share(kept, of), way)


_SAME = 0.01
"""Difference of two shares that is none."""

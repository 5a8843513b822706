"""What the report says first, in words: whether all mail is accounted for. Pure."""

from __future__ import annotations

from mqcd.core.value import value
from mqcd.pipeline.report.figures import Figures
from mqcd.pipeline.report.words import number, plural

_NAMED = 5
"""Recipients that the verdict names."""


@value
class Verdict:
    """How it stands."""

    kind: str
    """good, warn or bad."""
    title: str
    said: str


def verdict(figures: Figures) -> Verdict:
    """The account in words; a warning where there is none, or where something else wants a look."""
    account = figures.account
    if account is None:
        why = figures.coverage.unasked or "the queue was not asked"
        return Verdict(
            kind="warn",
            title="Not checked: whether every recipient is accounted for",
            said=f"No account was made: {why}. The figures below are those of the event log alone.",
        )
    if account.imbalance:
        uneven = plural(account.imbalance, "recipient is", "recipients are")
        return Verdict(
            kind="bad",
            title=f"{uneven} not accounted for",
            said=" ".join(_off(account.missing, account.excess)),
        )
    if not account.accepted:
        return Verdict(kind="good", title="Nothing was accepted, and nothing is missing", said="")
    notes = _notes(figures)
    return Verdict(
        kind="warn" if notes else "good",
        title=f"All {number(account.accepted)} recipients ever accepted are accounted for",
        said=" ".join(notes),
    )


def _off(missing: list[str], excess: list[str]) -> list[str]:
    said = []
    if missing:
        said.append(f"Accepted, and nowhere: {_some(missing)}.")
    if excess:
        said.append(f"In more places than one, or never accepted: {_some(excess)}.")
    said.append("mqcd pipeline ledger --json names them all; mqcd fsck looks at the queue's files.")
    return said


def _some(ids: list[str]) -> str:
    more = f" and {plural(len(ids) - _NAMED, 'other')}" if len(ids) > _NAMED else ""
    return ", ".join(ids[:_NAMED]) + more


def _notes(figures: Figures) -> list[str]:
    account = figures.account
    notes = []
    if account and account.quarantined:
        lie = plural(account.quarantined, "of them lies", "of them lie")
        notes.append(f"{lie} in quarantine: see mqcd fsck.")
    if account and account.unread:
        lost = plural(account.unread, "damaged record has", "damaged records have")
        notes.append(f"Up to {lost} no known recipient; mail lost with them has no events: see mqcd fsck.")
    if account and account.duplicates + account.possible_duplicates:
        twice = account.duplicates + account.possible_duplicates
        notes.append(f"{number(twice)} may have been delivered twice.")
    if account and account.doubled:
        notes.append(f"{plural(account.doubled, 'event')} came with a repeated id.")
    if figures.stuck.total:
        notes.append(f"{plural(figures.stuck.total, 'recipient is', 'recipients are')} stuck.")
    return notes

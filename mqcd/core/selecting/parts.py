"""A long list of recipients in parts, and how much one holds. Pure.

A part begins behind the recipient that the last one ended with, in an order that no change of a recipient
changes: what stays in the queue comes exactly once, whatever happens between two parts.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from mqcd.core.errors import DecodeError
from mqcd.core.model import AreaStats, Recipient
from mqcd.core.queueing.spid import format_spid, parse_spid
from mqcd.core.selecting.selection import Selection
from mqcd.core.value import value

MOST = 1000
"""Recipients in one part."""
_KIND = {True: "age", False: "message"}

Key = tuple[int, int, int]
"""When it was accepted, or 0 where the order is that of messages; SPID; QID."""


@value
class Listed:
    """Some of the recipients that are selected."""

    recipients: Sequence[Recipient]
    after: str | None
    """What to ask for the next ones by; None = there are no more."""


def most_of(selection: Selection) -> int:
    """How many recipients a part may have."""
    return MOST if selection.limit is None else min(selection.limit, MOST)


def part_of(recipients: Iterable[Recipient], selection: Selection, after: str, by_age: bool) -> Listed:
    """The first of those selected that come after a place, in memory for no more. Raises DecodeError."""
    start, most = parse_key(after, by_age), most_of(selection)
    key = _by_age if by_age else _by_message
    chosen = (each for each in recipients if key(each) > start and selection.matches(each))
    found = heapq.nsmallest(most + 1, chosen, key=key)
    more = len(found) > most > 0
    return Listed(recipients=found[:most], after=show_key(key(found[most - 1]), by_age) if more else None)


def measured(recipients: Iterable[Recipient]) -> AreaStats:
    """How much these are."""
    count = octets = 0
    oldest: int | None = None
    for each in recipients:
        count += 1
        octets += each.size
        received = each.envelope.received
        oldest = received if oldest is None else min(oldest, received)
    return AreaStats(recipients=count, octets=octets, oldest=oldest)


def show_key(key: Key, by_age: bool) -> str:
    """A recipient as a place."""
    received, spid, qid = key
    return f"{_KIND[by_age]}:{received}:{format_spid(spid)}:{qid}"


def parse_key(place: str, by_age: bool) -> Key:
    """What `show_key` made; "" is before all. Raises DecodeError."""
    if not place:
        return -1, 0, 0
    words = place.split(":")
    if len(words) != 4 or words[0] != _KIND[by_age]:
        raise no_place(place)
    return number_of(words[1]), parse_spid(words[2]), number_of(words[3])


def number_of(text: str) -> int:
    """Raises DecodeError for what is no number in a place."""
    if not (text.isdecimal() and text.isascii() and len(text) < 20):
        raise no_place(text)
    return int(text)


def no_place(text: str) -> DecodeError:
    """The error for what is no place."""
    return DecodeError(f"after: expected what an earlier answer gave as next, not {text[:60]!r}")


def _by_age(recipient: Recipient) -> Key:
    return recipient.envelope.received, *recipient.key


def _by_message(recipient: Recipient) -> Key:
    return 0, *recipient.key

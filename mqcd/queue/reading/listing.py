"""A long list of the queue in parts, each from where the last one ended; and how much is selected.

In its own order a part costs what it reads: clusters by name, then the journal. A name is never used again,
and lines in a file do not move, so a place stays one however the queue changes; a recipient that has moved
meanwhile may come twice, or not at all. By age each part looks at all clusters that may hold something older
than what it has found, and a place is the last recipient: what stays in the queue comes exactly once.

| place | what comes next |
|---|---|
| `c:<cluster>:<octet>` | lines of this cluster from this octet on, then the next cluster by name |
| `j:<segment>:<ordinal>` | frames of this segment from this ordinal on, then the next; no cluster |
| `age:<received>:<SPID>:<QID>` | by age, what is behind this recipient |

`read_part`, `measure` and `lane_keys` are what a process is asked to do, see `mqcd.queue.helper.scans`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from mqcd.core.address import domain_of
from mqcd.core.errors import DecodeError
from mqcd.core.model import AreaStats
from mqcd.core.selecting.parts import Key, most_of, no_place, number_of, parse_key, show_key
from mqcd.core.selecting.selection import Selection
from mqcd.queue.format.choosing import chooser
from mqcd.queue.format.record import Fields, halves, sound_all
from mqcd.queue.reading.snapshot import Snapshot

_at = Fields._fields.index
_SPID, _QID, _SIZE = _at("spid"), _at("qid"), _at("size")
_ADDRESS, _AMENDED, _RECEIVED = _at("address"), _at("amended"), _at("received")
Place = Callable[[int], str]
"""The place behind the line of this index."""


class Question(NamedTuple):
    """Something that is asked of a snapshot."""

    queue_root: Path
    spool_root: Path
    work: Callable[[Snapshot], object]
    """Another process gets it: a function of a module, or a partial of one."""


class Part(NamedTuple):
    """Some records."""

    texts: list[str]
    """As `record.verify` gives them."""
    after: str
    """Where the next ones begin; "" = there are no more."""


def read_part(snapshot: Snapshot, selection: Selection, after: str, by_age: bool) -> Part:
    """At most `selection.limit` records from a place on, "" = the first. Raises DecodeError for no place."""
    most = most_of(selection)
    if not most:
        return Part([], after)
    if by_age:
        return _oldest(snapshot, selection, parse_key(after, by_age=True), most)
    chosen = chooser(selection)
    texts: list[str] = []
    for lines, place in _from(snapshot, selection, after):
        for index, text in enumerate(sound_all(lines)):
            if text is None:
                snapshot.unreadable.damaged_lines += 1
            elif _is_chosen(snapshot, chosen, text):
                texts.append(text)
                if len(texts) == most:
                    return Part(texts, place(index))
    return Part(texts, "")


def measure(snapshot: Snapshot, selection: Selection) -> AreaStats:
    """How much is selected."""
    recipients = octets = 0
    oldest: int | None = None
    for batch in snapshot.project(selection, _size_and_time):
        recipients += len(batch)
        octets += sum(size for size, _ in batch)
        earliest = min(received for _, received in batch)
        oldest = earliest if oldest is None else min(oldest, earliest)
    return AreaStats(recipients=recipients, octets=octets, oldest=oldest)


def lane_keys(snapshot: Snapshot, selection: Selection) -> set[str]:
    """The lane keys of what is selected."""
    return {each for batch in snapshot.project(selection, lane_key) for each in batch}


def lane_key(text: str, _begun: bool = False) -> str:
    """`Recipient.lane_key` of what `record.verify` gave."""
    own = halves(text)
    return own[_AMENDED].partition(" ")[0] or domain_of(own[_ADDRESS])


def _is_chosen(snapshot: Snapshot, chosen: Callable[[str], bool] | None, text: str) -> bool:
    try:
        return chosen is None or chosen(text)
    except DecodeError:
        snapshot.unreadable.damaged_lines += 1
        return False


def _size_and_time(text: str, _begun: bool) -> tuple[int, int]:
    # What stands behind them stays one piece.
    parts = text.split("|", _RECEIVED + 1)
    try:
        return int(parts[_SIZE]), int(parts[_RECEIVED])
    except (ValueError, IndexError) as error:
        raise DecodeError(f"record line holds a field that cannot be: {text[:120]!r}") from error


def _from(snapshot: Snapshot, selection: Selection, after: str) -> Iterator[tuple[list[bytes], Place]]:
    """The lines from a place on, with the places behind them."""
    kind, name, at = _words(after) if after else ("c", "", "0")
    start = number_of(at)
    if kind == "c":
        for listed in sorted(snapshot.listed(selection)):
            if listed.name < name:
                continue
            begin = max(listed.cursor, start if listed.name == name else 0)
            whole = begin == listed.cursor
            for lines in snapshot.read(listed._replace(cursor=begin, left=listed.left if whole else 0)):
                yield lines, _in_cluster(listed.name, begin, lines)
                begin += sum(map(len, lines)) + len(lines)
        name, start = "-1", 0
    elif kind != "j":
        raise no_place(after)
    first = int(name) if name == "-1" else number_of(name)
    for number, ordinals, lines in snapshot.in_journal():
        begin = bisect_left(ordinals, start) if number == first else 0
        if number >= first and begin < len(lines):
            yield lines[begin:], _in_segment(number, ordinals[begin:])


def _words(after: str) -> tuple[str, str, str]:
    kind, _, rest = after.partition(":")
    # From behind: a cluster's name holds colons where its queue does, "relay.example:2525" or "[ipv6:::1]".
    name, colon, at = rest.rpartition(":")
    if not colon:
        raise no_place(after)
    return kind, name, at


def _in_cluster(name: str, begin: int, lines: list[bytes]) -> Place:
    return lambda index: f"c:{name}:{begin + sum(map(len, lines[: index + 1])) + index + 1}"


def _in_segment(number: int, ordinals: list[int]) -> Place:
    return lambda index: f"j:{number}:{ordinals[index] + 1}"


def _oldest(snapshot: Snapshot, selection: Selection, after: Key, most: int) -> Part:
    chosen = chooser(selection)
    found: list[tuple[Key, str]] = []
    bound: Key | None = None
    """Nothing behind it is among the oldest."""
    for oldest, lines in _by_age(snapshot, selection):
        if bound is not None and oldest > bound[0]:
            break
        for text in sound_all(lines):
            if text is None:
                snapshot.unreadable.damaged_lines += 1
                continue
            try:
                key = _key_of(text)
            except DecodeError:
                snapshot.unreadable.damaged_lines += 1
                continue
            if key > after and (bound is None or key < bound) and _is_chosen(snapshot, chosen, text):
                found.append((key, text))
        if len(found) > most:
            found = sorted(found)[: most + 1]
            bound = found[-1][0]
    found.sort()
    texts = [text for _, text in found[:most]]
    return Part(texts, show_key(found[most - 1][0], by_age=True) if len(found) > most else "")


def _by_age(snapshot: Snapshot, selection: Selection) -> Iterator[tuple[int, list[bytes]]]:
    """All lines, with a time before which none of them and of those that follow was accepted."""
    for _, _, lines in snapshot.in_journal():
        yield 0, lines
    for listed in sorted(snapshot.listed(selection), key=lambda each: each.received):
        for lines in snapshot.read(listed):
            yield listed.received, lines


def _key_of(text: str) -> Key:
    *own, shared = halves(text)
    # The first field of what lines share.
    received = shared.partition("|")[0]
    try:
        return int(received), int(own[_SPID], 16), int(own[_QID])
    except ValueError as error:
        raise DecodeError(f"record line holds a field that cannot be: {text[:120]!r}") from error

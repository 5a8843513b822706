"""The history of one message: its events, out of event files and of what no file holds yet.

Event files are read from the one on that was being written when the message's SPID was made, those of the
shard that accepted it first; reading ends when all its recipients have ended. One file is unpacked at a time,
a piece at a time. A file that cannot be read to its end is named in the result, with what it gave until then.

Where a server's clock was put back by more than `_MARGIN_MS` while it ran, the file in which a message was
accepted may be taken for an older one, and is not read.
"""

from __future__ import annotations

import heapq
import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mqcd.core.events import LAST, REPORT_LAST, Verb, format_time
from mqcd.core.queueing.spid import shard_of, time_of
from mqcd.core.value import value
from mqcd.disk.durable import Disk, describe
from mqcd.eventlog.reading import Series, lines_with, pieces_of, series_of

_MARGIN_MS = 600_000
"""How far a SPID may be ahead of its server's clock."""
_PACKED = 1 << 18
"""Octets of a file that are read at a time."""
_HEAD = 4096
"""Octets that hold the first event of a file."""

Event = dict[str, Any]
"""See docs/events.md."""


@value
class History:
    """What is known of a message."""

    events: Sequence[Event]
    """By time; those of one shard in the order of their sequence."""
    unread: Sequence[str] = ()
    """Files that could not be read to their end, and why."""


def history(disk: Disk, directory: Path, spid: int, unfiled: Iterable[str | bytes] = ()) -> History:
    """What happened to a message.

    `unfiled`: its events that are in no file, perhaps others that are; they are asked for when files have
    been read, and not at all when the message ended there. Raises OSError when the directory cannot be read.
    """
    found: dict[str, Event] = {}
    unread: list[str] = []
    own = shard_of(spid)
    series = series_of(disk, directory)
    for key in sorted(series, key=lambda each: (each[1] != own, each)):
        for _, path in _from(disk, series[key], format_time(time_of(spid) - _MARGIN_MS)):
            _add(found, _of_file(disk, path, event_needle(spid), unread))
            if _is_over(found.values()):
                return _history(found, unread)
    _add(found, unfiled)
    return _history(found, unread)


def count_of_batch(
    disk: Disk,
    directory: Path,
    shard: int,
    batch: str,
    since: int,
    unfiled: Iterable[bytes],
    read: Collection[int] = (),
) -> int:
    """How many events of a shard carry the name of a batch, which was asked for at `since` (ms).

    `unfiled`: events that may be in no file, each once, perhaps others; `read`: numbers of files whose events
    are among them. Files that cannot be read count as far as they can. Raises OSError when the directory
    cannot be read.
    """
    needle, unread = batch_needle(batch), list[str]()
    known = {line for line in unfiled if needle in line}
    count = len(known)
    for (_, of), files in series_of(disk, directory).items():
        if of != shard:
            continue
        for number, path in _from(disk, files, format_time(since - _MARGIN_MS)):
            if number not in read:
                count += sum(line not in known for line in _of_file(disk, path, needle, unread))
    return count


def batch_needle(batch: str) -> bytes:
    """What every event of a batch has in its line, and no other event."""
    return b'"batch":%s' % json.dumps(batch).encode()


def event_needle(spid: int) -> bytes:
    """What every event of a message has in its line, and no other event."""
    return b'"spid":"%016X"' % spid


def _history(found: dict[str, Event], unread: Sequence[str]) -> History:
    by_shard: dict[str, list[tuple[int, Event]]] = {}
    for name, event in found.items():
        shard, _, sequence = name.rpartition("/")
        by_shard.setdefault(shard, []).append((int(sequence), event))
    ordered = [[event for _, event in sorted(each, key=lambda pair: pair[0])] for each in by_shard.values()]
    # A clock may go back: the order within a shard is that of the sequence.
    return History(
        events=list(heapq.merge(*ordered, key=lambda event: str(event["at"]))), unread=tuple(unread)
    )


def _add(found: dict[str, Event], lines: Iterable[str | bytes]) -> None:
    for line in lines:
        event = json.loads(line)
        found[event["id"]] = event


def _is_over(events: Iterable[Event]) -> bool:
    """Whether all recipients of the message have ended."""
    accepted, ended = 0, set()
    for event in events:
        ends = LAST if event.get("sender") else REPORT_LAST
        if event["event"] == Verb.ACCEPTED:
            accepted = event["recipients"]
        elif event["event"] in ends:
            ended.add(event["qid"])
    return bool(accepted) and len(ended) >= accepted


def _from(disk: Disk, files: Series, moment: str) -> Series:
    """The files from the last one on that begins before a moment. There may be a hundred thousand."""
    low, high = 0, len(files)
    while low < high:
        middle = (low + high) // 2
        # A file without a readable event says nothing: the one before it is asked.
        at, begins = middle, ""
        while at >= low and not (begins := _begins(disk, files[at][1])):
            at -= 1
        if begins <= moment:
            low = middle + 1
        else:
            high = at
    return files[max(low - 1, 0) :]


def _begins(disk: Disk, path: Path) -> str:
    """When the first event of a file happened; "" if it has none that can be read."""
    try:
        line = next(lines_with(pieces_of(disk, path, _HEAD), b""), b"{}")
        event = json.loads(line)
        return str(event.get("at", ""))
    except (OSError, zlib.error, ValueError):
        return ""


def _of_file(disk: Disk, path: Path, needle: bytes, unread: list[str]) -> Iterator[bytes]:
    try:
        yield from lines_with(pieces_of(disk, path, _PACKED), needle)
    except FileNotFoundError:
        # The event log's retention has removed it meanwhile.
        return
    except OSError as error:
        unread.append(describe(error))
    except zlib.error as error:
        unread.append(f"{path}: {error}")

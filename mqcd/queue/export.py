"""The event log: one `<node>-<shard>-<segment>.jsonl.gz` per sealed segment.

A file is a pure function of its segment and of the node's name: it holds each transition of the segment
once, in order, whenever it is written. It appears under its name whole and durable, or not at all.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqcd.core.errors import DecodeError
from mqcd.core.events import SCHEMA_VERSION, Verb, format_time
from mqcd.core.model import Recipient
from mqcd.core.spid import format_spid
from mqcd.queue import record, verdict
from mqcd.queue.durable import Disk
from mqcd.queue.frame import ALIVE, Entry, Kind, Mark, read_begun
from mqcd.queue.history import VERB_OF, entries, submissions
from mqcd.queue.replay import Frame, Walk
from mqcd.queue.ring import Segment

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Who writes the events: goes into the file's name and each event's id."""

    node: str
    shard: int


def events_path(directory: Path, source: Source, segment: int) -> Path:
    """The file for one segment; names sort in the order of segments."""
    return directory / f"{source.node}-{source.shard}-{segment:010d}.jsonl.gz"


def export(disk: Disk, segment: Segment, directory: Path, source: Source) -> Counter[Verb]:
    """Write the segment's event file unless it exists; returns how many events of each verb it holds.

    Raises OSError.
    """
    path = events_path(directory, source, segment.number)
    fd = disk.open(segment.path, os.O_RDONLY)
    try:
        data = disk.pread(fd, segment.end, 0)
    finally:
        disk.close(fd)
    walk = Walk(data, segment, bound=segment.end)
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    totals: Counter[Verb] = Counter()
    lines: list[str] = []
    for frame in walk:
        for event in frame_events(frame, source):
            totals[Verb(event["event"])] += 1
            lines.append(encode(event) + "\n")
    if disk.exists(path):
        # Who wrote it may have been killed before this step.
        disk.sync_dir(directory)
    else:
        disk.replace_file(path, [gzip.compress("".join(lines).encode(), compresslevel=1, mtime=0)])
    return totals


def frame_events(frame: Frame, source: Source) -> Iterator[Event]:
    """The events of one frame. A part that cannot be read gives none: recovery reports the damage."""
    header = frame.header
    try:
        if header.kind is Kind.BEGUN:
            yield from _begun_events(frame, source)
            return
        accepted, offset = submissions(header.kind, frame.body)
        sequence = header.sequence
        for part in accepted:
            lines = part.lines.splitlines(keepends=True)
            for line in lines:
                recipient = record.decode(line)
                event = _event(source, sequence, Verb.ACCEPTED, header.at, recipient)
                event["recipients"] = len(lines)
                yield event
                sequence += 1
        rest = header.sequence + header.count - sequence
        for _, entry in entries(header.kind, frame.body, offset, rest):
            verb = VERB_OF.get(entry.mark)
            if verb is not None:
                yield _verdict_event(source, sequence, verb, header.at, entry)
            sequence += 1
    except DecodeError:
        return


def _begun_events(frame: Frame, source: Source) -> Iterator[Event]:
    destination, begun = read_begun(frame.body, frame.header.count)
    for index, entry in enumerate(begun):
        yield {
            **_head(source, frame.header.sequence + index, Verb.ATTEMPTED, frame.header.at),
            "spid": format_spid(entry.spid),
            "qid": entry.qid,
            "attempt": entry.attempt,
            "destination": destination,
        }


def _head(source: Source, sequence: int, verb: Verb, at: int) -> Event:
    return {
        "v": SCHEMA_VERSION,
        "id": f"{source.node}/{source.shard}/{sequence}",
        "event": str(verb),
        "at": format_time(at),
    }


def _event(source: Source, sequence: int, verb: Verb, at: int, recipient: Recipient) -> Event:
    envelope = recipient.envelope
    event: Event = {
        **_head(source, sequence, verb, at),
        "spid": format_spid(recipient.spid),
        "qid": recipient.qid,
        "sender": envelope.sender,
        "recipient": recipient.address,
        "domain": recipient.domain,
        "size": recipient.size,
        "origin": str(envelope.origin),
    }
    for name in ("zone", "listener", "client", "user", "tls"):
        value = getattr(envelope, name)
        if value:
            event[name] = value
    return event


def _verdict_event(source: Source, sequence: int, verb: Verb, at: int, entry: Entry) -> Event:
    recipient = record.decode(entry.line)
    event = _event(source, sequence, verb, at, recipient)
    event["queued_ms"] = max(0, at - recipient.envelope.received)
    if entry.mark is Mark.UNKNOWN:
        event["attempt"] = recipient.attempts
        event["due"] = format_time(recipient.due)
        return event
    note = verdict.decode(entry.note)
    if entry.mark is Mark.REPORTED:
        event["report"] = note.extra
        return event
    if entry.mark is Mark.DISCARDED:
        event["reason"] = note.extra
        return event
    event.pop("tls", None)
    event["attempt"] = recipient.attempts if entry.flags & ALIVE else recipient.attempts + 1
    for name in (
        "destination",
        "phase",
        "remote_host",
        "remote_addr",
        "source_addr",
        "tls",
        "code",
        "status",
        "reply",
    ):
        value = getattr(note, name)
        if value:
            event[name] = value
    event["connect_ms"] = note.connect_ms
    event["attempt_ms"] = note.attempt_ms
    if entry.mark is Mark.DEFERRED:
        event["due"] = format_time(int(note.extra.rstrip("?")))
        if note.extra.endswith("?"):
            event["possibly_delivered"] = True
    return event

"""The event log: one `<node>-<shard>-<segment>.jsonl.gz` per sealed segment.

A file is a pure function of its segment, of the node's name and of the key for addresses: it holds each
transition of the segment once, in order, whenever it is written. It appears under its name whole and
durable, or not at all.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from mqcd.core.events import Verb
from mqcd.disk.durable import Disk
from mqcd.disk.file_window import Window
from mqcd.eventlog.files import Source, events_path
from mqcd.queue.events.lines import EventText
from mqcd.queue.wal.scan import Walk
from mqcd.queue.wal.segments import Segment

_LINES = 1000
"""Lines that are packed at a time: a segment of small messages has events of twice its own length."""
_GZIP = 31
"""zlib's `wbits` for gzip's format, with neither name nor time."""


class Exported(NamedTuple):
    """What a segment's event file holds."""

    totals: Counter[Verb]
    """Events of each verb."""
    unreadable: int
    """Frames of which it lacks events."""
    trouble: str
    """The first of them, and why; "" when there are none."""


def export(disk: Disk, segment: Segment, directory: Path, source: Source) -> Exported:
    """Write the segment's event file unless it exists. Raises OSError."""
    path = events_path(directory, source, segment.number)
    there = disk.exists(path)
    text = EventText(source)
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    packed: list[bytes] = []
    lines: list[str] = []
    fd = disk.open(segment.path, os.O_RDONLY)
    try:
        for frame in Walk(Window(disk, fd, segment.end), segment, bound=segment.end):
            lines += text.lines(frame.header, frame.body)
            if len(lines) >= _LINES:
                if not there:
                    packed.append(packer.compress("".join(lines).encode()))
                lines.clear()
    finally:
        disk.close(fd)
    if there:
        # Its writer may have been killed before this step.
        disk.sync_dir(directory)
    else:
        packed += [packer.compress("".join(lines).encode()), packer.flush()]
        disk.replace_file(path, packed)
    return Exported(text.totals, text.unreadable, text.trouble)

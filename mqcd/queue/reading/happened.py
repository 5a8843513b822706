"""The events of the journal's segments, as their event files have them or will have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from mqcd.disk.file_window import Window
from mqcd.eventlog.files import Source
from mqcd.eventlog.history import History, count_of_batch, event_needle, history
from mqcd.queue.events.lines import EventText
from mqcd.queue.reading.races import check_same, open_segment
from mqcd.queue.reading.shards import Snapshots
from mqcd.queue.reading.snapshot import Snapshot
from mqcd.queue.wal.scan import Walk


def events(
    snapshot: Snapshot, text: EventText, wanted: Callable[[memoryview], bool] = bool
) -> Iterator[tuple[int, list[str]]]:
    """Lines, with their segment's number; `wanted` chooses frames by their body, none of which is empty.

    Segments come in order, each in parts. Raises StoreBusy.
    """
    disk = snapshot.disk
    for segment in snapshot.segments:
        fd = open_segment(disk, segment)
        try:
            for frame in Walk(Window(disk, fd, segment.end), segment, bound=segment.end):
                if wanted(frame.body) and (lines := text.lines(frame.header, frame.body)):
                    yield segment.number, lines
            check_same(disk, fd, segment)
        finally:
            disk.close(fd)


def lines_of(snapshot: Snapshot, text: EventText, spid: int) -> Iterator[str]:
    """The lines of one message. Raises StoreBusy."""
    # As record lines have it, and as a BEGUN frame has it. A body that holds it by chance costs its lines.
    written, packed = b"%016X" % spid, spid.to_bytes(8, "little")
    needle = event_needle(spid).decode()

    def names_it(body: memoryview) -> bool:
        octets = bytes(body)
        return written in octets or packed in octets

    for _, lines in events(snapshot, text, names_it):
        yield from (line for line in lines if needle in line)


def history_of(snapshot: Snapshot, directory: Path, source: Source, spid: int) -> History:
    """What happened to a message, by its shard's event files and journal. Raises StoreBusy, OSError."""
    return history(snapshot.disk, directory, spid, lines_of(snapshot, EventText(source), spid))


def changed_by(snapshot: Snapshot, directory: Path, source: Source, batch: str, since: int) -> int:
    """How many recipients a batch of this shard has changed, by the same. Raises StoreBusy, OSError."""
    name = batch.encode()
    lines: list[bytes] = []
    for _, found in events(snapshot, EventText(source), lambda body: name in bytes(body)):
        lines += (line.encode() for line in found)
    read = {segment.number for segment in snapshot.segments}
    return count_of_batch(snapshot.disk, directory, source.shard, batch, since, lines, read)


def lines_of_all(snapshots: Snapshots, source: Source, spid: int) -> Iterator[str]:
    """The same from every shard; `source` is that of shard 0. Raises StoreBusy."""
    for shard, snapshot in snapshots.by_shard.items():
        yield from lines_of(snapshot, EventText(replace(source, shard=shard)), spid)

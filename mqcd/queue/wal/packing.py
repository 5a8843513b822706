"""Packs waiting frames into a group: gives each its place in a segment, and makes its header.

A group ends before the first frame that its segment does not hold. A segment holds `capacity` octets, and
`max_entries` unfinished recipients; an empty one takes any single frame, whatever its entries. Nothing of the
segment changes: it follows when the group is durable.
"""

from __future__ import annotations

from collections import deque

from mqcd.queue.format.frame import HEADER_SIZE, Kind, pack_header
from mqcd.queue.wal.pending import Append
from mqcd.queue.wal.segments import Segment

MAX_GROUP = 8 << 20
"""Octets after which a group is written though more frames wait."""


class Group:
    """Frames that are written and synced together, and where their segment stands after them."""

    __slots__ = ("buffers", "end", "frames", "next_ordinal", "next_sequence", "segment", "start")

    def __init__(self, segment: Segment, sequence: int) -> None:
        """An empty one behind the last frame of the segment. `sequence`: of the next entry."""
        self.segment = segment
        self.frames: list[Append] = []
        self.buffers: list[bytes] = []
        """What is written: headers and bodies in turn."""
        self.start = segment.end
        """Octet of the segment where the first frame begins."""
        self.end = segment.end
        """Octet where the last one ends."""
        self.next_ordinal = segment.next_ordinal
        self.next_sequence = sequence


def pack_group(
    pending: deque[Append], segment: Segment, sequence: int, capacity: int, max_entries: int
) -> Group:
    """Move the frames that go into the segment now from `pending` to a group.

    The group is empty if the segment does not hold the first frame. `sequence`: of the next entry.
    """
    group = Group(segment, sequence)
    frames, buffers = group.frames, group.buffers
    start, offset, ordinal, synced = group.start, group.end, group.next_ordinal, sequence - 1
    entries = len(segment.entries)
    while pending and offset - start < MAX_GROUP:
        frame = pending[0]
        count = frame.count
        if offset + frame.octets > capacity or (entries and entries + count > max_entries):
            break
        pending.popleft()
        if not count:
            # It takes a sequence, and its header names the one behind that (`format.frame`): else its loss
            # would not show.
            sequence += 1
        frame.ordinal, frame.body, frame.sequence = ordinal, offset + HEADER_SIZE, sequence
        buffers.append(
            pack_header(segment.salt, frame.kind, frame.parts, count, ordinal, sequence, synced, frame.at)
        )
        buffers += frame.parts
        frames.append(frame)
        offset += frame.octets
        ordinal += count
        sequence += count
        if frame.kind is not Kind.BEGUN:
            # The entries of BEGUN are known already.
            entries += count
    group.end, group.next_ordinal, group.next_sequence = offset, ordinal, sequence
    return group

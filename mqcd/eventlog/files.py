"""Names of the event log's files. Pure.

`<node>-<shard>-<segment>.jsonl.gz` holds the transitions of a journal segment,
`<node>-<shard>-b<number>.jsonl.gz` best-effort events; one that is not finished has `.tmp` behind that.
Names of a kind sort in the order of time.
"""

from __future__ import annotations

import re
from dataclasses import field
from pathlib import Path

from mqcd.core.value import value

SUFFIX = ".jsonl.gz"
_NAME = re.compile(r"(.+)-(\d+)-(b?)(\d{10,})\.jsonl\.gz")


@value(kw_only=False)
class Source:
    """The writer of the events: goes into the file's name and each event's id."""

    node: str
    shard: int
    key: bytes = field(default=b"", repr=False)
    """What addresses are hashed with, see `pseudonym`; b"" = they are written in clear."""


@value(kw_only=False)
class EventFile:
    """What a name says."""

    node: str
    shard: int
    best_effort: bool
    number: int
    """The segment's number; of a best-effort file its own."""

    def of(self, source: Source) -> bool:
        """Whether the source writes such files."""
        return (self.node, self.shard) == (source.node, source.shard)


def parse(name: str) -> EventFile | None:
    """The event file with this final name; None for any other file."""
    match = _NAME.fullmatch(name)
    return EventFile(match[1], int(match[2]), bool(match[3]), int(match[4])) if match is not None else None


def events_path(directory: Path, source: Source, segment: int) -> Path:
    """The file for one segment; names sort in the order of segments."""
    return directory / f"{source.node}-{source.shard}-{segment:010d}{SUFFIX}"


def best_effort_path(directory: Path, source: Source, number: int) -> Path:
    """The file for best-effort events that is called by this number."""
    return directory / f"{source.node}-{source.shard}-b{number:013d}{SUFFIX}"

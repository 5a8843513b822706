"""The first step of a batch: workers read the event files, and ids that came before are sorted out."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial

from pyspark.sql import DataFrame, Row

from mqcd.core.progress import Progress
from mqcd.pipeline import frames
from mqcd.pipeline.batch.work import Work
from mqcd.pipeline.sources.decode import AHEAD
from mqcd.pipeline.sources.segments import EventFile, parse_name
from mqcd.pipeline.store.layout import INTO
from mqcd.pipeline.store.store import overlaps, with_files
from mqcd.pipeline.tables.events import doubled
from mqcd.pipeline.tables.times import HOUR_MS
from mqcd.pipeline.workers.counting import watching
from mqcd.pipeline.workers.intake import FOUND_DDL, intake
from mqcd.pipeline.workers.parts import publish

STEP = "reading events"
_OPEN_FOR = timedelta(days=7)
"""How long recipients may stay open and be written anew by each batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrived:
    """What came in."""

    files: list[EventFile]
    """The files that were read to their end; a file without a line is one of them."""
    events: int
    damaged: int
    """Lines that cannot be read, or whose id came before."""
    hours: list[int]
    """Hours since 1970 that the events are of, in order."""
    days: list[str]
    """Days of acceptance of the recipients that the events are about, in order."""
    sequences: dict[str, list[list[int]]]
    """As `Commit.sequences`, these files included."""
    repeated: bool
    """Whether ids came twice: then recipients must be made of `events`, not of what workers made of files."""
    last_hour: int
    """As `Commit.last_hour`: never later than now, whatever a clock said."""

    @property
    def aged(self) -> date:
        """Recipients accepted before this day and still open are old: most of them stay open, because files
        with their other events do not exist any more."""
        return frames.EPOCH + timedelta(hours=self.last_hour) - _OPEN_FOR


def arrive(work: Work, files: frames.Files, progress: Progress) -> Arrived | None:
    """Read files into staging. None: there was none."""
    progress(STEP, 0, 0)
    with ThreadPoolExecutor(1) as threads:
        # Java is idle while Python reads a small batch: let it plan what is asked for next.
        ahead = threads.submit(lambda: [work.schema(table) for table in frames.TABLES])
        with watching(work.staging.path, files.octets, partial(progress, STEP)):
            read = intake(work.staging.path, before=work.now + AHEAD)
            found = files.map(read, FOUND_DDL).collect()
        ahead.result()
    if not found:
        return None
    publish(row["part"] for row in found)
    return _sorted_out(work, found)


def _sorted_out(work: Work, found: Iterable[Row]) -> Arrived:
    """Count what came in. Events whose id came before are moved to the damaged lines."""
    events = damaged = 0
    hours: set[int] = set()
    days: set[str] = set()
    files: list[EventFile] = []
    sequences = {series: [list(run) for run in runs] for series, runs in work.last.sequences.items()}
    doubtful = False
    for row in found:
        days.update(row["days"] or ())
        if row["damaged"] is not None:
            damaged += row["damaged"]
            files.append(EventFile(*parse_name(row["file"]), row["file"], 0))
        if row["events"] is not None:
            events += row["events"]
            hours.update(row["hours"])
            # Every row is added, also behind a doubtful one.
            doubtful = _may_repeat(row, sequences) or doubtful
    if doubtful:
        known = frames.read(work.spark, work.store, "events")
        _drop_repeated(work, doubled(work.came("events"), known))
        events, damaged = work.came("events").count(), work.came("damaged").count()
    return Arrived(
        files=files,
        events=events,
        damaged=damaged,
        hours=sorted(hours),
        days=sorted(days),
        sequences=sequences,
        repeated=doubtful,
        last_hour=min(max(work.last.last_hour, *hours, 0), work.now // HOUR_MS),
    )


def _may_repeat(row: Row, sequences: dict[str, list[list[int]]]) -> bool:
    """Whether a file may hold ids that came before. By its ids: a copy under another name must not count."""
    series, (name, number) = f"{row['node']}/{row['shard']}", parse_name(row["file"])
    if row["low"] is None:
        # A lossy event's id is made of its file's name.
        return bool(name != f"{row['node']}-{row['shard']}-b")
    repeated = overlaps(sequences, series, row["low"], row["high"])
    with_files(sequences, series, number, row["low"], row["high"])
    return repeated


def _drop_repeated(work: Work, sorted_out: DataFrame) -> None:
    """Put events without repeated ones in the place of the new ones."""
    frames.write_through(sorted_out, work.staging.once, INTO, frames.DAY)
    for table in ("events", "recipients"):
        shutil.rmtree(work.staging.incoming(table), ignore_errors=True)
    work.staging.replace_incoming()

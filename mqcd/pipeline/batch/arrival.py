"""The first step of a batch: tasks read the event files, and events whose ids came before are taken out.

An example: the file `n1-0-0000000007.jsonl.gz` has, in short,

    {"id": "n1/0/31", "event": "accepted",  "spid": "A", "qid": 1, "at": "2026-11-18T11:07:00.000Z"}
    {"id": "n1/0/32", "event": "delivered", "spid": "A", "qid": 1, "at": "2026-11-18T11:07:01.000Z"}
    {"id": "n1/0/33", "event": "accepted",  "spid": "B", "qid": 1, "at": "2026-11-18T11:08:00.000Z"}
    {nonsense

The task that gets it (`workers.tasks.intake`) writes below staging (names: `store.layout`)

    in/into=events/day=2026-11-18/                    31, 32 and 33
    in/into=damaged/day=1970-01-01/                   {nonsense
    in/into=recipients/kept=done-/day=2026-11-18/     A, whose whole life is in the file
    states/                                           B, folded with what is known by `recipients`

and returns a row, of which the driver makes `Arrived`:

    files=[(name="n1-0-0000000007.jsonl.gz", damaged=1, future=0,
            series=[(node="n1", shard=0, low=31, high=33, events=3, hours=[498611])])]
    gone=[]  days=["2026-11-18"]  parts=[the four files that it wrote]

A file that the server has removed since it was listed is passed over with a warning (`pass_over`); that none
is left is an error.

Ids are compared one by one only where a file may hold some that came before: where its range, 31 to 33,
overlaps that of an earlier file of n1/0 (`_may_repeat`). Then each repeated event becomes a damaged line, and
what tasks made of the files' recipients counts no more (`Arrived.repeated`).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from mqcd.core.errors import MqcdError
from mqcd.core.events import format_time
from mqcd.core.progress import Progress
from mqcd.core.value import value
from mqcd.pipeline import frames
from mqcd.pipeline.batch.work import Work
from mqcd.pipeline.sources.decode import AHEAD, DOUBLED
from mqcd.pipeline.sources.schema import NEVER
from mqcd.pipeline.sources.segments import (
    EventFile,
    Runs,
    add_file,
    check_there,
    overlaps,
    parse_name,
    shown,
    unquoted,
)
from mqcd.pipeline.store.layout import DAY, INTO
from mqcd.pipeline.tables.times import HOUR_MS
from mqcd.pipeline.workers.counting import watching
from mqcd.pipeline.workers.tasks import FOUND, intake

log = logging.getLogger(__name__)

STEP = "reading events"


class ClockBehind(MqcdError):
    """This machine's clock is wrong, so it seems. Fault: the machine; after a correction try again."""


@value
class Arrived:
    """What came in."""

    files: list[EventFile]
    """The files that were read to their end; a file without a line is one of them. Series and number count:
    `path` is a name, `size` is 0."""
    events: int
    damaged: int
    """Lines that cannot be read, or whose id came before."""
    hours: list[int]
    """Hours since 1970 that the events are of, in order."""
    days: list[str]
    """Days of acceptance of the recipients that the events are about, in order."""
    sequences: Runs
    """As `Commit.sequences`, these files included."""
    repeated: bool
    """Whether ids came twice: then recipients are made of `events`, and there are no `ended` and `states`,
    for tasks made these before the repeated events were taken out."""
    ended: list[str]
    """Staged files of recipients whose whole life was in what one task read."""
    states: list[str]
    """Staged files of what came in of other recipients, to be folded with what is known of them."""
    last_hour: int
    """As `Commit.last_hour`: never later than now, whatever a clock said."""


def arrive(work: Work, files: frames.Files, progress: Progress) -> Arrived | None:
    """Read files into staging. None: there was none. Raises ClockBehind; FileNotFoundError for a file that
    tasks do not see, and for a directory that is gone."""
    progress(STEP, 0, 0)
    with ThreadPoolExecutor(1) as threads:
        # Java is idle while Python reads a small batch: let it plan what is asked for next.
        ahead = threads.submit(lambda: [work.schema(table) for table in frames.TABLES])
        with watching(work.staging.path, files.octets, partial(progress, STEP)):
            read = intake(work.staging.path, before=work.now + AHEAD)
            found = files.map(read, from_arrow_schema(FOUND)).collect()
        ahead.result()
    known = [file for task in found for file in task["files"]]
    gone = [unquoted(path) for task in found for path in task["gone"]]
    if gone:
        pass_over(gone, known)
    if not known:
        return None
    _check_clock(known, work.now, work.last.last_hour)
    work.staging.publish(part for task in found for part in task["parts"])
    return _summed(work, found)


def _check_clock(files: Sequence[Row], now: int, last_hour: int) -> None:
    """Raises ClockBehind where events of the future are due to our own clock: they would be lost for good."""
    future = sum(file["future"] for file in files)
    good = sum(series["events"] for file in files for series in file["series"])
    if future > good or (future and now + AHEAD < last_hour * HOUR_MS):
        name = min(file["name"] for file in files if file["future"])
        raise ClockBehind(
            f"{future} of {future + good} events lie in the future, in {name} first: the clock here says "
            f"{format_time(now)}. Nothing was taken: correct the clock, and run again. If it is right, "
            "a server's was wrong: move its files away"
        )


def pass_over(gone: Sequence[str], files: Sequence[Row]) -> None:
    """Log paths where tasks found no file any more; `files` are those that they read, as in FOUND.

    Such a file is not taken: should it come back, the next run takes it, or the next stream that starts, but
    not the stream that has passed it over. Raises FileNotFoundError where it is there: then a machine of the
    cluster does not see the directory; and where the directory is gone or not mounted.
    """
    for directory in sorted({Path(path).parent for path in gone}):
        check_there(directory)
    for path in gone:
        if Path(path).exists():
            raise FileNotFoundError(errno.ENOENT, "a task does not see this event file", path)
    names = sorted(shown(Path(path).name) for path in gone)
    end = _end(names, files)
    log.warning(
        "event files removed before they were read: %d, %s first%s; the tables lack their events",
        len(names),
        names[0],
        "" if end is None else f", all of before {format_time(end)}",
    )


def _end(names: Sequence[str], files: Sequence[Row]) -> int | None:
    """When all that files of these names held had happened, ms, by the files that follow each; None: that
    is not known of all."""
    last = dict(sorted(map(parse_name, names)))
    hours: dict[str, int] = {}
    for file in files:
        series, number = parse_name(file["name"])
        found = [hour for each in file["series"] for hour in each["hours"]]
        if found and number > last.get(series, number):
            hours[series] = min(*found, hours.get(series, found[0]))
    return (max(hours.values()) + 1) * HOUR_MS if hours.keys() == last.keys() else None


def _summed(work: Work, found: Sequence[Row]) -> Arrived:
    """The rows of all tasks as one; repeated events are taken out."""
    files = [file for task in found for file in task["files"]]
    series = [(file["name"], each) for file in files for each in file["series"]]
    events = sum(each["events"] for _, each in series)
    damaged = sum(file["damaged"] for file in files)
    sequences = dict(work.last.sequences)
    doubts = [_may_repeat(name, each, sequences) for name, each in series]
    repeated = any(doubts)
    if repeated:
        _take_out_repeated(work)
        events, damaged = work.came("events").count(), work.came("damaged").count()
    hours = sorted({hour for _, each in series for hour in each["hours"]})
    return Arrived(
        files=[EventFile(*parse_name(file["name"]), file["name"], 0) for file in files],
        events=events,
        damaged=damaged,
        hours=hours,
        days=sorted({day for task in found for day in task["days"]}),
        sequences=sequences,
        repeated=repeated,
        ended=[] if repeated else work.staging.came("recipients"),
        states=[] if repeated else work.staging.states(),
        last_hour=min(max(work.last.last_hour, *hours, 0), work.now // HOUR_MS),
    )


def _may_repeat(name: str, series: Row, sequences: Runs) -> bool:
    """Whether a file may hold ids that came before; its range is added to `sequences`.

    By its ids, not by its name: a copy under another name must not count.
    """
    prefix, number = parse_name(name)
    key, low, high = f"{series['node']}/{series['shard']}", series["low"], series["high"]
    if low is None:
        # A best-effort event's id is made of its file's name.
        return prefix != f"{series['node']}-{series['shard']}-b"
    repeated = overlaps(sequences, key, low, high)
    add_file(sequences, key, number, low, high)
    return repeated


def _take_out_repeated(work: Work) -> None:
    """Make damaged lines of the events that came in under ids that came before."""
    known = frames.read(work.spark, work.store, "events")
    told_apart = _told_apart(work.came("events"), known)
    frames.write_through(told_apart, work.staging.once, INTO, DAY)
    work.staging.replace_incoming()


def _told_apart(events: DataFrame, known: DataFrame) -> DataFrame:
    """Events with the table (`INTO`) that each is for: `damaged` if its id is a known one, or that of another
    of them in a file before it."""
    order = Window.partitionBy("id").orderBy("file")
    ranked = events.withColumn("_rank", F.row_number().over(order))
    before = known.select("id", F.lit(True).alias("_before")).distinct()
    again = (F.col("_rank") > 1) | F.col("_before").isNotNull()
    columns = {
        INTO: F.when(again, "damaged").otherwise("events"),
        DAY: F.when(again, F.lit(NEVER).cast("date")).otherwise(F.col(DAY)),
        "damage": F.when(again, F.lit(DOUBLED)),
        "raw": F.when(again, F.to_json(F.struct("id", "event", "at", "spid", "qid"))),
    }
    return ranked.join(before, ["id"], "left").withColumns(columns).drop("_rank", "_before")

"""What a batch does, step by step, below the lock of `Store.writing`."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import date, timedelta
from functools import cached_property, partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from mqcd.pipeline import frames
from mqcd.pipeline.sources.decode import AHEAD
from mqcd.pipeline.sources.schema import EVENT_TABLE, NEVER, spark_schema
from mqcd.pipeline.sources.segments import EventFile, joined, parse_name
from mqcd.pipeline.spark.session import little_work
from mqcd.pipeline.store.store import Commit, Store, overlaps, with_files
from mqcd.pipeline.tables.events import doubled
from mqcd.pipeline.tables.folding import LIFE, STATE
from mqcd.pipeline.tables.ledger import ledger
from mqcd.pipeline.tables.queue_age import MOST, queue_age
from mqcd.pipeline.tables.recipients import of_events, together
from mqcd.pipeline.tables.replies import refusals
from mqcd.pipeline.tables.times import HOUR_MS
from mqcd.pipeline.workers.counting import watching
from mqcd.pipeline.workers.intake import TOLD_DDL, TOLD_OF, intake
from mqcd.pipeline.workers.merging import MERGED_DDL, merging
from mqcd.pipeline.workers.parts import AGED, DONE, OPEN, take

Tell = Callable[[str, int, int], None]
_STEPS = 5 + len(frames.HOURLY)
_READING = "reading events"
_AGE = timedelta(days=7)
"""For so long recipients may stay unfinished and be written anew by each batch."""
_ADDED_TO = ("events", "damaged", "recipients")
_SMALL = 16 << 20
_LITTLE, _LITTLE_OPEN = 300_000, 16 << 20
"""Events of a batch, and octets of unfinished recipients, up to which it is little work."""
_WHOLE = "whole-"
"""How the staging directories of files that were put together begin."""


class Batch:
    """One batch."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        last: Commit,
        tell: Tell,
        *,
        now: int,
    ) -> None:
        """`now`: ms. What happened later than a server's clock may be ahead goes to `damaged`, and what the
        tables say of the present is of this moment."""
        self._spark = spark
        self._store = store
        self._last = last
        self._tell = tell
        self._now = now
        self._number = last.batch + 1
        self._staging = store.staging(self._number)
        self._remove: list[str] = []
        self._sequences = {series: [list(run) for run in runs] for series, runs in last.sequences.items()}
        self._hours: list[int] = []
        """The hours since 1970 in which something happened."""
        self._days: list[str] = []
        """The days on which the recipients were accepted that something happened to."""
        self._done = itertools.count()
        self._doubled = False
        """Whether ids came twice, so that recipients are not those that the workers made of the files."""

    def take(self, files: frames.Files) -> Commit:
        """All steps. Only what a task read to its end counts as taken, and so does a file without a line.
        Gives the last commit, and makes none, where there is no file."""
        self._tell(_READING, 0, 0)
        told = self._intake(files)
        if not told:
            return self._last
        taken = [
            EventFile(*parse_name(row["file"]), row["file"], 0) for row in told if row["damaged"] is not None
        ]
        counts = self._look(told)
        if counts["events"]:
            little = is_little(counts["events"], map(Path, self._unfinished))
            with little_work(self._spark) if little else nullcontext():
                self._tables()
        self._step("putting small files together")
        self._compact()
        commit = Commit(
            batch=self._number,
            taken=joined(self._last.taken, taken),
            sequences=self._sequences,
            move=[list(pair) for pair in self._moves()],
            remove=self._remove,
            last_hour=self._last_hour,
            counts={"files": len(taken), **counts},
        )
        self._step("committing")
        self._store.commit(commit)
        return commit

    def _step(self, what: str) -> None:
        self._tell(what, next(self._done), _STEPS)

    # ------------------------------------------------------------ events

    def _in(self, name: str) -> DataFrame:
        """What came in: `events` or `damaged`."""
        base = self._staging / "in" / f"{EVENT_TABLE}={name}"
        files = sorted(str(path) for path in base.glob("day=*/*.parquet"))
        return frames.read_files(self._spark, base, files, frames.schema_of(self._spark, name))

    def _intake(self, files: frames.Files) -> list[Row]:
        """Have the workers write what is in the files; gives what they tell of it."""
        with ThreadPoolExecutor(1) as threads:
            ahead = threads.submit(self._look_ahead)
            with watching(self._staging, files.octets, partial(self._tell, _READING)):
                told = files.map(intake(self._staging, before=self._now + AHEAD), TOLD_DDL).collect()
            ahead.result()
        self._name(told)
        return told

    def _look_ahead(self) -> None:
        """What will be asked for all the same: while Python reads a small batch, Java's processor is idle."""
        for table in frames.TABLES:
            self._schema(table)

    @staticmethod
    def _name(told: Iterable[Row]) -> None:
        for row in told:
            if row["part"] is not None:
                take(row["part"])

    @cached_property
    def _events(self) -> DataFrame:
        return self._in("events")

    def _look(self, told: Iterable[Row]) -> dict[str, int]:
        """Count what came in, and see that no id came twice: ids that did are put with what is damaged."""
        doubt = False
        count = damaged = 0
        hours: set[int] = set()
        days: set[str] = set()
        for row in told:
            damaged += row["damaged"] or 0
            days.update(row["days"] or ())
            if row["events"] is None:
                continue
            count += row["events"]
            hours.update(row["hours"])
            # By the ids, whatever the file is called: a copy under another name must not count.
            series, (name, number) = f"{row['node']}/{row['shard']}", parse_name(row["file"])
            if row["low"] is None:
                # Best effort: ids that are the file's own, as long as it has its name.
                doubt = doubt or name != f"{row['node']}-{row['shard']}-b"
                continue
            doubt = doubt or overlaps(self._sequences, series, row["low"], row["high"])
            with_files(self._sequences, series, number, row["low"], row["high"])
        if doubt:
            known = frames.read(self._spark, self._store, "events")
            again = doubled(self._events, known)
            frames.write_through(again, self._staging / "once", EVENT_TABLE, frames.DAY)
            self._replace_events()
            count, damaged = self._events.count(), self._in("damaged").count()
        self._hours, self._days = sorted(hours), sorted(days)
        return {"events": count, "damaged": damaged}

    def _replace_events(self) -> None:
        """Put events without doubled ones in the place of all that came."""
        came, once = self._staging / "in", self._staging / "once"
        for table in ("events", "recipients"):
            shutil.rmtree(came / f"{EVENT_TABLE}={table}", ignore_errors=True)
        for path in once.glob(f"{EVENT_TABLE}=*/*/*.parquet"):
            target = came / path.parent.relative_to(once) / f"once-{path.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
        del self._events
        self._doubled = True

    # ------------------------------------------------------------ tables

    def _tables(self) -> None:
        """All but `events` and `damaged`: those that are made of recipients beside those of events.

        Side by side: planning a job of a small batch keeps one processor busy for longer than its tasks do.
        """
        with ThreadPoolExecutor() as threads:
            for done in [threads.submit(job) for job in (self._of_recipients, self._of_events)]:
                done.result()

    def _of_recipients(self) -> None:
        self._step("recipients")
        self._recipients()
        self._step("ledger")
        self._ledger()
        self._step("queue_age")
        self._queue_age()

    def _of_events(self) -> None:
        events = self._touched()
        refused = refusals(events).persist()
        try:
            for table, make in frames.HOURLY.items():
                self._step(table)
                self._hourly(table, make, events, refused)
        finally:
            refused.unpersist()

    # ------------------------------------------------------------ recipients

    def _recipients(self) -> None:
        told = self._told()
        unfinished = list(self._unfinished)
        # Of old ones those whose lives this batch may have found whole.
        unfinished += [file for file in self._store.files("recipients", self._days) if _is(file, AGED)]
        if unfinished:
            # Also when nothing else is told: among them may be events that came before the rest of a life
            # which this batch has found whole.
            known = self._read("recipients", unfinished).select(*STATE.names)
            told = known if told is None else told.unionByName(known)
            self._remove += map(self._relative, unfinished)
        if told is None:
            return
        days = self._merge(together(told))
        if days:
            self._late(days)

    def _told(self) -> DataFrame | None:
        """What is to be folded with what was known."""
        if self._doubled:
            return of_events(self._events)
        files = sorted(map(str, (self._staging / TOLD_OF).glob("*.parquet")))
        return frames.reader(self._spark).schema(spark_schema(STATE)).parquet(*files) if files else None

    def _merge(self, rows: DataFrame) -> set[str]:
        """Have the workers fold rows and write recipients; gives the days of whom more may be known."""
        found = rows.mapInArrow(merging(self._staging, self._aged), MERGED_DDL).collect()
        self._name(found)
        return {day for row in found for day in row["strangers"] or ()}

    def _late(self, days: Iterable[str]) -> None:
        """Events of recipients who were finished or old already: their files are written anew."""
        read = set(self._remove)
        finished = [
            path
            for path in self._store.files("recipients", days)
            if not _is(path, OPEN) and self._relative(path) not in read
        ]
        staged = self._made()
        finished += [path for path in staged if f"kept={DONE}" in path and Path(path).parent.name[4:] in days]
        unfinished = [path for path in staged if f"kept={DONE}" not in path]
        old = F.col("day") < F.lit(self._aged)
        lives = self._rows(unfinished).where((F.col("accepts") == 0) | old).select(*LIFE)
        known = self._rows(finished).select(*LIFE, F.input_file_name().alias("path"))
        hits = known.join(lives, list(LIFE), "left_semi").select("path").distinct().collect()
        touched = [_local(row["path"]) for row in hits]
        if not touched:
            return
        rows = self._rows(touched).select(*STATE.names)
        found = rows.join(lives, list(LIFE), "left_semi")
        others = rows.join(lives, list(LIFE), "left_anti")
        both = together(found.unionByName(self._rows(unfinished).select(*STATE.names)))
        self._merge(both.unionByName(others))
        for path in (*touched, *unfinished):
            if path in staged:
                Path(path).unlink()
            else:
                self._remove.append(self._relative(path))

    @cached_property
    def _aged(self) -> date:
        """Whose message was made before this day is old. Most of those who are unfinished still are whom the
        log does not tell all of: what came before it began, or a file of it, is gone, and will never come."""
        return frames.EPOCH + timedelta(hours=self._last_hour) - _AGE

    @cached_property
    def _last_hour(self) -> int:
        """The last hour in which anything happened; never one to come, whatever a clock said."""
        return min(max(self._last.last_hour, *self._hours, 0), self._now // HOUR_MS)

    @cached_property
    def _unfinished(self) -> list[str]:
        """Files of those who were unfinished before this batch."""
        return [file for file in self._store.files("recipients") if _is(file, OPEN)]

    def _made(self) -> list[str]:
        """Files of recipients that this batch has made so far."""
        base = self._staging / "in" / f"{EVENT_TABLE}=recipients"
        return sorted(map(str, base.glob("kept=*/day=*/*.parquet")))

    def _rows(self, files: list[str]) -> DataFrame:
        """Recipients of this batch and of others. What lies in two trees Spark must be told of apart."""
        staged = set(self._made())
        base = self._staging / "in" / f"{EVENT_TABLE}=recipients"
        ours = frames.read_files(
            self._spark, base, sorted(staged.intersection(files)), self._schema("recipients")
        )
        return ours.unionByName(self._read("recipients", sorted(set(files) - staged)))

    def _after(self, days: Iterable[str] | None = None) -> DataFrame:
        """`recipients` as they are once this batch is committed."""
        gone = set(self._remove)
        stay = [file for file in self._store.files("recipients", days) if self._relative(file) not in gone]
        return self._rows([*stay, *self._made()])

    # ------------------------------------------------------------ what follows from them

    def _touched(self) -> DataFrame:
        """All events of the hours in which something happened."""
        first, last = self._hours[0], self._hours[-1]
        day = F.floor(F.unix_millis("at") / F.lit(HOUR_MS)).cast("long")
        known = frames.read(self._spark, self._store, "events", frames.days_of(self._hours))
        known = known.where(F.col("at") >= F.timestamp_millis(F.lit(first * HOUR_MS)))
        known = known.where(F.col("at") < F.timestamp_millis(F.lit((last + 1) * HOUR_MS)))
        return known.where(day.isin(self._hours)).unionByName(self._events)

    def _hourly(self, table: str, make: frames.Hourly, events: DataFrame, refused: DataFrame) -> None:
        rows = make(events, refused)
        hours = [hour * HOUR_MS for hour in self._hours]
        self._replace(table, rows, ~F.unix_millis("hour").isin(hours), frames.days_of(self._hours))

    def _ledger(self) -> None:
        rows = self._after(self._days).where(F.col("day").cast("string").isin(self._days))
        self._replace("ledger", ledger(rows), F.lit(False), self._days)

    def _queue_age(self) -> None:
        first, last = min(self._hours[0], self._last_hour), self._last_hour
        if self._last.last_hour:
            # Who waited through hours in which nothing happened waited all the same; and what was said of the
            # last one may have been said before its end.
            first = min(first, self._last.last_hour)
        before = F.unix_millis("hour") < F.lit(first * HOUR_MS)
        rows = queue_age(self._waited(first), first, last, self._now)
        days = frames.days_of(range(first, last + 1))
        known = {Path(file).parent.name.removeprefix("day=") for file in self._store.files("queue_age")}
        self._replace("queue_age", rows, before, [*days, *sorted(day for day in known if day > days[-1])])

    def _waited(self, first: int) -> DataFrame:
        """All who may have waited in that hour or later. Who ended before is most of the history: Parquet
        passes over most of those whose day does not tell."""
        (since,) = frames.days_of([first - MOST - 24])
        gone = set(self._remove)
        files = [
            file
            for file in self._store.files("recipients")
            if self._relative(file) not in gone
            and (Path(file).parent.name[4:] >= since or not _is(file, DONE))
        ]
        ended = F.col("ended")
        late = ended.isNull() | (ended >= F.timestamp_millis(F.lit(first * HOUR_MS)))
        return self._rows([*files, *self._made()]).where(late)

    def _replace(self, table: str, rows: DataFrame, keep: Column, days: Iterable[str]) -> None:
        """Write some days of a table anew: `rows`, and those that there were and that `keep` tells of."""
        files = self._store.files(table, days)
        if files:
            rows = rows.unionByName(self._read(table, files).where(keep))
        frames.write(rows, self._staging / table)
        self._remove += map(self._relative, files)

    # ------------------------------------------------------------ files

    def _compact(self) -> None:
        """Of tables that are only added to: where a day has many small files make one of them."""
        gone = set(self._remove)
        days = {*self._days, *frames.days_of(self._hours), NEVER}
        for table in _ADDED_TO:
            small: dict[str, list[str]] = {}
            for path in map(Path, self._store.files(table, days)):
                # Others of recipients are written anew when something is told of them, and keep their names.
                added = table != "recipients" or _is(path, DONE)
                stays = added and self._relative(str(path)) not in gone
                if stays and path.stat().st_size < _SMALL:
                    small.setdefault(path.parent.name, []).append(str(path))
            files = [file for each in small.values() if len(each) >= self._store.many for file in each]
            if not files:
                continue
            frames.write(self._read(table, files), self._staging / f"{_WHOLE}{table}")
            self._remove += map(self._relative, files)

    def _schema(self, table: str) -> StructType:
        return frames.schema_of(self._spark, table)

    def _read(self, table: str, files: list[str]) -> DataFrame:
        return frames.read_files(self._spark, self._store.table(table), files, self._schema(table))

    def _relative(self, path: str) -> str:
        return str(Path(path).relative_to(self._store.root))

    def _moves(self) -> Iterable[tuple[str, str]]:
        """Where each file that was made goes. Names tell the batch, so that none is ever used twice."""
        for index, path in enumerate(sorted(self._staging.rglob("*.parquet"))):
            parts = path.relative_to(self._staging).parts
            day = parts[-2]
            table, prefix = parts[0], ""
            if table == TOLD_OF:
                continue
            if table.startswith(_WHOLE):
                table = table.removeprefix(_WHOLE)
                prefix = DONE if table == "recipients" else ""
            elif table == "in":
                table = parts[1].partition("=")[2]
                prefix = parts[2].partition("=")[2] if table == "recipients" else ""
            name = f"{prefix}{self._number:010d}-{index:05d}.parquet"
            yield self._relative(str(path)), f"{table}/{day}/{name}"


def is_little(events: int, unfinished: Iterable[Path]) -> bool:
    """Whether a batch is little work. Who is unfinished is work too: after an outage they are millions."""
    return events <= _LITTLE and sum(path.stat().st_size for path in unfinished) <= _LITTLE_OPEN


def _is(path: str | Path, prefix: str) -> bool:
    return Path(path).name.startswith(prefix)


def _local(uri: str) -> str:
    """The path of a file that Spark names: `file:/...` or `file:///...`."""
    return unquote(urlsplit(uri).path)

"""Tables that follow from others: hours from events, `ledger` and `queue_age` from recipients."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mqcd.pipeline import frames
from mqcd.pipeline.batch.arrival import Arrived
from mqcd.pipeline.batch.work import Work
from mqcd.pipeline.store.layout import DONE, day_of, is_state
from mqcd.pipeline.tables.ledger import ledger
from mqcd.pipeline.tables.queue_age import MOST, queue_age
from mqcd.pipeline.tables.times import HOUR_MS


def touched_events(work: Work, arrived: Arrived) -> DataFrame:
    """All events of the hours that the batch has events of."""
    first, last = arrived.hours[0], arrived.hours[-1]
    hour = F.floor(F.unix_millis("at") / F.lit(HOUR_MS)).cast("long")
    known = frames.read(work.spark, work.store, "events", frames.days_of(arrived.hours))
    known = known.where(F.col("at") >= F.timestamp_millis(F.lit(first * HOUR_MS)))
    known = known.where(F.col("at") < F.timestamp_millis(F.lit((last + 1) * HOUR_MS)))
    return known.where(hour.isin(arrived.hours)).unionByName(work.came("events"))


def write_hourly(work: Work, arrived: Arrived, table: str, rows: DataFrame) -> None:
    """Replace the hours of one table of `frames.HOURLY`."""
    hours = [hour * HOUR_MS for hour in arrived.hours]
    work.replace(table, rows, ~F.unix_millis("hour").isin(hours), frames.days_of(arrived.hours))


def write_ledger(work: Work, arrived: Arrived) -> None:
    """Replace the days of acceptance that the batch is about."""
    files = [*work.staying("recipients", arrived.days), *work.staging.came("recipients")]
    rows = work.recipients(files).where(F.col("day").cast("string").isin(arrived.days))
    work.replace("ledger", ledger(rows), F.lit(False), arrived.days)


def write_queue_age(work: Work, arrived: Arrived) -> None:
    """Replace all hours from the first that the batch has events of, or from the last one known."""
    first, last = min(arrived.hours[0], arrived.last_hour), arrived.last_hour
    if work.last.last_hour:
        # Mail waited through hours without events as well, and the last hour may have been counted amid it.
        first = min(first, work.last.last_hour)
    before = F.unix_millis("hour") < F.lit(first * HOUR_MS)
    rows = queue_age(_waited(work, first), first, last, work.now)
    days = frames.days_of(range(first, last + 1))
    later = {day for day in map(day_of, work.store.files("queue_age")) if day > days[-1]}
    work.replace("queue_age", rows, before, [*days, *sorted(later)])


def _waited(work: Work, first: int) -> DataFrame:
    """Recipients that may have waited in that hour or later. Most of the history ended before: its files are
    left out by day, its rows by Parquet's statistics."""
    (since,) = frames.days_of([first - MOST - 24])
    files = [file for file in work.staying("recipients") if day_of(file) >= since or not is_state(file, DONE)]
    ended = F.col("ended")
    late = ended.isNull() | (ended >= F.timestamp_millis(F.lit(first * HOUR_MS)))
    return work.recipients([*files, *work.staging.came("recipients")]).where(late)


_ADDED_TO = ("events", "damaged", "recipients")
_SMALL = 16 << 20


def join_small_files(work: Work, days: set[str]) -> None:
    """Of tables that are only added to: where one of these days has many small files, make one of them."""
    for table in _ADDED_TO:
        small: dict[str, list[str]] = {}
        for path in work.staying(table, days):
            # Open recipients are written anew anyway, and their files keep their names.
            added = table != "recipients" or is_state(path, DONE)
            if added and Path(path).stat().st_size < _SMALL:
                small.setdefault(day_of(path), []).append(path)
        files = [file for each in small.values() if len(each) >= work.store.many for file in each]
        if files:
            frames.write(work.read(table, files), work.staging.whole(table))
            work.remove(files)

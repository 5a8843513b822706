"""The table `recipients`: what came in is folded with what was known of the same recipients.

A day has three kinds of files (`store.layout`), by what is known of the recipients in them:

| kind | recipients | a batch reads such a file and writes it anew |
|---|---|---|
| open | may still have events | always |
| aged | the same, accepted a week ago and more | when it has events of recipients of that day |
| done | have ended | when it has further events of one of them (`_revise`) |

The tasks that fold (`workers.tasks.merging`) write each row to the file of its kind. An example, with the
recipients B, C and D of messages that were accepted on the days 17, 18 and 18:

    known before                  what came in     folded                      written
    open 18: C waits              C delivered      C delivered                 done 18
                                  D accepted       D waits                     open 18
    done 17: A delivered,         B restored       B, its acceptance missing   open 17
             B removed

A recipient such as B is a stranger: a part of its life may lie in a done file, which was not read. The task
returns its day, 17. `_revise` looks for B in the done files of that day, finds the one above, and folds what
both files hold:

    done 17: A delivered                           A delivered                 done 17
    done 17: B removed            B restored       B waits                     open 17

The commit removes the files that were read; files that this batch has written itself go at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mqcd.pipeline import frames
from mqcd.pipeline.batch.arrival import Arrived
from mqcd.pipeline.batch.work import Work
from mqcd.pipeline.sources.schema import spark_schema
from mqcd.pipeline.store.layout import AGED, DONE, OPEN, day_of, is_state
from mqcd.pipeline.tables.folding import LIFE, STATE
from mqcd.pipeline.tables.recipients import of_events, together
from mqcd.pipeline.workers.tasks import MERGED_DDL, merging

_OPEN_FOR = timedelta(days=7)
"""How long recipients may stay open and be written anew by each batch. Most that stay open longer
do so for ever, because files with their other events do not exist any more."""


def open_files(work: Work) -> list[str]:
    """Files of recipients that were open before this batch."""
    return [file for file in work.store.files("recipients") if is_state(file, OPEN)]


def write_recipients(work: Work, arrived: Arrived) -> None:
    """Write the recipients that the batch is about, and all that were open, anew."""
    aged = frames.EPOCH + timedelta(hours=arrived.last_hour) - _OPEN_FOR
    rows = _new_states(work, arrived)
    known = open_files(work)
    known += [file for file in work.store.files("recipients", arrived.days) if is_state(file, AGED)]
    if known:
        # Also without new states: known ones may be the earlier part of a life that this batch completes.
        states = work.read("recipients", known).select(*STATE.names)
        rows = states if rows is None else rows.unionByName(states)
        work.remove(known)
    if rows is None:
        return
    strangers = _merge(work, together(rows), aged)
    if strangers:
        _revise(work, strangers, aged)


def _new_states(work: Work, arrived: Arrived) -> DataFrame | None:
    """What came in that is to be folded with what was known."""
    if arrived.repeated:
        return of_events(work.came("events"))
    files = work.staging.states()
    return frames.reader(work.spark).schema(spark_schema(STATE)).parquet(*files) if files else None


def _merge(work: Work, rows: DataFrame, aged: date) -> set[str]:
    """Have tasks fold rows and write recipients. Gives the days of the strangers among them: also of those
    that are still open, and were accepted before the day `aged`."""
    found = rows.mapInArrow(merging(work.staging.path, aged), MERGED_DDL).collect()
    work.staging.publish(part for task in found for part in task["parts"])
    return {day for task in found for day in task["strangers"]}


def _revise(work: Work, days: set[str], aged: date) -> None:
    """Fold the strangers of these days with what done and aged files hold of them; write both anew."""
    staged = work.staging.came("recipients")
    fresh = [path for path in staged if not is_state(path, DONE)]
    strange = (F.col("accepts") == 0) | (F.col("day") < F.lit(aged))
    lives = work.recipients(fresh).where(strange).select(*LIFE)
    finished = [path for path in work.staying("recipients", days) if not is_state(path, OPEN)]
    finished += [path for path in staged if is_state(path, DONE) and day_of(path) in days]
    touched = _holding(work, finished, lives)
    if not touched:
        return
    rows = work.recipients(touched).select(*STATE.names)
    theirs = rows.join(lives, list(LIFE), "left_semi")
    others = rows.join(lives, list(LIFE), "left_anti")
    both = together(theirs.unionByName(work.recipients(fresh).select(*STATE.names)))
    _merge(work, both.unionByName(others), aged)
    work.remove([*touched, *fresh])


def _holding(work: Work, files: Iterable[str], lives: DataFrame) -> list[str]:
    """Those files that have a row of one of these recipients."""
    rows = work.recipients(files).select(*LIFE, F.input_file_name().alias("uri"))
    hits = rows.join(lives, list(LIFE), "left_semi").select("uri").distinct().collect()
    # Spark names them `file:/...` or `file:///...`.
    return [unquote(urlsplit(row["uri"]).path) for row in hits]

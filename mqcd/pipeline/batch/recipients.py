"""The table `recipients`: what came in is folded with what was known of the same recipients.

A day has three kinds of files (`store.layout`), by what is known of the recipients in them:

| kind | recipients | a batch reads such a file and writes it anew |
|---|---|---|
| open | may still have events | always |
| aged | the same, a week old and more | for events of that day's mail, or of a stranger of it (`_revise`) |
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

`write_recipients` is given the files of the table before the batch and returns those after it: what each
step has read it leaves out, what it has written it puts in. The commit removes the former ones that are
missing in the latter; files that this batch has written itself go at once.
"""

from __future__ import annotations

from datetime import date, timedelta
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from mqcd.pipeline import frames
from mqcd.pipeline.batch.arrival import Arrived
from mqcd.pipeline.batch.files import RecipientFiles, plan_revision
from mqcd.pipeline.batch.work import Work
from mqcd.pipeline.store.layout import AGED, OPEN, day_of, is_state
from mqcd.pipeline.tables.folding import LIFE, STATE
from mqcd.pipeline.tables.recipients import of_events, together
from mqcd.pipeline.workers.tasks import MERGED, merging

_OPEN_FOR = timedelta(days=7)
"""How long recipients may stay open and be written anew by each batch. Most that stay open longer
do so for ever, because files with their other events do not exist any more."""


def open_files(files: RecipientFiles) -> RecipientFiles:
    """Those of recipients that were open when they were written."""
    return files.where(lambda path: is_state(path, OPEN))


def write_recipients(work: Work, arrived: Arrived, before: RecipientFiles) -> RecipientFiles:
    """Write the recipients that the batch is about, and all that were open, anew."""
    aged = frames.EPOCH + timedelta(hours=arrived.last_hour) - _OPEN_FOR
    days = set(arrived.days)
    known = before.where(lambda path: is_state(path, OPEN) or (is_state(path, AGED) and day_of(path) in days))
    # `ended` is not folded again: all events of these recipients were in what one task has read.
    after = RecipientFiles(committed=before.without(known).committed, staged=arrived.ended)
    rows = _new_states(work, arrived)
    if known:
        # Also without new states: known ones may be the earlier part of a life that this batch completes.
        states = work.recipients(known).select(*STATE.names)
        rows = states if rows is None else rows.unionByName(states)
    if rows is None:
        return after
    merged, strangers = _merge(work, together(rows), aged)
    after = after.adding(merged)
    return _revise(work, after, strangers, aged) if strangers else after


def _new_states(work: Work, arrived: Arrived) -> DataFrame | None:
    """What came in that is to be folded with what was known."""
    if arrived.repeated:
        return of_events(work.came("events"))
    if not arrived.states:
        return None
    return frames.reader(work.spark).schema(from_arrow_schema(STATE)).parquet(*arrived.states)


def _merge(work: Work, rows: DataFrame, aged: date) -> tuple[list[str], set[str]]:
    """Have tasks fold rows and write recipients. Gives the files, and the days of the strangers in them: also
    of those that are still open, and were accepted before the day `aged`."""
    found = rows.mapInArrow(merging(work.staging.path, aged), from_arrow_schema(MERGED)).collect()
    merged = work.staging.publish(part for task in found for part in task["parts"])
    return merged, {day for task in found for day in task["strangers"]}


def _revise(work: Work, files: RecipientFiles, days: set[str], aged: date) -> RecipientFiles:
    """Fold the strangers of these days with what done and aged files hold of them; write both anew."""
    plan = plan_revision(files, days)
    fresh = work.recipients(plan.fresh)
    # As in `workers.tasks._merge`, where an old one must be open, too: in fresh files all are, and one
    # without acceptance always is (`folding`).
    strange = (F.col("accepts") == 0) | (F.col("day") < F.lit(aged))
    lives = fresh.where(strange).select(*LIFE)
    touched = _holding(work, plan.finished, lives)
    if not touched:
        return files
    rows = work.recipients(touched).select(*STATE.names)
    theirs = rows.join(lives, list(LIFE), "left_semi")
    others = rows.join(lives, list(LIFE), "left_anti")
    both = together(theirs.unionByName(fresh.select(*STATE.names)))
    # Strangers that are left are not looked for again: all files of their days have been looked through.
    merged, _ = _merge(work, both.unionByName(others), aged)
    replaced = plan.replaced(touched)
    work.staging.discard(replaced.staged)
    return files.without(replaced).adding(merged)


def _holding(work: Work, files: RecipientFiles, lives: DataFrame) -> RecipientFiles:
    """Those files that have a row of one of these recipients."""
    rows = work.recipients(files).select(*LIFE, F.input_file_name().alias("uri"))
    hits = rows.join(lives, list(LIFE), "left_semi").select("uri").distinct().collect()
    # Spark names them `file:/...` or `file:///...`.
    paths = {unquote(urlsplit(row["uri"]).path) for row in hits}
    if strange := paths - {*files.committed, *files.staged}:
        raise ValueError(f"Spark names files otherwise than this batch: {sorted(strange)}")
    return files.where(paths.__contains__)

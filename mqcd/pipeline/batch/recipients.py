"""The table `recipients`: what came in is folded with what was known of the same recipients.

A day has three kinds of files (`store.layout`), by what is known of the recipients in them:

| kind | recipients | a batch writes it anew |
|---|---|---|
| open | may still have events | always |
| aged | the same, accepted long ago | when it has events of that day |
| done | have ended | when it has further events of one of them (`_revise`) |

The workers that fold (`workers.merging`) write each row to the file of its kind, and return the days of
recipients that only have a part of their life here (`strangers`): the other part may lie in a done file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
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
from mqcd.pipeline.workers.merging import MERGED_DDL, merging
from mqcd.pipeline.workers.parts import publish


def open_files(work: Work) -> list[str]:
    """Files of recipients that were open before this batch."""
    return [file for file in work.store.files("recipients") if is_state(file, OPEN)]


def write_recipients(work: Work, arrived: Arrived) -> None:
    """Write the recipients that the batch is about, and all that were open, anew."""
    rows = _new_states(work, arrived)
    # Of old ones those whose lives this batch may have completed.
    known = open_files(work)
    known += [file for file in work.store.files("recipients", arrived.days) if is_state(file, AGED)]
    if known:
        # Also without new states: known ones may be the earlier part of a life that this batch completes.
        states = work.read("recipients", known).select(*STATE.names)
        rows = states if rows is None else rows.unionByName(states)
        work.remove(known)
    if rows is None:
        return
    days = _merge(work, arrived, together(rows))
    if days:
        _revise(work, arrived, days)


def _new_states(work: Work, arrived: Arrived) -> DataFrame | None:
    """What came in that is to be folded with what was known."""
    if arrived.repeated:
        return of_events(work.came("events"))
    files = work.staging.states()
    return frames.reader(work.spark).schema(spark_schema(STATE)).parquet(*files) if files else None


def _merge(work: Work, arrived: Arrived, rows: DataFrame) -> set[str]:
    """Have the workers fold rows and write recipients. Gives the days of recipients of which more may be
    known in files that were not read."""
    merged = merging(work.staging.path, arrived.aged)
    found = rows.mapInArrow(merged, MERGED_DDL).collect()
    publish(row["part"] for row in found)
    return {day for row in found for day in row["strangers"] or ()}


def _revise(work: Work, arrived: Arrived, days: Iterable[str]) -> None:
    """Events of recipients that were done or old already: the files that hold those are written anew."""
    days = set(days)
    staged = work.staging.came("recipients")
    fresh = [path for path in staged if not is_state(path, DONE)]
    done = [path for path in work.staying("recipients", days) if not is_state(path, OPEN)]
    done += [path for path in staged if is_state(path, DONE) and day_of(path) in days]
    old = F.col("day") < F.lit(arrived.aged)
    lives = work.recipients(fresh).where((F.col("accepts") == 0) | old).select(*LIFE)
    known = work.recipients(done).select(*LIFE, F.input_file_name().alias("path"))
    hits = known.join(lives, list(LIFE), "left_semi").select("path").distinct().collect()
    touched = [_local(row["path"]) for row in hits]
    if not touched:
        return
    rows = work.recipients(touched).select(*STATE.names)
    found = rows.join(lives, list(LIFE), "left_semi")
    others = rows.join(lives, list(LIFE), "left_anti")
    both = together(found.unionByName(work.recipients(fresh).select(*STATE.names)))
    _merge(work, arrived, both.unionByName(others))
    replaced = {*touched, *fresh}
    for path in replaced.intersection(staged):
        Path(path).unlink()
    work.remove(sorted(replaced.difference(staged)))


def _local(uri: str) -> str:
    """The path of a file that Spark names: `file:/...` or `file:///...`."""
    return unquote(urlsplit(uri).path)

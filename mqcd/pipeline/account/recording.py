"""What an account has found, put into the table `ledger`: which of an hour's mail is still in the queue.

The columns hold for as long as nothing happens to that day's mail: a batch that brings an event of it writes
the day anew, without them.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mqcd.pipeline import frames
from mqcd.pipeline.store.layout import below
from mqcd.pipeline.store.store import Commit, Store
from mqcd.pipeline.tables.ledger import ledger
from mqcd.pipeline.tables.times import day_of, hour_of, spid_ms

_COUNTS = {"files": 0, "events": 0, "damaged": 0}


def settle(store: Store, last: Commit, recipients: DataFrame, elsewhere: DataFrame) -> None:
    """Write the table anew, below the lock of `Store.writing`; `last` is the last commit.

    `recipients`: with `queued` and `quarantined`, see `with_homes`; `elsewhere`: those of other nodes, of
    whom that is not known. Raises OSError, and what Spark raises.
    """
    number = last.batch + 1
    staging = store.staging(number)
    frames.write(ledger(_dated(recipients)).unionByName(ledger(elsewhere)), staging.anew("ledger"))
    known = below(store.root, store.files("ledger"))
    store.commit(replace(last, batch=number, move=list(staging.moves()), remove=known, counts=_COUNTS))


def _dated(recipients: DataFrame) -> DataFrame:
    """The SPID says when recipients that only the queue knows were accepted."""
    made = spid_ms(F.col("spid"))
    return recipients.withColumns(
        {"day": F.coalesce("day", day_of(made)), "hour": F.coalesce("hour", hour_of(made))}
    )

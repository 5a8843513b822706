"""The success-by-delay curve of each site, from `events`: of retries so late, how many succeeded.

Only of recipients whose first attempt was put off in a transaction, by words that say that it passes by
itself, such as those of greylisting. Where no server answers mqcd probes by itself, and a later first
retry would only have it probe later. Replies that ask for less have an answer of their own, and a full
mailbox says nothing of its site.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from mqcd.core.events import Verb
from mqcd.pipeline.advice.decisions import STEPS, Rules
from mqcd.pipeline.advice.pressure import TAKEN_UP, asks_for_less
from mqcd.pipeline.tables.folding import KEY
from mqcd.pipeline.tables.replies import words_of
from mqcd.pipeline.tables.times import DAY_MS

_VERDICTS = (Verb.DELIVERED, Verb.DEFERRED, Verb.EXPIRED)
_PASSING = r"gr[ae]y.?list|try again|come back|temporarily"


def curves(events: DataFrame, rules: Rules, since: int) -> DataFrame:
    """Rows of `site`, `step` (its number), `least` and `vain` (ms, see `Step`), `retries`, `taken`; and of
    the site, on how many `days` there were `all` of its retries."""
    words = words_of(F.col("reply"))
    passing = words.rlike(_PASSING) & F.col("phase").isin(*TAKEN_UP) & ~asks_for_less()
    selected = events.where(
        F.col("event").isin(*(verb.value for verb in _VERDICTS))
        & F.col("site").isNotNull()
        & (F.col("at") >= F.timestamp_millis(F.lit(since)))
    )
    rows = selected.select(
        "site", *KEY, "attempt", F.unix_millis("at").alias("at"), "event", passing.alias("passing")
    )
    life = Window.partitionBy(*KEY).orderBy("attempt")
    seen = rows.select(
        "*", F.first("at").over(life).alias("first"), F.first("passing").over(life).alias("of_them"),
        F.first("attempt").over(life).alias("number"),
    )  # fmt: skip
    # A first verdict that is not of the first attempt: what came before it is not known.
    retries = seen.where((F.col("attempt") > 1) & F.col("of_them") & (F.col("number") == 1))
    # What fails now for another reason says nothing about this one.
    retries = retries.where(F.col("passing") | (F.col("event") == Verb.DELIVERED.value))
    waited = F.col("at") - F.col("first")
    step = F.lit(0)
    for number, begin in enumerate(STEPS):
        step = F.when(waited >= begin, F.lit(number)).otherwise(step)
    taken = F.col("event") == Verb.DELIVERED.value
    found = retries.groupBy("site", step.alias("step")).agg(
        F.coalesce(F.min(F.when(taken, waited)), F.min(waited)).alias("least"),
        F.coalesce(F.max(F.when(~taken, waited)), F.lit(0)).alias("vain"),
        F.count("*").alias("retries"),
        F.count_if(taken).alias("taken"),
    )
    most = (
        retries.groupBy("site")
        .agg(
            F.count("*").alias("all"), F.count_distinct(F.floor(F.col("first") / F.lit(DAY_MS))).alias("days")
        )
        .orderBy(F.desc("all"), "site")
        .limit(rules.sites)
    )
    return found.join(most, "site")

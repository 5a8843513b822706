"""Hours and days that do not depend on the session's time zone. Pure expressions."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from mqcd.core.queueing.spid import EPOCH_MS

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def day_of(ms: Column) -> Column:
    """The UTC day of a time in ms."""
    return F.date_from_unix_date(F.floor(ms / F.lit(DAY_MS)).cast("int"))


def hour_of(ms: Column) -> Column:
    """The beginning of its UTC hour."""
    return F.timestamp_millis(F.floor(ms / F.lit(HOUR_MS)) * F.lit(HOUR_MS))


def spid_ms(spid: Column) -> Column:
    """When a SPID was made, ms since the Unix epoch: its upper 41 bits."""
    # As two halves, for a SPID fills 64 bits and conv's result may not fit a signed number.
    upper = F.conv(F.substring(spid, 1, 11), 16, 10).cast("long")
    return F.floor(upper / F.lit(8)).cast("long") + F.lit(EPOCH_MS)

"""A table as one CSV file, written by the tasks and put together on disk: nothing is gathered.

Times are RFC 3339 UTC with milliseconds, lists and structs are JSON, no value is an empty field, and ""
is a quoted empty one.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

_CHUNK = 1 << 20


def export(frame: DataFrame, target: Path) -> int:
    """Write the rows below a line of names; gives the file's octets. Raises OSError.

    The file appears whole or not at all.
    """
    target = target.absolute()
    parts = target.with_name(f".{target.name}.{os.getpid()}.parts")
    whole = parts.with_suffix(".tmp")
    columns = [_text(F.col(field.name), field.dataType).alias(field.name) for field in frame.schema]
    try:
        writer = frame.select(*columns).write.option("escape", '"').option("emptyValue", '""')
        writer.option("ignoreLeadingWhiteSpace", "false").option("ignoreTrailingWhiteSpace", "false")
        writer.option("nullValue", "").option("lineSep", "\n").mode("overwrite").csv(str(parts))
        with whole.open("wb") as out:
            out.write(_head(frame.columns))
            for part in sorted(parts.glob("part-*")):
                with part.open("rb") as rows:
                    shutil.copyfileobj(rows, out, _CHUNK)
            size = out.tell()
        whole.replace(target)
        return size
    finally:
        shutil.rmtree(parts, ignore_errors=True)
        whole.unlink(missing_ok=True)


def _head(names: list[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(names)
    return line.getvalue().encode()


def _text(column: Column, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        # Of the time in UTC, whatever the session's zone.
        utc = F.to_utc_timestamp(column, F.current_timezone())
        return F.date_format(utc, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
    if isinstance(kind, ArrayType | MapType | StructType):
        return F.to_json(column)
    return column

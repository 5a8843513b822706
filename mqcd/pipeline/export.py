"""A table as one CSV file, written by the tasks and put together on disk: nothing is gathered.

Times are RFC 3339 UTC with milliseconds, lists and structs are JSON, no value is an empty field, and ""
is a quoted empty one. Strangers choose addresses and replies, and a spreadsheet computes what begins as a
formula does: such text gets a ' in front, and so does text that begins with ' itself. A program that takes
one ' away from each cell that begins with one has what was there. The file is its owner's alone.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
from pathlib import Path
from tempfile import mkdtemp

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType, TimestampType

_CHUNK = 1 << 20
_GUARD = "'"
_GUARDED = "^(?=['=+@\\-\\t\\r\\n\uff1d\uff0b\uff0d\uff20])"
"""The beginning of what a spreadsheet may take for a formula: in some languages full-width signs, too."""


def export(frame: DataFrame, target: Path) -> int:
    """Write the rows below a line of names; gives the file's octets. Raises OSError.

    The file appears whole or not at all.
    """
    target = target.absolute()
    private = Path(mkdtemp(prefix=f".{target.name}.", suffix=".parts", dir=target.parent))
    parts, whole = private / "rows", private / "whole"
    columns = [_text(F.col(field.name), field.dataType).alias(field.name) for field in frame.schema]
    try:
        writer = frame.select(*columns).write.option("escape", '"').option("emptyValue", '""')
        writer.option("ignoreLeadingWhiteSpace", "false").option("ignoreTrailingWhiteSpace", "false")
        writer.option("nullValue", "").option("lineSep", "\n").mode("overwrite").csv(str(parts))
        with os.fdopen(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(_head(frame.columns))
            for part in sorted(parts.glob("part-*")):
                with part.open("rb") as rows:
                    shutil.copyfileobj(rows, out, _CHUNK)
            size = out.tell()
        whole.replace(target)
        return size
    finally:
        shutil.rmtree(private, ignore_errors=True)


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
    return F.regexp_replace(column, _GUARDED, _GUARD) if isinstance(kind, StringType) else column

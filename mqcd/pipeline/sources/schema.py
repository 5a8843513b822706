"""The fields of an event, as Arrow reads them and as Spark keeps them.

One table says it for both: `from_arrow_schema` makes Spark's of any Arrow schema. Fields that it does not
name are those of a newer server and are passed over; `v` beyond `SCHEMA_VERSION` means that a known field has
another meaning, so such events are not read.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

TIME = pa.timestamp("us", "UTC")
"""Times in Arrow, as Spark keeps them."""

FIELDS: tuple[tuple[str, pa.DataType], ...] = (
    ("v", pa.int32()),
    ("id", pa.string()),
    ("event", pa.string()),
    ("at", TIME),
    ("spid", pa.string()),
    ("qid", pa.int32()),
    ("sender", pa.string()),
    ("recipient", pa.string()),
    ("domain", pa.string()),
    ("size", pa.int64()),
    ("recipients", pa.int32()),
    ("origin", pa.string()),
    ("listener", pa.string()),
    ("client", pa.string()),
    ("user", pa.string()),
    ("zone", pa.string()),
    ("tenant", pa.string()),
    ("tls", pa.string()),
    ("attempt", pa.int32()),
    ("destination", pa.string()),
    ("site", pa.string()),
    ("remote_host", pa.string()),
    ("remote_addr", pa.string()),
    ("source_addr", pa.string()),
    ("code", pa.int32()),
    ("status", pa.string()),
    ("reply", pa.string()),
    ("phase", pa.string()),
    ("class", pa.string()),
    ("connect_ms", pa.int64()),
    ("attempt_ms", pa.int64()),
    ("queued_ms", pa.int64()),
    ("due", TIME),
    ("possibly_delivered", pa.bool_()),
    ("report", pa.string()),
    ("reason", pa.string()),
    ("batch", pa.string()),
    ("by", pa.string()),
    ("until", TIME),
    ("target", pa.string()),
    ("undoes", pa.string()),
    ("undone", pa.string()),
    ("session", pa.string()),
    ("message_id", pa.string()),
    ("command", pa.string()),
    ("left_out", pa.int64()),
)
"""As they stand in a line of JSON, in the manner of docs/events.md."""

OWN: tuple[tuple[str, pa.DataType], ...] = (
    ("node", pa.string()),
    ("shard", pa.int32()),
    ("sequence", pa.int64()),
    ("file", pa.string()),
    ("damage", pa.string()),
    ("raw", pa.string()),
)
"""Added by the source: the parts of `id` (a best-effort event has no sequence), the file that it stands in,
and for a line that cannot be read why, and its text."""

LINE = pa.schema(FIELDS)
ARROW = pa.schema([*FIELDS, *OWN])
"""What the source gives."""
EVENTS = from_arrow_schema(ARROW)
"""The same for Spark; every field may be missing."""
DAMAGED = ("file", "damage", "raw")
"""Columns of lines that cannot be read."""
EVENT_FIELDS = tuple(name for name in ARROW.names if name not in ("damage", "raw"))
"""Columns of lines that can be read."""
NEVER = "1970-01-01"
"""The day of lines that cannot be read."""

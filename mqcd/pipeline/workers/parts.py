"""Parquet files that a task writes by itself, past Java: one for each place below the staging directory.

Their names end in `.part` until the task has reported them to the driver (`publish`), so what a failed task
has written never counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mqcd.pipeline.store.layout import incoming

PART = ".part"
_DIVERSE = {
    "id", "spid", "at", "due", "sequence", "queued_ms", "attempt_ms", "raw", "accepted", "first_attempt",
    "ended", "last_event", "delivered_sequence", "last_sequence", "latency_ms",
}  # fmt: skip
"""Columns of which a dictionary would soon be full."""


def publish(parts: Iterable[str | None]) -> None:
    """Give parts their final names; rows without one say something else."""
    for path in (Path(part) for part in parts if part is not None):
        path.rename(path.with_suffix(".parquet"))


class Parts:
    """The files of one task."""

    def __init__(self, base: Path) -> None:
        self.names: list[str] = []
        self._base = base
        self._writers: dict[str, pq.ParquetWriter] = {}

    def close(self) -> None:
        """Before this none of them can be read."""
        for writer in self._writers.values():
            writer.close()
        # The worker lives on beside Java, which needs the memory next.
        pa.default_memory_pool().release_unused()

    def add(self, table: str, rows: pa.Table, days: pa.ChunkedArray, state: str = "") -> None:
        """Rows of a table, each with its day; `state` is that of recipients."""
        found = pc.unique(days)
        for day in found:
            these = rows if len(found) == 1 else rows.filter(pc.equal(days, day))
            self.write(incoming(table, day, state), these)

    def write(self, place: str, rows: pa.Table) -> None:
        """Rows that are alike for each place."""
        if not rows.num_rows:
            return
        writer = self._writers.get(place)
        if writer is None:
            path = self._base / place / f"{uuid.uuid4().hex}{PART}"
            path.parent.mkdir(parents=True, exist_ok=True)
            plain = [name for name in rows.column_names if name not in _DIVERSE]
            writer = pq.ParquetWriter(path, rows.schema, use_dictionary=plain, write_statistics=True)
            self._writers[place] = writer
            self.names.append(str(path))
        writer.write_table(rows)

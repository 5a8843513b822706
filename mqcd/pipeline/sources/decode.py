"""An event file's octets as Arrow batches; what cannot be read becomes rows that say so.

A file whose lines are all good is parsed by Arrow at once. Any doubt (a torn file, a line that is no
object, a field of another type, a newer version, a time that cannot be, an id that is not one or comes twice)
sends the file's lines one by one through Python, and each bad line becomes a row with `damage` and `raw` and
nothing else but its file.
So no line vanishes: rows given = lines in the file, empty lines left out; a file that ends early gives one
row more. What is no regular file gives one row as well, and is never waited for.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from mqcd.core.events import SCHEMA_VERSION
from mqcd.pipeline.sources.schema import ARROW, FIELDS, LINE, TIME
from mqcd.pipeline.sources.segments import quoted, shown

_GZIP = 31
_BLOCK = 1 << 22
_ROWS = 20_000
"""Rows of a batch at most."""
_RAW = 4096
"""Characters that are kept of a line that cannot be read."""
_MUST = ("v", "id", "event", "at")
_PARSE = pj.ParseOptions(explicit_schema=LINE, unexpected_field_behavior="ignore")
_READ = pj.ReadOptions(use_threads=False, block_size=_BLOCK)
_ID = re.compile(r"(?P<prefix>(?P<node>.+)/(?P<shard>\d{1,9})/(?P<file>b\d+-)?)(?P<number>\d{1,18})")
"""node/shard/sequence, or node/shard/b<file>-<number> of a best-effort event, which has no sequence."""
DOUBLED = "doubled id"
"""What is said of an event whose id another one had before."""
FUTURE = "at lies in the future"
"""What is said of one that did not happen in time."""
GONE = "removed before it was read"
"""What is said of a file where a row has to say it."""
_KINDS: dict[pa.DataType, type] = {
    pa.int32(): int,
    pa.int64(): int,
    pa.string(): str,
    pa.bool_(): bool,
}
_LIMITS = {pa.int32(): 1 << 31, pa.int64(): 1 << 63}
_TIMES = tuple(name for name, kind in FIELDS if kind == TIME)
_EARLIEST, LATEST = 0, 4_102_444_800_000
"""1970 and 2100, ms: between these a server's clock may be. SPIDs end before; and times that only some
calendars know would fail every batch that meets them."""
AHEAD = 86_400_000
"""Ms that a server's clock may be ahead of ours. One event of next year would be the newest for a year."""
_KINDS_OF_FILE = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_events(path: Path, before: int = LATEST) -> Iterator[pa.RecordBatch]:
    """The rows of a file; see `decode`.

    Raises FileNotFoundError for one that is gone, another OSError for one that cannot be read; both name it.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            # Should a FIFO take its place meanwhile: to open that must not wait for a writer.
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                data = file.read()
        else:
            what = _KINDS_OF_FILE.get(stat.S_IFMT(mode), "of another kind")
            yield damaged_file(path, f"no regular file: {what}")
            return
    except OSError as error:
        if error.errno != errno.ELOOP:
            # What fails once the file is open does not name it.
            error.filename = str(path)
            raise
        yield damaged_file(path, "no regular file: a loop of symbolic links")
        return
    yield from decode(shown(path.name), data, before)


def damaged_file(path: Path, damage: str) -> pa.RecordBatch:
    """A row that says why nothing of a file can be read."""
    return pa.RecordBatch.from_pylist([{"file": shown(path.name), "damage": damage}], schema=ARROW)


def decode(name: str, data: bytes, before: int = LATEST) -> Iterator[pa.RecordBatch]:
    """The rows of a file, given its name as text and its octets as they lie on disk.

    An event that did not happen `before`, ms, is damage.
    """
    text, torn = unpack(data)
    table = None if torn else _at_once(text, before)
    if table is None:
        table = _line_by_line(text, torn, before)
    count = table.num_rows
    file = pa.array([name], pa.string()).take(pa.array([0] * count, pa.int8()))
    table = table.set_column(table.schema.get_field_index("file"), "file", file)
    yield from table.select(ARROW.names).to_batches(max_chunksize=_ROWS)


def unread_file(path: str) -> pa.RecordBatch:
    """A row that names a file, by its quoted path."""
    return pa.RecordBatch.from_pylist([{"file": quoted(path)}], schema=ARROW)


def unpack(data: bytes) -> tuple[bytes, str]:
    """What gzip holds, of all its members, and what is wrong with it, or ""."""
    parts = []
    while data:
        unpacker = zlib.decompressobj(wbits=_GZIP)
        try:
            parts.append(unpacker.decompress(data))
        except zlib.error as error:
            return b"".join([*parts, _salvage(data)]), f"gzip: {error}"
        if not unpacker.eof:
            return b"".join(parts), "gzip: the file ends early"
        data = unpacker.unused_data
    return b"".join(parts), ""


def _salvage(data: bytes) -> bytes:
    """What can be had before the place that is damaged."""
    unpacker = zlib.decompressobj(wbits=_GZIP)
    found = bytearray()
    with suppress(zlib.error):
        for at in range(0, len(data), 512):
            found += unpacker.decompress(data[at : at + 512])
    return bytes(found)


def _at_once(text: bytes, before: int) -> pa.Table | None:
    """All lines; None when one of them is in doubt."""
    if not text:
        return _complete(LINE.empty_table(), "", 0)
    if not text.endswith(b"\n"):
        return None
    try:
        table = pj.read_json(pa.BufferReader(text), parse_options=_PARSE, read_options=_READ)
    except pa.ArrowInvalid:
        return None
    if table.num_rows != text.count(b"\n") or any(table[name].null_count for name in _MUST):
        return None
    if pc.max(table["v"]).as_py() > SCHEMA_VERSION or not all(
        _possible(table[name], _end(name, before)) for name in _TIMES
    ):
        return None
    match = _ID.fullmatch(table["id"][0].as_py())
    if match is None or not pc.all(pc.starts_with(table["id"], match["prefix"])).as_py():
        return None
    try:
        numbers = pc.utf8_slice_codeunits(table["id"], len(match["prefix"])).cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    if len(numbers) > 1 and pc.min(pc.subtract(numbers[1:], numbers[:-1])).as_py() <= 0:
        return None
    return _complete(table, match["node"], int(match["shard"]), None if match["file"] else numbers)


def _end(name: str, before: int) -> int:
    """What a time must lie before, ms. When mail is due may be far away."""
    return before if name == "at" else LATEST


def _possible(times: pa.ChunkedArray, end: int) -> bool:
    span = pc.min_max(times.cast(pa.int64())).as_py()
    return span["min"] is None or (span["min"] >= _EARLIEST * 1000 and span["max"] < end * 1000)


def _complete(table: pa.Table, node: str, shard: int, sequence: pa.ChunkedArray | None = None) -> pa.Table:
    zeros = pa.array([0] * table.num_rows, pa.int8())
    nothing = pa.nulls(table.num_rows, pa.string())
    columns = {
        "node": pa.array([node], pa.string()).take(zeros),
        "shard": pa.array([shard], pa.int32()).take(zeros),
        "sequence": pa.nulls(table.num_rows, pa.int64()) if sequence is None else sequence,
        "file": nothing,
        "damage": nothing,
        "raw": nothing,
    }
    for name, column in columns.items():
        table = table.append_column(pa.field(name, ARROW.field(name).type), column)
    return table


def _line_by_line(text: bytes, torn: str, before: int) -> pa.Table:
    rows = []
    seen: set[str] = set()
    lines = text.split(b"\n")
    last = lines.pop()
    for line in filter(bytes.strip, lines):
        row = _row(line, before)
        name = row.get("id", "")
        if name in seen:
            row = {"damage": DOUBLED, "raw": _text(line)}
        elif name:
            seen.add(name)
        rows.append(row)
    if last and not torn:
        torn = "the last line is cut off"
    if torn:
        rows.append({"damage": torn, "raw": _text(last)})
    return pa.Table.from_pylist(rows, schema=ARROW)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")[:_RAW]


def _row(line: bytes, before: int) -> dict[str, Any]:
    try:
        return _event(json.loads(line), before)
    except (ValueError, RecursionError) as error:
        return {"damage": str(error)[:_RAW], "raw": _text(line)}


def _event(event: object, before: int) -> dict[str, Any]:
    """The row of one event. Raises ValueError."""
    if not isinstance(event, dict):
        raise ValueError("not an object")
    for name in _MUST:
        if event.get(name) is None:
            raise ValueError(f"no {name}")
    if isinstance(event["v"], int) and event["v"] > SCHEMA_VERSION:
        raise ValueError(f"version {event['v']} is not known here; a newer mqcd reads it")
    row = {
        name: _value(name, kind, event[name], _end(name, before))
        for name, kind in FIELDS
        if event.get(name) is not None
    }
    match = _ID.fullmatch(str(row["id"]))
    if match is None:
        raise ValueError(f"id {row['id']!r:.80} is not node/shard/sequence")
    sequence = None if match["file"] else int(match["number"])
    return row | {"node": match["node"], "shard": int(match["shard"]), "sequence": sequence}


def _value(name: str, kind: pa.DataType, value: object, end: int) -> object:
    wanted = _KINDS.get(kind)
    if wanted is None:
        if not isinstance(value, str):
            raise ValueError(f"{name} is not a time")
        at = datetime.fromisoformat(value)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        ms = at.timestamp() * 1000
        if not _EARLIEST <= ms < LATEST:
            raise ValueError(f"{name} is no time of a server")
        if ms >= end:
            raise ValueError(FUTURE)
        return at
    if type(value) is not wanted:
        raise ValueError(f"{name} is not of its type")
    if wanted is int and not -_LIMITS[kind] <= value < _LIMITS[kind]:  # type: ignore[operator]
        raise ValueError(f"{name} is too large")
    if wanted is str:
        # Lone surrogates, which JSON can write and UTF-8 cannot.
        value.encode()  # type: ignore[attr-defined]
    return value

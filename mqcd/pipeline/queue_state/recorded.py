"""What the queue itself says at one moment, put where Spark can read it.

`record` reads a clustered-file queue under one pin and writes, below a directory of its own: the recipients
in the queue and in its quarantine, and the events of the journal's segments, of which some have no event file
yet. So events and homes are of one moment, also while the server runs. Nothing is kept in memory.
`record_moment` does it for a queue in another store, which is in memory as its server gives it.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mqcd.core.selecting.selection import Selection
from mqcd.core.value import value
from mqcd.disk.durable import Disk
from mqcd.eventlog.files import Source
from mqcd.pipeline.sources.queue import HOMES, Row, homes, packed, row
from mqcd.pipeline.sources.segments import EventFile
from mqcd.queue.clusters.quarantine import QUARANTINE, places, stands_for
from mqcd.queue.events.lines import EventText
from mqcd.queue.format.record import verify
from mqcd.queue.reading.happened import events
from mqcd.queue.reading.shards import Snapshots
from mqcd.queue.reading.snapshot import Snapshot
from mqcd.queue.roots import roots_of
from mqcd.stores.queue.moment import IN_FLIGHT, Moment

_IDENTITY = re.compile(rb"(?<![0-9A-F])([0-9A-F]{16})\|([1-9][0-9]{0,9})\|[idbh]l?w?\|")
"""How a record line begins."""
_KEYS = pa.schema([("spid", pa.string()), ("qid", pa.int32())])
_ROWS = 10_000


@value
class Recorded:
    """What was written, and what else was seen."""

    homes: Path
    """Parquet: recipients in the queue, as the source `mqc` gives them."""
    quarantine: Path
    """Parquet: recipients that quarantined octets name; some may have been delivered long ago."""
    events: Path
    """Directory of event files: one for each segment of the journal."""
    node: str
    """Whose queue it is."""
    firsts: Mapping[str, int]
    """By series of event files, one for each shard: the journal's first segment. Those before it have been
    exported."""
    damaged: int
    """Records that cannot be read and do not say whose they are."""
    shared: bool = False
    """Whether all nodes have their mail in this queue."""

    def is_earlier(self, file: EventFile) -> bool:
        """Whether all of a file happened before this was recorded."""
        first = self.firsts.get(file.series)
        return first is None or file.number < first


def record(queue_root: Path, spool_root: Path, source: Source, target: Path) -> Recorded:
    """Read the queue into `target`, a new directory.

    Raises StoreBusy, StoreDamaged, StoreUnavailable, OSError.
    """
    disk = Disk()
    target.mkdir(parents=True)
    events = target / "events"
    events.mkdir()
    firsts: dict[str, int] = {}
    found: list[Path] = []
    damaged = 0
    with closing(Snapshots(disk, queue_root, spool_root)) as snapshots:
        with pq.ParquetWriter(target / "homes.parquet", HOMES) as writer:
            for batch in homes(snapshots, Selection()):
                writer.write_batch(batch)
        for shard, snapshot in snapshots.by_shard.items():
            series = f"{source.node}-{shard}-"
            _write_events(snapshot, EventText(replace(source, shard=shard)), events, series)
            firsts[series] = snapshot.first_segment()
            directory = roots_of(shard, queue_root, spool_root).queue / QUARANTINE
            names = _quarantined(disk, directory)
            found += [directory / name for name in names]
            # The next start puts into quarantine what no start has found yet.
            aside, stretches = places(names), snapshot.stretches()
            damaged += sum(max(1, records) for place, records in stretches.items() if place not in aside)
        damaged += snapshots.unreadable.damaged_lines
    damaged += _write_quarantine(disk, found, target / "quarantine.parquet")
    return Recorded(
        homes=target / "homes.parquet",
        quarantine=target / "quarantine.parquet",
        events=events,
        node=source.node,
        firsts=firsts,
        damaged=damaged,
    )


def record_moment(moment: Moment, source: Source, target: Path) -> Recorded:
    """The same of a queue in another store, which has neither journal nor quarantine. Raises OSError."""
    events = target / "events"
    events.mkdir(parents=True)
    series = f"{source.node}-{source.shard}-"
    with pq.ParquetWriter(target / "homes.parquet", HOMES) as writer:
        for batch in packed([_rows_of(moment.records)]):
            writer.write_batch(batch)
    first = moment.newest + 1
    if moment.events:
        with gzip.open(events / f"{series}{first:010d}.jsonl.gz", "wb", compresslevel=1) as file:
            file.writelines(moment.events)
    return Recorded(
        homes=target / "homes.parquet",
        quarantine=_no_quarantine(target),
        events=events,
        node=source.node,
        firsts={series: first},
        damaged=0,
        shared=moment.shared,
    )


def _rows_of(records: Iterable[bytes]) -> Iterator[Row]:
    return (row(verify(line[1:]), line.startswith(IN_FLIGHT)) for line in records)


def _no_quarantine(target: Path) -> Path:
    pq.write_table(_KEYS.empty_table(), target / "quarantine.parquet")
    return target / "quarantine.parquet"


def _quarantined(disk: Disk, directory: Path) -> list[str]:
    names = disk.names(directory) if disk.is_dir(directory) else []
    return [name for name in names if name.endswith(".bad")]


def _write_events(snapshot: Snapshot, text: EventText, directory: Path, series: str) -> None:
    with ExitStack() as stack:
        current, file = -1, None
        for number, lines in events(snapshot, text):
            if file is None or number != current:
                stack.close()
                path = directory / f"{series}{number:010d}.jsonl.gz"
                current, file = number, stack.enter_context(gzip.open(path, "wb", compresslevel=1))
            file.write("".join(lines).encode())


def _write_quarantine(disk: Disk, paths: Iterable[Path], target: Path) -> int:
    """Whom the octets name; gives how many records name none. Where a file's name does not say how many
    it stands for, that is its lines, and none for a stretch of the journal."""
    unread = 0
    with pq.ParquetWriter(target, _KEYS) as writer:
        for path in paths:
            name, data = path.name, disk.read_file(path)
            found = [(spid.decode(), int(qid)) for spid, qid in _IDENTITY.findall(data)]
            found = [(spid, qid) for spid, qid in found if qid < 1 << 31]
            for at in range(0, len(found), _ROWS):
                spids, qids = zip(*found[at : at + _ROWS], strict=True)
                writer.write_batch(
                    pa.record_batch([pa.array(spids), pa.array(qids, pa.int32())], schema=_KEYS)
                )
            records = stands_for(name)
            if records is not None:
                unread += max(0, records - len(found))
            elif not name.startswith("segment-"):
                lines = [line for line in data.split(b"\n") if line.strip()]
                unread += sum(1 for line in lines if not _IDENTITY.search(line))
    return unread

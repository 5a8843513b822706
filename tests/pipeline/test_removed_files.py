"""The source `mqcd-events` as Spark calls it, where files are removed meanwhile. Needs no Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqcd.pipeline.sources.decode import GONE
from mqcd.pipeline.sources.events import EventsReader, EventsStreamReader
from tests.pipeline.making import T0, Log


def test_a_file_that_is_removed_before_it_is_read_gives_a_row(tmp_path: Path) -> None:
    log = Log()
    log.deliver(T0)
    log.seal(tmp_path)
    log.deliver(T0)
    gone = log.seal(tmp_path)
    reader = EventsReader({"path": str(tmp_path)})
    (partition,) = reader.partitions()
    gone.unlink()
    rows = _rows(reader, partition)
    assert [(row["sequence"], row["damage"]) for row in rows] == [
        (1, None),
        (2, None),
        (3, None),
        (None, GONE),
    ]
    assert rows[-1]["file"] == gone.name


def test_a_machine_that_does_not_see_the_directory_fails(tmp_path: Path) -> None:
    log, events = Log(), tmp_path / "events"
    log.deliver(T0)
    log.seal(events)
    reader = EventsReader({"path": str(events)})
    (partition,) = reader.partitions()
    events.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match="n1-0-0000000001"):
        _rows(reader, partition)


def test_a_stream_takes_no_files_of_a_directory_that_is_gone(tmp_path: Path) -> None:
    log, events = Log(), tmp_path / "events"
    log.deliver(T0)
    log.seal(events)
    stream = EventsStreamReader({"path": str(events)})
    end = stream.latestOffset({}, stream.getDefaultReadLimit())
    events.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match="events"):
        stream.partitions({}, end)
    (tmp_path / "elsewhere").rename(events)
    assert len(stream.partitions({}, end)) == 1


def _rows(reader: EventsReader, partition: Any) -> list[dict[str, Any]]:
    return [row for batch in reader.read(partition) for row in batch.to_pylist()]

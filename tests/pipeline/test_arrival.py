"""What a batch says of event files that were removed after they were listed. Needs no Java."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import Row

from mqcd.pipeline.batch.arrival import pass_over
from tests.pipeline.making import HOUR, T0


def read(name: str, *hours: int) -> Row:
    """What a task tells of a file with events of these hours, counted from T0's."""
    return Row(name=name, series=[Row(hours=[T0 // HOUR + hour for hour in hours])])


@pytest.mark.parametrize(
    ("gone", "end"),
    [
        (["n1-0-1.jsonl.gz"], ", all of before 2025-11-18T12:00:00.000Z"),
        (["n1-0-4.jsonl.gz", "n1-0-1.jsonl.gz"], ", all of before 2025-11-18T14:00:00.000Z"),
        (["n1-0-1.jsonl.gz", "n1-0-b1.jsonl.gz"], ", all of before 2025-11-18T16:00:00.000Z"),
        (["n1-0-1.jsonl.gz", "n1-0-9.jsonl.gz"], ""),
        (["n1-0-1.jsonl.gz", "n2-0-1.jsonl.gz"], ""),
    ],
)
def test_how_many_were_gone_and_of_when(
    tmp_path: Path, gone: list[str], end: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "n1-0-2.jsonl.gz").touch()
    files = [
        read("n1-0-3.jsonl.gz", 1, 0),
        read("n1-0-2.jsonl.gz"),
        read("n1-0-5.jsonl.gz", 2),
        read("n1-0-b2.jsonl.gz", 4),
    ]
    pass_over([str(tmp_path / name) for name in gone], files)
    ((_, _, text),) = caplog.record_tuples
    assert f": {len(gone)}, n1-0-1.jsonl.gz first{end}; " in text


def test_a_file_that_a_task_does_not_see_is_not_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On a cluster: a machine without the directory must not have all of its files passed over."""
    there = tmp_path / "n1-0-2.jsonl.gz"
    there.touch()
    with pytest.raises(FileNotFoundError, match=r"n1-0-2\.jsonl\.gz"):
        pass_over([str(tmp_path / "n1-0-1.jsonl.gz"), str(there)], [])
    assert not caplog.records


@pytest.mark.parametrize("unmounted", ["gone", "empty"])
def test_a_directory_that_is_gone_is_an_error(
    tmp_path: Path, unmounted: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that is not mounted must not have all of its files passed over."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=unmounted):
        pass_over([str(tmp_path / unmounted / "n1-0-1.jsonl.gz")], [read("n1-0-2.jsonl.gz", 1)])
    assert not caplog.records

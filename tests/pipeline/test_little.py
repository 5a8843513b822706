"""Which batches are little work, and get by with one task."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcd.pipeline.batch.batch import is_little


@pytest.mark.parametrize(
    ("events", "octets", "little"),
    [(1, 0, True), (300_000, 16 << 20, True), (300_001, 0, False), (1, (16 << 20) + 1, False)],
)
def test_events_and_who_is_unfinished_are_work(
    tmp_path: Path, events: int, octets: int, little: bool
) -> None:
    """After an outage the unfinished are millions, and one task would not hold them."""
    files = [tmp_path / name for name in ("a", "b")]
    for path, size in zip(files, (octets // 2, octets - octets // 2), strict=True):
        path.touch()
        with path.open("r+b") as file:
            file.truncate(size)
    assert is_little(events, files) is little

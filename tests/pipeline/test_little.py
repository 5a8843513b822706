"""Which batches are little work, and get by with one task."""

from __future__ import annotations

import pytest

from mqcd.pipeline.batch.run import is_little


@pytest.mark.parametrize(
    ("events", "octets", "little"),
    [(1, 0, True), (300_000, 16 << 20, True), (300_001, 0, False), (1, (16 << 20) + 1, False)],
)
def test_events_and_open_recipients_are_work(events: int, octets: int, little: bool) -> None:
    assert is_little(events, octets) is little

"""Entries that wait: when one that could not be handed out may be claimed again."""

from __future__ import annotations

import pytest

from mqcd.core.model import Area
from mqcd.queue.memory.ready import retry_due

NOW, MS = 1000, 10


@pytest.mark.parametrize(
    ("area", "due", "again"),
    [
        (Area.INCOMING, 0, NOW + MS),
        (Area.INCOMING, NOW + 500, NOW + 500),
        (Area.DEFERRED, NOW - 1, NOW + MS),
        (Area.DEFERRED, NOW + 500, NOW + 500),
        (Area.BOUNCES, 0, NOW + MS),
        (Area.HELD, 0, 0),
        (Area.HELD, NOW, NOW + MS),
        (Area.HELD, NOW + 500, NOW + 500),
        (Area.REMOVED, NOW, NOW + MS),
        (Area.REMOVED, NOW + 500, NOW + 500),
    ],
)
def test_what_cannot_be_handed_out_is_due_no_earlier_than_before(area: Area, due: int, again: int) -> None:
    assert retry_due(area, due, NOW, MS) == again

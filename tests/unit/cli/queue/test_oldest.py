"""Records from the oldest on, with little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar, cast

import pytest

from mqcd.cli.queue.oldest import Oldest
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.control.view import View
from mqcd.queue.format import record
from tests.unit.queue.support import SPID, recipient

Made = TypeVar("Made")
COUNT = 500
TIMES = [n * 7919 % COUNT for n in range(COUNT)]
"""Each once, in no order."""


class Shuffled:
    """As much as is taken of a queue: records of which each third is in flight."""

    def project(self, selection: Selection, make: Callable[[str, bool], Made]) -> Iterator[list[Made]]:
        assert selection.limit is None
        each = [recipient(spid=SPID + n, received=n, reply="a|\u2028\r\n") for n in TIMES]
        lines = [record.verify(record.encode(one)) for one in each]
        for start in range(0, COUNT, 7):
            part = range(start, min(start + 7, COUNT))
            yield [make(lines[n], TIMES[n] % 3 == 0) for n in part]


@pytest.mark.parametrize("held", [10, 100, 10_000])
@pytest.mark.parametrize("limit", [None, 0, 1, 5, 49, 50, 99, 100, 250, COUNT, 2 * COUNT])
def test_the_oldest_come_first_and_whole(held: int, limit: int | None) -> None:
    oldest = Oldest(cast(View, Shuffled()), held)
    found = [item for part in oldest.batches(Selection(limit=limit)) for item in part]
    assert [each.recipient.envelope.received for each in found] == list(range(COUNT))[:limit]
    assert all(each.in_flight is (each.recipient.envelope.received % 3 == 0) for each in found)
    assert all(each.recipient.reply == "a|\u2028\r\n" for each in found)

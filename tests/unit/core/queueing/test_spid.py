"""Names of messages: where their contents lie."""

from __future__ import annotations

from collections import Counter

import pytest

from mqcd.core.queueing.spid import SILOS, SpidSource, silo_of
from tests.fakes.clock import START_MS


@pytest.mark.parametrize("gap", [0, 1, 3, 32, 1000])
@pytest.mark.parametrize("several", [True, False])
def test_messages_fill_the_silos_evenly(gap: int, several: bool) -> None:
    """Whatever the pace at which they come: several a millisecond, or one each second."""
    source = SpidSource(3, 0)
    spids = [source.next(START_MS + gap * number, several) for number in range(10 * SILOS)]
    silos = Counter(silo_of(spid, SILOS) for spid in spids)
    assert silos == dict.fromkeys(range(1, SILOS + 1), 10)

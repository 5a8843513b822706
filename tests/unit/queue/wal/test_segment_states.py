"""A segment's life: it moves through its states in one order, and a close ends it in any of them."""

from __future__ import annotations

import pytest

from mqcd.core.errors import IllegalTransition
from mqcd.queue.format.segment_header import SegmentHeader
from mqcd.queue.wal.segments import SEGMENT_TABLE, Ring, Segment, SegmentEvent, SegmentState


@pytest.fixture
def segment(tmp_path_factory: pytest.TempPathFactory) -> Segment:
    return Segment(SegmentHeader(1, 1, 1, 0, 0, 0, 0), tmp_path_factory.getbasetemp() / "1.wal")


@pytest.mark.parametrize("event", SegmentEvent)
@pytest.mark.parametrize("state", SegmentState)
def test_what_the_table_lacks_raises_and_changes_nothing(
    segment: Segment, state: SegmentState, event: SegmentEvent
) -> None:
    segment.state = state
    if state in SEGMENT_TABLE[event]:
        segment.on(event)
        assert segment.state is SEGMENT_TABLE[event][state]
    else:
        with pytest.raises(IllegalTransition):
            segment.on(event)
        assert segment.state is state


def test_only_a_settled_segment_is_the_next_to_evacuate(segment: Segment) -> None:
    ring = Ring(segment.path.parent, 4, 1)
    ring.add(segment)
    offered = [ring.oldest_sealed]
    for event in (SegmentEvent.SEAL, SegmentEvent.EXPORT, SegmentEvent.EVACUATE):
        segment.on(event)
        offered.append(ring.oldest_sealed)
    assert offered == [None, segment, segment, None]


def test_the_last_pin_of_a_retired_segment_gives_its_descriptor(segment: Segment) -> None:
    segment.fd, segment.readers = 7, 2
    assert segment.unpin() == -1
    segment.on(SegmentEvent.CLOSE)
    assert segment.unpin() == 7
    assert segment.fd == -1

"""The states of the journal: of its writing, of a segment, of an entry. Illegal ones: `core.states`."""

from __future__ import annotations

import pytest

from mqcd.core.errors import IllegalTransition
from mqcd.core.model import Area
from mqcd.queue.format.frame import IN_SPOOL
from mqcd.queue.format.segment_header import SegmentHeader
from mqcd.queue.wal import entry_states, group_commit
from mqcd.queue.wal.segments import JournalEntry, Ring, Segment, SegmentEvent, SegmentState


@pytest.fixture
def segment(tmp_path_factory: pytest.TempPathFactory) -> Segment:
    return Segment(SegmentHeader(1, 1, 1, 0, 0, 0, 0), tmp_path_factory.getbasetemp() / "1.wal")


def test_an_end_of_writing_is_final() -> None:
    state, event, ended = group_commit.State, group_commit.Event, group_commit.ENDED
    steps = [step for row in group_commit.TABLE.values() for step in row.items()]
    assert [before for before, following in steps if before in ended and following not in ended] == []
    after_close = {each for each in event if state.CLOSED in group_commit.TABLE[each]}
    assert after_close == {event.DONE, event.FAIL, event.BREAK, event.STOP}
    for end in (event.DONE, event.FAIL):
        assert group_commit.TABLE[end].keys() == {state.WRITING, *ended}


def test_each_state_of_an_entry_is_reached_and_left_unless_it_is_an_end() -> None:
    states, table = entry_states.State, entry_states.TABLE
    assert set(table) == set(entry_states.Event)
    left = {state for row in table.values() for state in row}
    assert left == set(states) - {states.ENDED, states.EVACUATED}
    assert {state for row in table.values() for state in row.values()} == set(states)


def test_an_illegal_event_changes_no_entry_and_no_segment(segment: Segment) -> None:
    entry = JournalEntry(1, 1, Area.INCOMING, 0, 1, 1, IN_SPOOL, False, "example.org")
    for event in (entry_states.Event.END, entry_states.Event.RELEASE):
        with pytest.raises(IllegalTransition):
            entry.on(event)
    with pytest.raises(IllegalTransition):
        segment.on(SegmentEvent.EXPORT)
    assert (entry.state, segment.state) == (entry_states.State.WAITING, SegmentState.OPEN)


def test_only_a_settled_segment_is_the_next_to_evacuate(segment: Segment) -> None:
    ring = Ring(segment.path.parent, 4, 1)
    ring.add(segment)
    offered = [ring.oldest_sealed]
    for event in (SegmentEvent.SEAL, SegmentEvent.EXPORT, SegmentEvent.EVACUATE):
        segment.on(event)
        offered.append(ring.oldest_sealed)
    assert offered == [None, segment, segment, None]


def test_the_last_pin_of_a_retired_segment_gives_its_descriptor(segment: Segment) -> None:
    segment.fd = 7
    segment.pin()
    segment.pin()
    assert segment.unpin() == segment.release_fd() == -1
    segment.on(SegmentEvent.CLOSE)
    assert segment.unpin() == 7
    assert segment.fd == segment.release_fd() == -1

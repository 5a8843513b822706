"""An entry's life: every state is reached, and left unless it is an end."""

from __future__ import annotations

import pytest

from mqcd.core.errors import IllegalTransition
from mqcd.core.model import Area
from mqcd.queue.format.frame import IN_SPOOL
from mqcd.queue.wal.entry_states import TABLE, Event, State
from mqcd.queue.wal.segments import JournalEntry

ENDS = {State.ENDED, State.EVACUATED}


def entry(state: State) -> JournalEntry:
    made = JournalEntry(1, 1, Area.INCOMING, 0, 1, 1, IN_SPOOL, False, "example.org")
    made.state = state
    return made


def test_every_event_has_a_row() -> None:
    assert set(TABLE) == set(Event)


def test_every_state_is_reached_and_left_unless_it_is_an_end() -> None:
    left = {state for row in TABLE.values() for state in row}
    reached = {state for row in TABLE.values() for state in row.values()}
    assert left == set(State) - ENDS
    assert reached == set(State)


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_what_the_table_lacks_raises_and_changes_nothing(state: State, event: Event) -> None:
    made = entry(state)
    if state in TABLE[event]:
        made.on(event)
        assert made.state is TABLE[event][state]
    else:
        with pytest.raises(IllegalTransition):
            made.on(event)
        assert made.state is state

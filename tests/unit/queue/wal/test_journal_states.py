"""The states of the journal's writing: each event where the table has it, an error elsewhere."""

from __future__ import annotations

import pytest

from mqcd.core.errors import IllegalTransition
from mqcd.queue.wal.group_commit import ENDED, TABLE, Event, State, after


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_what_the_table_lacks_raises(state: State, event: Event) -> None:
    if state not in TABLE[event]:
        with pytest.raises(IllegalTransition):
            after(state, event)
        return
    following = after(state, event)
    assert following is TABLE[event][state]
    # An end is final.
    assert following in ENDED or state not in ENDED


def test_a_closed_journal_is_never_written_or_due() -> None:
    assert {event for event in Event if State.CLOSED in TABLE[event]} == {Event.DONE, Event.BREAK, Event.STOP}


def test_only_a_group_that_was_written_is_done() -> None:
    assert TABLE[Event.DONE].keys() == {State.WRITING, State.CLOSED}

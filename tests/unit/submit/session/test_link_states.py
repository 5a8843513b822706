"""The states of a connection at the door."""

from __future__ import annotations

from collections import deque

import pytest

from mqcd.core.errors import IllegalTransition
from mqcd.submit.session.link_states import TABLE, Event, Link, after


def test_the_table_has_every_event_and_each_state_is_reached() -> None:
    assert set(TABLE) == set(Event)
    reached, todo = {Link.ANSWERING}, deque([Link.ANSWERING])
    while todo:
        link = todo.popleft()
        for event in Event:
            if (following := TABLE[event].get(link)) is not None and following not in reached:
                reached.add(following)
                todo.append(following)
    assert reached == set(Link)


def test_a_connection_that_is_gone_stays_so() -> None:
    for event in set(Event) - {Event.END}:
        assert after(Link.GONE, event) is Link.GONE


@pytest.mark.parametrize("link", [Link.ENDED, Link.GONE])
def test_the_last_reply_is_given_once(link: Link) -> None:
    with pytest.raises(IllegalTransition, match=link.name):
        after(link, Event.END)

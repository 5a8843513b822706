"""The states of a connection at the door, and its limits of time."""

from __future__ import annotations

from collections import deque

import pytest

from mqcd.core.errors import IllegalTransition
from mqcd.submit.session.link_states import TABLE, Event, Link, Overdue, after, overdue


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


def test_a_client_that_reads_no_replies_is_cut_off() -> None:
    for link in (Link.UNREAD, Link.ENDED):
        assert overdue(link, silent=True, too_long=False, content_slow=None) is Overdue.CUT
        assert overdue(link, silent=False, too_long=True, content_slow=False) is Overdue.CUT
        assert overdue(link, silent=False, too_long=False, content_slow=True) is None


@pytest.mark.parametrize(
    ("too_long", "content_slow", "ends"),
    [(True, None, True), (True, False, False), (False, True, True), (False, None, False)],
)
def test_a_message_under_way_outlasts_the_session(
    too_long: bool, content_slow: bool | None, ends: bool
) -> None:
    found = overdue(Link.ANSWERING, silent=False, too_long=too_long, content_slow=content_slow)
    assert found is (Overdue.INTERRUPT if ends else None)

"""The last reply of each destination."""

from __future__ import annotations

from dataclasses import replace

from mqcd.core.events import NOT_DELIVERED
from mqcd.core.ports import Observer
from mqcd.ops.last_replies import MOST, LastReplies
from tests.contract.mail import ATTEMPT, bounced, deferred, expired
from tests.unit.ops.log.test_observer import MAIL


def test_the_last_reply_counts() -> None:
    words = LastReplies()
    words.deferred(1, MAIL, deferred(9, "first"))
    words.bounced(2, MAIL, bounced("second"))
    assert [(name, word.at, word.reply.text) for name, word in words.by_name.items()] == [
        ("example.org", 2, "second")
    ]
    words.expired(3, MAIL, expired())
    assert words.by_name["example.org"].reply.text == "nobody there"


def test_each_end_of_an_attempt_without_a_delivery_counts() -> None:
    assert {verb.value for verb in NOT_DELIVERED} <= vars(LastReplies).keys()


def test_those_that_spoke_last_are_remembered() -> None:
    words = LastReplies()
    observer: Observer = words
    for n in range(MOST):
        observer.deferred(n, MAIL, replace(deferred(9), attempt=replace(ATTEMPT, destination=str(n))))
    observer.deferred(MOST, MAIL, replace(deferred(9), attempt=replace(ATTEMPT, destination="0")))
    observer.deferred(MOST, MAIL, replace(deferred(9), attempt=replace(ATTEMPT, destination="new")))
    assert len(words.by_name) == MOST
    assert {"0", "2", "new"} <= set(words.by_name)
    assert "1" not in words.by_name

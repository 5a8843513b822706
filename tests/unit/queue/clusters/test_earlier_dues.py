"""Lines that are due earlier than they say."""

from __future__ import annotations

import pytest

from mqcd.core.model import Envelope, Recipient
from mqcd.queue.clusters.earlier_dues import Earlier, EarlierDues, Request
from mqcd.queue.format.record import encode
from mqcd.queue.manifest.state import ClusterState

NAME = "deferred/T1/M1-0.mqc"
STATE = ClusterState(name=NAME, size=1000, cursor=0, left=9, octets=9, received=1, due=500, due_last=900)
LINE = encode(
    Recipient(envelope=Envelope(spid=2, sender="", received=1), size=1, qid=1, address="a@b.example")
)


@pytest.mark.parametrize(
    ("at", "says", "due"),
    [
        (0, 900, 100),
        (99, 900, 100),
        (100, 900, 200),
        (199, 900, 200),
        (200, 900, 700),
        (0, 650, 100),
        (200, 650, 650),
        (0, 40, 40),
    ],
)
def test_the_earliest_request_that_covers_a_line_counts(at: int, says: int, due: int) -> None:
    requests = [Request(lambda _: True, 100, 100), Request(None, 200, 200), Request(lambda _: False, 1, 300)]
    assert Earlier(700, requests, 300).due(at, LINE, says, now=50) == due


def test_a_cluster_without_requests_is_due_as_it_says() -> None:
    dues = EarlierDues()
    assert (dues.first_due(STATE), dues.of(STATE)) == (500, Earlier(900))


def test_a_clock_that_went_back_brings_lines_forward_once() -> None:
    dues = EarlierDues()
    dues.bring_forward(NAME, 300)
    dues.bring_forward(NAME, 400)
    assert (dues.first_due(STATE), dues.of(STATE).latest) == (300, 300)


def test_of_many_requests_all_lines_are_due() -> None:
    dues = EarlierDues()
    for number in range(17):
        dues.expedite(NAME, Request(lambda _: False, number, 10 * number))
    assert dues.of(STATE).requests == [Request(None, 16, 160)]


def test_what_takes_the_place_of_a_cluster_stays_expedited() -> None:
    dues = EarlierDues()
    dues.expedite(NAME, Request(None, 100, 50))
    other = ClusterState(
        name="deferred/T1/N1-0.mqc", size=70, cursor=0, left=1, octets=1, received=1, due=500
    )
    dues.inherit(other, dues.pop(NAME))
    assert (dues.first_due(other), dues.of(other).end, dues.first_due(STATE)) == (100, 70, 500)

"""Jobs by priority, without starving any."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.model import Envelope, Recipient
from mqcd.deliver.lanes.jobs import LOWER_TURN, Job, JobQueue, Ranks
from tests.unit.deliver.lanes.test_scheduling import PLACES


def job(number: int, priority: int = 0, turn: int | None = None) -> Job:
    envelope = Envelope(spid=2 * number, sender="a@example.org", received=0, priority=priority)
    recipient = Recipient(envelope=envelope, size=1, qid=1, address="to@a.example")
    return Job(PLACES["a"], [recipient], 0, order=(number if turn is None else turn, number))


def number_of(made: Job) -> int:
    return made.order[1]


def ranks(*priorities: int) -> Ranks:
    made = Ranks()
    for number, priority in enumerate(priorities):
        made.append(job(number, priority))
    return made


def drain(made: Ranks) -> list[int]:
    """The orders in which all go."""
    gone = []
    while made:
        first = made.first
        assert made.take() is first
        gone.append(number_of(first))
    return gone


def test_one_priority_goes_by_arrival() -> None:
    assert drain(ranks(3, 3, 3)) == [0, 1, 2]


def test_urgent_mail_overtakes() -> None:
    assert drain(ranks(0, -9, 0, 9, 0, 9)) == [3, 5, 0, 2, 4, 1]


def test_one_turn_in_some_goes_to_lower_priorities() -> None:
    lower = [turn for turn, order in enumerate(drain(ranks(-1, 0, *[5] * 20)), 1) if order < 2]
    assert lower == [LOWER_TURN, 2 * LOWER_TURN]


def test_urgent_mail_that_comes_one_by_one_starves_nobody() -> None:
    made = ranks(0)
    for order in range(1, LOWER_TURN + 1):
        made.append(job(order, 5))
        if number_of(made.take()) == 0:
            break
    else:
        raise AssertionError("the lower priority had no turn")
    assert order == LOWER_TURN


def test_the_last_to_go_leaves_first_where_room_is_needed() -> None:
    made = ranks(0, 5, -5, 0)
    assert [number_of(made.take_last()) for _ in range(4)] == [2, 3, 0, 1]
    assert not made


@given(st.lists(st.integers(-2, 2), min_size=1), st.lists(st.sampled_from("tpblr"), max_size=60))
def test_whatever_is_done_nothing_is_lost(priorities: list[int], actions: list[str]) -> None:
    made = ranks(*priorities)
    waiting, count = set(range(len(priorities))), len(priorities)
    for action in actions:
        if action == "t" and made:
            waiting.discard(number_of(made.take()))
        elif action == "l" and made:
            waiting.discard(number_of(made.take_last()))
        elif action == "b" and made:
            made.put_back(made.take())
        elif action == "r" and made:
            last = list(made)[-1]
            made.remove(last)
            waiting.discard(number_of(last))
        elif action == "p":
            made.append(job(count, count % 4))
            waiting.add(count)
            count += 1
        assert {number_of(each) for each in made} == waiting
        assert len(list(made)) == len(waiting)
        assert not made or next(iter(made)) is made.first
    kept = list(made)
    assert [made.take_last() for _ in kept] == kept[::-1]


def test_no_job_came_before_its_queue_says() -> None:
    queue, old, new = JobQueue(), job(1), job(2)
    old.since, new.since = 5, 9
    queue.append(new, joinable=False)
    assert queue.since == 9
    queue.put_back(old)
    assert queue.since == 5
    assert (queue.step_aside(), queue.take()) == (old, new)
    queue.append(new, joinable=False)
    assert queue.since == 9
    queue.come_back(old)
    assert queue.since == queue.jobs.since == 5


def test_what_a_job_is_left_with_stays_begun_and_paid() -> None:
    made = job(1)
    made.recipients = [replace(made.recipients[0], qid=qid) for qid in (1, 2, 3)]
    made.begun, made.paid, made.few, made.content = True, True, True, b"x"
    queue = JobQueue()
    queue.put_back(made)
    queue.split_first(2)
    assert [each.qid for each in queue.keep_one()] == [2, 3]
    left = queue.take()
    assert [each.qid for each in left.recipients] == [1]
    assert (left.begun, left.paid, left.few, left.content) == (True, True, True, b"x")
    assert (queue.waiting, queue.few) == (0, 0)

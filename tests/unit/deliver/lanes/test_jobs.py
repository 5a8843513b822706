"""Jobs by priority, without starving any."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.config.settings import Rate
from mqcd.core.model import Envelope, Recipient
from mqcd.deliver.lanes.jobs import LOWER_TURN, Job, JobQueue, recipients_of
from mqcd.deliver.lanes.rates import Limit, Scope
from tests.unit.deliver.lanes.test_scheduling import PLACES


def job(number: int, priority: int = 0, turn: int | None = None) -> Job:
    envelope = Envelope(spid=2 * number, sender="a@example.org", received=0, priority=priority)
    recipient = Recipient(envelope=envelope, size=1, qid=1, address="to@a.example")
    return Job(
        PLACES["a"], recipient.envelope, [recipient], 0, order=(number if turn is None else turn, number)
    )


def number_of(made: Job) -> int:
    return made.order[1]


def ranks(*priorities: int) -> JobQueue:
    made = JobQueue()
    for number, priority in enumerate(priorities):
        made.append(job(number, priority), joinable=False)
    return made


def take_last(made: JobQueue) -> int:
    [recipient] = made.cut(made.waiting - 1)
    return recipient.spid // 2


def drain(made: JobQueue) -> list[int]:
    """The orders in which all go."""
    gone = []
    while made.waiting:
        first = made.jobs.row[0]
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
        made.append(job(order, 5), joinable=False)
        if number_of(made.take()) == 0:
            break
    else:
        raise AssertionError("the lower priority had no turn")
    assert order == LOWER_TURN


@pytest.fixture
def lower() -> JobQueue:
    """Jobs 20 and 21, of lower priorities than the one that waits with them, have the turn."""
    made = ranks(*[5] * LOWER_TURN)
    for number, priority in ((20, 0), (21, -1)):
        made.append(job(number, priority), joinable=False)
    for _ in range(LOWER_TURN - 1):
        made.take()
    return made


def test_the_first_part_of_a_split_job_has_its_turn(lower: JobQueue) -> None:
    lower.jobs.row[0].recipients *= 2
    assert number_of(lower.split_first(1)) == 20
    assert [number_of(lower.take()) for _ in range(4)] == [20, LOWER_TURN - 1, 20, 21]


def test_the_turn_of_the_lower_priorities_goes_to_the_first_job_of_all(lower: JobQueue) -> None:
    lower.append(job(22, -1, turn=8), joinable=False)
    assert drain(lower) == [22, LOWER_TURN - 1, 20, 21]


def test_a_job_that_steps_aside_leaves_its_turn_to_the_next(lower: JobQueue) -> None:
    assert number_of(lower.step_aside()) == 20
    assert drain(lower) == [21, LOWER_TURN - 1]


def test_the_last_to_go_leaves_first_where_room_is_needed() -> None:
    made = ranks(0, 5, -5, 0)
    assert [take_last(made) for _ in range(4)] == [2, 3, 0, 1]
    assert not made.waiting


@given(st.lists(st.integers(-2, 2), min_size=1), st.lists(st.sampled_from("tpblr"), max_size=60))
def test_whatever_is_done_nothing_is_lost(priorities: list[int], actions: list[str]) -> None:
    made = ranks(*priorities)
    waiting, count = set(range(len(priorities))), len(priorities)
    for action in actions:
        if action == "t" and made.waiting:
            waiting.discard(number_of(made.take()))
        elif action == "l" and made.waiting:
            waiting.discard(take_last(made))
        elif action == "b" and made.waiting:
            made.put_back(made.take())
        elif action == "r" and made.waiting:
            last = list(made.jobs)[-1]
            assert (
                recipients_of(made.cull(last.recipients.__contains__, spare_first=False)) == last.recipients
            )
            waiting.discard(number_of(last))
        elif action == "p":
            made.append(job(count, count % 4), joinable=False)
            waiting.add(count)
            count += 1
        assert {number_of(each) for each in made.jobs} == waiting
        assert len(list(made.jobs)) == len(waiting)
        assert not made.waiting or next(iter(made.jobs)) is made.jobs.row[0]
    kept = [number_of(each) for each in sorted(made.jobs, key=lambda each: -each.envelope.priority)]
    assert [take_last(made) for _ in kept] == kept[::-1]


def test_a_turn_of_a_lower_priority_cuts_no_urgent_mail() -> None:
    made = ranks(*[5] * LOWER_TURN, 0, 0)
    for _ in range(LOWER_TURN - 1):
        made.take()
    assert made.jobs.row[0].envelope.priority == 0
    assert take_last(made) == LOWER_TURN + 1
    assert [each.envelope.priority for each in made.jobs] == [0, 5]
    assert [each.spid // 2 for each in made.keep_one()] == [LOWER_TURN - 1]
    assert drain(made) == [LOWER_TURN]


def act(queue: JobQueue, action: str, number: int, now: int, outside: dict[str, list[Job]]) -> None:
    """One step of the queue's life, if it can be taken; `outside` are the jobs taken and aside."""
    if action == "append":
        made = job(now, number - 1)
        made.recipients = [replace(made.recipients[0], qid=qid) for qid in range(1, number + 2)]
        made.since, made.few = now, number == 1
        queue.append(made, number > 2)
    elif action == "put back" and outside["taken"]:
        queue.put_back(outside["taken"].pop())
    elif action == "come back" and outside["aside"]:
        queue.come_back(outside["aside"].pop())
    elif action == "cut":
        queue.cut(number)
    elif action == "cull":
        queue.cull(lambda each: each.qid == number, spare_first=bool(now % 2))
    elif action == "keep one":
        queue.keep_one()
    elif action in outside and queue.waiting:
        outside[action].append(queue.take() if action == "taken" else queue.step_aside())
    elif action == "split" and queue.waiting:
        queue.split_first(number or 1)


ACTIONS = "append", "append", "taken", "put back", "aside", "come back", "cut", "cull", "keep one", "split"


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3)), max_size=40))
def test_a_queue_counts_what_it_holds(actions: list[tuple[str, int]]) -> None:
    queue, limit = JobQueue(), Limit(Scope.LANE, Rate(count=1, per=1000))
    queue.bind((limit,))
    outside: dict[str, list[Job]] = {"taken": [], "aside": []}
    for now, (action, number) in enumerate(actions, 1):
        act(queue, action, number, now, outside)
        waiting, aside = list(queue.jobs), outside["aside"]
        assert queue.waiting == sum(len(each.recipients) for each in waiting)
        assert queue.aside == sum(len(each.recipients) for each in aside)
        assert queue.few == sum(len(each.recipients) for each in [*waiting, *aside] if each.few)
        assert limit.held == queue.waiting + queue.aside
        assert all(queue.since <= each.since for each in waiting)


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

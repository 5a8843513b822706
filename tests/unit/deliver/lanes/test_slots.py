"""Fairness where connections are few: tarpits, however many, do not hold up destinations that answer."""

import pytest

from mqcd.deliver.lanes.lane import PROMPT_MS, TRIAL_MS, Event, Lane, Position
from mqcd.deliver.lanes.slots import Slots, divide
from mqcd.deliver.lanes.turns import Turns
from tests.fakes.world import START_MS, Server, World
from tests.unit.deliver.lanes.test_scheduling import PLACES
from tests.unit.deliver.test_simulated_weeks import MINUTE, SECOND, Map, bounds

TARPITS = [f"tar{number}.example" for number in range(4)]
HEALTHY = [f"healthy{number}.example" for number in range(4)]


def lane(*, took: int | None = None) -> Lane:
    """A lane; `took` is how long its transactions take, None = none has ended."""
    made = Lane(PLACES["a"])
    if took is not None:
        made.pace.measure(took, 0)
        made.on(Event.PASS)
    return made


def opens(slots: Slots, lane: Lane) -> bool:
    """Whether a lane has one more connection; else it is held."""
    if slots.refuses(lane, 0):
        slots.hold(lane, 0)
        return False
    slots.judge(lane, 0)
    slots.opened(lane)
    return True


@pytest.mark.parametrize(
    ("most", "doubted", "new"),
    [(1, 1, 1), (2, 1, 2), (3, 1, 2), (4, 2, 3), (5, 2, 3), (8, 4, 6), (20, 10, 15), (2500, 1250, 1875)],
)
def test_a_quarter_is_kept_for_those_that_answer(most: int, doubted: int, new: int) -> None:
    assert divide(most) == (doubted, new)


@pytest.mark.parametrize(
    ("took", "under_way_for", "answers"),
    [
        (None, None, False),
        (PROMPT_MS, None, True),
        (PROMPT_MS + 1, None, False),
        (50, TRIAL_MS, True),
        (50, TRIAL_MS + 1, False),
    ],
)
def test_a_destination_answers_by_its_recent_attempts(
    took: int | None, under_way_for: int | None, answers: bool
) -> None:
    made = lane(took=took)
    made.connections = under_way_for is not None
    assert made.answers(under_way_for or 0) is answers


def test_who_is_in_doubt_gets_no_more_than_a_half() -> None:
    slots, slow = Slots(Turns(), 8), lane(took=5000)
    while not slots.full and opens(slots, slow):
        pass
    assert slow.connections == 4
    new = [lane() for _ in range(3)]
    for each in new:
        opens(slots, each)
    assert [each.connections for each in new] == [1, 1, 0]
    known = lane(took=50)
    while not slots.full and opens(slots, known):
        pass
    assert known.connections == 2


def test_new_lanes_and_slow_ones_take_turns_as_in_the_example() -> None:
    """The example of `slots`."""
    slots, slow, a, b, c = Slots(Turns(), 8), lane(took=5000), lane(), lane(), lane()

    def state() -> tuple[list[int], int]:
        return [each.connections for each in (slow, a, b, c)], slots.doubted

    assert [opens(slots, slow) for _ in range(5)] == [True] * 4 + [False]
    assert (opens(slots, a), opens(slots, b), opens(slots, c)) == (True, True, False)
    assert (state(), slots.overdrawn) == (([4, 1, 1, 0], 6), 1)
    slots.closed(slow)
    slots.release_held()
    assert (slow.position, c.position, slots.overdrawn) == (Position.HELD, Position.OUT, 0)
    assert opens(slots, c)
    assert state() == ([3, 1, 1, 1], 6)
    a.pace.measure(50, 0)
    a.on(Event.PASS)
    slots.judge(a, 0)
    assert state() == ([3, 1, 1, 1], 5)
    assert opens(slots, a)
    assert opens(slots, a)
    assert state() == ([3, 3, 1, 1], 5)


def test_a_lane_that_has_just_fallen_silent_counts_with_what_it_has() -> None:
    slots, slow, known = Slots(Turns(), 8), lane(took=5000), lane(took=50)
    assert all(opens(slots, each) for each in (slow, slow, slow, known, known))
    assert slots.doubted == 3
    assert not slots.refuses(known, 0)
    assert slots.refuses(known, TRIAL_MS + 1)
    slots.hold(known, TRIAL_MS + 1)
    assert slots.doubted == 5


def test_who_was_held_back_is_asked_again_when_there_is_room() -> None:
    slots, slow, other = Slots(Turns(), 2), lane(took=5000), lane(took=5000)
    assert opens(slots, slow)
    assert not opens(slots, other)
    slots.release_held()
    assert slots.wanted
    slots.closed(slow)
    slots.release_held()
    assert (slots.wanted, opens(slots, other)) == (False, True)


def test_who_is_held_back_wants_a_connection_though_it_stands_in_no_line() -> None:
    slots, known, other = Slots(Turns(), 2), lane(), lane(took=5000)
    assert opens(slots, known)
    assert not opens(slots, other)
    known.pace.measure(50, 0)
    known.on(Event.PASS)
    # What is in doubt holds less: nothing but a look of the table tells the other one.
    slots.judge(known, 0)
    assert slots.wanted
    slots.release_held()
    assert not slots.wanted


def test_nothing_waits_for_a_lane_that_was_released_otherwise() -> None:
    slots, slow, other = Slots(Turns(), 2), lane(took=5000), lane(took=5000)
    assert opens(slots, slow)
    assert not opens(slots, other)
    assert slots.scarce
    slots.went_idle(other)
    assert not slots.scarce


@pytest.mark.parametrize("service_ms", [5 * SECOND, 4 * MINUTE])
@pytest.mark.parametrize("most", [2, 4, 5, 8, 20])
def test_tarpits_hold_up_neither_known_nor_new_destinations(most: int, service_ms: int) -> None:
    servers = {name: Server() for name in HEALTHY} | {name: Server(service_ms=service_ms) for name in TARPITS}
    world = World(bounds(maxconnections=most), Map(), servers)
    for name in TARPITS:
        world.send(name, 50)
    for second in range(60, 240):
        for name in HEALTHY:
            world.at(second * SECOND, lambda name=name: world.send(name))  # type: ignore[misc]
    world.run(4 * MINUTE + 20 * SECOND)
    ended = [each for each in world.ended if each.recipient.domain in HEALTHY]
    times = sorted(each.at + START_MS - each.recipient.envelope.received for each in ended)
    assert len(ended) == 180 * len(HEALTHY)
    # The first ones may have to wait until it is seen that the tarpits do not answer.
    assert times[-1] <= 2 * TRIAL_MS
    assert times[len(times) * 9 // 10] <= SECOND


def test_those_that_answered_and_fell_silent_give_way_too() -> None:
    silent_at = 30 * SECOND
    tar = {name: Server(drift=lambda now: 10_000.0 if now >= silent_at else 1.0) for name in TARPITS}
    world = World(bounds(maxconnections=8), Map(), {"healthy0.example": Server(), **tar})
    for second in range(90):
        for name in TARPITS:
            world.at(second * SECOND, lambda name=name: world.send(name, 5))  # type: ignore[misc]
    for second in range(60, 90):
        world.at(second * SECOND, lambda: world.send("healthy0.example"))
    world.run(2 * MINUTE)
    assert sum(each.recipient.domain == "healthy0.example" for each in world.ended) == 30


def test_slow_destinations_get_on_all_the_same() -> None:
    servers = {name: Server(service_ms=15 * SECOND) for name in TARPITS}
    world = World(bounds(maxconnections=4), Map(), servers)
    for name in TARPITS:
        world.send(name, 10)
    world.run(20 * MINUTE)
    assert len(world.ended) == 40

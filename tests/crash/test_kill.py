"""A shard under load is killed again and again, and no recipient is lost, doubled untold or miscounted.

MQCD_CRASH_ROUNDS sets how many lives each test has (the bounded run has a few), MQCD_CRASH_SEED where the
seeds begin.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.crash.ledger import World, check_between_lives, check_empty, check_lives
from tests.crash.lives import End, drain, first_live, live

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

_SEED = int(os.environ.get("MQCD_CRASH_SEED", "1000"))
_ENDS = (End.KILL, End.KILL, End.HELPER, End.KILL, End.BOTH, End.KILL, End.STOP, End.KILL, End.HELPER_STOP)


def _rounds(bounded: int) -> int:
    return int(os.environ.get("MQCD_CRASH_ROUNDS", bounded))


def test_kills(tmp_path: Path) -> None:
    world = World()
    for number in range(_rounds(22)):
        end = _ENDS[number % len(_ENDS)]
        before, evacuating = first_live(tmp_path), number % 2 == 0
        live(tmp_path, world, _SEED + number, end, size=512 << 10, segments=6, evacuating=evacuating)
        check_between_lives(tmp_path, world)
        assert not evacuating or first_live(tmp_path) > before, "nothing was evacuated before the kill"
    drain(tmp_path, world, size=512 << 10, segments=6)
    check_empty(tmp_path)
    totals = check_lives(tmp_path, world)
    assert world.accepted
    assert sum(totals.values()) > len(world.accepted)


@pytest.mark.parametrize("switched", [False, True], ids=["linked", "switched"])
def test_kills_with_hard_links(tmp_path: Path, switched: bool) -> None:
    world = World()
    for number in range(_rounds(9)):
        links = not switched or number % 2 == 0
        end = _ENDS[number % len(_ENDS)]
        live(tmp_path, world, _SEED + 700 + number, end, size=512 << 10, segments=6, links=links)
        check_between_lives(tmp_path, world)
    drain(tmp_path, world, size=512 << 10, segments=6)
    check_empty(tmp_path)
    check_lives(tmp_path, world)


def test_stops_in_order(tmp_path: Path) -> None:
    world = World()
    for number in range(_rounds(4)):
        live(tmp_path, world, _SEED + 500 + number, End.STOP, size=512 << 10, segments=6)
        check_between_lives(tmp_path, world)
    drain(tmp_path, world, size=512 << 10, segments=6)
    check_empty(tmp_path)
    check_lives(tmp_path, world)


def test_kills_with_settings_that_change(tmp_path: Path) -> None:
    world = World()
    chance = random.Random(_SEED)
    for number in range(_rounds(6)):
        size, segments = chance.choice(((256, 8), (1024, 4), (512, 12), (256, 4)))
        live(tmp_path, world, _SEED + 900 + number, End.KILL, size=size << 10, segments=segments)
        check_between_lives(tmp_path, world)
    drain(tmp_path, world, size=256 << 10, segments=4)
    check_empty(tmp_path)
    check_lives(tmp_path, world)

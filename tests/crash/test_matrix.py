"""The power goes, or the server is killed, before any call that changes the disk: nothing that was promised
is broken by what is left.

The bounded run: prefixes of each story by chance, each with the baselines and some deviations; the same for
lives after a SIGKILL and after a power cut. All of it: `python -m tests.crash.full`. MQCD_CRASH_SEED sets
what the chances begin with.
"""

from __future__ import annotations

import os

import pytest

from tests.crash.conftest import Library
from tests.crash.matrix import Tally, sample
from tests.crash.scenarios import STORIES, Told, cut_again

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("quiet")]

_SEED = int(os.environ.get("MQCD_CRASH_SEED", "1000"))
_PREFIXES = 150
"""Of each story, about so many by chance."""


def _check(tally: Tally) -> None:
    told = "\n".join(map(str, tally.violations[:5]))
    assert not tally.violations, f"seed {_SEED}: {len(tally.violations)} of {tally.points} crashes:\n{told}"


@pytest.mark.parametrize("name", STORIES)
async def test_crashes_of_a_story(library: Library, name: str) -> None:
    told = await library.story(name)
    share = _PREFIXES / len(told.trace.ops)
    tally = await sample(told.trace, library.of(told), many=2, seed=_SEED, share=share)
    _check(tally)
    assert tally.points > 4 * tally.prefixes
    assert all(tally.deviations)


@pytest.mark.parametrize("name", ["mail", "bulk, hard links", "import", "damage"])
async def test_crashes_of_a_start_after_a_kill(library: Library, name: str) -> None:
    await _sample_all(library, await library.lives(name), 0.05)


@pytest.mark.parametrize("name", STORIES)
async def test_crashes_of_a_start_after_a_power_cut(library: Library, name: str) -> None:
    lives = await cut_again(await library.story(name), many=6, seed=_SEED)
    await _sample_all(library, lives, 0.08)


async def _sample_all(library: Library, lives: list[Told], share: float) -> None:
    points = 0
    for number, told in enumerate(lives):
        tally = await sample(
            told.trace, library.of(told), many=2, seed=_SEED + number, first=told.first, share=share
        )
        _check(tally)
        points += tally.points
    assert points > 4 * len(lives)

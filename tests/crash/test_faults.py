"""Each error at each call of the system that a life of the queue makes, once and until the disk is mended.

The calls are found by living once without illness (`tests.crash.enduring`), so a call that the engine
learns to make is covered by itself. `tests/run` takes one case in 53; MQCD_FAULTS=all takes all, some 11,000:

    MQCD_FAULTS=all python -m pytest tests/crash/test_faults.py -n 2 --timeout 3600
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash.enduring import Life
from tests.crash.sick_disk import TOUCHES, Kind, Spot

pytestmark = [pytest.mark.crash, pytest.mark.slow]

_ROOTS = ("queue", "spool", "events")
_EVERY = 1 if os.environ.get("MQCD_FAULTS") == "all" else 53
"""Prime, so that the sample meets calls of all kinds."""
_SAME = frozenset((Kind.LIST, Kind.LOOK, Kind.MAKE_DIR, Kind.SYNC_DIR))


@dataclass(frozen=True, slots=True)
class Case:
    """One illness of one life."""

    spot: Spot
    code: int
    lasting: bool

    def __str__(self) -> str:
        return f"{errno.errorcode[self.code]} {'from' if self.lasting else 'once at'} {self.spot}"


def _cases(spots: list[Spot], code: int, *, lasting: bool) -> list[Case]:
    touched = [
        Case(spot, code, lasting)
        for spot in spots
        if spot.kind in TOUCHES[code] and spot.root in _ROOTS and not _is_one_of_many(spot)
    ]
    # Lives begin alike: each error begins its sample elsewhere.
    return touched[code % _EVERY :: _EVERY]


def _is_one_of_many(spot: Spot) -> bool:
    """The silos are 32 times the same."""
    silo = spot.path.removeprefix("spool/")
    return spot.kind in _SAME and silo[:1] == "s" and silo[1:].isdigit() and silo not in ("s01", "s32")


async def _spots(top: Path, *, links: bool) -> list[Spot]:
    life = Life(top / "well", links=links)
    await life.run()
    assert life.disk.failures == 0
    assert life.refusals == []
    made = set(Kind) if links else set(Kind) - {Kind.LINK}
    assert {spot.kind for spot in life.disk.spots} == made, "a kind of call that no life makes"
    spots = list(life.disk.spots)
    await life.check()
    return spots


async def _endure(top: Path, case: Case, *, links: bool) -> None:
    life = Life(top / "ill" / "q", links=links)
    life.disk.infect(case.spot, case.code, lasting=case.lasting)
    await life.run()
    failures = life.disk.failures
    await life.check(late=case.lasting and Kind.REMOVE in TOUCHES[case.code])
    assert failures, "no call has failed"
    for refusal in life.refusals:
        assert os.strerror(case.code) in refusal, f"nobody is told why: {refusal}"
        assert f"{top / 'ill' / 'q'}/{case.spot.root}" in refusal, f"nobody is told where: {refusal}"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of failures are told of, and nobody reads it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("links", [False, True], ids=["counts", "links"])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("code", TOUCHES, ids=errno.errorcode.get)
async def test_every_error_at_every_call(tmp_path: Path, code: int, lasting: bool, links: bool) -> None:
    spots = await _spots(tmp_path, links=links)
    cases = _cases(spots, code, lasting=lasting)
    assert cases
    broken = []
    for case in cases:
        try:
            await _endure(tmp_path, case, links=links)
        except Exception as error:
            broken.append(f"{case}: {type(error).__name__}: {error}"[:400])
        shutil.rmtree(tmp_path / "ill")
    print(f"{len(cases)} cases")
    assert broken == []

"""The event log in the crash matrix: what its oracle is given to judge, and that it sees what is wrong."""

from __future__ import annotations

import gzip
import json

import pytest

from mqcd.core.events import BEST_EFFORT, TRANSITIONS
from mqcd.eventlog.files import parse
from tests.crash.histories import LETTERS
from tests.crash.lab import ARCHIVE, KEY, ROOTS, SENDER, Actor
from tests.crash.oracle import recover
from tests.crash.scenarios import record

pytestmark = [pytest.mark.crash]


def events(actor: Actor, name: str) -> list[dict[str, object]]:
    packed = actor.disk.read_file(ROOTS[2] / name)
    return [json.loads(line) for line in gzip.decompress(packed).splitlines()]


async def test_stories_with_links_have_hashes_retention_and_refusals() -> None:
    actor = await record("mail, hard links")
    names = actor.disk.names(ROOTS[2])
    assert set(actor.disk.names(ARCHIVE)) - set(names), "no event file was removed"
    files = [file for name in names if (file := parse(name)) is not None]
    assert {file.best_effort for file in files} == {True, False}
    told = [event for name in names for event in events(actor, name)]
    assert {event["event"] in BEST_EFFORT for event in told} == {True, False}
    assert not any("@" in str(event.get(field, "")) for event in told for field in ("sender", "recipient"))
    assert actor.options.source.key == KEY


async def test_other_stories_name_people_and_keep_all() -> None:
    actor = await record("mail")
    told = [event for name in actor.disk.names(ROOTS[2]) for event in events(actor, name)]
    assert SENDER in {event.get("sender") for event in told}
    assert not actor.disk.exists(ARCHIVE)


async def _judged(actor: Actor, *, links: bool) -> list[str]:
    actor.disk.trace = None
    return (await recover(actor.disk.state, links=links, drained=False)).problems


async def test_an_event_file_that_is_lost_is_seen() -> None:
    actor = await record("mail")
    first = next(name for name in actor.disk.names(ROOTS[2]) if "-b" not in name)
    actor.disk.unlink(ROOTS[2] / first)
    assert any("the MANIFEST counts" in problem for problem in await _judged(actor, links=False))


async def test_an_event_that_is_reported_twice_is_seen() -> None:
    actor = await record("mail")
    first = next(name for name in actor.disk.names(ROOTS[2]) if "-b" not in name)
    again = first.replace("crash-0-", "crash-0-9")
    actor.disk.replace_file(ROOTS[2] / again, [actor.disk.read_file(ROOTS[2] / first)])
    assert any("doubled ids" in problem for problem in await _judged(actor, links=False))


async def test_an_event_file_that_is_written_anew_otherwise_is_seen() -> None:
    actor = await record("mail, hard links")
    other, *_, name = actor.disk.names(ARCHIVE)
    actor.disk.replace_file(ARCHIVE / name, [actor.disk.read_file(ARCHIVE / other)])
    assert any("is not what it was" in problem for problem in await _judged(actor, links=True))


def test_the_matrix_knows_each_transition() -> None:
    assert set(LETTERS) == {verb.value for verb in TRANSITIONS}

"""Traces of a running server: their bounds, and that nothing stays of one that has ended."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.smtp.tracing import Side
from mqcd.daemon.control.live.listening import HELD
from mqcd.daemon.control.live.tracing import MOST_TRACES, Tracing
from mqcd.ops.http.server import Answer, Request
from tests.fakes.clock import FakeClock
from tests.unit.daemon.support import Running, running

ASKED = Request(method="GET", path="/v1/trace", accept="application/x-ndjson", uid=7)


class Rig:
    """Traces over the doors and delivery of a server, by a clock of the test's own."""

    def __init__(self, house: Running) -> None:
        self.house = house
        self.clock = FakeClock()
        self.logged: list[dict[str, Any]] = []
        server = house.server
        self.tracing = Tracing(server.doors.listeners, server.deliverer, self.clock, self._log)

    def _log(self, event: str, **fields: Any) -> None:
        self.logged.append({"event": event, **fields})

    async def begin(self, **given: object) -> Answer:
        """A trace, once it is on."""
        answer = self.tracing.trace(ASKED, {"q": "c@d.example", **given})
        await part(answer)
        return answer

    def session(self, lines: int) -> None:
        """A session that says so much, and names what is sought."""
        tap = self.house.server.doors.all[0].traces.tap(Side.IN, "s-1", "smtp", ("192.0.2.1",))
        assert tap is not None
        tap.names("c@d.example")
        for _ in range(lines):
            tap.note("said")


async def part(answer: Answer) -> list[dict[str, Any]]:
    assert answer.chunks is not None
    octets = await anext(answer.chunks)
    return [json.loads(line) for line in octets.splitlines() if line]


async def close(answer: Answer) -> None:
    assert answer.chunks is not None
    await answer.chunks.aclose()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(tmp_path) as house:
        yield Rig(house)


async def test_as_many_as_may_be_are_on(rig: Rig) -> None:
    answers = [await rig.begin() for _ in range(MOST_TRACES)]
    with pytest.raises(StoreUnavailable, match="traces are on already"):
        rig.tracing.trace(ASKED, {"q": "c@d.example"})
    for answer in answers:
        await close(answer)
    assert not rig.house.server.doors.all[0].traces
    assert rig.logged[0] == {"event": "trace", "sought": "c@d.example", "by": "uid:7", "for_ms": 600_000}


async def test_it_ends_with_its_lines(rig: Rig) -> None:
    answer = await rig.begin(limit=2)
    rig.session(5)
    assert [row["event"] for row in await part(answer)] == ["said", "said"]
    assert await part(answer) == [{"event": "ended", "reason": "limit"}]
    with pytest.raises(StopAsyncIteration):
        await part(answer)
    assert not rig.house.server.doors.all[0].traces


async def test_it_ends_with_its_time(rig: Rig) -> None:
    answer = await rig.begin(**{"for": 1000})
    rig.clock.advance(1000)
    assert await part(answer) == []
    assert await part(answer) == [{"event": "ended", "reason": "time"}]


async def test_a_slow_reader_loses_lines_and_is_told_how_many(rig: Rig) -> None:
    answer = await rig.begin()
    rig.session(HELD + 3)
    rows: list[dict[str, Any]] = []
    while not rows or rows[-1]["event"] != "dropped":
        rows += await part(answer)
    assert (len(rows), rows[-1]) == (HELD + 1, {"event": "dropped", "count": 3})
    await close(answer)


async def test_what_names_nothing_is_asked_wrongly(rig: Rig) -> None:
    with pytest.raises(DecodeError, match="q:"):
        rig.tracing.trace(ASKED, {"q": " "})

"""Live events: what a listener gets, and what it never costs the queue."""

from __future__ import annotations

import asyncio
import json

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.daemon.control.live.listening import BEAT_MS, HELD, MOST_LISTENERS, Listening
from mqcd.ops.fanout import Fanout
from mqcd.ops.http.server import Answer, Request
from tests.contract.mail import Post
from tests.fakes.clock import FakeClock
from tests.fakes.store import MemoryStore

LINES = Request(method="GET", path="/v1/events", accept="application/x-ndjson")
PLAIN = Request(method="GET", path="/v1/events")


class Rig:
    """A store whose events are listened to."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.observers = Fanout()
        self.store = MemoryStore(self.clock, self.observers)
        self.post = Post(self.store, self.clock)
        self.listening = Listening(self.observers, self.clock)


@pytest.fixture
async def rig() -> Rig:
    made = Rig()
    await made.store.open()
    return made


async def first(answer: Answer) -> bytes:
    """The next part of a stream."""
    assert answer.chunks is not None
    return await anext(answer.chunks)


async def close(answer: Answer) -> None:
    assert answer.chunks is not None
    await answer.chunks.aclose()


async def test_events_come_as_server_sent_events(rig: Rig) -> None:
    answer = rig.listening.events(PLAIN, {})
    assert (answer.content_type, await first(answer)) == ("text/event-stream", b": listening\n\n")
    await rig.post.send("a@x.example")
    part = await first(answer)
    assert part.startswith(b"event: accepted\ndata: {")
    assert part.endswith(b"}\n\n")
    await close(answer)
    assert rig.listening.listeners == 0
    assert rig.observers._observers == ()


async def test_a_listener_chooses(rig: Rig) -> None:
    answer = rig.listening.events(LINES, {"verb": "accepted", "domain": "y.example, z.example"})
    await first(answer)
    await rig.post.send("a@x.example", "b@y.example")
    [line] = (await first(answer)).splitlines()
    assert json.loads(line)["recipient"] == "b@y.example"
    await close(answer)


async def test_what_a_listener_is_too_slow_for_is_counted(rig: Rig) -> None:
    answer = rig.listening.events(LINES, {})
    await first(answer)
    for _ in range(HELD + 5):
        await rig.post.send("a@x.example")
    rows = list[dict[str, object]]()
    while not rows or rows[-1]["event"] != "dropped":
        rows += [json.loads(line) for line in (await first(answer)).splitlines()]
    assert (len(rows), rows[-1]["count"]) == (HELD + 1, 5)
    await close(answer)


async def test_a_silent_stream_beats(rig: Rig) -> None:
    answer = rig.listening.events(PLAIN, {})
    await first(answer)
    beat = asyncio.ensure_future(first(answer))
    while not rig.clock.sleepers:
        await asyncio.sleep(0)
    rig.clock.advance(BEAT_MS)
    assert await beat == b":\n\n"
    await close(answer)


async def test_listeners_are_few(rig: Rig) -> None:
    answers = [rig.listening.events(PLAIN, {}) for _ in range(MOST_LISTENERS)]
    for answer in answers:
        await first(answer)
    with pytest.raises(StoreUnavailable):
        rig.listening.events(PLAIN, {})
    for answer in answers:
        await close(answer)
    await close(rig.listening.events(PLAIN, {}))

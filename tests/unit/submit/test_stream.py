"""In which steps a large message goes to the store."""

from __future__ import annotations

import asyncio

from mqcd.submit.session.stream import STEP, Dotted, Stream
from mqcd.submit.session.wire import HIGH_WATER
from tests.unit.submit.session.test_wire import Bench

LINE = b"x" * 1022 + b"\r\n"


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_quick_client_is_waited_for_until_a_step_is_full() -> None:
    wire = Bench().wire
    stream = Stream(Dotted(wire), 0, 50, 0)
    chunk = asyncio.ensure_future(anext(stream))
    fed = 0
    while fed < STEP:
        await turns()
        assert not chunk.done()
        wire.feed_data(LINE * (HIGH_WATER // len(LINE)))
        fed += HIGH_WATER
    # The last line end may be the beginning of the message's, and is kept back.
    await turns()
    wire.feed_data(LINE * 64)
    got = await chunk
    assert STEP <= len(got) <= STEP + HIGH_WATER
    wire.feed_data(b".\r\n")
    assert len(got) + len(await anext(stream)) == STEP + 64 * len(LINE)
    assert [part async for part in stream] == []


async def test_what_a_slow_client_sends_is_handed_on_at_once() -> None:
    wire = Bench().wire
    stream = Stream(Dotted(wire), 0, 50, 0)
    got = []
    for line in (b"a\r\nb", b"c\r\nd", b"e\r\n"):
        chunk = asyncio.ensure_future(anext(stream))
        await turns()
        assert not chunk.done()
        wire.feed_data(line)
        got.append(await chunk)
    assert got == [b"a\r\nb", b"c\r\nd", b"e"]
    wire.feed_data(b".\r\n")
    assert [part async for part in stream] == [b"\r\n"]

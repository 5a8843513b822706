"""Live events for listeners, in the fields of the log.

An event costs the queue one append for each listener, and nothing while none listens: it is rendered when the
listener's turn comes. What a listener is too slow for is dropped and counted, never waited for.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress

from mqcd.core.address import domain_of
from mqcd.core.errors import StoreUnavailable
from mqcd.core.ports import Clock
from mqcd.daemon.control.api.binding import Given
from mqcd.daemon.control.api.operation import EVENTS, LINES
from mqcd.net.waits import in_time
from mqcd.ops.fanout import Fanout
from mqcd.ops.http.server import Answer, Request
from mqcd.ops.log.lines import Fields
from mqcd.ops.log.log import Event
from mqcd.ops.log.observer import LogObserver

MOST_LISTENERS = 8
HELD = 1000
"""Events that wait for one listener."""
_AT_ONCE = 100
"""Events that are rendered in one turn of the loop."""
BEAT_MS = 15_000
"""How long a stream is silent at most: so long after a listener has gone it is noticed."""


class Listener:
    """The events of one listener: a sink of `LogObserver`."""

    threshold = logging.DEBUG

    def __init__(self, verbs: frozenset[str] = frozenset(), domains: frozenset[str] = frozenset()) -> None:
        """What it wants; nothing = all."""
        self._verbs = verbs
        self._domains = domains
        self._waiting: deque[Event] = deque()
        self._news = asyncio.Event()
        self.dropped = 0

    def event(self, event: Event) -> None:
        """Keep it until it is asked for, if there is room."""
        if len(self._waiting) >= HELD:
            self.dropped += 1
            return
        self._waiting.append(event)
        self._news.set()

    async def wait(self) -> None:
        """Return when there is something."""
        await self._news.wait()

    def take(self) -> list[Fields]:
        """Some events that it wants, rendered."""
        taken = [self._waiting.popleft()() for _ in range(min(len(self._waiting), _AT_ONCE))]
        found = [each for each in taken if self._wants(each)]
        if not self._waiting:
            self._news.clear()
            if self.dropped:
                found.append({"event": "dropped", "count": self.dropped})
                self.dropped = 0
        return found

    def _wants(self, fields: Fields) -> bool:
        if self._verbs and fields.get("event") not in self._verbs:
            return False
        return not self._domains or domain_of(str(fields.get("recipient", ""))) in self._domains


class Listening:
    """The handlers."""

    def __init__(self, observers: Fanout, clock: Clock) -> None:
        self._observers = observers
        self._clock = clock
        self.listeners = 0

    def events(self, request: Request, given: Given) -> Answer:
        """A stream that ends with its connection."""
        if self.listeners >= MOST_LISTENERS:
            raise StoreUnavailable(f"{MOST_LISTENERS} listen already: end one of them")
        listener = Listener(_words(given.get("verb", "")), _words(given.get("domain", "")))
        return live(request, self._followed(Stream(listener, self._clock, lines=LINES in request.accept)))

    async def _followed(self, stream: Stream) -> AsyncGenerator[bytes, None]:
        observer = LogObserver(stream.listener)
        self._observers.add(observer)
        self.listeners += 1
        try:
            async for part in stream.parts():
                yield part
        finally:
            self.listeners -= 1
            self._observers.remove(observer)


def live(request: Request, chunks: AsyncGenerator[bytes, None]) -> Answer:
    """Of a stream, in the form that the request asks for."""
    return Answer(chunks=chunks, content_type=LINES if LINES in request.accept else EVENTS)


class Stream:
    """What a listener gets, as octets."""

    def __init__(self, listener: Listener, clock: Clock, *, lines: bool) -> None:
        """`lines`: JSON lines in place of server-sent events."""
        self.listener = listener
        self._clock = clock
        self._lines = lines

    async def parts(self, until: int | None = None, most: int | None = None) -> AsyncGenerator[bytes, None]:
        """Without an end, or until a monotonic time, or until so many rows: then `ended` is the last."""
        # At once: the listener knows that it listens.
        yield b"\n" if self._lines else b": listening\n\n"
        left = most
        while left is None or left > 0:
            await self._wait(until)
            rows = self.listener.take()[:left]
            yield b"".join(map(self._sent, rows)) or (b"\n" if self._lines else b":\n\n")
            left = None if left is None else left - len(rows)
            if until is not None and self._clock.monotonic() >= until:
                break
            await asyncio.sleep(0)
        yield self._sent({"event": "ended", "reason": "time" if left is None or left > 0 else "limit"})

    async def _wait(self, until: int | None) -> None:
        beat = BEAT_MS if until is None else max(min(BEAT_MS, until - self._clock.monotonic()), 0)
        with suppress(TimeoutError):
            await in_time(self._clock, beat, self.listener.wait())

    def _sent(self, row: Mapping[str, object]) -> bytes:
        line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        if self._lines:
            return line
        return b"event: %s\ndata: %s\n" % (str(row.get("event", "")).encode(), line)


def _words(text: str) -> frozenset[str]:
    return frozenset(word.strip().lower() for word in text.split(",") if word.strip())

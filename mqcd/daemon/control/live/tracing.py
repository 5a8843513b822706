"""GET /v1/trace: what client and server say in sessions that concern one address or peer, as it is said.

Bounded: MOST_TRACES at once; a trace ends with its connection, after its time, or after so many lines. What
its reader is too slow for is dropped and counted, see `listening`. Who begins one is logged.

At a door the sessions that begin from now on are seen. Connections to next hops are kept for long: those that
a trace may be for end after their present message, so that the next one is seen from its beginning.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from mqcd.core.errors import StoreUnavailable
from mqcd.core.ports import Clock
from mqcd.core.smtp.tracing import Row, Trace, Traces, parse_trace
from mqcd.daemon.control.api.binding import Given
from mqcd.daemon.control.api.operation import LINES
from mqcd.daemon.control.live.listening import Listener, Stream, live
from mqcd.deliver.service import Deliverer
from mqcd.ops.http.server import Answer, Request
from mqcd.ops.log.log import LogEvent
from mqcd.submit.door import Door

MOST_TRACES = 4
LASTS_MS = 600_000
LIMIT = 10_000
"""Time and lines of a trace, unless others are asked for."""


class Tracing:
    """The handler; all doors and delivery look at the same traces from now on."""

    def __init__(
        self, doors: Sequence[Door], deliverer: Deliverer, clock: Clock, log_event: LogEvent
    ) -> None:
        self._traces = Traces(clock.now)
        self._deliverer = deliverer
        self._clock = clock
        self._log_event = log_event
        for door in doors:
            door.traces = self._traces
        deliverer.trace_by(self._traces)

    def trace(self, request: Request, given: Given) -> Answer:
        """A stream. Raises DecodeError, StoreUnavailable."""
        listener = Listener()

        def take(row: Row) -> None:
            listener.event(lambda: row)

        trace = parse_trace(given["q"], take)
        if len(self._traces) >= MOST_TRACES:
            raise StoreUnavailable(f"{MOST_TRACES} traces are on already: end one of them")
        lasts, limit = given.get("for", LASTS_MS), given.get("limit", LIMIT)
        stream = Stream(listener, self._clock, lines=LINES in request.accept)
        return live(request, self._traced(trace, stream, lasts, limit, request.by))

    async def _traced(
        self, trace: Trace, stream: Stream, lasts: int, limit: int, by: str
    ) -> AsyncGenerator[bytes, None]:
        self._traces.add(trace)
        self._deliverer.renew(trace.may_concern)
        self._log_event("trace", sought=str(trace.network or trace.sought), by=by, for_ms=lasts)
        try:
            async for part in stream.parts(self._clock.monotonic() + lasts, limit):
                yield part
        finally:
            self._traces.remove(trace)

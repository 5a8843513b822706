"""Unread input of one client: lines and chunks, with back-pressure.

* At most HIGH_WATER octets, plus the one delivery of the event loop that exceeds them, are held: then
  the socket is not read until less than half is left.
* A command line ends in LF; `next_line` gives it without its CRLF, or raises BadLine when it is too
  long, or, unless `bare_lf`, when the LF has no CR before it. Such a line is gone then, and the next one
  can be read.
* `fail` ends every present and future `take` with an error, which is how a message is interrupted: by
  the client's leaving (ConnectFailed), by a timeout, by a stop (Interrupted). Work that is not waiting
  for the client, such as a commit, is not disturbed.
* `begin` and `is_slow` measure how long one message's octets were waited for.
* `owing_since` is the time since which the client owes a line, or the next chunk. The server's own time does
  not count, such as a commit's or a delay's:

  | | by |
  |---|---|
  | the client owes, if it did not: `owe` | the greeting is written, or TLS begins or has begun |
  | | all that came is answered, and no task runs |
  | | a task waits for octets (`wait`) |
  | | it does not read its replies, or is to close the connection |
  | it owes nothing: `owes_nothing` | a line or content is read |
  | | TLS has begun |
  | | it reads its replies again |
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from mqcd.core.errors import ConnectFailed, DecodeError, MqcdError
from mqcd.core.ports import Clock
from mqcd.core.smtp.reply import Reply
from mqcd.submit.esmtp.refusal import Reason

HIGH_WATER = 64 * 1024
MESSAGE_MS = 600_000
"""Time limit for a message's content, plus 1 ms for each octet of it."""
MAX_LINE = 2048
"""Octets of a command line with its CRLF. RFC 5321, 4.5.3.1.4 has 512, and each extension adds to it:
DSN alone 500 for ORCPT (RFC 3461, 4.2)."""


class BadLine(DecodeError):
    """A command line that cannot be read. Fault: the client."""


class Interrupted(MqcdError):
    """The session must end now; `reply` is the last reply."""

    def __init__(self, reason: Reason, reply: Reply) -> None:
        super().__init__(str(reply))
        self.reason = reason
        self.reply = reply


class Pausable(Protocol):
    """The part of a transport that back-pressure uses."""

    def pause_reading(self) -> None:
        """Pause reading from the socket."""

    def resume_reading(self) -> None:
        """Take again."""


class Wire:
    """The unread octets of one connection. One reader at a time."""

    __slots__ = (
        "_bare_lf",
        "_chunks",
        "_clock",
        "_counted_to",
        "_current",
        "_error",
        "_loop",
        "_overlong",
        "_paused",
        "_position",
        "_taken",
        "_transport",
        "_waited",
        "_waiter",
        "at_end",
        "held",
        "owing_since",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Pausable,
        clock: Clock,
        *,
        bare_lf: bool = False,
    ) -> None:
        """`bare_lf`: a command line may end in LF alone."""
        self._loop = loop
        self._transport = transport
        self._clock = clock
        self._bare_lf = bare_lf
        self._current = b""
        self._position = 0
        self._chunks: list[bytes] = []
        self._paused = False
        self._overlong = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._waited = 0
        self._counted_to = 0
        """Monotonic ms up to which `_waited` holds the time that the client owes."""
        self._taken = 0
        self.held = 0
        """Octets that are not read yet."""
        self.at_end = False
        """The client has closed its side."""
        self.owing_since = 0
        """Monotonic ms since when the server waits for a line or a chunk; 0 = it does not wait."""

    def feed_data(self, data: bytes) -> None:
        """Octets came."""
        self._chunks.append(data)
        self.held += len(data)
        if self.held > HIGH_WATER and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        if self._waiter is not None:
            self.wake()

    def feed_eof(self) -> None:
        """The client will send no more; what it sent can still be read."""
        self.at_end = True
        self.wake()

    def fail(self, error: Exception) -> None:
        """End all reads, now and later, with `error`. The first error stays."""
        if self._error is None:
            self._error = error
        self.wake()

    def next_line(self, most: int = MAX_LINE) -> bytes | None:
        """The next line of at most `most` octets, None when it has not come whole. Raises BadLine."""
        end = self._current.find(b"\n", self._position)
        if end < 0 and self._chunks:
            self._current = self._current[self._position :] + b"".join(self._chunks)
            self._position = 0
            self._chunks.clear()
            end = self._current.find(b"\n")
        if end < 0:
            self._drop_overlong(most)
            return None
        start = self._position
        self._position = end + 1
        self._consumed(self._position - start)
        self.owing_since = 0
        if self._overlong or end + 1 - start > most:
            self._overlong = False
            raise BadLine("Line too long")
        if end > start and self._current[end - 1] == 13:
            return self._current[start : end - 1]
        if not self._bare_lf:
            raise BadLine("Line does not end in CRLF")
        return self._current[start:end]

    async def take(self) -> bytes:
        """All received octets, at least one. Raises ConnectFailed when the client has disconnected."""
        while not self.held:
            await self.wait()
        self.check()
        if self._position < len(self._current):
            self._chunks.insert(0, self._current[self._position :])
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._current = b""
        self._position = 0
        self._consumed(len(data))
        self._taken += len(data)
        self.owing_since = 0
        return data

    async def take_some(self, most: int) -> bytes:
        """At least one of the received octets, at most `most`. Raises ConnectFailed like `take`."""
        while not self.held:
            await self.wait()
        self.check()
        if self._position == len(self._current):
            self._current = b"".join(self._chunks)
            self._position = 0
            self._chunks.clear()
        start = self._position
        data = self._current[start : start + most]
        self._position = start + len(data)
        self._consumed(len(data))
        self._taken += len(data)
        self.owing_since = 0
        return data

    async def skip(self, octets: int) -> None:
        """Drop so many octets of content. Raises ConnectFailed like `take`."""
        self.begin()
        while octets:
            octets -= len(await self.take_some(octets))

    def unread(self, data: bytes) -> None:
        """Put back the tail of what `take` returned."""
        self._current = data + self._current[self._position :]
        self._position = 0
        self.held += len(data)

    @property
    def taken(self) -> int:
        """Octets of this message's content so far."""
        return self._taken

    @property
    def error(self) -> Exception | None:
        """What `fail` was called with; None = it was not."""
        return self._error

    def check(self) -> None:
        """Raise what `fail` was called with, if it was."""
        if self._error is not None:
            raise self._error

    def begin(self) -> None:
        """A message's content follows."""
        self._waited = self._taken = 0

    def is_slow(self, now: int) -> bool:
        """Whether the octets of this message have been waited for too long at `now` (monotonic)."""
        waiting = now - max(self.owing_since, self._counted_to) if self.owing_since else 0
        return self._waited + waiting >= MESSAGE_MS + self._taken

    def owe(self) -> None:
        """Start waiting for the client, unless that has begun already."""
        if not self.owing_since:
            self.owing_since = self._clock.monotonic() or 1

    def owes_nothing(self) -> None:
        """The client has sent what the server waited for."""
        self.owing_since = 0

    def spend(self, time: int) -> None:
        """Count `time` ms as waited for this message."""
        self._waited += time

    async def wait(self) -> None:
        """Wait until something happens. Raises ConnectFailed when the client sends no more."""
        self.check()
        if self.at_end:
            raise ConnectFailed("the client closed the connection")
        self.owe()
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
            if self.owing_since:
                now = self._clock.monotonic()
                self._waited += now - max(self.owing_since, self._counted_to)
                self._counted_to = now

    def wake(self) -> None:
        """End a `wait`."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _consumed(self, octets: int) -> None:
        self.held -= octets
        if self._paused and self.held < HIGH_WATER // 2:
            self._paused = False
            self._transport.resume_reading()

    def _drop_overlong(self, most: int) -> None:
        """Forget the beginning of a line that is already too long; its end is still to come."""
        waiting = len(self._current) - self._position
        if waiting > most:
            self._overlong = True
            self._current = b""
            self._position = 0
            self._consumed(waiting)

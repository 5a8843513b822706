"""Unread input of one client: lines and chunks, with back-pressure.

* At most HIGH_WATER octets, plus the one delivery of the event loop that exceeds them, are held: then
  the socket is not read until less than half is left.
* A command line ends in LF; `next_line` gives it without its CRLF, or raises BadLine when it is too
  long, or, unless `bare_lf`, when the LF has no CR before it. Such a line is gone then, and the next one
  can be read.
* `fail` ends every present and future `take` with an error, which is how a message is interrupted: by
  the client's leaving (ConnectFailed), by a timeout, by a stop (Interrupted). Work that is not waiting
  for the client, such as a commit, is not disturbed.
"""

from __future__ import annotations

import asyncio
import sys

from mqcd.core.errors import ConnectFailed, DecodeError, MqcdError
from mqcd.core.smtp.reply import Reply
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.session.deadlines import Deadlines

HIGH_WATER = 64 * 1024
MAX_LINE = 2048
"""Octets of a command line, its end included. Below HIGH_WATER, at which reading pauses: the end of a longer
line would never come."""
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


class Wire:
    """The unread octets of one connection. One reader at a time."""

    __slots__ = (
        "_bare_lf",
        "_chunks",
        "_current",
        "_deadlines",
        "_loop",
        "_overlong",
        "_paused",
        "_position",
        "_transport",
        "_waiter",
        "at_end",
        "error",
        "held",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.ReadTransport,
        deadlines: Deadlines,
        *,
        bare_lf: bool = False,
    ) -> None:
        """`bare_lf`: a command line may end in LF alone."""
        self._loop = loop
        self._transport = transport
        self._deadlines = deadlines
        self._bare_lf = bare_lf
        self._current = b""
        self._position = 0
        self._chunks: list[bytes] = []
        self._paused = False
        self._overlong = False
        self._waiter: asyncio.Future[None] | None = None
        self.error: Exception | None = None
        """What `fail` was called with; None = it was not."""
        self.held = 0
        """Octets that are not read yet."""
        self.at_end = False
        """The client has closed its side."""

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
        self.error = self.error or error
        self.wake()

    def next_line(self, most: int) -> bytes | None:
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
        self._deadlines.owes_nothing()
        if self._overlong or end + 1 - start > most:
            self._overlong = False
            raise BadLine("Line too long")
        if end > start and self._current[end - 1] == 13:
            return self._current[start : end - 1]
        if not self._bare_lf:
            raise BadLine("Line does not end in CRLF")
        return self._current[start:end]

    async def take(self, most: int = sys.maxsize) -> bytes:
        """At least one of the received octets of content, at most `most`. Raises ConnectFailed if the client
        has left."""
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
        if self._position == len(self._current):
            # Not kept until the next line: that may be a long time.
            self._current = b""
            self._position = 0
        self._consumed(len(data))
        self._deadlines.content += len(data)
        self._deadlines.owes_nothing()
        return data

    def refuse(self) -> None:
        """What `take` gives of this message from now on is dropped."""
        self._deadlines.refuse_message()

    async def skip(self, octets: int) -> None:
        """Drop so many octets of content. Raises ConnectFailed like `take`."""
        self.refuse()
        while octets:
            octets -= len(await self.take(octets))

    def unread(self, data: bytes) -> None:
        """Put back the tail of what `take` returned."""
        self._current = data + self._current[self._position :]
        self._position = 0
        self.held += len(data)

    def check(self) -> None:
        """Raise what `fail` was called with, if it was."""
        if self.error is not None:
            raise self.error

    async def wait(self) -> None:
        """Wait until something happens. Raises ConnectFailed when the client sends no more."""
        self.check()
        if self.at_end:
            raise ConnectFailed("the client closed the connection")
        self._deadlines.owe()
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._deadlines.waited()

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

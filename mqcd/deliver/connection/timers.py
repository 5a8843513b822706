"""Time limits of connections: how long each is, and the sweep that notices when one has passed.

A connection has two limits: for the next reply, and for everything under way. Each reply has `PATIENCE` times
`timeout` for its phase, from when the one before it came; with `timeout` at its default these are the limits
of RFC 5321, 4.5.3.2. A reply that arrives octet by octet gains no time. While content goes out, and until its
end is answered, the limit is longer by the time that the content takes at `mindatarate`; without that each
chunk has a limit of its own.

All that comes before mail has `WHOLE` times `timeout` in all. So has a transaction up to the final dot, with
`timeout` / `PER_TIMEOUT` for each recipient, and the time that the content takes at `mindatarate`, or at
`LEAST_RATE` without it; the replies to the dot have their own limit and the same for recipients.
So a peer that answers each time just before a limit holds a connection for minutes, not hours.

There is no timer for each command: one sweep looks at the deadlines of all connections. A deadline is noticed
up to one tick late. Nothing ticks while nothing is guarded.

Times are ms, those of the clock monotonic. Settings read: deliver/client timeout, mindatarate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mqcd.config.settings import ClientSettings
from mqcd.core.model import Phase
from mqcd.core.ports import Clock

PATIENCE: Mapping[Phase, int] = {
    Phase.CONNECT: 1,
    Phase.GREETING: 5,
    Phase.EHLO: 5,
    Phase.TLS: 1,
    Phase.AUTH: 5,
    Phase.MAIL: 5,
    Phase.RCPT: 5,
    Phase.DATA: 2,
    # Giving up there makes duplicates.
    Phase.DOT: 10,
}
"""How many times `timeout` each phase may wait for a reply."""
BLOCK_PATIENCE = 3
"""Patience for the content, from DATA's reply to its end, in multiples of `timeout`."""
WHOLE = 15
"""Multiple of `timeout` that the handshake may take in all; likewise a transaction, besides recipients and
content."""
PER_TIMEOUT = 10
"""Recipients for which a transaction may take one `timeout` more."""
LEAST_RATE = 8000
"""Assumed rate of content, bits per second, where `mindatarate` is not set."""


@dataclass(slots=True, eq=False, repr=False)
class Limits:
    """The limits of one connection. Each method returns the deadline that follows."""

    _settings: ClientSettings
    _recipients: int = 0
    """Of the transaction under way."""
    _reply_ms: int = 0
    """Length of the limit on the next reply."""
    _whole: int = 0
    """Deadline of everything under way; 0 = none."""
    _whole_ms: int = 0
    """Length of that limit."""

    def opening(self, now: int) -> int:
        """A connection is being made."""
        self._end_in(self._settings.timeout * WHOLE, now)
        return self.reply(Phase.CONNECT, now)

    def reply(self, phase: Phase, now: int) -> int:
        """A reply is awaited."""
        return self._wait(PATIENCE[phase], 0, now)

    def transaction(self, recipients: int, size: int, now: int) -> None:
        """A transaction begins, with a content of `size` octets."""
        self._recipients = recipients
        self._end_in(self._with_recipients(WHOLE) + self._transfer(size, LEAST_RATE), now)

    def chunk(self, size: int, now: int) -> int:
        """Some of a content of `size` octets goes out."""
        return self._wait(BLOCK_PATIENCE, size, now)

    def end_of_content(self, size: int, now: int) -> int:
        """The end of a content of `size` octets goes out."""
        patience = PATIENCE[Phase.DOT]
        self._end_in(self._with_recipients(patience) + self._transfer(size), now)
        return self._wait(patience, size, now)

    def quit(self, now: int) -> int:
        """The session ends; nothing else is under way."""
        self._whole = 0
        return self._wait(1, 0, now)

    def rest(self) -> int:
        """Nothing is under way: there is no deadline."""
        self._whole = 0
        return 0

    def reason(self, now: int) -> str:
        """Which limit has passed, in words."""
        if 0 < self._whole <= now:
            return f"not done within {self._whole_ms / 1000:g} s"
        return f"no reply within {self._reply_ms / 1000:g} s"

    def _wait(self, times: int, size: int, now: int) -> int:
        self._reply_ms = self._settings.timeout * times + self._transfer(size)
        deadline = now + self._reply_ms
        return self._whole if 0 < self._whole < deadline else deadline

    def _end_in(self, ms: int, now: int) -> None:
        self._whole_ms = ms
        self._whole = now + ms

    def _with_recipients(self, times: int) -> int:
        timeout = self._settings.timeout
        return timeout * times + timeout * self._recipients // PER_TIMEOUT

    def _transfer(self, size: int, least: int = 0) -> int:
        """Time that a content takes."""
        rate = self._settings.mindatarate or least
        return size * 8000 // rate if rate else 0


class Guarded(Protocol):
    """Something with a time limit."""

    deadline: int
    """Monotonic ms; 0 = none now."""

    def expire(self) -> None:
        """Called once per deadline, when it has passed."""


@dataclass(eq=False, repr=False)
class Sweep:
    """Watches deadlines while there are any to watch."""

    _clock: Clock
    tick_ms: int
    _guarded: set[Guarded] = field(default_factory=set)
    _task: asyncio.Task[None] | None = None

    def add(self, guarded: Guarded) -> None:
        """Watch its deadline from now on."""
        self._guarded.add(guarded)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def discard(self, guarded: Guarded) -> None:
        self._guarded.discard(guarded)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._guarded:
            await self._clock.sleep(self.tick_ms)
            now = self._clock.monotonic()
            for guarded in [each for each in self._guarded if 0 < each.deadline <= now]:
                guarded.deadline = 0
                guarded.expire()


@dataclass(eq=False, repr=False)
class Alarm:
    """Calls back once at the earliest of the times it was set to; it may call early, never late."""

    _clock: Clock
    _callback: Callable[[], None]
    _at: int = 0
    _task: asyncio.Task[None] | None = None

    def set(self, ms: int) -> None:
        """Call back in `ms` ms at the latest."""
        at = self._clock.monotonic() + ms
        if self._task is not None:
            if self._at <= at:
                return
            self._task.cancel()
        self._at = at
        self._task = asyncio.get_running_loop().create_task(self._run(ms))

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self, ms: int) -> None:
        await self._clock.sleep(ms)
        self._task = None
        self._callback()

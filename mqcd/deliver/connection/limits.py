"""The two time limits of a connection: for the next reply, and for everything under way. Pure.

Each reply has `PATIENCE` times `timeout` for its phase, from when the one before it came; with `timeout` at
its default these are the limits of RFC 5321, 4.5.3.2. A reply that arrives octet by octet gains no time.
While content goes out, and until its end is answered, the limit is longer by the time that the content takes
at `mindatarate`; without that each chunk has a limit of its own.

All that comes before mail has `WHOLE` times `timeout` in all. So has a transaction up to the final dot, with
`timeout` / `PER_TIMEOUT` for each recipient, and the time that the content takes at `mindatarate`, or at
`LEAST_RATE` without it; the replies to the dot have their own limit and the same for recipients.
So a peer that answers each time just before a limit holds a connection for minutes, not hours.

Times are ms, those of the clock monotonic. Each method returns the deadline that follows. Settings read:
deliver/client timeout, mindatarate.
"""

from __future__ import annotations

from collections.abc import Mapping

from mqcd.config.settings import ClientSettings
from mqcd.core.model import Phase

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


class Limits:
    """The limits of one connection."""

    __slots__ = ("_recipients", "_reply_ms", "_settings", "_whole", "_whole_ms")

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._recipients = 0
        """Of the transaction under way."""
        self._reply_ms = 0
        """Length of the limit on the next reply."""
        self._whole = 0
        """Deadline of everything under way; 0 = none."""
        self._whole_ms = 0
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

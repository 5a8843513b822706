"""Best-effort events: refusals at the door and connections to next hops, in event files of their own.

They are not in the journal. Promises: strangers cannot fill the disk, for each verb may have so many octets a
second in the long run, and so many at once; what is beyond is left out, and counted in the verb's next event.
Nothing waits for the disk, which a thread writes to. A crash loses a minute of them at most. An idle server
writes nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from mqcd.core.address import domain_of
from mqcd.core.events import BEST_EFFORT, Verb, format_time, site_of
from mqcd.core.model import Attempt
from mqcd.core.observing.null_observer import NullObserver
from mqcd.core.ports import Clock, Refusal
from mqcd.core.smtp.classes import class_of
from mqcd.disk.durable import describe
from mqcd.eventlog.lossy_files import Line, LossyFiles
from mqcd.eventlog.pseudonyms import Pseudonyms

log = logging.getLogger(__name__)

WAIT_MS = 60_000
"""Longest time that an event waits for others to share its file."""
FILE_OCTETS = 256 << 10
"""Octets waiting at which a file is written."""
BURST, RATE = 256 << 10, 2 << 10
"""Octets of one verb in a burst, and per second in the long run."""
MAX_TEXT = 320
"""Characters kept of a peer's text: as long as an address may be."""
_WAITING_OCTETS = 4 * FILE_OCTETS
"""Most octets that wait in memory while the disk fails."""
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

Value = str | int


class _Allowance:
    """A token bucket: octets that a verb may still write."""

    __slots__ = ("_at", "_left")

    def __init__(self) -> None:
        self._left = float(BURST)
        self._at = 0

    def any(self, now: int) -> bool:
        """Whether one more event may be kept at monotonic time `now`, ms."""
        self._left = min(BURST, self._left + (now - self._at) * RATE / 1000)
        self._at = now
        return self._left > 0

    def take(self, octets: int) -> None:
        self._left -= octets


class LossyEvents(NullObserver):
    """`core.ports.Observer` that writes events other than transitions; runs until `stop`."""

    def __init__(self, files: LossyFiles, clock: Clock, key: bytes = b"") -> None:
        """`key` is the one of `Source`."""
        self._files = files
        self._clock = clock
        self._names = Pseudonyms(key) if key else None
        self._allowances = {verb: _Allowance() for verb in BEST_EFFORT}
        self._left_out: Counter[Verb] = Counter()
        self.missing = {verb.value: 0 for verb in sorted(BEST_EFFORT)}
        """Lost events by verb: too many, or the disk failed."""
        self._lines: list[Line] = []
        self._octets = 0
        self._come = asyncio.Event()
        """Something waits to be written."""
        self._enough = asyncio.Event()
        """It is to be written now."""
        self._stopping = False
        self._failing = False

    def refused(self, at: int, refusal: Refusal) -> None:
        """A refusal: client, address and reply."""
        if self._may_come(Verb.REFUSED):
            reply, names = refusal.reply, self._names
            sender, recipient, text = refusal.sender, refusal.recipient, reply.text
            user, command = refusal.user, refusal.command
            if names is not None:
                text = names.text(text, sender, recipient)
                sender, recipient = names.address(sender), names.address(recipient)
                # A client whose DATA was refused may send its message all the same, as commands.
                user, command = names.address(user), names.address(command)
            fields: dict[str, Value] = {
                "reason": refusal.reason,
                "listener": refusal.listener,
                "client": refusal.client,
                "user": user,
                "sender": sender,
                "recipient": recipient,
                "domain": domain_of(refusal.recipient),
                "code": reply.code,
                "status": reply.status,
                "class": class_of(reply.code, reply.status),
                "reply": text,
                "session": refusal.session,
                "command": command,
            }
            self._add(Verb.REFUSED, at, fields)

    def connected(self, at: int, attempt: Attempt) -> None:
        """A connection: its destination and duration."""
        if self._may_come(Verb.CONNECTED):
            self._add(Verb.CONNECTED, at, {**_way(attempt), "connect_ms": attempt.connect_ms})

    def connect_failed(self, at: int, attempt: Attempt, reason: str) -> None:
        """A failed connection: its destination and reason."""
        if self._may_come(Verb.CONNECT_FAILED):
            self._add(Verb.CONNECT_FAILED, at, {**_way(attempt), "reason": reason})

    def _may_come(self, verb: Verb) -> bool:
        if self._octets < _WAITING_OCTETS and self._allowances[verb].any(self._clock.monotonic()):
            return True
        self._left_out[verb] += 1
        self.missing[verb] += 1
        return False

    def _add(self, verb: Verb, at: int, fields: dict[str, Value]) -> None:
        row: dict[str, Value] = {"event": verb.value, "at": format_time(at)}
        for name, value in fields.items():
            if value != "":
                row[name] = value[:MAX_TEXT] if isinstance(value, str) else value
        left_out = self._left_out.pop(verb, 0)
        if left_out:
            row["left_out"] = left_out
        rest = _encode(row)[1:]
        self._allowances[verb].take(len(rest))
        self._lines.append(Line(verb, rest, 1 + left_out))
        self._octets += len(rest)
        self._come.set()
        if self._octets >= FILE_OCTETS:
            self._enough.set()

    async def run(self) -> None:
        """Write events a minute after the first one or when many wait, until `stop`."""
        await self._in_thread(self._files.prepare)
        while not self._stopping:
            await self._come.wait()
            await self._wait()
            await self._flush()
        await self._flush()

    async def _wait(self) -> None:
        waits = [
            asyncio.ensure_future(self._enough.wait()),
            asyncio.ensure_future(self._clock.sleep(WAIT_MS)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def stop(self) -> None:
        """Write waiting events and make `run` return."""
        self._stopping = True
        self._come.set()
        self._enough.set()

    async def _flush(self) -> None:
        lines, self._lines, self._octets = self._lines, [], 0
        if not self._stopping:
            self._come.clear()
            self._enough.clear()
        if lines and not await self._in_thread(self._files.write, lines, self._clock.now()):
            for line in lines:
                self._left_out[line.verb] += line.stands_for
                self.missing[line.verb] += 1

    async def _in_thread(self, work: Callable[..., None], *arguments: Any) -> bool:
        """Returns whether it succeeded; a failure is logged once."""
        try:
            await asyncio.get_running_loop().run_in_executor(None, work, *arguments)
        except OSError as error:
            if not self._failing:
                log.warning("refusals and connections are not written to the event log: %s", describe(error))
            self._failing = True
        else:
            self._failing = False
        return not self._failing


def _way(attempt: Attempt) -> dict[str, Value]:
    return {
        "destination": attempt.destination,
        "site": site_of(attempt.destination),
        "zone": attempt.zone,
        "remote_host": attempt.remote_host,
        "remote_addr": attempt.remote_addr,
        "source_addr": attempt.source_addr,
    }

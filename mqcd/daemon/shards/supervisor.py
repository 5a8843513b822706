"""The parent of the server processes of several shards.

* It binds all ports, each listener once for every shard (SO_REUSEPORT), drops privileges, and forks a server
  process for each shard and the front process that serves the pages. It has no thread and no event loop, so
  it may fork at any time.
* A process that ends is started again, after a pause that grows while it keeps ending or cannot be forked.
  Its sockets stay open meanwhile: connections that were not accepted wait for it. What ends before the first
  start is complete ends everything, with exit code 1.
* The process of a shard that cannot start stands in for it (`stand_in`). The server goes on while another
  shard is in service.
* SIGTERM and SIGINT stop all. SIGHUP has each read its configuration again; one that starts is sent it when
  it is ready, as it would lose the signal before its handler is set.
* Each process stops in good order when the supervisor stops or is gone: it sees a pipe that becomes readable
  and stays so. A signal would be lost on a process that was forked just now.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain

from mqcd.config.settings import LogFormat, LogSettings, Settings
from mqcd.core.events import format_time
from mqcd.net.clock import SystemClock
from mqcd.net.shared.balance import Mailboxes
from mqcd.net.systemd import ALONE, Notifier
from mqcd.ops.log.lines import as_json, logfmt

log = logging.getLogger("mqcd.daemon")

FRONT = -1
"""Stands for a shard's number: the front process."""
_FIRST_PAUSE, _LONGEST_PAUSE = 100, 5_000
"""Milliseconds until a process that has ended is started again."""
_STEADY_MS = 30_000
"""Time after which a process counts as one that runs."""
STOP_MS = 15_000
"""How long a stop takes at most; a server process cuts itself off earlier."""

TRY_AGAIN = 75
"""Exit code of a process whose shard is to be started again at once."""

Sockets = Sequence[Sequence[socket.socket]]
"""By listener: bound sockets."""
Body = Callable[["Part"], int]
"""What a process does; gives its exit code."""


class State(Enum):
    """Of a process."""

    STARTING = auto()
    RUNNING = auto()
    """It has said that it is ready."""
    OUT = auto()
    """It has said that its shard is out of service."""
    PAUSED = auto()
    """It has ended, and is started again later."""


_SAID = {State.RUNNING: b"r", State.OUT: b"o"}
"""What a process writes."""


@dataclass(slots=True)
class Part:
    """One process: of a shard, or the front."""

    shard: int
    process: int
    """Its place among the mailboxes; -1 for the front."""
    sockets: Sockets = ()
    state: State = State.PAUSED
    pid: int = 0
    watch: int = -1
    """Descriptor of the process."""
    ready: int = -1
    """In the supervisor the end to read from, in the process the end to write to, when it is ready."""
    alive: int = -1
    """In the process: readable when the supervisor stops (`stops`) or is gone. Nothing is read from it."""
    since: int = 0
    """When it was started, or that was tried, in monotonic ms."""
    reload: bool = False
    """Whether it is to be sent SIGHUP when it is ready."""
    again: int = 0
    """When to start it, in monotonic ms."""
    pause: int = _FIRST_PAUSE

    @property
    def name(self) -> str:
        """For the log."""
        return "the front process" if self.shard == FRONT else f"the server process of shard {self.shard}"

    @property
    def descriptors(self) -> list[int]:
        """In the supervisor: what it waits for."""
        return [descriptor for descriptor in (self.watch, self.ready) if descriptor >= 0]

    def say(self, state: State) -> None:
        """In the process: it takes mail, or serves its pages; or its shard is out of service."""
        self.state = state
        with suppress(OSError):
            os.write(self.ready, _SAID[state])


def stops(alive: int) -> bool:
    """In a process, of its readable `Part.alive`: whether the supervisor stops; False when it is gone."""
    poll = select.poll()
    poll.register(alive, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll(0))


class PlainLog(logging.Handler):
    """Writes each message at once, from a process without threads."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__()
        self._render = as_json if settings.format is LogFormat.JSON else logfmt
        self._clock = SystemClock()

    def emit(self, record: logging.LogRecord) -> None:
        """A line on standard error."""
        at = format_time(self._clock.now())
        fields = {"at": at, "level": record.levelname.lower(), "logger": record.name}
        with suppress(OSError):
            os.write(2, self._render({**fields, "msg": record.getMessage()}).encode() + b"\n")


class Supervisor:
    """Runs the parts until a signal stops it."""

    def __init__(
        self,
        parts: Sequence[Part],
        boxes: Mailboxes,
        serve: Body,
        front: Body,
        notifier: Notifier = ALONE.notifier,
    ) -> None:
        self._parts = parts
        self._notifier = notifier
        self._boxes = boxes
        self._serve, self._front = serve, front
        self._clock = SystemClock()
        self._alive = os.pipe()
        self._signals = os.pipe()
        for end in self._signals:
            os.set_blocking(end, False)
        self._stopping: int | None = None
        self._code = 0
        self._was_ready = False

    def run(self) -> int:
        """Fork them all, and watch; gives the exit code. Raises OSError when a first fork fails."""
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        for number in numbers:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._signals[1], warn_on_full_buffer=False)
        for part in self._parts:
            self._start(part)
        while self._stopping is None or any(part.pid for part in self._parts):
            self._turn()
        return self._code

    def _turn(self) -> None:
        ready = self._poll()
        if self._signals[0] in ready:
            for number in os.read(self._signals[0], 64):
                self._on_signal(signal.Signals(number))
        for part in self._parts:
            if part.ready in ready:
                self._on_ready(part)
            if part.watch in ready:
                self._on_end(part)
        now = self._clock.monotonic()
        if self._stopping is not None:
            if now > self._stopping + STOP_MS:
                self._send(signal.SIGKILL, *self._parts)
            return
        for part in self._parts:
            if part.state is State.PAUSED and part.again <= now:
                self._start_again(part)

    def _poll(self) -> set[int]:
        """Wait; gives the descriptors at which something has happened."""
        poll = select.poll()
        poll.register(self._signals[0], select.POLLIN)
        for part in self._parts:
            for descriptor in part.descriptors:
                poll.register(descriptor, select.POLLIN)
        if self._was_ready and self._notifier.watchdog_ms:
            self._notifier.alive()
        return {descriptor for descriptor, _ in poll.poll(self._wait())}

    def _wait(self) -> int:
        """Milliseconds until something is to be done unasked."""
        now = self._clock.monotonic()
        if self._stopping is not None:
            return max(self._stopping + STOP_MS - now + 1, 100)
        times = [part.again for part in self._parts if part.state is State.PAUSED]
        if self._notifier.watchdog_ms:
            times.append(now + self._notifier.watchdog_ms)
        return max(min(times) - now + 1, 0) if times else -1

    # ------------------------------------------------------------ what happens

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stopping is not None:
            return
        if number is signal.SIGHUP:
            for part in self._parts:
                self._reload(part)
        else:
            log.info("%s: stopping", number.name)
            self._stop(0)

    def _reload(self, part: Part) -> None:
        """Have a process read its configuration again, now or when it is ready. One that stands in for its
        shard, or has ended, is followed by one that reads it at its start."""
        part.reload = part.state is State.STARTING
        if part.state is State.RUNNING:
            self._send(signal.SIGHUP, part)

    def _on_ready(self, part: Part) -> None:
        said = os.read(part.ready, 1)
        os.close(part.ready)
        part.ready = -1
        if not said:
            return
        part.state = next(state for state, text in _SAID.items() if text == said)
        if part.reload:
            self._reload(part)
        starting = any(each.state not in _SAID for each in self._parts)
        if starting or self._was_ready or self._stopping is not None:
            return
        self._was_ready = any(each.state is State.RUNNING for each in self._parts if each.shard != FRONT)
        if self._was_ready:
            self._notifier.ready()
        else:
            log.error("no shard can start; the server ends")
            self._stop(1)

    def _on_end(self, part: Part) -> None:
        _, status = os.waitpid(part.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        for descriptor in part.descriptors:
            os.close(descriptor)
        part.watch = part.ready = -1
        pid, part.pid = part.pid, 0
        before, part.state = part.state, State.PAUSED
        if part.shard != FRONT:
            self._boxes.set_out(part.process)
        if self._stopping is not None:
            # SIGTERM may have come to all processes, to this one before it had anything to put in order.
            self._code = self._code or int(code not in (0, -signal.SIGTERM))
            return
        why = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        if not self._was_ready and before is State.STARTING:
            log.error("%s (%d) cannot start (%s); the server ends", part.name, pid, why)
            self._stop(1)
            return
        if code == TRY_AGAIN:
            part.again = self._clock.monotonic()
            return
        self._pause(part, f"{part.name} ({pid}) has ended ({why})")

    def _pause(self, part: Part, why: str) -> None:
        now = self._clock.monotonic()
        steady = now - part.since > _STEADY_MS
        part.pause = _FIRST_PAUSE if steady else min(part.pause * 2, _LONGEST_PAUSE)
        part.again = now + part.pause
        log.error("%s; it is started again in %d ms", why, part.pause)

    def _stop(self, code: int) -> None:
        self._stopping = self._clock.monotonic()
        self._code = code
        self._notifier.stopping()
        os.write(self._alive[1], b"s")

    def _send(self, number: signal.Signals, *parts: Part) -> None:
        for part in parts:
            if part.pid:
                with suppress(ProcessLookupError):
                    os.kill(part.pid, number)

    # ------------------------------------------------------------ start

    def _start(self, part: Part) -> None:
        """Raises OSError, and leaves nothing behind, when the system has no room for a process."""
        part.since = self._clock.monotonic()
        ours, theirs = os.pipe()
        pid = 0
        try:
            sys.stdout.flush()
            pid = os.fork()
            if not pid:
                self._become(part, ours, theirs)
            part.watch = os.pidfd_open(pid)
        except OSError:
            os.close(ours)
            if pid:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            raise
        finally:
            os.close(theirs)
        part.pid, part.ready, part.state, part.reload = pid, ours, State.STARTING, False

    def _start_again(self, part: Part) -> None:
        try:
            self._start(part)
        except OSError as error:
            self._pause(part, f"{part.name} cannot be started: {error}")

    def _become(self, part: Part, ours: int, theirs: int) -> None:
        """In the new process: do its work, and never return."""
        code = 1
        try:
            os.close(ours)
            part.ready, part.alive = theirs, self._alive[0]
            self._leave(part)
            code = (self._front if part.shard == FRONT else self._serve)(part)
        except BaseException:
            log.exception("%s has failed", part.name)
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(code)

    def _leave(self, part: Part) -> None:
        """In the new process: give up what is the supervisor's and what is other parts'."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        for end in (*self._signals, self._alive[1]):
            os.close(end)
        for other in self._parts:
            if other is not part:
                for descriptor in other.descriptors:
                    os.close(descriptor)
                for bound in chain.from_iterable(other.sockets):
                    bound.close()


def log_plainly(settings: Settings) -> None:
    """Send this process's log to standard error, without a thread."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(PlainLog(settings.ops.log))
    root.setLevel(logging.WARNING)
    logging.getLogger("mqcd").setLevel(logging.INFO)

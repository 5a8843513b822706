"""Balances connections among the server processes of several shards.

The kernel chooses by a hash which process accepts a connection, so one may get many and another none. Each
process writes how many connections it has to a page of memory that all share. A process with four more than
another passes a new connection on to it; so does one whose queue accepts no mail. A process that does not run
has no number, and gets none; what had been passed to it waits for its next start.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import socket
from collections.abc import Callable, Sequence

from mqcd.core.errors import MqcdError
from mqcd.core.value import value

log = logging.getLogger("mqcd.daemon")

OUT = 0xFFFFFFFF
"""The number of a process that takes no connection."""
LENT = 0xFF
"""Stands where a listener's number does: not a client's connection, but ends of pipes, see `lend`."""
_ENDS = 2
"""Ends that are lent at once."""
_MOST_TERMS = 64 * 1024
_MARGIN = 4
_AT_ONCE = 64


@value(kw_only=False)
class Mailboxes:
    """Memory shared by the server processes of all shards, made before they are forked."""

    page: mmap.mmap
    """A 32-bit number for each process: its connections."""
    inboxes: tuple[socket.socket, ...]
    outboxes: tuple[socket.socket, ...]

    @classmethod
    def make(cls, processes: int) -> Mailboxes:
        """For so many. Raises OSError."""
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(processes)]
        for pair in pairs:
            for end in pair:
                end.setblocking(False)
        page = mmap.mmap(-1, max(mmap.PAGESIZE, 4 * processes))
        inboxes, outboxes = zip(*pairs, strict=True)
        boxes = cls(page, inboxes, outboxes)
        for process in range(processes):
            boxes.set_out(process)
        return boxes

    def set_out(self, process: int) -> None:
        """The process takes no connection until it reports a number again."""
        self.page[4 * process : 4 * process + 4] = OUT.to_bytes(4, "little")

    def close(self) -> None:
        """Close all sockets of this process's copy."""
        for each in (*self.inboxes, *self.outboxes):
            each.close()


class Balance:
    """One server process's part of it."""

    def __init__(self, boxes: Mailboxes, process: int, refusing: Callable[[], str | None]) -> None:
        """`refusing`: why this process's queue takes no mail now."""
        self._numbers = memoryview(boxes.page).cast("I")
        self._process = process
        self._others = [number for number in range(len(boxes.inboxes)) if number != process]
        self._inbox = boxes.inboxes[process]
        self._outboxes = boxes.outboxes
        self._refusing = refusing
        self._take: Callable[[int, socket.socket], None] | None = None
        self._borrow: Callable[[bytes, Sequence[socket.socket]], None] | None = None
        self._closed = False

    def listen(
        self,
        take: Callable[[int, socket.socket], None],
        borrow: Callable[[bytes, Sequence[socket.socket]], None] | None = None,
    ) -> None:
        """Call `take` with a listener's number and a connection for each that is passed to this process, and
        `borrow` with what `lend` of another process was given."""
        self._take, self._borrow = take, borrow
        asyncio.get_running_loop().add_reader(self._inbox, self._receive)
        self.count(0)

    def close(self) -> None:
        """Take no more, for good."""
        self._closed = True
        self._numbers[self._process] = OUT
        if self._take is not None:
            asyncio.get_running_loop().remove_reader(self._inbox)
            self._take = None

    def count(self, connections: int) -> None:
        """Report the number of open connections."""
        self._numbers[self._process] = OUT if self._closed or self._refusing() else connections

    def elsewhere(self) -> bool:
        """Whether this process was out of service at the last count, and another is in service."""
        numbers = self._numbers
        return numbers[self._process] == OUT and any(numbers[other] != OUT for other in self._others)

    def passes(self, listener: int, connection: socket.socket, connections: int) -> bool:
        """Pass a new connection on if another process has fewer; returns whether it was passed."""
        self.count(connections)
        numbers = self._numbers
        to = min(self._others, key=numbers.__getitem__, default=None)
        if to is None or numbers[to] == OUT or numbers[self._process] < numbers[to] + _MARGIN:
            return False
        try:
            socket.send_fds(self._outboxes[to], [bytes([listener])], [connection.fileno()])
        except OSError as error:
            log.debug("a connection stays here: %s", error)
            return False
        numbers[to] = min(numbers[to] + 1, OUT - 1)
        connection.close()
        return True

    def lend(self, process: int, terms: bytes, ends: Sequence[socket.socket]) -> bool:
        """Pass ends of pipes to a process, with what it needs to know; returns whether they were passed."""
        try:
            fds = [each.fileno() for each in ends]
            socket.send_fds(self._outboxes[process], [bytes([LENT]) + terms], fds)
        except OSError as error:
            log.debug("nothing is lent to process %d: %s", process, error)
            return False
        return True

    def _receive(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                data, fds, _, _ = socket.recv_fds(self._inbox, _MOST_TERMS, _ENDS)
            except BlockingIOError:
                return
            except OSError as error:
                raise MqcdError(f"connections cannot be passed to this process: {error}") from error
            passed = [socket.socket(fileno=fd) for fd in fds]
            for connection in passed:
                connection.setblocking(False)
            lent = data[:1] == bytes([LENT])
            # Without descriptors to be had, fewer arrive than were sent.
            if lent and self._borrow is not None and len(passed) == _ENDS:
                self._borrow(data[1:], passed)
                continue
            for connection in passed:
                if self._take is None or not data or lent:
                    connection.close()
                else:
                    self._take(data[0], connection)

"""What happens when a group cannot be written.

Its segment is given up at the last durable octet, and its file is never written again: a sync that fails may
have lost octets. The group's frames wait again, in their order, before all others, and what the table says
is refused. A new segment is tried then, until one takes a group.

| failures in a row | refused | next try |
|---|---|---|
| 1 | the ACCEPTs of the group: their clients wait | at once |
| 2: the journal is failing | all but HAPPENED, also what comes from then on | after 1 s |
| 3 and more | the same | after 10 s |
| any, of a journal that has ended | all | none |

A failed frame may stand whole in the page cache and would count after a kill, until the header of the next
segment ends the chain before it. `Trouble.when_certain` waits for that. Where nothing waits, or MORE alone, a
note is appended, so that this segment begins in a full ring, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from mqcd.core.ports import Clock
from mqcd.disk.durable import Disk, describe, let_go
from mqcd.queue.format.frame import Kind
from mqcd.queue.wal.pending import ALL, HAPPENED, Append, Group, fail, is_more, refuse
from mqcd.queue.wal.segments import Ring, Segment

log = logging.getLogger(__name__)


class Step(NamedTuple):
    """What follows on a failure."""

    of_group: frozenset[Kind]
    """Refused of the frames that were not written."""
    of_all: frozenset[Kind]
    """Refused of these, of the waiting ones, and of all that come until a group is written: where there are
    any, the journal is failing."""
    retry_ms: int
    """How long to wait before a new segment is tried."""


_NONE: frozenset[Kind] = frozenset()
WELL = Step(_NONE, _NONE, 0)
AFTER_FAILURES = (
    WELL,
    Step(frozenset((Kind.ACCEPT,)), _NONE, 0),
    Step(_NONE, ALL - HAPPENED, 1000),
    Step(_NONE, ALL - HAPPENED, 10_000),
)
"""By how many failures came in a row; the last stands for all further ones."""
ENDED = Step(_NONE, ALL, 0)
"""Of a journal that has ended: nothing is tried again."""


class Trouble:
    """Failed writes since the last group that was written: how many, and what they refuse.

    While there are none, the step is WELL, and there is no text, no cause and no callback; else the last one
    has set step, text and cause.
    """

    def __init__(
        self,
        ring: Ring,
        disk: Disk,
        clock: Clock,
        pending: deque[Append],
        sealed: Callable[[Segment], None],
    ) -> None:
        """`pending`: the frames that wait. `sealed` is called for a failed segment whose end is certain."""
        self._ring = ring
        self._disk = disk
        self._clock = clock
        self._pending = pending
        self._sealed = sealed
        self._step = WELL
        self.failures = 0
        """Groups in a row that could not be written."""
        self.text = ""
        """Why the last of them could not; "" when writing goes well."""
        self._cause: OSError | None = None
        self._when_certain: list[Callable[[], None]] = []

    @property
    def failing(self) -> bool:
        """Whether nothing new may be promised."""
        return bool(self._step.of_all)

    @property
    def retry_ms(self) -> int:
        """How long to wait before a new segment is tried."""
        return self._step.retry_ms

    def refuses(self, item: Append) -> bool:
        """Fail a frame that comes while the journal is failing, unless it has happened already."""
        if item.kind not in self._step.of_all:
            return False
        self._fail(item)
        return True

    def when_certain(self, callback: Callable[[], None]) -> None:
        """Run `callback` once no failed frame can be replayed after a crash; at once if that is so already.

        It does not run if writing never succeeds again.
        """
        if self.failures:
            self._when_certain.append(callback)
        else:
            callback()

    def failed(self, group: Group, error: OSError, *, ended: bool) -> None:
        """A group could not be written. `ended`: the journal takes nothing any more."""
        segment = group.segment
        log.error("journal segment %d cannot be written: %s; a new one is begun", segment.number, error)
        self.failures += 1
        self.text, self._cause = f"the journal cannot be written: {segment.path}: {error.strerror}", error
        self._step = ENDED if ended else AFTER_FAILURES[min(self.failures, len(AFTER_FAILURES) - 1)]
        self._pending.extendleft(reversed(group.frames))
        self._give_up(segment)
        self._refuse(group)
        if not ended:
            self._append_note()

    def _give_up(self, segment: Segment) -> None:
        """A segment that holds something is sealed when the header of the next one says where it ends. Until
        then a start may find its failed frames and count them, and an export would lack their events."""
        segment.failed = True
        self._ring.current = None
        if segment.empty:
            self._remove(segment)
        else:
            self.when_certain(partial(self._sealed, segment))

    def _remove(self, segment: Segment) -> None:
        """Take a segment that holds nothing out of the ring."""
        del self._ring.segments[segment.number]
        try:
            self._disk.unlink(segment.path)
        except OSError as error:
            log.error("a journal file that has failed cannot be removed: %s", describe(error))
        if segment.fd >= 0:
            let_go(self._disk, segment.fd, "a journal file that has failed")

    def _refuse(self, group: Group) -> None:
        for item in group.frames:
            if item.kind in self._step.of_group:
                self._pending.remove(item)
                self._fail(item)
        refuse(self._pending, lambda item: item.kind in self._step.of_all, self._fail)

    def _fail(self, item: Append) -> None:
        fail(item, self.text, self._cause)

    def _append_note(self) -> None:
        """Make sure that a new segment begins, though all that waits may be refused by a full ring."""
        if all(map(is_more, self._pending)):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._pending.appendleft(Append(Kind.NOTE, [], 0, self._clock.now(), lambda *_: None, future))

    def mended(self) -> bool:
        """A group has been written: the chain is known. Returns whether the journal was failing."""
        log.warning("the journal can be written again, after %d failures", self.failures)
        was_failing = self.failing
        self.failures, self.text, self._cause, self._step = 0, "", None, WELL
        certain, self._when_certain = self._when_certain, []
        for callback in certain:
            callback()
        return was_failing

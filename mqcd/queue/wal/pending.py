"""Frames on their way into the journal, and which of them may be refused. Pure bookkeeping.

Requests fail and may be retried; records of events that have happened wait until they are written.

| kinds | while the ring is full | while writing fails |
|---|---|---|
| HAPPENED | written | wait |
| MORE | refused | refused |
| BEGUN, CARRY, UNKNOWN | written | refused |
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from mqcd.core.errors import StoreUnavailable
from mqcd.queue.format.frame import HEADER_SIZE, Kind
from mqcd.queue.wal.segments import Segment

ALL = frozenset(Kind)
HAPPENED = frozenset((Kind.SETTLE, Kind.PARK, Kind.REPORT, Kind.NOTE))
"""What must not be refused: it waits for as long as nothing can be written."""
MORE = frozenset((Kind.ACCEPT, Kind.TAKE, Kind.REPLACE))
"""New work: refused while the ring is full."""
FULL = "the journal is full until older segments have been evacuated"
"""Why a segment that cannot begin refuses what it would hold."""


class JournalFull(StoreUnavailable):
    """No segment can begin for new work: nothing of the frame has been written, or ever will be."""


Placed = Callable[[Segment, int, int, int], None]
"""Called when a frame is durable: its segment, first ordinal, where its body begins, first sequence."""


class Append:
    """A frame on its way into the journal."""

    __slots__ = (
        "at",
        "body",
        "count",
        "failed",
        "future",
        "kind",
        "octets",
        "ordinal",
        "parts",
        "placed",
        "sequence",
    )

    def __init__(
        self,
        kind: Kind,
        parts: list[bytes],
        count: int,
        at: int,
        placed: Placed,
        future: asyncio.Future[None],
        failed: Callable[[], None] | None = None,
    ) -> None:
        """`failed` is called when it is certain that `placed` will not be."""
        self.kind = kind
        self.parts = parts
        self.count = count
        self.at = at
        self.placed = placed
        self.future = future
        self.failed = failed
        octets = HEADER_SIZE
        for part in parts:
            octets += len(part)
        self.octets = octets
        """Of header and body."""
        self.ordinal: int
        """Where it is written: known once it is, as the two that follow."""
        self.body: int
        self.sequence: int


def refuse(
    pending: deque[Append], kinds: frozenset[Kind], why: str, cause: BaseException | None = None
) -> None:
    """Fail what waits of these kinds; the others stay in their order."""
    for _ in range(len(pending)):
        item = pending.popleft()
        if item.kind in kinds:
            fail(item, why, cause)
        else:
            pending.append(item)


def fail(item: Append, why: str, cause: BaseException | None = None) -> None:
    """Fail its future: it will not be written. The cause says whether space is missing."""
    if item.failed is not None:
        item.failed()
    if item.kind is Kind.NOTE:
        # No caller waits for it, so its exception would never be retrieved.
        item.future.cancel()
    elif not item.future.done():
        error = JournalFull(why) if why == FULL else StoreUnavailable(why)
        error.__cause__ = cause
        item.future.set_exception(error)

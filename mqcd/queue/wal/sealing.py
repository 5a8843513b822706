"""The segment that frames go to: it is begun, left, and sealed.

| when | the current segment |
|---|---|
| it does not hold the next frame | is sealed; a new one is begun for the frame |
| `Journal.seal` wants it | is sealed: at once, or when the group that is being written is durable |
| its age comes, from its first durable group on | the same; but it stays open as long as no other may begin |
| a group of it could not be written | is left, and sealed when its end is certain (`trouble`) |

One that is empty stays current, or is removed when its first group fails. Only a current segment that is not
empty has a timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mqcd.core.ports import Clock
from mqcd.core.queueing.spid import SpidSource
from mqcd.queue.format import segment_header
from mqcd.queue.wal.segments import Ring, Segment, SegmentEvent


class Sealing:
    """One journal's."""

    def __init__(
        self,
        ring: Ring,
        clock: Clock,
        spids: SpidSource,
        *,
        epoch: int,
        age: int,
        seal: Callable[[], None],
        on_sealed: Callable[[Segment], None],
    ) -> None:
        """`seal` is called when a segment is `age` ms old, `on_sealed` when one has been sealed."""
        self._ring = ring
        self._clock = clock
        self._spids = spids
        self._epoch = epoch
        self._age = age
        self._seal = seal
        self._on_sealed = on_sealed
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.wanted = False
        """Whether the current segment is to be sealed when the group that is being written is durable."""

    def begin(self, sequence: int, *, kept: bool) -> Segment:
        """Make a new segment the current one. `sequence`: of its first entry; `kept`: see `Segment`."""
        ring = self._ring
        last = ring.last
        header = segment_header.SegmentHeader(
            self._epoch,
            ring.next_number,
            sequence,
            last.number if last else 0,
            last.end if last else 0,
            self._clock.now(),
            self._spids.last,
        )
        segment = Segment(header, ring.path_of(header.number))
        segment.kept = kept
        ring.add(segment)
        ring.current = segment
        return segment

    def begun(self, *, ended: bool) -> None:
        """The first group of the current segment is durable. `ended`: the journal takes nothing any more."""
        self._ring.fresh = False
        if not ended:
            self._seal_later()

    def _seal_later(self) -> None:
        self._timer = self._loop.call_later(self._age / 1000, self._aged)

    def _aged(self) -> None:
        if self._ring.may_begin:
            self._seal()
        else:
            # No segment could follow this one: as long as it has room, it stays open.
            self._seal_later()

    def now(self) -> None:
        """Seal the current segment, if there is one that is not empty."""
        if (segment := self.leave()) is not None:
            self.sealed(segment)

    def leave(self) -> Segment | None:
        """Let nothing more go into the current segment; returns it unless it is empty."""
        segment = self._ring.current
        if segment is None:
            return None
        self.wanted = False
        self.cancel()
        if segment.empty:
            return None
        self._ring.current = None
        return segment

    def sealed(self, segment: Segment) -> None:
        """A segment that was left ends where its last durable frame does, for certain."""
        segment.on(SegmentEvent.SEAL)
        segment.sealed_at = self._clock.monotonic()
        self._on_sealed(segment)

    def cancel(self) -> None:
        """Let no timer run."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

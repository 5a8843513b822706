"""Reads lines of clusters. Blocks for the disk, so it runs in threads.

A thread is given what it has to know of the cluster, and shares nothing with the event loop. Meanwhile due
times may be brought forward: `ClusterIndex.add` corrects the state that a read returns.

How many records damage was, its own lines do not say, for it joins lines and splits them. The cluster's count
has all of them: what it has beyond those that move and those that are left was damaged (`bad`), and is in
quarantine before the cursor passes it. Of five records, of which the first moves (s: a line that is sound, x:
one that is not):

| behind the first | so far | left | bad |
|---|---|---|---|
| `ssss` | nothing is damaged | the count says: 4 | 0 |
| `xss` | two lines were joined | the lines behind say: 2 | 2 |
| `xssss` | a line was split | the count, less one for the damage: 3 | 1 |
| `xs`, and the file is too short | lines that lack may come back | the same: 3 | 1 |
| `x` | the file, as the MANIFEST says it, ends | 0 | 4 |

Before that end one is left at least, or the cluster would be over.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mqcd.core.errors import DecodeError
from mqcd.core.model import BY_DUE
from mqcd.core.value import value
from mqcd.disk.durable import Disk
from mqcd.queue.clusters.file import read_from, split_lines
from mqcd.queue.clusters.quarantine import Stretch, extend, shared
from mqcd.queue.format import record
from mqcd.queue.format.frame import IN_SPOOL, Take
from mqcd.queue.manifest.state import ClusterState
from mqcd.queue.wal.segments import JournalEntry

_OPEN_MAX = 16
"""Clusters whose unread rest is kept in memory."""


@value(kw_only=False)
class Taken:
    """What a take would move: lines with their scheduling fields, and the cluster's state after it."""

    state: ClusterState
    lines: list[tuple[bytes, record.Glance]]
    damaged: list[Stretch]
    """What is not sound: its record location ends with this take, so it must go to quarantine first."""
    bad: int
    """How many records that is, by the table above."""

    @property
    def finds(self) -> list[tuple[int, bytes, int]]:
        """What is damaged, each stretch with how many records it stands for."""
        return shared(self.damaged, self.bad)

    @property
    def head(self) -> Take:
        """The head of the TAKE frame."""
        return Take(self.state.name, self.state.cursor, self.state.left, self.state.octets)


class Reader:
    """Reads the clusters of a shard."""

    def __init__(self, disk: Disk, root: Path) -> None:
        """`root`: the queue root."""
        self._disk = disk
        self._root = root
        self._rest: dict[str, tuple[int, bytes]] = {}
        """By cluster, a cursor and the lines from there on, for the next read. Only `read` writes it, and one
        runs at a time."""

    def read(self, state: ClusterState, latest: int, room: int, now: int, most: int) -> Taken:
        """Up to `room` records from the cluster's cursor that are due at `now`, in not much more than `most`
        octets; none is due later than `latest`. Blocks for the disk.

        Raises OSError or DecodeError when nothing of it can be read.
        """
        data = self._lines_of(state)
        short = len(data) < state.size - state.cursor
        by_due = state.area in BY_DUE
        lines: list[tuple[bytes, record.Glance]] = []
        damaged: list[Stretch] = []
        used = octets = 0
        # The next claim shall meet the end of a file that is too short.
        next_due = state.due if short else latest
        for raw in split_lines(data):
            try:
                glance = record.sound(raw)
            except DecodeError:
                extend(damaged, state.cursor + used, raw)
                used += len(raw)
                continue
            glance.due = min(glance.due, latest)
            if len(lines) >= room or used >= most or (by_due and glance.due > now):
                next_due = glance.due
                break
            lines.append((raw, glance))
            used += len(raw)
            octets += glance.size
        rest = data[used:]
        left = _count(state, state.cursor + used, len(lines), bool(damaged), rest)
        following = replace(
            state,
            cursor=state.cursor + used,
            left=left,
            octets=max(0, state.octets - octets) if left else 0,
            due=next_due if by_due else 0,
        )
        self._keep(following, rest)
        return Taken(following, lines, damaged, max(0, state.left - left - len(lines)))

    def _lines_of(self, state: ClusterState) -> bytes:
        """The lines from the cursor on. Of a file that is too short the whole ones: the others stay behind
        the cursor, in case the file is put back. Raises OSError, DecodeError."""
        kept = self._rest.get(state.name)
        if kept is not None and kept[0] == state.cursor:
            return kept[1]
        data = read_from(self._disk, self._root / state.name, state.cursor, state.size)
        if len(data) < state.size - state.cursor:
            data = data[: data.rfind(b"\n") + 1]
        if not data:
            raise DecodeError("it is shorter than it should be")
        return data

    def _keep(self, state: ClusterState, rest: bytes) -> None:
        self._rest.pop(state.name, None)
        if rest:
            if len(self._rest) >= _OPEN_MAX:
                del self._rest[next(iter(self._rest))]
            self._rest[state.name] = state.cursor, rest


def _count(state: ClusterState, cursor: int, taken: int, damaged: bool, rest: bytes) -> int:
    """Records from `cursor` on, where `rest` stands, by the table above."""
    if cursor >= state.size:
        return 0
    left = state.left - taken - damaged
    whole = cursor + len(rest) >= state.size
    if damaged and whole:
        left = min(left, sum(1 for _ in split_lines(rest)))
    return max(1, left)


def entry_of(glance: record.Glance) -> JournalEntry:
    """A recipient on its way into the journal: its content stays in the spool."""
    return JournalEntry(
        spid=glance.spid,
        qid=glance.qid,
        area=glance.area,
        due=glance.due,
        size=glance.size,
        received=glance.received,
        content=IN_SPOOL,
        linked=glance.linked,
        domain=glance.domain,
        tenant=glance.tenant,
    )

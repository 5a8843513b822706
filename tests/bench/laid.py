"""Lays a queue of deferred mail without accepting it: clusters and spool files are written as an import
writes them, committed by one edit. A million recipients take half a minute.

Each message has 1,000 recipients of as many names. Due times are those of mail that has been failing for
hours; one in twelve is due already.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mqcd.core.model import Area, Recipient
from mqcd.core.queueing.spid import SpidSource
from mqcd.net.clock import SystemClock
from mqcd.queue.admin.ownership import Owned, owned
from mqcd.queue.clusters.file import Line
from mqcd.queue.format import record
from mqcd.queue.manifest.state import ClusterState, Edit
from tests.bench import kit

EACH = 1000
"""Recipients of a message."""
_AT_ONCE = 50
"""Messages whose records are sorted into clusters together, as those of a segment are."""


async def lay(root: Path, given: dict[str, Any]) -> None:
    """Make the queue, and say how long that took."""
    begun = time.perf_counter()
    async with owned(kit.options(root), SystemClock(), kit.NobodyHears()) as ours:
        spids = SpidSource(0, ours.manifest.state.spid)
        chance, clusters, left = random.Random(1), list[ClusterState](), given["recipients"] // EACH
        while left:
            lines: list[Line] = []
            for _ in range(min(left, _AT_ONCE)):
                lines += _message(ours, spids, chance, given["octets"])
                left -= 1
            clusters += ours.write_clusters([(Area.DEFERRED, lines)], first=len(clusters))
        ours.manifest.commit(
            Edit(first_live=ours.number + 1, exported=ours.number, spid=spids.last, add=tuple(clusters))
        )
    seconds = time.perf_counter() - begun
    kit.say_and_die({"recipients": given["recipients"], "clusters": len(clusters), "laid_s": seconds})


def _message(ours: Owned, spids: SpidSource, chance: random.Random, octets: int) -> Iterator[Line]:
    now = int(time.time() * 1000)
    spid = spids.next(now, True)
    ours.disk.write_temp(ours.silos.path(spid), [kit.content_of(spid, octets)], sync=False)
    envelope = kit.envelope_of(spid, now)
    shared = record.encode_envelope(envelope)
    for qid in range(1, EACH + 1):
        recipient = Recipient(
            envelope=envelope,
            qid=qid,
            address=f"customer{chance.randrange(1_000_000)}@example.net",
            area=Area.DEFERRED,
            due=kit.retry_time(chance, now),
            size=octets,
            attempts=1,
            code=451,
            status="4.3.2",
            reply="Too many connections from your host, try again later",
            remote="mx1.example.net",
        )
        yield Line(recipient.due, now, octets, record.encode(recipient, shared))

"""Looks into the whole queue, at nearly no cost to the loop: a process reads the files under a pin,
as any other reader does (`mqcd.queue.helper.scans`). One content is looked at in this process.

Raises StoreUnavailable.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from functools import partial
from typing import Any

from mqcd.core.errors import ContentUnavailable, StoreUnavailable
from mqcd.core.model import AreaStats, Recipient
from mqcd.core.ports import Content
from mqcd.core.selecting.parts import Listed
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk, describe
from mqcd.eventlog.history import History
from mqcd.queue.format import filenames
from mqcd.queue.format.record import parse
from mqcd.queue.helper.scans import Precedence
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.reading import happened, listing
from mqcd.queue.reading.happened import history_of
from mqcd.queue.reading.listing import Question
from mqcd.queue.reading.snapshot import Snapshot
from mqcd.queue.spool.files import SegmentContent, SpoolContent


async def scan(shard: Shard, selection: Selection) -> AsyncGenerator[Recipient, None]:
    """All that are selected."""
    # Imported recipients may have seen more unknown outcomes than this queue has recorded.
    if shard.ready and selection.unknowns > shard.figures.hidden and not shard.manifest.state.imports:
        return
    request = (shard.queue_root, shard.spool_root, selection)
    pause = Precedence(lambda: shard.figures.syncs)
    async with aclosing(shard.scans.run(request, pause)) as batches:
        async for batch in batches:
            for recipient in batch:
                yield recipient


async def content(shard: Shard, disk: Disk, recipient: Recipient) -> Content:
    """The octets of a recipient's message, where they are now. Raises ContentUnavailable."""
    if not shard.ready:
        raise StoreUnavailable("the queue is still being read")
    entry = shard.entries.entry_of(recipient)
    segment = shard.ring.live(entry.content.segment) if entry is not None else None
    if entry is not None and segment is not None:
        return SegmentContent(disk, shard.executor, segment, *entry.content[1:])
    path = shard.silos.file(filenames.number_of(recipient))
    try:
        return await SpoolContent.open(disk, shard.executor, path, recipient.size)
    except OSError as error:
        raise ContentUnavailable(describe(error)) from error


async def browse(shard: Shard, selection: Selection, after: str, by_age: bool) -> Listed:
    """A part of them. Raises DecodeError for an `after` that no part gave."""
    work = partial(listing.read_part, selection=selection, after=after, by_age=by_age)
    found = await _ask(shard, work)
    return Listed(recipients=[parse(text) for text in found.texts], after=found.after or None)


async def measure(shard: Shard, selection: Selection) -> AreaStats:
    """How much they are."""
    found: AreaStats = await _ask(shard, partial(listing.measure, selection=selection))
    return found


async def lane_keys(shard: Shard, selection: Selection) -> Collection[str]:
    """Their lane keys."""
    found: Collection[str] = await _ask(shard, partial(listing.lane_keys, selection=selection))
    return found


async def history(shard: Shard, spid: int) -> History:
    """What happened to a message."""
    options = shard.options
    work = partial(history_of, directory=options.events, source=options.source, spid=spid)
    found: History = await _ask(shard, work)
    return found


async def changed_by(shard: Shard, batch: str, since: int) -> int:
    """How many recipients a batch has changed."""
    options = shard.options
    work = partial(
        happened.changed_by, directory=options.events, source=options.source, batch=batch, since=since
    )
    found: int = await _ask(shard, work)
    return found


async def _ask(shard: Shard, work: Callable[[Snapshot], object]) -> Any:
    return await shard.scans.ask(Question(shard.queue_root, shard.spool_root, work))

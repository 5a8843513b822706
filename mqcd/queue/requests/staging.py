"""Where the content of new mail goes before its frame: it stays in memory, or goes to the spool.

| content | staged | by |
|---|---|---|
| whole, at most `inline_max` and what the frame has room for | in memory | `in_memory`, at once |
| iterated, and no longer than that | in memory, once all of it has come | `stage` |
| longer | in the spool, durable, under the SPID that its frame will give an owner | `stage` |

From `stage` on the SPID counts as arriving, so that no sweep of the spool takes its file. That ends:

| outcome | what ends it | the file |
|---|---|---|
| staging fails, or is cancelled | `stage` | removed at once |
| another message of the same request cannot be staged | `_drop` | removed, like that of a failed frame |
| its frame fails | `_drop` | removed once no kill can bring the frame to light |
| its frame is durable, memory lacks it (`Unplaced`) | the next start | stays |
| its frame is durable | `Acceptance.arrive` | is the message's |

Until what `_drop` began has ended nothing is staged again under the SPID: it would be removed with the file.
What a crash cuts off is removed by the next start's sweep.

Settings read: `inline_max`, and `bufsize` and `hardlinks` of the spool.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Origin, Submission
from mqcd.disk.durable import describe
from mqcd.disk.waits import in_thread
from mqcd.queue.disk.space import Space
from mqcd.queue.format.record import MAX_LINE, most_octets
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.spool.files import Draft
from mqcd.queue.wal.pending import Unplaced

Written = TypeVar("Written")


class Staged(NamedTuple):
    """A submission whose content is where its frame will say."""

    submission: Submission
    content: bytes | None
    """None: it lies in the spool."""
    size: int
    draft: Draft | None = None


def _any_room(_octets: int) -> None:
    """As much as there is."""


class Staging:
    """Puts the contents of one shard's new messages where their frames will say."""

    def __init__(self, shard: Shard, space: Space) -> None:
        self._shard = shard
        self._space = space
        self._unfinished: set[asyncio.Task[Any]] = set()
        self._in_doubt: set[int] = set()
        """SPIDs of what was dropped, and may still count."""
        journal = shard.options.settings.journal
        self._limit = min(journal.inline_max, journal.most_inline)
        self._frame = shard.journal.largest_frame
        self._few = (self._frame - self._limit) // MAX_LINE - 1
        """Recipients whose records, and what is theirs together, have room beside any such content: a line of
        `MAX_LINE` for each, and one more for memo and key. Of more recipients `most_octets` is computed."""

    def in_memory(self, submission: Submission) -> Staged | None:
        """At once, if the content is whole and small; None = it takes `stage`."""
        content = submission.content
        if isinstance(content, bytes) and len(content) <= self._most_inline(submission):
            return Staged(submission, content, len(content))
        return None

    async def stage(self, submission: Submission) -> Staged:
        """Take the content in. What its iterator raises passes through; StoreUnavailable for the disk, and
        while it is not certain that an earlier try of it has left nothing."""
        spid = submission.envelope.spid
        if spid in self._in_doubt:
            raise StoreUnavailable("it is not certain yet whether this message was recorded; try again later")
        self._shard.entries.arriving.add(spid)
        try:
            return await self._stage(submission)
        except BaseException:
            self._shard.entries.arriving.discard(spid)
            raise

    async def _stage(self, submission: Submission) -> Staged:
        content = submission.content
        if isinstance(content, bytes):
            return self.in_memory(submission) or await self._to_spool(submission, [content], None)
        chunks: list[bytes] = []
        size, most = 0, self._most_inline(submission)
        async for chunk in content:
            chunks.append(chunk)
            size += len(chunk)
            if size > most:
                return await self._to_spool(submission, chunks, content)
        return Staged(submission, b"".join(chunks), size)

    def _most_inline(self, submission: Submission) -> int:
        """Octets of content that its frame has room for."""
        if len(submission.recipients) <= self._few:
            return self._limit
        return min(self._frame - most_octets(submission), self._limit)

    async def _to_spool(
        self, submission: Submission, start: list[bytes], rest: AsyncIterator[bytes] | None
    ) -> Staged:
        shard, spool = self._shard, self._shard.options.settings.spool
        spid = submission.envelope.spid
        count = len(submission.recipients)
        links = count if count > 1 and spool.hardlinks else 0
        draft: Draft | None = None
        try:
            await shard.editing.reserve(spid, shard.spids.ceiling(shard.time.believed()))
            # A report has happened already: it may use the room that is kept for that.
            room = _any_room if submission.envelope.origin is Origin.REPORT else self._claim_room
            parts = shard.disk, shard.executor, shard.silos, spid, links, spool.bufsize, room
            # In a thread: a disk that hangs must not stop the loop, which small mail needs, too.
            draft = await in_thread(shard.executor, Draft, *parts, unwanted=Draft.discard)
            await draft.fill(start, rest)
            await draft.commit()
        except BaseException as error:
            if draft is not None:
                draft.discard()
            if isinstance(error, OSError):
                raise StoreUnavailable(describe(error)) from error
            raise
        return Staged(submission, None, draft.size, draft)

    def _claim_room(self, octets: int) -> None:
        if short := self._space.short_for("spool", octets):
            raise StoreUnavailable(short)

    async def stage_all(self, submissions: Sequence[Submission]) -> list[Staged]:
        """Each of them, or none."""
        staged: list[Staged] = []
        try:
            for submission in submissions:
                # One by one: those before one that fails must be dropped.
                staged.append(await self.stage(submission))  # noqa: PERF401
        except BaseException:
            self._drop(staged)
            raise
        return staged

    async def see_through(
        self, staged: Sequence[Staged], write: Callable[[], Coroutine[Any, Any, Written]]
    ) -> Written:
        """Write their frame and await it, also when the caller is cancelled: once a frame is on its way, only
        its outcome says whether the staged files have an owner."""

        async def written() -> Written:
            try:
                return await write()
            except Unplaced:
                raise
            except BaseException:
                self._drop(staged)
                raise

        return await asyncio.shield(self.in_background(written()))

    def in_background(self, work: Coroutine[Any, Any, Written]) -> asyncio.Task[Written]:
        """Do what goes on when nobody waits for it any more."""
        task = asyncio.ensure_future(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return task

    def _drop(self, staged: Sequence[Staged]) -> None:
        """They were not recorded: nothing of them stays, once that is certain."""
        for each in staged:
            # A frame that failed counts if a kill brings it to light, and must then find its content.
            self._in_doubt.add(each.submission.envelope.spid)
            self._shard.journal.trouble.when_certain(partial(self._discard, each))

    def _discard(self, staged: Staged) -> None:
        self._in_doubt.discard(staged.submission.envelope.spid)
        self._shard.entries.arriving.discard(staged.submission.envelope.spid)
        if staged.draft is not None:
            staged.draft.discard()

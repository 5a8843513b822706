"""Content on its way into the queue: small content waits in memory for its frame, large content goes to
the spool first and is durable there before the frame that gives it an owner is written.

Settings read: `inline_max`, and `bufsize` and `hardlinks` of the spool. What is staged and then not
recorded leaves nothing behind; what a crash cuts off is removed by the next start's sweep.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Origin, Submission
from mqcd.disk.durable import describe
from mqcd.queue.disk.space import Space
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.spool.files import Draft


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
    """One shard's."""

    def __init__(self, shard: Shard, space: Space) -> None:
        self._shard = shard
        self._space = space
        # Half a frame, so that record lines find room beside the content.
        self._limit = min(shard.options.settings.journal.inline_max, shard.journal.largest_frame // 2)

    def in_memory(self, submission: Submission) -> Staged | None:
        """At once, if the content is whole and small; None = it takes `stage`."""
        content = submission.content
        if isinstance(content, bytes) and len(content) <= self._limit:
            return Staged(submission, content, len(content))
        return None

    async def stage(self, submission: Submission) -> Staged:
        """Take the content in. What its iterator raises passes through; StoreUnavailable for the disk."""
        spid = submission.envelope.spid
        self._shard.arriving.add(spid)
        try:
            return await self._stage(submission)
        except BaseException:
            self._shard.arriving.discard(spid)
            raise

    async def _stage(self, submission: Submission) -> Staged:
        content = submission.content
        if isinstance(content, bytes):
            return self.in_memory(submission) or await self._to_spool(submission, [content], None)
        chunks: list[bytes] = []
        size = 0
        async for chunk in content:
            chunks.append(chunk)
            size += len(chunk)
            if size > self._limit:
                return await self._to_spool(submission, chunks, content)
        return Staged(submission, b"".join(chunks), size)

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
            draft = Draft(shard.disk, shard.executor, shard.silos, spid, links, spool.bufsize, room)
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

    def dropped(self, staged: Staged) -> None:
        """It was not recorded: nothing of it stays, once that is certain."""
        draft = staged.draft

        def discard() -> None:
            self._shard.arriving.discard(staged.submission.envelope.spid)
            if draft is not None:
                draft.discard()

        # A frame that failed counts if a kill brings it to light, and must then find its content.
        self._shard.journal.trouble.when_certain(discard)

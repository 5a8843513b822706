"""Each idempotency key has an owner among the shards, named by its hash: that shard accepts its messages.

Doors give their mail to `Owned`, which hands a message with a key over to its owner (`owning`). So all uses
of a key meet in one queue, and nothing has to be agreed upon between shards. Where the owner is not in
service the message gets 4xx: whether its key was used is not known elsewhere.

The owner of a key changes with the number of shards; a key that was used before that is then not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import Key, Recipient, Submission
from mqcd.core.ports import MailTaker
from mqcd.core.queueing.idempotency import recipients_of
from mqcd.daemon.shards import handed

REPLY_S = 60.0
"""How long an owner may take to accept a message that it has."""
_CONNECT_S = 5.0
_MOST = 256
"""Messages on their way to one owner at once."""
_IDLE = 16
"""Connections that are kept for the next ones."""


def keys_path(control: Path, shard: int) -> Path:
    """Where a shard takes the messages of its keys, beside the server's control socket."""
    return control.with_name(f"{control.name}.{shard}.keys")


def owner_of(name: bytes, shards: int) -> int:
    """The shard that owns a key."""
    return int.from_bytes(name[4:8], "big") % shards


class Owned:
    """The queue of one shard, and for messages with keys those of all."""

    def __init__(self, store: MailTaker, shard: int, paths: Sequence[Path]) -> None:
        """`paths`: where each shard takes the messages of its keys."""
        self._store = store
        self._shard = shard
        self._others = [_Other(number, path) for number, path in enumerate(paths)]

    def reserve(self, several: bool) -> int:
        """A SPID of this shard, also for a message that another one accepts."""
        return self._store.reserve(several)

    async def enqueue(self, submission: Submission) -> Sequence[Recipient]:
        """Accept it here, or where its key belongs."""
        if submission.key is None:
            return await self._store.enqueue(submission)
        owner = owner_of(submission.key.name, len(self._others))
        if owner == self._shard:
            return await self._store.enqueue(submission)
        return await self._others[owner].enqueue(submission, submission.key)

    def close(self) -> None:
        """Close the connections to other shards."""
        for other in self._others:
            other.close()


_Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Other:
    """Another shard."""

    def __init__(self, shard: int, path: Path) -> None:
        self._shard = shard
        self._path = path
        self._idle: list[_Link] = []
        self._busy = 0

    async def enqueue(self, submission: Submission, key: Key) -> Sequence[Recipient]:
        """Hand a message over; raises as the queue there does."""
        if self._busy >= _MOST:
            raise StoreUnavailable(f"{_MOST} messages wait for shard {self._shard} already")
        self._busy += 1
        try:
            return await self._enqueue(submission, key)
        except (OSError, EOFError, TimeoutError, DecodeError) as error:
            # Perhaps it was accepted: then the next try is a repeat.
            text = f"shard {self._shard}, which knows the message's key, does not answer: {error!r}"
            raise StoreUnavailable(text) from error
        finally:
            self._busy -= 1

    async def _enqueue(self, submission: Submission, key: Key) -> Sequence[Recipient]:
        kept = self._kept()
        if kept is None:
            return await self._over(await self._connected(), submission, key)
        try:
            return await self._over(kept, submission, key)
        except (OSError, EOFError):
            if not isinstance(submission.content, bytes):
                raise
            # The owner may have been started again; under a key a second try is never a second message.
            return await self._over(await self._connected(), submission, key)

    def _kept(self) -> _Link | None:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return None

    async def _connected(self) -> _Link:
        async with asyncio.timeout(_CONNECT_S):
            return await asyncio.open_unix_connection(str(self._path))

    async def _over(self, link: _Link, submission: Submission, key: Key) -> Sequence[Recipient]:
        reader, writer = link
        good = False
        try:
            await _send(writer, submission, key)
            async with asyncio.timeout(REPLY_S):
                octets = await reader.readexactly(4)
                octets = await reader.readexactly(int.from_bytes(octets, "little"))
            good = True
            spid, size = handed.decode_reply(octets)
        finally:
            if good and len(self._idle) < _IDLE:
                self._idle.append(link)
            else:
                writer.close()
        return recipients_of(submission, spid, size)

    def close(self) -> None:
        """Close what is kept."""
        while self._idle:
            self._idle.pop()[1].close()


async def _send(writer: asyncio.StreamWriter, submission: Submission, key: Key) -> None:
    head, content = handed.encode_head(submission, key), submission.content
    if isinstance(content, bytes):
        writer.writelines([head, handed.framed(content), handed.END, key.digest])
    else:
        writer.write(head)
        async for part in content:
            if part:
                writer.writelines([len(part).to_bytes(4, "little"), part])
                await writer.drain()
        writer.write(handed.END + key.digest)
    await writer.drain()

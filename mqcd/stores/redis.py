"""Messages in Redis, shared by several servers.

Keys, each behind `prefix`: `message:<SPID>` is a hash of the recipients' values (`r:<qid>`), `owner` and
`timestamp` (due, in seconds); `content:<SPID>` a list of chunks; `session:<n>` a sorted set of a node's
messages by due time; `nodes` says how long each session's lease lasts, by the server's clock; `marks:<node>`
are marks.

A write, a take and the giving out of leases are one script each: atomic, and fenced by the session. Staged
content expires in a day unless its message comes.

Promises: synced where the server has an append-only file that it syncs always (`appendonly yes`,
`appendfsync always`); a start looks. Not for Redis Cluster: a write has keys of many messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from itertools import chain, starmap
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import OutOfMemoryError, RedisError

from mqcd.core.content import MemoryContent
from mqcd.core.errors import ConfigError, ContentUnavailable, StoreBusy, StoreUnavailable
from mqcd.core.ports import Content
from mqcd.core.queueing.spid import format_spid, parse_spid
from mqcd.stores.backend import Change, Marks, Promises, Stored, StoreFull, Write
from mqcd.stores.chunked import ChunkedContent, cut, cut_anew
from mqcd.stores.redis_scripts import OPEN, RENEW, TAKE, WRITE

log = logging.getLogger(__name__)

CHUNK = 1 << 18
"""Octets of a chunk of content."""
_AT_ONCE = 4
"""Content of so many chunks is read as one; longer ones stay for LINGER_S after their end, to be read on."""
LINGER_S = 600
_STAGED_S = 86_400
_TIMEOUT_S = 30.0


class RedisStore:
    """`backend.Backend` in Redis.

    `url`: redis://host:port/db, rediss:// for TLS, or unix://path. `password_file`: a file with the password.
    `prefix` of all keys. `lease_ms`: after this time the mail of a node that is gone is taken over.
    """

    promises = Promises(synced=True, atomic=True, shared=True)

    def __init__(
        self,
        url: str = "redis://127.0.0.1:6379/0",
        prefix: str = "mqcd:",
        lease_ms: int = 60_000,
        password_file: Path | None = None,
    ) -> None:
        """Raises ConfigError, and OSError or ValueError for the file of the password."""
        try:
            parse_url(url)
        except ValueError as error:
            # Its text may have a part of a password.
            raise ConfigError("the url must be redis://host:port/db, rediss:// or unix://path") from error
        self._url = url
        self._prefix = prefix
        self.lease_ms = lease_ms
        self._password = password_file.read_text().strip() if password_file is not None else None
        self.node = 0
        self._session = 0
        self._unsure = False
        """Whether a take failed that the server may have made."""
        self._own: list[bytes] = []
        """Messages of the session that are to be given again."""
        self._redis: Redis | None = None

    # ------------------------------------------------------------ the connection

    def _connect(self) -> Redis:
        return Redis.from_url(
            self._url,
            password=self._password,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            # A write that failed comes again by itself.
            retry=Retry(NoBackoff(), 0),
        )

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[Redis]:
        """The client. Raises StoreUnavailable."""
        if self._redis is None:
            raise StoreUnavailable("the store redis is not open")
        try:
            yield self._redis
        except (RedisError, OSError) as error:
            full = isinstance(error, OutOfMemoryError) or str(error).startswith("OOM ")
            raise (StoreFull if full else StoreUnavailable)(f"redis: {error}") from error

    async def _call(self, *words: Any) -> Any:
        async with self._asking() as client:
            return await client.execute_command(*words)  # type: ignore[no-untyped-call]

    async def _calls(self, commands: Iterable[Sequence[Any]]) -> None:
        """Several commands in one round trip: then the server syncs its file once for many of them."""
        async with self._asking() as client, client.pipeline(transaction=False) as pipeline:
            for words in commands:
                pipeline.execute_command(*words)
            await pipeline.execute()

    async def _script(self, script: str, *arguments: Any) -> Any:
        return await self._call("EVAL", script, 0, self._prefix, self.lease_ms, *arguments)

    def _key(self, kind: str, spid: int) -> str:
        return f"{self._prefix}{kind}:{format_spid(spid)}"

    async def open(self) -> Marks:
        """Begin a session. Raises StoreBusy when 256 nodes use the store."""
        try:
            self._redis = self._connect()
            await self._look_at_promises()
            return await self._begin()
        except BaseException:
            await self.close()
            raise

    async def _begin(self) -> Marks:
        session, node, *marks = await self._script(OPEN)
        if node < 0:
            raise StoreBusy(f"256 nodes use {self._prefix}")
        self._session, self.node = session, node
        self._unsure, self._own = False, []
        return {name.decode(): int(value) for name, value in _pairs(marks)}

    async def _look_at_promises(self) -> None:
        """Whether the server syncs what it acknowledges."""
        try:
            found = await self._call("CONFIG", "GET", "append*")
        except StoreUnavailable as error:
            if "unknown command" not in str(error) and "NOPERM" not in str(error):
                raise
            found = []
        settings = found if isinstance(found, dict) else dict(_pairs(found))
        words = {_text(name): _text(value) for name, value in settings.items()}
        synced = words.get("appendonly") == "yes" and words.get("appendfsync") == "always"
        self.promises = replace(self.promises, synced=synced)
        if not synced:
            log.warning("redis may lose accepted mail: it has not appendonly yes and appendfsync always")

    async def close(self) -> None:
        """End the session: other nodes take its messages at once."""
        client, session = self._redis, self._session
        if client is None:
            return
        try:
            if session:
                await self._call("HSET", f"{self._prefix}nodes", session, f"{self.node} 0")
        except StoreUnavailable as error:
            log.warning("its mail is taken over when the lease has run out: %s", error)
        self._redis, self._session = None, 0
        await client.aclose()

    async def renew(self) -> Marks | None:
        """See the port."""
        if await self._script(RENEW, self._session, self.node):
            return None
        return await self._begin()

    # ------------------------------------------------------------ documents

    async def take(self, most: int) -> Sequence[Stored]:
        """Messages of sessions whose lease has run out, the earliest due first."""
        if self._unsure:
            self._own = await self._call("ZRANGE", f"{self._prefix}session:{self._session}", 0, -1)
        some, self._own = self._own[:most], self._own[most:]
        self._unsure = True
        found = await self._script(TAKE, self._session, most - len(some), *some)
        self._unsure = False
        return [
            Stored(
                spid=parse_spid(name.decode()),
                values={int(field[2:]): value for field, value in _pairs(fields) if field.startswith(b"r:")},
            )
            for name, fields in found
        ]

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        """One script."""
        return asyncio.ensure_future(self._write(write, self._session, self.node))

    async def _write(self, write: Write, session: int, node: int) -> Sequence[int]:
        contents = [(each.spid, each.content) for each in write.changes if each.content is not None]
        if contents:
            await self._calls(chain.from_iterable(starmap(self._pushes, contents)))
        arguments: list[Any] = [session, node, len(write.marks)]
        for mark in write.marks.items():
            arguments += mark
        for change in write.changes:
            arguments += _arguments(change)
        lost = await self._script(WRITE, LINGER_S, _AT_ONCE, *arguments)
        return [parse_spid(name.decode()) for name in lost]

    # ------------------------------------------------------------ contents

    def _pushes(self, spid: int, content: bytes) -> Iterator[Sequence[Any]]:
        """The commands that store a content, anew."""
        key = self._key("content", spid)
        first, *rest = cut(content, CHUNK)
        yield from _first_push(key, first)
        yield from (("RPUSH", key, piece) for piece in rest)

    async def stage(self, spid: int, chunks: AsyncIterator[bytes]) -> int:
        """A list that expires in a day."""
        key = self._key("content", spid)
        size = 0
        try:
            async with aclosing(cut_anew(chunks, CHUNK)) as pieces:
                async for piece in pieces:
                    await self._calls([("RPUSH", key, piece)] if size else _first_push(key, piece))
                    size += len(piece)
        except BaseException:
            await self.unstage(spid)
            raise
        return size

    async def unstage(self, spid: int) -> None:
        """See the port."""
        if not await self._call("EXISTS", self._key("message", spid)):
            await self._call("DEL", self._key("content", spid))

    async def content(self, spid: int) -> Content:
        """Short content at once, long by chunks."""
        key = self._key("content", spid)
        count = await self._call("LLEN", key)
        if not count:
            raise ContentUnavailable(f"no content of message {format_spid(spid)}")
        if count <= _AT_ONCE:
            return MemoryContent(b"".join(await self._call("LRANGE", key, 0, -1)))
        last = await self._call("LINDEX", key, -1)
        if last is None:
            raise ContentUnavailable(f"no content of message {format_spid(spid)}")
        size = (count - 1) * CHUNK + len(last)
        return ChunkedContent(key, size, CHUNK, lambda number: self._call("LINDEX", key, number))


def _first_push(key: str, piece: bytes) -> Iterator[Sequence[Any]]:
    """The commands that begin a content, anew. Together: after a kill none may stay that does not expire."""
    yield ("MULTI",)
    yield "DEL", key
    yield "RPUSH", key, piece
    yield "EXPIRE", key, _STAGED_S
    yield ("EXEC",)


def _arguments(change: Change) -> list[Any]:
    """A change as WRITE reads it."""
    words: list[Any] = [format_spid(change.spid), int(change.is_new), int(change.replaced)]
    words += ["" if change.due is None else change.due, len(change.puts)]
    for qid, value in change.puts.items():
        words += [f"r:{qid}", value]
    return [*words, len(change.drops), *(f"r:{qid}" for qid in change.drops)]


def _pairs(items: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(items[::2], items[1::2], strict=True)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value

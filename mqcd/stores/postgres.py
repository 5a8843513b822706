"""Messages in PostgreSQL, shared by several servers.

Tables, in a schema of their own: `messages` (owner, due), `recipients` (values), `contents` (chunks), `nodes`
(a session and its lease, by the database's clock), `marks`. They are made by the first start.

A write is one transaction, fenced by the owner of each message; a take passes over rows that another
transaction has locked (`FOR UPDATE SKIP LOCKED`). Content without a message expires in a day.

Promises: synced, unless the server or the role has `fsync` or `synchronous_commit` off; a start looks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]

from mqcd.core.content import MemoryContent
from mqcd.core.errors import ConfigError, ContentUnavailable, StoreBusy, StoreDamaged, StoreUnavailable
from mqcd.core.ports import Content
from mqcd.core.queueing.spid import format_spid
from mqcd.stores.backend import Change, Marks, Promises, Stored, StoreFull, Write
from mqcd.stores.chunked import ChunkedContent, cut, cut_anew

log = logging.getLogger(__name__)

CHUNK = 1 << 18
"""Octets of a chunk of content."""
_AT_ONCE = 4
"""Content of so many chunks is read as one; longer ones stay for a while after their end, to be read on."""
_CONNECTIONS = 4
_TIMEOUT_S = 30.0
_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)
_EXPECTED = "the url must be postgresql://role@host:port/database, or with ?host=/directory for a socket"
_VERSION = 1
"""Of the tables; `_TABLES` says it too."""

_TABLES = """
CREATE TABLE IF NOT EXISTS layout (version int NOT NULL);
INSERT INTO layout SELECT 1 WHERE NOT EXISTS (SELECT FROM layout);
CREATE TABLE IF NOT EXISTS nodes (
    session bigserial PRIMARY KEY, node int NOT NULL, lease timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS marks (
    node int, name text, number bigint NOT NULL, PRIMARY KEY (node, name));
CREATE TABLE IF NOT EXISTS messages (
    spid bigint PRIMARY KEY, owner bigint NOT NULL, due bigint NOT NULL);
CREATE INDEX IF NOT EXISTS messages_by_owner ON messages (owner, due);
CREATE TABLE IF NOT EXISTS recipients (
    spid bigint, qid int, value bytea NOT NULL, PRIMARY KEY (spid, qid));
CREATE TABLE IF NOT EXISTS contents (
    spid bigint, number int, chunk bytea NOT NULL, expires timestamptz, PRIMARY KEY (spid, number));
CREATE INDEX IF NOT EXISTS contents_that_expire ON contents (expires) WHERE expires IS NOT NULL;
"""
_LIVES = "SELECT lease > clock_timestamp() FROM nodes WHERE session = $1"
_BEGIN = """
INSERT INTO nodes (node, lease)
SELECT min(free), clock_timestamp() + $1 * interval '1 ms' FROM generate_series(0, 255) free
WHERE free NOT IN (SELECT node FROM nodes WHERE lease > clock_timestamp()) HAVING min(free) IS NOT NULL
RETURNING session, node
"""
_RENEW = """
UPDATE nodes SET lease = clock_timestamp() + $2 * interval '1 ms'
WHERE session = $1 AND lease > clock_timestamp()
"""
_TAKE = """
WITH free AS (
    SELECT spid FROM messages
    WHERE owner NOT IN (SELECT session FROM nodes WHERE lease > clock_timestamp())
    ORDER BY due LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE messages SET owner = $1 FROM free WHERE messages.spid = free.spid RETURNING messages.spid
"""
_FORGET = """
DELETE FROM nodes WHERE lease <= clock_timestamp()
AND NOT EXISTS (SELECT FROM messages WHERE owner = session)
"""
_MARK = """
INSERT INTO marks VALUES ($1, $2, $3) ON CONFLICT (node, name) DO UPDATE SET number = excluded.number
"""
_PUT = """
INSERT INTO recipients SELECT * FROM unnest($1::bigint[], $2::int[], $3::bytea[])
ON CONFLICT (spid, qid) DO UPDATE SET value = excluded.value
"""
_DROP = """
DELETE FROM recipients USING unnest($1::bigint[], $2::int[]) gone (spid, qid)
WHERE recipients.spid = gone.spid AND recipients.qid = gone.qid
"""
_DUE = """
INSERT INTO messages SELECT spid, $1, due FROM unnest($2::bigint[], $3::bigint[]) changed (spid, due)
ON CONFLICT (spid) DO UPDATE SET due = excluded.due
"""
_CHUNK = """
INSERT INTO contents VALUES ($1, $2, $3, clock_timestamp() + interval '1 day')
ON CONFLICT (spid, number) DO UPDATE SET chunk = excluded.chunk, expires = excluded.expires
"""
_KEEP = "UPDATE contents SET expires = NULL WHERE spid = ANY($1::bigint[])"
_END = """
DELETE FROM contents WHERE spid = ANY($1::bigint[])
AND (SELECT count(*) FROM contents others WHERE others.spid = contents.spid) <= $2
"""
_LINGER = """
UPDATE contents SET expires = clock_timestamp() + interval '10 minutes' WHERE spid = ANY($1::bigint[])
"""


class PostgresStore:
    """`backend.Backend` in PostgreSQL.

    `url`: postgresql://role@host/database, or with `?host=/directory` for a socket. `password_file`: a file
    with the password; None = as libpq finds it (PGPASSFILE). `schema` of the tables. `lease_ms`: after this
    time the mail of a node that is gone is taken over.
    """

    promises = Promises(synced=True, atomic=True, shared=True)

    def __init__(
        self,
        url: str = "postgresql:///",
        schema: str = "mqcd",
        lease_ms: int = 60_000,
        password_file: Path | None = None,
    ) -> None:
        """Raises ConfigError, and OSError or ValueError for the file of the password."""
        if not url.startswith(("postgresql://", "postgres://")):
            raise ConfigError(_EXPECTED)
        if not schema.isidentifier() or not schema.isascii():
            raise ConfigError(f"schema {schema!r} is no plain name")
        self._url = url
        self._schema = schema
        self.lease_ms = lease_ms
        self._password = password_file.read_text().strip() if password_file is not None else None
        self.node = 0
        self._session = 0
        self._unsure = False
        """Whether a take failed that the server may have made."""
        self._own_spids: list[int] = []
        """Messages of the session that are to be given again."""
        self._pool: Any = None

    # ------------------------------------------------------------ the connection

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        """A connection within a transaction. Raises StoreUnavailable."""
        if self._pool is None:
            raise StoreUnavailable("the store postgres is not open")
        try:
            async with self._pool.acquire(timeout=_TIMEOUT_S) as connection, connection.transaction():
                yield connection
        except _ERRORS as error:
            failure = StoreFull if isinstance(error, asyncpg.DiskFullError) else StoreUnavailable
            raise failure(f"postgres: {error or type(error).__name__}") from error

    async def open(self) -> Marks:
        """Make what is missing, and begin a session. Raises StoreBusy when 256 nodes use the store."""
        try:
            self._pool = await asyncpg.create_pool(
                self._url,
                password=self._password,
                min_size=1,
                max_size=_CONNECTIONS,
                timeout=_TIMEOUT_S,
                command_timeout=_TIMEOUT_S,
                server_settings={"search_path": self._schema, "application_name": "mqcd"},
            )
        except _ERRORS as error:
            raise StoreUnavailable(f"postgres: {error or type(error).__name__}") from error
        except ValueError as error:
            # Its text may have a part of a password.
            raise ConfigError(_EXPECTED) from error
        try:
            await self._make_tables()
            await self._look_at_promises()
            return await self._begin()
        except BaseException:
            await self.close()
            raise

    async def _make_tables(self) -> None:
        async with self._transaction() as connection:
            # Two nodes that start at once would both make them.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", f"mqcd {self._schema}")
            if not await connection.fetchval("SELECT to_regclass('layout') IS NOT NULL"):
                await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")
                await connection.execute(_TABLES)
            version = await connection.fetchval("SELECT version FROM layout")
        if version != _VERSION:
            raise StoreDamaged(f"schema {self._schema} has layout {version}, this program knows {_VERSION}")

    async def _look_at_promises(self) -> None:
        """Whether the server syncs what it acknowledges."""
        async with self._transaction() as connection:
            words = [await connection.fetchval(f"SHOW {name}") for name in ("fsync", "synchronous_commit")]
        synced = "off" not in words
        self.promises = replace(self.promises, synced=synced)
        if not synced:
            log.warning("postgres may lose accepted mail: fsync or synchronous_commit is off")

    async def _begin(self) -> Marks:
        async with self._transaction() as connection:
            await connection.execute("LOCK TABLE nodes IN EXCLUSIVE MODE")
            begun = await connection.fetchrow(_BEGIN, self.lease_ms)
            if begun is None:
                raise StoreBusy(f"256 nodes use schema {self._schema}")
            session, node = begun
            await connection.execute("DELETE FROM contents WHERE expires < clock_timestamp()")
            marks = await connection.fetch("SELECT name, number FROM marks WHERE node = $1", node)
        # Not before the commit's answer: a `renew` after a failure would take it for a lease that was kept.
        self._session, self.node = session, node
        self._unsure, self._own_spids = False, []
        return dict(map(tuple, marks))

    async def renew(self) -> Marks | None:
        """See the port."""
        async with self._transaction() as connection:
            done = await connection.execute(_RENEW, self._session, self.lease_ms)
            await connection.execute("DELETE FROM contents WHERE expires < clock_timestamp()")
        return None if done == "UPDATE 1" else await self._begin()

    async def close(self) -> None:
        """End the session: other nodes take its messages at once."""
        pool, session = self._pool, self._session
        if pool is None:
            return
        try:
            async with self._transaction() as connection:
                await connection.execute("UPDATE nodes SET lease = '-infinity' WHERE session = $1", session)
        except StoreUnavailable as error:
            log.warning("its mail is taken over when the lease has run out: %s", error)
        self._pool, self._session = None, 0
        pool.terminate()

    # ------------------------------------------------------------ documents

    async def take(self, most: int) -> Sequence[Stored]:
        """Messages of sessions whose lease has run out, the earliest due first."""
        if self._unsure:
            await self._find_own()
        again, self._own_spids = self._own_spids[:most], self._own_spids[most:]
        self._unsure = True
        async with self._transaction() as connection:
            spids = []
            if await connection.fetchval(_LIVES, self._session):
                taken = await connection.fetch(_TAKE, self._session, most - len(again))
                spids = [*again, *(row[0] for row in taken)]
            if not spids:
                await connection.execute(_FORGET)
            rows = await connection.fetch("SELECT * FROM recipients WHERE spid = ANY($1::bigint[])", spids)
        self._unsure = False
        values: dict[int, dict[int, bytes]] = defaultdict(dict)
        for spid, qid, value in rows:
            values[spid][qid] = value
        return [Stored(spid=_unsigned(spid), values=found) for spid, found in values.items()]

    async def _find_own(self) -> None:
        async with self._transaction() as connection:
            rows = await connection.fetch("SELECT spid FROM messages WHERE owner = $1", self._session)
        self._own_spids = [row[0] for row in rows]

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        """One transaction."""
        return asyncio.ensure_future(self._write(write, self._session, self.node))

    async def _write(self, write: Write, session: int, node: int) -> Sequence[int]:
        async with self._transaction() as connection:
            lives = await connection.fetchval(_LIVES, session)
            if lives:
                marks = [(node, name, number) for name, number in write.marks.items()]
                await connection.executemany(_MARK, marks)
            own = await self._own(connection, session, write.changes, bool(lives))
            await self._apply(connection, session, [each for each in write.changes if each.spid in own])
        return [change.spid for change in write.changes if change.spid not in own]

    async def _own(self, connection: Any, session: int, changes: Sequence[Change], lives: bool) -> set[int]:
        """The messages that may be changed. Locks them."""
        spids = [_signed(change.spid) for change in changes]
        found = await connection.fetch(
            "SELECT spid, owner FROM messages WHERE spid = ANY($1::bigint[]) ORDER BY spid FOR UPDATE", spids
        )
        owners = {_unsigned(spid): owner for spid, owner in found}

        def is_own(change: Change) -> bool:
            if change.spid in owners:
                return bool(owners[change.spid] == session and (lives or not change.replaced))
            # New; or it has ended by a write whose answer was lost.
            return lives and (change.is_new or change.due is None)

        return {change.spid for change in changes if is_own(change)}

    async def _apply(self, connection: Any, session: int, changes: Sequence[Change]) -> None:
        kept = [change for change in changes if change.due is not None]
        ended = [_signed(change.spid) for change in changes if change.due is None]
        for change in kept:
            if change.content is not None:
                await self._store(connection, change.spid, 0, cut(change.content, CHUNK))
        if kept:
            spids = [_signed(change.spid) for change in kept]
            await connection.execute(_DUE, session, spids, [change.due for change in kept])
        puts = [(_signed(change.spid), *put) for change in kept for put in change.puts.items()]
        if puts:
            await connection.execute(_PUT, *map(list, zip(*puts, strict=True)))
        drops = [(_signed(change.spid), qid) for change in kept for qid in change.drops]
        if drops:
            await connection.execute(_DROP, *map(list, zip(*drops, strict=True)))
        new = [_signed(change.spid) for change in kept if change.is_new]
        if new:
            await connection.execute(_KEEP, new)
        if ended:
            await connection.execute("DELETE FROM recipients WHERE spid = ANY($1::bigint[])", ended)
            await connection.execute("DELETE FROM messages WHERE spid = ANY($1::bigint[])", ended)
            await connection.execute(_END, ended, _AT_ONCE)
            await connection.execute(_LINGER, ended)

    # ------------------------------------------------------------ contents

    @staticmethod
    async def _store(connection: Any, spid: int, first: int, pieces: Sequence[bytes]) -> None:
        chunks = [(_signed(spid), number, piece) for number, piece in enumerate(pieces, first)]
        await connection.executemany(_CHUNK, chunks)

    async def stage(self, spid: int, chunks: AsyncIterator[bytes]) -> int:
        """Chunks that expire in a day."""
        size, number = 0, 0
        try:
            async with aclosing(cut_anew(chunks, CHUNK)) as pieces:
                async for piece in pieces:
                    async with self._transaction() as connection:
                        await self._store(connection, spid, number, [piece])
                    size, number = size + len(piece), number + 1
        except BaseException:
            await self.unstage(spid)
            raise
        return size

    async def unstage(self, spid: int) -> None:
        """See the port."""
        async with self._transaction() as connection:
            await connection.execute(
                "DELETE FROM contents WHERE spid = $1 AND expires IS NOT NULL", _signed(spid)
            )

    async def content(self, spid: int) -> Content:
        """Short content at once, long by chunks."""
        async with self._transaction() as connection:
            count, octets = await connection.fetchrow(
                "SELECT count(*), sum(length(chunk)) FROM contents WHERE spid = $1", _signed(spid)
            )
        if not count:
            raise ContentUnavailable(f"no content of message {format_spid(spid)}")
        if count > _AT_ONCE:
            name = f"message {format_spid(spid)}"
            return ChunkedContent(name, int(octets), CHUNK, partial(self._chunk, spid))
        # One that ends meanwhile is too short, which its reader sees.
        return MemoryContent(b"".join([await self._chunk(spid, number) or b"" for number in range(count)]))

    async def _chunk(self, spid: int, number: int) -> bytes | None:
        async with self._transaction() as connection:
            found: bytes | None = await connection.fetchval(
                "SELECT chunk FROM contents WHERE spid = $1 AND number = $2", _signed(spid), number
            )
        return found


def _signed(spid: int) -> int:
    """As bigint has it."""
    return spid - (1 << 64) if spid >> 63 else spid


def _unsigned(spid: int) -> int:
    return spid % (1 << 64)

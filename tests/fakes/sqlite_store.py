"""A store in an SQLite database: the example of docs/stores.md."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from mqcd.core.content import MemoryContent
from mqcd.core.errors import ContentUnavailable, StoreBusy, StoreUnavailable
from mqcd.stores import values
from mqcd.stores.backend import Exclusive, Marks, Promises, Stored, Write, failed, finished


class SqliteStore(Exclusive):
    """One row for each message. Contents are held in memory whole, and a write keeps the loop waiting."""

    promises = Promises(synced=True, atomic=True, shared=False)

    def __init__(self, *, rootpath: Path, wait_ms: int = 0) -> None:
        """`rootpath`: directory of the database. `wait_ms`: how long to wait for another process's lock."""
        self._rootpath = rootpath
        self._wait = wait_ms / 1000
        self._last = -1

    async def open(self) -> Marks:
        self._rootpath.mkdir(parents=True, exist_ok=True)
        path = self._rootpath / "mail.db"
        self._db = sqlite3.connect(path, timeout=self._wait, isolation_level=None)
        try:
            self._db.executescript("""
                PRAGMA locking_mode = EXCLUSIVE;
                PRAGMA synchronous = FULL;
                BEGIN EXCLUSIVE;
                CREATE TABLE IF NOT EXISTS messages (spid TEXT PRIMARY KEY, document BLOB);
                CREATE TABLE IF NOT EXISTS contents (spid TEXT PRIMARY KEY, octets BLOB);
                CREATE TABLE IF NOT EXISTS marks (document BLOB);
                DELETE FROM contents WHERE spid NOT IN (SELECT spid FROM messages);
                COMMIT;
            """)
        except sqlite3.OperationalError as error:
            self._db.close()
            raise StoreBusy(f"{path}: {error}") from error
        self._last = -1
        row = self._db.execute("SELECT document FROM marks").fetchone()
        return values.unpack_marks(row[0] if row else b"")

    async def close(self) -> None:
        self._db.close()

    async def take(self, most: int) -> Sequence[Stored]:
        query = "SELECT spid, document FROM messages WHERE spid > ? ORDER BY spid LIMIT ?"
        rows = self._db.execute(query, (_name(self._last), most)).fetchall()
        found = [Stored(spid=int(name, 16), values=values.unpack(document)) for name, document in rows]
        self._last = found[-1].spid if found else self._last
        return found

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        try:
            with self._db:
                self._db.execute("BEGIN")
                self._write(write)
        except sqlite3.Error as error:
            return failed(StoreUnavailable(f"the database cannot be written: {error}"))
        return finished()

    def _write(self, write: Write) -> None:
        if write.marks:
            self._db.execute("DELETE FROM marks")
            self._db.execute("INSERT INTO marks VALUES (?)", (values.pack_marks(write.marks),))
        for change in write.changes:
            name = _name(change.spid)
            if change.due is None:
                self._db.execute("DELETE FROM messages WHERE spid = ?", (name,))
                self._db.execute("DELETE FROM contents WHERE spid = ?", (name,))
                continue
            if change.content is not None:
                self._db.execute("REPLACE INTO contents VALUES (?, ?)", (name, change.content))
            document = values.pack(change.values())
            self._db.execute("REPLACE INTO messages VALUES (?, ?)", (name, document))

    async def stage(self, spid: int, chunks: AsyncIterator[bytes]) -> int:
        octets = b"".join([chunk async for chunk in chunks])
        try:
            self._db.execute("REPLACE INTO contents VALUES (?, ?)", (_name(spid), octets))
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the database cannot be written: {error}") from error
        return len(octets)

    async def unstage(self, spid: int) -> None:
        self._db.execute("DELETE FROM contents WHERE spid = ?", (_name(spid),))

    async def content(self, spid: int) -> MemoryContent:
        row = self._db.execute("SELECT octets FROM contents WHERE spid = ?", (_name(spid),)).fetchone()
        if row is None:
            raise ContentUnavailable(f"no content of message {_name(spid)}")
        return MemoryContent(row[0])


def _name(spid: int) -> str:
    return f"{spid:016X}" if spid >= 0 else ""

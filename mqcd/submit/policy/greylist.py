"""The triplets of greylisting in a SQLite database, which all shards share.

* One thread of each process asks it; at most MOST questions wait. Where more do, or the database fails or
  does not answer in time, mail passes: that is logged once a minute. A database that failed is opened again
  after _REST_MS.
* It is written without waiting for the disk (WAL, synchronous = OFF): what a power failure takes of it costs
  a second try of some mail, and no mail. A file that is damaged is moved aside, and a new one begins.
* Triplets that are over are deleted while others are asked, at most _BATCH at a time.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from mqcd.core.ports import Clock
from mqcd.submit.checks.greylist import Entry, Triplet, judge

log = logging.getLogger(__name__)

MOST = 1000
ANSWER_MS = 5000
"""Time limit of a question."""
_REST_MS = 10_000
_REPEAT_MS = 60_000
"""Interval between log lines on failures."""
_BUSY_S = 2.0
"""How long a process waits for the others to write."""
_SWEEP_MS = 60_000
_BATCH = 5000

_SCHEMA = """
create table if not exists triplet (
    key blob primary key, first integer not null, passed integer not null, until integer not null
) without rowid;
create index if not exists triplet_until on triplet (until);
"""


class Greylist:
    """The triplets of one process's listeners. The file and its thread begin with the first question."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="greylist")
        self._used = False
        """Whether the pool has had its thread: to start one at a stop may fail."""
        self._database: sqlite3.Connection | None = None
        self._swept = 0
        self._waiting = 0
        self._rests_until = 0
        self._logged: int | None = None

    async def wait(self, triplet: Triplet) -> int:
        """The ms that a delivery has still to wait; 0 = it passes. Never fails."""
        now = self._clock.monotonic()
        if now < self._rests_until:
            return 0
        if self._waiting >= MOST:
            self._complain(f"{MOST} deliveries wait for it")
            return 0
        self._waiting += 1
        loop = asyncio.get_running_loop()
        wall = self._clock.now()
        asking: asyncio.Future[int] = loop.run_in_executor(self._pool, self._answer, triplet, wall)
        self._used = True
        asking.add_done_callback(self._answered)
        limit = asyncio.ensure_future(self._clock.sleep(ANSWER_MS))
        waits: list[asyncio.Future[Any]] = [asking, limit]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            limit.cancel()
        if not asking.done():
            self._complain(f"it has not answered within {ANSWER_MS // 1000} s")
            return 0
        try:
            return asking.result()
        except (sqlite3.Error, OSError) as error:
            self._rests_until = now + _REST_MS
            self._complain(str(error))
            return 0

    def close(self) -> None:
        """Close the file once its question is answered; waits for nothing."""
        if self._used:
            self._pool.submit(self._drop)
        self._pool.shutdown(wait=False)

    def _answered(self, asking: asyncio.Future[int]) -> None:
        self._waiting -= 1
        if not asking.cancelled():
            # Known to have failed, also where nobody waits any more.
            asking.exception()

    def _complain(self, why: str) -> None:
        now = self._clock.monotonic()
        if self._logged is None or now - self._logged >= _REPEAT_MS:
            self._logged = now
            log.error("greylisting is off for now, mail passes: %s: %s", self._path, why)

    # ------------------------------------------------------------ in the thread

    def _answer(self, triplet: Triplet, now: int) -> int:
        try:
            return self._ask(triplet, now)
        except sqlite3.DatabaseError as error:
            self._drop()
            # Its subclasses are other faults, such as a locked file; this is a file that SQLite cannot read.
            if type(error) is sqlite3.DatabaseError:
                self._put_aside()
            raise

    def _ask(self, triplet: Triplet, now: int) -> int:
        database = self._database = self._database or self._open()
        with database:
            database.execute("begin immediate")
            with closing(
                database.execute("select first, passed from triplet where key = ?", (triplet.key,))
            ) as found:
                row = found.fetchone()
            entry, wait = judge(Entry(first=row[0], passed=row[1]) if row else None, triplet.terms, now)
            terms = triplet.terms
            until = entry.passed + terms.lifetime if entry.passed else entry.first + terms.window
            database.execute(
                "insert or replace into triplet values (?, ?, ?, ?)",
                (triplet.key, entry.first, entry.passed, until),
            )
            if abs(now - self._swept) >= _SWEEP_MS:
                self._swept = now
                database.execute(
                    "delete from triplet where key in (select key from triplet where until < ? limit ?)",
                    (now, _BATCH),
                )
        return wait

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Transactions are begun by hand, and the pool has but one thread: close() may come from its queue.
        database = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            database.execute("pragma journal_mode = wal")
            database.execute("pragma synchronous = off")
            database.executescript(_SCHEMA)
        except BaseException:
            database.close()
            raise
        return database

    def _drop(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _put_aside(self) -> None:
        for suffix in ("-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        self._path.replace(self._path.with_name(self._path.name + ".damaged"))

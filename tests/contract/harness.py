"""What a store must offer to be put through the contract: a factory, and how it can be restarted.

A new store joins by one line in HARNESSES; every test then runs on it as well.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol

from mqcd.config.load import defaults
from mqcd.config.settings import HeldDomainSettings, JournalSettings, QueueSettings, SpoolSettings
from mqcd.core.ports import Observer, QueueStore
from mqcd.core.queueing.holding import HeldDomain, Holding, HoldMode
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.disk.durable import Disk
from mqcd.embed import Queue
from mqcd.eventlog.files import Source
from mqcd.ops.fanout import Fanout
from mqcd.ops.metrics.meters import Meters
from mqcd.queue.memory.shard_state import Options
from mqcd.queue.store import ClusterStore
from mqcd.queue.workers import Workers
from mqcd.stores.backend import Backend
from mqcd.stores.files import FilesStore
from mqcd.stores.leveldb import LeveldbStore
from mqcd.stores.mapping import MappingStore
from mqcd.stores.postgres import PostgresStore
from mqcd.stores.queue.stored_queue import StoredQueue
from mqcd.stores.redis import RedisStore
from mqcd.stores.s3 import S3Store
from mqcd.stores.symlinks import SymlinksStore
from tests.fakes import s3_server
from tests.fakes.clock import FakeClock
from tests.fakes.killed import copy_as_killed
from tests.fakes.observer import RecordingObserver
from tests.fakes.postgres_server import end_leases, shared_server
from tests.fakes.redis_server import RedisServer
from tests.fakes.shared_store import LEASE_MS, SharedStore, SharedWorld
from tests.fakes.sqlite_store import SqliteStore
from tests.fakes.workers import LocalWorkers

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
HOLDING = Holding(
    domains=(
        HeldDomain("hold.example", HoldMode.HOLD),
        HeldDomain("etrn.example", HoldMode.ETRN),
        HeldDomain("*.atrn.example", HoldMode.ATRN),
    ),
    maxtime=120 * HOUR,
)
SCHEDULE = RetrySchedule(
    delays=(15 * MINUTE, 30 * MINUTE, 2 * HOUR, 4 * HOUR),
    maxtime=72 * HOUR,
    maxtime_reports=24 * HOUR,
    holding=HOLDING,
)


class Restart(Enum):
    """How a store comes to be opened again."""

    REOPEN = "reopen"
    """It was closed in order."""
    KILL = "kill"
    """The process that had it open is gone, as after kill -9."""


class Harness(Protocol):
    """One store under test, with the clock and the observers that it was given."""

    restarts: ClassVar[tuple[Restart, ...]]
    """The ways in which it can be restarted without losing anything."""
    clock: FakeClock
    observer: RecordingObserver
    meters: Meters

    async def start(self) -> QueueStore:
        """An empty store, open."""

    async def restart(self, how: Restart) -> QueueStore:
        """The same queue, open again."""

    async def stop(self) -> None:
        """Close what is open."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A store, and how its owner closes it."""

    store: QueueStore
    close: Callable[[], Awaitable[None]]


class ClusterHarness:
    """The clustered-file queue. A kill is a copy of its files, as the moment left them, opened anew.

    `processes`: with its helper and its scans in processes of their own; else this one does their work.
    """

    restarts: ClassVar[tuple[Restart, ...]] = (Restart.REOPEN, Restart.KILL)

    def __init__(self, path: Path, *, hardlinks: bool = False, processes: bool = False) -> None:
        self.clock = FakeClock()
        self.observer = RecordingObserver()
        self.meters = Meters()
        self._hardlinks = hardlinks
        self.segmentsize = 1 << 20
        self._workers = Workers() if processes else LocalWorkers(Disk())
        self._path = path
        self._copies = 0
        self._open: list[Opened] = []

    async def start(self) -> QueueStore:
        root = self._path / f"run{self._copies}"
        options = cluster_options(root, hardlinks=self._hardlinks, segmentsize=self.segmentsize)
        opened = await self._opened(options, Fanout(self.observer, self.meters))
        self._open.append(opened)
        return opened.store

    async def _opened(self, options: Options, observer: Observer) -> Opened:
        store = ClusterStore(options, self.clock, observer, workers=self._workers)
        await store.open()
        await store.recovered()
        return Opened(store, store.close)

    async def restart(self, how: Restart) -> QueueStore:
        if how is Restart.REOPEN:
            await self._open.pop().close()
        else:
            old = self._path / f"run{self._copies}"
            self._copies += 1
            copy_as_killed(old, self._path / f"run{self._copies}")
        return await self.start()

    async def stop(self) -> None:
        while self._open:
            await self._open.pop().close()


class EmbeddedHarness(ClusterHarness):
    """The clustered-file queue of a program that embeds it and relays nothing."""

    async def _opened(self, options: Options, observer: Observer) -> Opened:
        settings = defaults(var=options.events.parent, hostname="embedded.test")
        settings = replace(settings, queue=replace(options.settings, retry_jitter=0))
        queue = Queue(options.events.parent, settings=settings, clock=self.clock, observer=observer)
        await queue.open()
        return Opened(queue.store, queue.close)


def cluster_options(root: Path, *, hardlinks: bool = False, segmentsize: int = 1 << 20) -> Options:
    """A small journal below `root`."""
    settings = QueueSettings(
        rootpath=root / "queue",
        spool=SpoolSettings(rootpath=root / "spool", hardlinks=hardlinks),
        journal=JournalSettings(segmentsize=segmentsize, segments=8),
        held=tuple(HeldDomainSettings(name=each.name, mode=each.mode) for each in HOLDING.domains),
        held_maxtime=HOLDING.maxtime,
    )
    return Options(settings=settings, schedule=SCHEDULE, source=Source("test", 0), events=root / "events")


class StoreHarness(ABC):
    """A queue of `mqcd.stores`; each subclass makes its backend.

    A kill leaves the backend as it is and opens another one over `killed`: what the moment left.
    """

    restarts: ClassVar[tuple[Restart, ...]] = (Restart.REOPEN, Restart.KILL)

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.observer = RecordingObserver()
        self.meters = Meters()
        self.path = path
        self._open: list[StoredQueue] = []

    @abstractmethod
    def backend(self) -> Backend:
        """Over what is there now."""

    @abstractmethod
    def killed(self) -> None:
        """From now on `backend` opens what a kill at this moment leaves."""

    async def start(self) -> QueueStore:
        observer = Fanout(self.observer, self.meters)
        store = StoredQueue(self.backend(), self.clock, observer, SCHEDULE)
        await store.open()
        await store.recovered()
        self._open.append(store)
        return store

    async def restart(self, how: Restart) -> QueueStore:
        if how is Restart.REOPEN:
            await self._open.pop().close()
        else:
            await self._still()
            self.killed()
        return await self.start()

    async def _still(self) -> None:
        """What is killed looks for no mail of others any more, although the tests hold it open."""
        for store in self._open:
            await store._opened.stop_sharing()

    async def stop(self) -> None:
        while self._open:
            await self._open.pop().close()


class MemoryHarness(StoreHarness):
    """Over a mapping."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._mapping: dict[str, bytes] = {}

    def backend(self) -> Backend:
        return MappingStore(self._mapping)

    def killed(self) -> None:
        self._mapping = dict(self._mapping)


class FilesHarness(StoreHarness):
    """Messages as pairs of files. A kill is a copy of them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._copies = 0

    @property
    def _root(self) -> Path:
        return self.path / f"run{self._copies}"

    def backend(self) -> Backend:
        return FilesStore(self._root / "env", self._root / "meta")

    def killed(self) -> None:
        old = self._root
        self._copies += 1
        copy_as_killed(old, self._root)


class SymlinksHarness(FilesHarness):
    """Messages as directories."""

    def backend(self) -> Backend:
        return SymlinksStore(self._root)


LASTING_MS = 3_600_000
"""No test waits for the end of one; a minute may be over on a slow machine while one writes 100 MB."""


class RedisHarness(StoreHarness):
    """Redis. After a kill of node and server, the next node comes when the lease has run out."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.server = RedisServer(path / "redis")

    def backend(self) -> Backend:
        return RedisStore(self.server.url, lease_ms=LASTING_MS)

    def killed(self) -> None:
        self.server.kill()
        self.server.start()
        with self.server.client() as client:
            for session, entry in client.hgetall("mqcd:nodes").items():
                client.hset("mqcd:nodes", session, entry.split()[0] + b" 0")

    async def stop(self) -> None:
        await super().stop()
        self.server.stop()


class PostgresHarness(StoreHarness):
    """PostgreSQL, a schema each. After a kill the next node comes when the lease has run out."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._schema = f"s{uuid.uuid4().hex}"

    def backend(self) -> Backend:
        return PostgresStore(shared_server().url, self._schema, lease_ms=LASTING_MS)

    def killed(self) -> None:
        """The database is as it is."""

    async def restart(self, how: Restart) -> QueueStore:
        if how is Restart.KILL:
            await self._still()
            await end_leases(shared_server().url, self._schema)
        return await super().restart(how)


class LeveldbHarness(FilesHarness):
    """LevelDB. A kill is a copy of its files."""

    def backend(self) -> Backend:
        return LeveldbStore(self._root)


class S3Harness(StoreHarness):
    """An object store. After a kill the next node comes when the lease has run out."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._prefix = f"{uuid.uuid4().hex}/"

    def backend(self) -> Backend:
        server = s3_server.shared_server()
        objects = s3_server.objects(self._prefix)
        return S3Store(s3_server.BUCKET, self._prefix, server.url, "us-east-1", objects=objects)

    def killed(self) -> None:
        """The store is as it is."""

    async def restart(self, how: Restart) -> QueueStore:
        if how is Restart.KILL:
            await self._still()
            await s3_server.end_leases(self._prefix)
        return await super().restart(how)


class SharedHarness(StoreHarness):
    """A store that several nodes share. After a kill the next node comes when the lease has run out."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.world = SharedWorld()
        self._stores: list[SharedStore] = []

    def backend(self) -> Backend:
        self._stores.append(SharedStore(self.world))
        return self._stores[-1]

    def killed(self) -> None:
        for store in self._stores:
            store.cut = True
        self.world.now += LEASE_MS


class SqliteHarness(StoreHarness):
    """The example of docs/stores.md."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._copies = 0

    def backend(self) -> Backend:
        return SqliteStore(rootpath=self.path / f"run{self._copies}")

    def killed(self) -> None:
        old = self.path / f"run{self._copies}"
        self._copies += 1
        copy_as_killed(old, self.path / f"run{self._copies}")


HARNESSES: Mapping[str, tuple[Callable[[Path], Harness], tuple[Restart, ...]]] = {
    "memory": (MemoryHarness, MemoryHarness.restarts),
    "files": (FilesHarness, FilesHarness.restarts),
    "symlinks": (SymlinksHarness, SymlinksHarness.restarts),
    "redis": (RedisHarness, RedisHarness.restarts),
    "postgres": (PostgresHarness, PostgresHarness.restarts),
    "leveldb": (LeveldbHarness, LeveldbHarness.restarts),
    "s3": (S3Harness, S3Harness.restarts),
    "shared": (SharedHarness, SharedHarness.restarts),
    "sqlite": (SqliteHarness, SqliteHarness.restarts),
    "cluster": (ClusterHarness, ClusterHarness.restarts),
    "embedded": (EmbeddedHarness, EmbeddedHarness.restarts),
    "cluster-links": (partial(ClusterHarness, hardlinks=True), (Restart.KILL,)),
    "cluster-processes": (partial(ClusterHarness, processes=True), ()),
}
"""Every store: how to make its harness, given an empty directory, and its restarts."""
WITH_SERVERS = ("redis", "postgres", "s3")
"""Stores that need a server, which the tests start."""
ONLY_IN: Mapping[str, tuple[str, ...]] = {
    "embedded": ("test_enqueue", "test_restart", "test_settle"),
    "cluster-links": ("test_content", "test_enqueue", "test_restart", "test_settle"),
    "cluster-processes": ("test_large", "test_look"),
}
"""Where a store differs from another one in little: the modules that see it, beside the ledger."""
BOTH_WAYS = ("memory", "cluster")
"""One store of each engine, which every module also closes in order; of the others, whose engine is the same,
those where that is the subject."""

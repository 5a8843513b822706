"""What each store costs: messages a second, and syncs or requests a message.

    python tests/bench/stores.py [STORE ...] [--messages 8000] [--octets 4096] [--rounds 3]

64 producers enqueue; then 256 workers await `begin` and `settle` of each message. Each run has a process and
an empty store of its own, servers included; slow stores get a part of the messages. `ahead` says how many
times the messages a second of the store the clustered-file queue gets, both halves together. What is counted:

syncs     fdatasync, fsync and syncfs of this process, its helper's left out; of LevelDB its synced batches;
          of PostgreSQL those of its journal (pg_stat_wal)
requests  of the clients: round trips to Redis, transactions of PostgreSQL, HTTP requests to moto
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import asyncpg  # type: ignore[import-untyped]

from mqcd.core.model import Recipient
from mqcd.core.ports import QueueStore
from mqcd.eventlog.files import Source
from mqcd.eventlog.retention import Retention
from mqcd.net.clock import SystemClock
from mqcd.stores.backend import Backend
from mqcd.stores.files import FilesStore
from mqcd.stores.leveldb import LeveldbStore
from mqcd.stores.mapping import MappingStore
from mqcd.stores.postgres import PostgresStore
from mqcd.stores.queue.exporting import EventFiles
from mqcd.stores.queue.stored_queue import StoredQueue
from mqcd.stores.redis import RedisStore
from mqcd.stores.s3 import S3Store
from mqcd.stores.s3_objects import Objects
from mqcd.stores.symlinks import SymlinksStore
from tests.bench import kit
from tests.bench.engine_throughput import PRODUCERS, WORKERS, dispatch, produce, work
from tests.fakes import s3_server
from tests.fakes.postgres_server import PostgresServer
from tests.fakes.redis_server import RedisServer

LESS = {"symlinks": 4, "s3": 20}
"""Stores that get only so small a part of the messages: that is enough to measure them."""
Counts = dict[str, int]
Under = tuple[QueueStore, Callable[[], Any]]
"""A store to be measured, and what gives its counts at a moment, or a coroutine that does."""


class CountingLeveldb(LeveldbStore):
    """Counts batches."""

    batches = 0

    def _write_batch(self, write: Any) -> None:
        self.batches += 1
        super()._write_batch(write)


class CountingRedis(RedisStore):
    """Counts round trips."""

    requests = 0

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[Any]:
        self.requests += 1
        async with super()._asking() as client:
            yield client


class CountingObjects(Objects):
    """Counts what is sent."""

    requests = 0

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[Any]:
        async with super().asking() as client:
            client.meta.events.register("before-send.s3", self._sent, unique_id="counted")
            yield client

    def _sent(self, **_what: object) -> None:
        self.requests += 1


def stored(backend: Backend, root: Path) -> StoredQueue:
    """As a server runs on it: with an event log."""
    events = EventFiles(directory=root / "events", source=Source("bench", 0), retention=Retention())
    return StoredQueue(backend, SystemClock(), kit.NobodyHears(), kit.SCHEDULE, events)


async def memory(root: Path, _stack: AsyncExitStack) -> Under:
    return stored(MappingStore(), root), dict


async def files(root: Path, _stack: AsyncExitStack) -> Under:
    disk = kit.CountingDisk()
    return stored(FilesStore(root / "mail", disk=disk), root), lambda: {"syncs": disk.syncs}


async def symlinks(root: Path, _stack: AsyncExitStack) -> Under:
    disk = kit.CountingDisk()
    return stored(SymlinksStore(root / "mail", disk=disk), root), lambda: {"syncs": disk.syncs}


async def leveldb(root: Path, _stack: AsyncExitStack) -> Under:
    backend = CountingLeveldb(root / "mail")
    return stored(backend, root), lambda: {"syncs": backend.batches}


async def redis(root: Path, stack: AsyncExitStack) -> Under:
    server = RedisServer(root / "redis")
    stack.callback(server.stop)
    backend = CountingRedis(server.url)
    return stored(backend, root), lambda: {"requests": backend.requests}


async def postgres(root: Path, stack: AsyncExitStack) -> Under:
    server = PostgresServer()
    stack.callback(server.stop)
    connection = await asyncpg.connect(server.url)
    stack.push_async_callback(connection.close)

    async def count() -> Counts:
        # A backend hands its counts on when it has been idle for a second.
        await asyncio.sleep(1.5)
        row = await connection.fetchrow(
            "SELECT (SELECT wal_sync FROM pg_stat_wal) AS syncs,"
            " (SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres') AS requests"
        )
        return {name: int(number) for name, number in row.items()}

    return stored(PostgresStore(server.url), root), count


async def s3(root: Path, stack: AsyncExitStack) -> Under:
    server = s3_server.S3Server()
    stack.callback(server.stop)
    objects = CountingObjects(s3_server.BUCKET, "bench/")
    backend = S3Store(s3_server.BUCKET, "bench/", server.url, "us-east-1", objects=objects)
    return stored(backend, root), lambda: {"requests": objects.requests}


async def cluster(root: Path, _stack: AsyncExitStack) -> Under:
    disk = kit.CountingDisk()
    return kit.store(kit.options(root), disk), lambda: {"syncs": disk.syncs}


STORES = {each.__name__: each for each in (cluster, memory, files, symlinks, leveldb, redis, postgres, s3)}


async def load(made: QueueStore, messages: int, octets: int) -> dict[str, float]:
    """Both halves, measured."""
    room, waits = asyncio.Semaphore(messages), list[float]()
    begun = time.perf_counter()
    each = messages // PRODUCERS
    await asyncio.gather(*(produce(made, each, octets, waits, room) for _ in range(PRODUCERS)))
    accepted = time.perf_counter()
    todo: asyncio.Queue[Recipient] = asyncio.Queue()
    workers = [asyncio.create_task(work(made, todo, room)) for _ in range(WORKERS)]
    done = asyncio.create_task(dispatch(made, messages, todo))
    # A worker ends by a fault alone.
    [ended, *_], _ = await asyncio.wait([done, *workers], return_when=asyncio.FIRST_COMPLETED)
    await ended
    settled = time.perf_counter()
    for worker in workers:
        worker.cancel()
    return {
        "enqueue": messages / (accepted - begun),
        "settle": messages / (settled - accepted),
        "both": messages / (settled - begun),
    }


async def measure(root: Path, given: dict[str, Any]) -> dict[str, float]:
    """One store. What it does until it is closed counts, too."""
    messages = given["messages"] // PRODUCERS * PRODUCERS
    async with AsyncExitStack() as stack:
        queue, count = await STORES[given["store"]](root, stack)
        await queue.open()
        await queue.recovered()
        before = await _now(count)
        figures = await load(queue, messages, given["octets"])
        await queue.close()
        after = await _now(count)
    return figures | {name: (after[name] - before[name]) / messages for name in after}


async def _now(count: Callable[[], Any]) -> Counts:
    found = count()
    counts: Counts = await found if asyncio.iscoroutine(found) else found
    return counts


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stores", nargs="*", choices=[*STORES, []], metavar="STORE")
    parser.add_argument("--messages", type=int, default=8000)
    parser.add_argument("--octets", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        given = json.loads(options.child)
        tempfile.tempdir = given["root"]
        print(json.dumps(kit.run(measure(Path(given["root"]), given))), flush=True)
        return
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in options.stores or STORES}
    with kit.workplace() as base:
        # PostgreSQL runs as another user where this is root.
        base.chmod(0o711)
        for number in range(options.rounds):
            for name, found in rounds.items():
                root = base / f"{name}{number}"
                root.mkdir(mode=0o711)
                messages = max(PRODUCERS, options.messages // LESS.get(name, 1))
                figures = kit.child(
                    __file__, root=str(root), store=name, messages=messages, octets=options.octets
                )
                kit.show(f"  {name}", figures)
                found.append(figures)
                shutil.rmtree(root)
    first = kit.medians(rounds["cluster"])["both"] if "cluster" in rounds else 0.0
    for name, found in rounds.items():
        figures = kit.medians(found)
        kit.show(name, figures | {"ahead": first / figures["both"]})


if __name__ == "__main__":
    main()

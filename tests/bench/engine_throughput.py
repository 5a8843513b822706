"""Messages a second through the engine, against a pool of threads that syncs one file for each.

    python tests/bench/engine_throughput.py [--messages 30000] [--pool-messages 8000] [--octets 4096]
                                            [--rounds 3] [--added-ms 0] [--one-at-a-time]

Engine: 64 producers enqueue; what is claimed goes to 256 workers, each of which awaits `begin` and then
`settle`: as many as keep up with the producers where a sync takes long. Pool: 8, 32 or 64 threads create,
write and fdatasync a file per message, and do nothing else; the best counts. `--added-ms` makes every
sync longer on both sides; with `--one-at-a-time` the added times do not overlap, as on a disk that does
one flush after another. Segments are small enough that ten of them are sealed in the measured time, and
some evacuated. Each run of the engine ends by SIGKILL; "lost" counts messages that were accepted and of
which a reopened queue knows neither verdict nor content.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import threading
import time
from itertools import zip_longest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mqcd.core.model import Recipient
from mqcd.core.ports import QueueStore
from tests.bench import kit

PRODUCERS = 64
WORKERS = 256
SEALS, EVACUATIONS = 10, 2
"""A run with fewer says nothing of how these weigh."""
UNDER_WAY = 2500
"""Messages between acceptance and verdict, at most: the default of the server's active set."""
UNTRIED = 100
"""Messages that are left in the queue when the process dies."""


async def produce(
    made: QueueStore, count: int, octets: int, waits: list[float], room: asyncio.Semaphore
) -> list[int]:
    """One producer; returns what was acknowledged."""
    taken = []
    for _ in range(count):
        await room.acquire()
        submission = kit.message(made, octets)
        begun = time.perf_counter()
        await made.enqueue(submission)
        waits.append(time.perf_counter() - begun)
        taken.append(submission.envelope.spid)
    return taken


async def work(made: QueueStore, todo: asyncio.Queue[Recipient], room: asyncio.Semaphore) -> None:
    """One delivery agent whose next hop costs nothing."""
    while True:
        recipient = await todo.get()
        await made.begin([recipient], "mx.example.net")
        await made.settle([kit.delivered(recipient)])
        room.release()
        todo.task_done()


async def dispatch(
    made: QueueStore, count: int, todo: asyncio.Queue[Recipient], change: kit.Change | None = None
) -> None:
    """Claim until `count` have been handed out. `change`: of earlier calls."""
    change = change or kit.Change(made)
    while count:
        found = await made.claim(min(count, 500), int(time.time() * 1000))
        for recipient in found:
            todo.put_nowait(recipient)
        count -= len(found)
        if not found:
            await change.wait()
    await todo.join()


async def engine(root: Path, given: dict[str, Any]) -> None:
    """One run: says what it measured and what it promised, and kills itself."""
    disk = kit.CountingDisk(given["added_ms"], one_at_a_time=given["one_at_a_time"])
    made = kit.store(kit.options(root, segmentsize=given["segment"]), disk)
    await made.open()
    await made.recovered()
    todo: asyncio.Queue[Recipient] = asyncio.Queue()
    waits: list[float] = []
    room = asyncio.Semaphore(UNDER_WAY)
    workers = [asyncio.create_task(work(made, todo, room)) for _ in range(WORKERS)]
    each = given["messages"] // PRODUCERS
    before = made.figures.syncs
    spent = kit.processor_seconds()
    begun = time.perf_counter()
    dispatcher = asyncio.create_task(dispatch(made, each * PRODUCERS, todo))
    lists = await asyncio.gather(
        *(produce(made, each, given["octets"], waits, room) for _ in range(PRODUCERS))
    )
    accepted = time.perf_counter() - begun
    await dispatcher
    seconds = time.perf_counter() - begun
    figures = made.figures
    answer = {
        "rate": each * PRODUCERS / seconds,
        "accepted_rate": each * PRODUCERS / accepted,
        "syncs": figures.syncs - before,
        "all_syncs": disk.syncs,
        "evacuations": figures.evacuations,
        "processor": [now - then for now, then in zip_longest(kit.processor_seconds(), spent, fillvalue=0.0)],
        "p50_ms": kit.percentile(waits, 0.5) * 1000,
        "p99_ms": kit.percentile(waits, 0.99) * 1000,
    }
    for worker in workers:
        worker.cancel()
    rest = await produce(made, UNTRIED, given["octets"], waits, room)
    answer["promised"] = [spid for taken in lists for spid in taken] + rest
    kit.say_and_die(answer)


def pool(root: Path, given: dict[str, Any], threads: int) -> float:
    """Messages a second of so many threads that write and sync a file for each."""
    root.mkdir()
    disk = kit.CountingDisk(given["added_ms"], one_at_a_time=given["one_at_a_time"])
    content = kit.content_of(1, given["octets"])
    each = given["pool_messages"] // threads
    gate = threading.Barrier(threads + 1)

    def write(number: int) -> None:
        gate.wait()
        for count in range(each):
            fd = os.open(root / f"{number:02d}-{count}.msg", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(fd, content)
            disk.datasync(fd)
            os.close(fd)

    crew = [threading.Thread(target=write, args=(number,)) for number in range(threads)]
    for thread in crew:
        thread.start()
    gate.wait()
    begun = time.perf_counter()
    for thread in crew:
        thread.join()
    rate: float = each * threads / (time.perf_counter() - begun)
    return rate


def one(given: dict[str, Any]) -> None:
    """A child's work."""
    root = Path(given["root"])
    if given["threads"]:
        kit.say_and_die({"rate": pool(root, given, given["threads"])})
    kit.run(engine(root, given))


def measure(base: Path, given: dict[str, Any], number: int) -> dict[str, float]:
    """One round: the engine, then each pool."""
    root = base / f"engine{number}"
    answer = kit.child(__file__, root=str(root), threads=0, **given)
    seals = len(list((root / "events").glob("*.jsonl.gz")))
    kit.reopen(root, given["segment"])
    figures = {
        "engine": answer["rate"],
        "accepted": answer["accepted_rate"],
        "syncs": answer["syncs"] / (given["messages"] // PRODUCERS * PRODUCERS),
        "seals": seals,
        "evacuated": answer["evacuations"],
        "server_cpu_s": answer["processor"][0],
        "helper_cpu_s": answer["processor"][1],
        "p50": answer["p50_ms"],
        "p99": answer["p99_ms"],
        "lost": kit.lost(root, answer["promised"], given["octets"]),
    }
    shutil.rmtree(root)
    for threads in (8, 32, 64):
        root = base / f"pool{number}-{threads}"
        figures[f"pool{threads}"] = float(
            kit.child(__file__, root=str(root), threads=threads, **given)["rate"]
        )
        shutil.rmtree(root)
    figures["ratio"] = figures["engine"] / max(figures[f"pool{threads}"] for threads in (8, 32, 64))
    print("  " + " ".join(f"{name} {value:.4g}" for name, value in figures.items()), flush=True)
    if seals < SEALS or figures["evacuated"] < EVACUATIONS:
        print(
            f"  too short: take more --messages, for {SEALS} seals and {EVACUATIONS} evacuations", flush=True
        )
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--pool-messages", type=int, default=8000)
    parser.add_argument("--octets", type=int, default=4096)
    parser.add_argument("--segment", type=int, default=8 << 20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--added-ms", type=float, default=0.0)
    parser.add_argument("--one-at-a-time", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        one(json.loads(options.child))
    given = {name: value for name, value in vars(options).items() if name not in ("rounds", "child")}
    with kit.workplace() as base:
        print(given)
        rounds = [measure(base, given, number) for number in range(options.rounds)]
    print("median " + " ".join(f"{name} {value:.4g}" for name, value in kit.medians(rounds).items()))


if __name__ == "__main__":
    main()

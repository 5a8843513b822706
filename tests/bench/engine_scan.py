"""How fast a queue is read, and what that costs the server meanwhile.

    python tests/bench/engine_scan.py [--recipients 200000] [--rounds 3] [--full-ring] [--keep DIR]

The queue is made by the engine itself (see build.py); --keep leaves it in DIR, or takes the one that is
there. In each round: recipients decoded from a snapshot in one process; those that the store's own scan
gives, read in a process beside it; `mqcd queue ls --json`, its lines a second (start of the program
included) and its peak memory; enqueue and settle of 4 KB messages by 64 producers alone, with `queue ls
--json` running all the while, and with scans running all the while. With --full-ring the journal is filled
first (see engine_startup.py), and only what needs no server is measured.

`_us` are microseconds of processor time, for a recipient, a line or a message: they tell more than rates
where other work takes part of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mqcd.core.model import Area
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk
from mqcd.queue.reading.snapshot import Snapshot
from mqcd.queue.store import ClusterStore
from tests.bench import engine_startup, kit
from tests.bench.build import enqueue

PRODUCERS = 64


def decode(root: Path) -> None:
    """Read everything once, in a process that does nothing else."""
    begun, worked = time.perf_counter(), time.process_time()
    snapshot = Snapshot(Disk(), root / "queue", root / "spool")
    opened = time.perf_counter() - begun
    count = sum(map(len, snapshot.batches(Selection())))
    seconds = time.perf_counter() - begun
    snapshot.close()
    kit.say_and_die(
        {
            "rate": count / seconds,
            "us": (time.process_time() - worked) / count * 1e6,
            "opened_s": opened,
            "memory_mb": kit.peak_memory()[0] / 1e6,
        }
    )


async def scan(root: Path, _given: dict[str, Any]) -> None:
    """The store's own scan: what it takes of the server, and of the process that reads."""
    made = kit.store(kit.options(root))
    await made.open()
    begun, worked = time.perf_counter(), time.process_time()
    count = 0
    async for _ in made.scan(Selection()):
        count += 1
    seconds = time.perf_counter() - begun
    # The helper is still running: of the children only the reader has ended.
    reader = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {
        "rate": count / seconds,
        "server_us": (time.process_time() - worked) / count * 1e6,
        "reader_us": (reader.ru_utime + reader.ru_stime) / count * 1e6,
        "reader_mb": reader.ru_maxrss * 1024 / 1e6,
    }
    await made.close()
    kit.say_and_die(figures)


def listing(root: Path) -> subprocess.Popen[bytes]:
    """`mqcd queue ls --json`, its output counted by wc."""
    config = root / "mqcd.xml"
    config.write_text(
        f"""<mailserver><mta><queue><rootpath>{root}/queue</rootpath>
        <spool><rootpath>{root}/spool</rootpath></spool></queue></mta></mailserver>"""
    )
    command = [sys.executable, "-m", "mqcd", "queue", "ls", "--json", "-c", str(config), "--var", str(root)]
    # As where it is installed: from the second start on nothing is compiled.
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=kit.ROOT, env=compiled)


def list_once(root: Path) -> dict[str, Any]:
    """Lines a second, and the peak memory of the process that wrote them."""
    begun = time.perf_counter()
    process = listing(root)
    assert process.stdout is not None
    count = 0
    while data := os.read(process.stdout.fileno(), 1 << 20):
        count += data.count(b"\n")
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    if status:
        raise SystemExit(f"queue ls ended with {status}")
    process.returncode = 0
    return {
        "lines": count,
        "rate": count / seconds,
        "us": (usage.ru_utime + usage.ru_stime) / max(count, 1) * 1e6,
        "memory_mb": usage.ru_maxrss * 1024 / 1e6,
    }


async def produce(made: ClusterStore, until: float) -> int:
    """One producer until a time; returns its messages."""
    count = 0
    while time.perf_counter() < until:
        await enqueue(made, 4096, 1)
        count += 1
    return count


async def deliver(made: ClusterStore) -> None:
    """Deliver all new mail, for good; deferred mail is left alone."""
    change = kit.Change(made)
    while True:
        found = await made.claim(500, 1)
        if not found:
            await change.wait()
            continue
        await made.begin(found, "mx.example.net")
        await asyncio.gather(*(made.settle([kit.delivered(recipient)]) for recipient in found))


async def loaded(root: Path, given: dict[str, Any]) -> None:
    """Messages a second in the time of one run, alone or beside readers."""
    made = kit.store(kit.options(root))
    await made.open()
    await made.recovered()
    delivery = asyncio.create_task(deliver(made))
    first = await asyncio.gather(*(produce(made, time.perf_counter() + 1) for _ in range(PRODUCERS)))
    syncs, begun, worked = made.figures.syncs, time.perf_counter(), time.process_time()
    until = begun + given["seconds"]
    reader = asyncio.create_task(_read_on(made, root, given["read"], until))
    counts = await asyncio.gather(*(produce(made, until) for _ in range(PRODUCERS)))
    seconds, worked = time.perf_counter() - begun, time.process_time() - worked
    syncs = made.figures.syncs - syncs
    read = await reader
    # In order, for the next run is to begin with an empty journal.
    while made.stats()[Area.INCOMING].recipients:
        await asyncio.sleep(0.01)
    delivery.cancel()
    await made.close()
    kit.say_and_die(
        {
            "rate": sum(counts) / seconds,
            "us": worked / sum(counts) * 1e6,
            "syncs": syncs / sum(counts),
            "read": read,
            "accepted": sum(first) + sum(counts),
        }
    )


async def _read_on(made: ClusterStore, root: Path, how: str, until: float) -> int:
    """Read the queue again and again until a time, in one way or not at all; how many recipients."""
    if how == "ls":
        return await asyncio.to_thread(_list_on, root, until)
    count = 0
    while how == "scan" and time.perf_counter() < until:
        async with contextlib.aclosing(made.scan(Selection())) as recipients:
            async for _ in recipients:
                count += 1
                if time.perf_counter() > until:
                    break
    return count


def _list_on(root: Path, until: float) -> int:
    lines = 0
    while time.perf_counter() < until:
        process = listing(root)
        assert process.stdout is not None
        with process, process.stdout as out:
            while time.perf_counter() < until and (data := os.read(out.fileno(), 1 << 20)):
                lines += data.count(b"\n")
            process.terminate()
    return lines


def measure_files(root: Path) -> dict[str, Any]:
    """One round of what reads the files as they lie there."""
    decoded = kit.child(__file__, step="decode", root=str(root))
    ls = list_once(root)
    return {
        "decoded_per_s": decoded["rate"],
        "decoded_us": decoded["us"],
        "decoded_mb": decoded["memory_mb"],
        "opened_s": decoded["opened_s"],
        "ls_lines": ls["lines"],
        "ls_lines_per_s": ls["rate"],
        "ls_us": ls["us"],
        "ls_mb": ls["memory_mb"],
    }


def measure(root: Path, seconds: float) -> dict[str, Any]:
    """One round."""
    files = measure_files(root)
    rested, before = kit.waiting(root), kit.delivered_so_far(root)
    scanned = kit.child(__file__, step="scan", root=str(root))
    load = {
        how: kit.child(__file__, step="load", root=str(root), read=how, seconds=seconds)
        for how in ("alone", "ls", "scan")
    }
    alone = load["alone"]["rate"]
    gone = kit.delivered_so_far(root) - before
    return {
        **files,
        "scanned_per_s": scanned["rate"],
        "scan_reader_us": scanned["reader_us"],
        "scan_server_us": scanned["server_us"],
        "scan_reader_mb": scanned["reader_mb"],
        "messages_per_s": alone,
        "message_us": load["alone"]["us"],
        "beside_ls_per_s": load["ls"]["rate"],
        "kept_beside_ls": load["ls"]["rate"] / alone,
        "listed_meanwhile": load["ls"]["read"],
        "beside_scan_per_s": load["scan"]["rate"],
        "kept_beside_scan": load["scan"]["rate"] / alone,
        "scanned_meanwhile": load["scan"]["read"],
        "syncs": load["alone"]["syncs"],
        "lost": sum(each["accepted"] for each in load.values()) - gone + rested - kit.waiting(root),
    }


def child(given: dict[str, Any]) -> None:
    """A child's work."""
    root = Path(given["root"])
    if given["step"] == "decode":
        decode(root)
    steps = {"make": engine_startup.make, "scan": scan, "load": loaded}
    kit.run(steps[given["step"]](root, given))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipients", type=int, default=200_000)
    parser.add_argument("--octets", type=int, default=1024, help="of a message's content")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--full-ring", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(json.loads(options.child))
    given = {"recipients": options.recipients, "octets": options.octets}
    with kit.workplace(options.keep) as root:
        if not (root / "queue/MANIFEST").exists():
            kit.show("made", kit.child(__file__, step="make", root=str(root), **given))
        if options.full_ring:
            kit.show("filled", kit.child(engine_startup.__file__, step="fill", root=str(root), octets=4096))
        rounds = []
        for _ in range(options.rounds):
            rounds.append(measure_files(root) if options.full_ring else measure(root, options.seconds))
            kit.show("", rounds[-1])
    kit.show("median", kit.medians(rounds))


if __name__ == "__main__":
    main()

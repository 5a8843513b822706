"""How fast a queue is read, and what that costs the server meanwhile.

    python tests/bench/engine_scan.py [--recipients 200000] [--rounds 3] [--keep DIR]

The queue is made by the engine itself (see build.py); --keep leaves it in DIR, or takes the one that is
there. In each round: recipients decoded from a snapshot in one process; `mqcd queue ls --json`, its lines
a second (start of the program included) and its peak memory; enqueue and settle of 4 KB messages by 64
producers alone, and with `queue ls --json` running all the while.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mqcd.core.model import Area
from mqcd.core.selection import Selection
from mqcd.queue.durable import Disk
from mqcd.queue.snapshot import Snapshot
from mqcd.queue.store import ClusterStore
from tests.bench import kit
from tests.bench.build import enqueue
from tests.bench.engine_startup import make

PRODUCERS = 64


def decode(root: Path) -> None:
    """Read everything once, in a process that does nothing else."""
    begun = time.perf_counter()
    snapshot = Snapshot(Disk(), root / "queue", root / "spool")
    opened = time.perf_counter() - begun
    count = sum(map(len, snapshot.batches(Selection())))
    seconds = time.perf_counter() - begun
    snapshot.close()
    kit.say_and_die({"rate": count / seconds, "opened_s": opened, "memory_mb": kit.peak_memory()[0] / 1e6})


def listing(root: Path) -> subprocess.Popen[bytes]:
    """`mqcd queue ls --json`, its output counted by wc."""
    config = root / "mqcd.xml"
    config.write_text(
        f"""<mailserver><mta><queue><rootpath>{root}/queue</rootpath>
        <spool><rootpath>{root}/spool</rootpath></spool></queue></mta></mailserver>"""
    )
    command = [sys.executable, "-m", "mqcd", "queue", "ls", "--json", "-c", str(config), "--var", str(root)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=kit.ROOT)


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
    return {"lines": count, "rate": count / seconds, "memory_mb": usage.ru_maxrss * 1024 / 1e6}


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
    delivery = asyncio.create_task(deliver(made))
    await asyncio.gather(*(produce(made, time.perf_counter() + 1) for _ in range(PRODUCERS)))
    begun = time.perf_counter()
    reading_s = given["seconds"] if given["read"] else 0.0
    reader = asyncio.create_task(asyncio.to_thread(_read_on, root, reading_s))
    until = begun + given["seconds"]
    counts = await asyncio.gather(*(produce(made, until) for _ in range(PRODUCERS)))
    seconds = time.perf_counter() - begun
    lines = await reader
    # In order, for the next run is to begin with an empty journal.
    while made.stats()[Area.INCOMING].recipients:
        await asyncio.sleep(0.01)
    delivery.cancel()
    await made.close()
    kit.say_and_die({"rate": sum(counts) / seconds, "lines": lines})


def _read_on(root: Path, seconds: float) -> int:
    """List again and again; a process of its own does the work."""
    until = time.perf_counter() + seconds
    lines = 0
    while time.perf_counter() < until:
        process = listing(root)
        assert process.stdout is not None
        with process, process.stdout as out:
            while time.perf_counter() < until and (data := os.read(out.fileno(), 1 << 20)):
                lines += data.count(b"\n")
            process.terminate()
    return lines


def measure(root: Path, seconds: float) -> dict[str, Any]:
    """One round."""
    scan = kit.child(__file__, step="decode", root=str(root))
    ls = list_once(root)
    alone = kit.child(__file__, step="load", root=str(root), read=False, seconds=seconds)
    beside = kit.child(__file__, step="load", root=str(root), read=True, seconds=seconds)
    return {
        "decoded_per_s": scan["rate"],
        "scan_mb": scan["memory_mb"],
        "ls_lines": ls["lines"],
        "ls_lines_per_s": ls["rate"],
        "ls_mb": ls["memory_mb"],
        "messages_per_s": alone["rate"],
        "beside_ls_per_s": beside["rate"],
        "kept_share": beside["rate"] / alone["rate"],
        "lines_meanwhile": beside["lines"],
    }


def child(given: dict[str, Any]) -> None:
    """A child's work."""
    root = Path(given["root"])
    if given["step"] == "decode":
        decode(root)
    kit.run((make if given["step"] == "make" else loaded)(root, given))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipients", type=int, default=200_000)
    parser.add_argument("--octets", type=int, default=1024, help="of a message's content")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(json.loads(options.child))
    given = {"recipients": options.recipients, "octets": options.octets}
    with kit.workplace() as base:
        root = options.keep or base
        if not (root / "queue/MANIFEST").exists():
            kit.show("made", kit.child(__file__, step="make", root=str(root), **given))
        rounds = []
        for _ in range(options.rounds):
            rounds.append(measure(root, options.seconds))
            kit.show("", rounds[-1])
    kit.show("median", kit.medians(rounds))


if __name__ == "__main__":
    main()

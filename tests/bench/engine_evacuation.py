"""How long commits take while a segment is evacuated, and what deferring and evacuating costs.

    python tests/bench/engine_evacuation.py latency [--seconds 30] [--rate 1000]
    python tests/bench/engine_evacuation.py cost [--recipients 100000]

latency: 16 producers enqueue 4 KB messages at a fixed rate; every other message is deferred, the others
are delivered. The time of each `enqueue` is counted as "during" when an evacuation was under way, else
as "without". cost: messages with one and with 50 recipients are accepted, deferred and evacuated by an
orderly stop; octets written are those that the kernel counted for the server and its helper together.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import time
from bisect import bisect_right
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mqcd.queue.store import ClusterStore
from tests.bench import kit
from tests.bench.build import fill

PRODUCERS = 16
OCTETS = 4096
"""Of a message whose time is taken."""
DEFERRED_BY_MS = 4 * kit.HOUR


class Evacuations:
    """When evacuations were under way, told from the engine's own figures."""

    def __init__(self, made: ClusterStore) -> None:
        self._figures = made.figures
        self._count = self._figures.evacuations
        self._spent = self._figures.evacuation_ms
        self.spans: list[tuple[float, float]] = []

    async def watch(self) -> None:
        """Look every ms, for good."""
        while True:
            if self._figures.evacuations != self._count:
                now = time.perf_counter()
                self.spans.append((now - (self._figures.evacuation_ms - self._spent) / 1000, now))
                self._count = self._figures.evacuations
                self._spent = self._figures.evacuation_ms
            await asyncio.sleep(0.001)

    def split(self, waits: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
        """Durations (of start, end) that touched an evacuation, and those that did not; ms."""
        during: list[float] = []
        without: list[float] = []
        starts = [start for start, _ in self.spans]
        for start, end in waits:
            index = bisect_right(starts, end) - 1
            touched = index >= 0 and self.spans[index][1] >= start
            (during if touched else without).append((end - start) * 1000)
        return during, without


async def produce(
    made: ClusterStore, until: float, gap: float, waits: list[tuple[float, float]]
) -> list[int]:
    """One producer with a message every `gap` seconds, or at once when behind; what was acknowledged."""
    taken = []
    following = time.perf_counter() + random.random() * gap
    while following < until:
        await asyncio.sleep(max(0.0, following - time.perf_counter()))
        submission = kit.message(made, OCTETS)
        begun = time.perf_counter()
        await made.enqueue(submission)
        waits.append((begun, time.perf_counter()))
        taken.append(submission.envelope.spid)
        following += gap
    return taken


async def deliver(made: ClusterStore) -> None:
    """Claim, try, and defer every other message, for good."""
    change = kit.Change(made)
    odd = False
    while True:
        now = int(time.time() * 1000)
        found = await made.claim(500, now)
        if not found:
            await change.wait()
            continue
        await made.begin(found, "mx.example.net")
        verdicts = []
        for recipient in found:
            odd = not odd
            verdicts.append(
                kit.deferred(recipient, now + DEFERRED_BY_MS) if odd else kit.delivered(recipient)
            )
        await asyncio.gather(*(made.settle([verdict]) for verdict in verdicts))


async def latency(root: Path, given: dict[str, Any]) -> None:
    """One run."""
    made = kit.store(kit.options(root, segmentsize=given["segment"]))
    await made.open()
    await made.recovered()
    evacuations = Evacuations(made)
    waits: list[tuple[float, float]] = []
    tasks = [asyncio.create_task(evacuations.watch()), asyncio.create_task(deliver(made))]
    until = time.perf_counter() + given["seconds"]
    gap = PRODUCERS / given["rate"]
    lists = await asyncio.gather(*(produce(made, until, gap, waits) for _ in range(PRODUCERS)))
    for task in tasks:
        task.cancel()
    during, without = evacuations.split(waits)
    kit.say_and_die(
        {
            "promised": [spid for taken in lists for spid in taken],
            "messages": len(waits),
            "syncs": made.figures.syncs / len(waits),
            "evacuations": len(evacuations.spans),
            "evacuating_s": sum(end - start for start, end in evacuations.spans),
            "during": len(during),
            "p50_during_ms": kit.percentile(during, 0.5),
            "p99_during_ms": kit.percentile(during, 0.99),
            "p50_without_ms": kit.percentile(without, 0.5),
            "p99_without_ms": kit.percentile(without, 0.99),
            "p99_ratio": kit.percentile(during, 0.99) / kit.percentile(without, 0.99),
        }
    )


async def cost(root: Path, given: dict[str, Any]) -> None:
    """One run."""
    made = kit.store(kit.options(root))
    await made.open()
    await made.recovered()
    before, device = kit.written()[0], kit.device_written(root)
    begun = time.perf_counter()
    built = await fill(made, given["recipients"], given["octets"])
    deferred = time.perf_counter() - begun
    figures = made.figures
    # The helper is gone after the stop, and what it wrote with it.
    evacuator = asyncio.create_task(made.close())
    written = kit.written()
    while not evacuator.done():
        now = kit.written()
        written = now if len(now) > 1 else written
        await asyncio.sleep(0.005)
    await evacuator
    total = time.perf_counter() - begun
    slots = sum(path.stat().st_size for path in (root / "queue/journal").iterdir())
    payload = built.content + built.records
    of_both = sum(written) - before
    on_device = kit.device_written(root) - device
    kit.say_and_die(
        {
            "recipients": built.recipients,
            "syncs": figures.syncs / built.recipients,
            "deferred_per_s": built.recipients / deferred,
            "with_evacuation_per_s": built.recipients / total,
            "content_mb": built.content / 1e6,
            "records_mb": built.records / 1e6,
            "written_mb": of_both / 1e6,
            "by_helper_mb": sum(written[1:]) / 1e6,
            "slots_mb": slots / 1e6,
            "written_per_octet": of_both / payload,
            "without_slots_per_octet": (of_both - slots) / payload,
            "device_mb": on_device / 1e6,
            "device_per_octet": on_device / payload,
        }
    )


def measure(root: Path, given: dict[str, Any]) -> dict[str, Any]:
    """One round."""
    figures = kit.child(__file__, root=str(root), **given)
    if given["what"] == "latency":
        kit.reopen(root, given["segment"])
        figures["lost"] = kit.lost(root, figures.pop("promised"), OCTETS)
    else:
        figures["lost"] = figures["recipients"] - kit.waiting(root)
    shutil.rmtree(root)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("latency", "cost"), nargs="?", default="latency")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=float, default=1000, help="messages a second")
    parser.add_argument("--segment", type=int, default=8 << 20)
    parser.add_argument("--recipients", type=int, default=100_000)
    parser.add_argument("--octets", type=int, default=4096, help="of a message's content")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        given = json.loads(options.child)
        kit.run((latency if given["what"] == "latency" else cost)(Path(given["root"]), given))
    given = {name: value for name, value in vars(options).items() if name not in ("rounds", "child")}
    with kit.workplace() as base:
        print(given)
        rounds = []
        for number in range(options.rounds):
            rounds.append(measure(base / str(number), given))
            kit.show("", rounds[-1])
    kit.show("median", kit.medians(rounds))


if __name__ == "__main__":
    main()

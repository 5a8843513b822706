"""How fast an operator's action is on a large queue, and what it costs delivery meanwhile.

    python tests/bench/actions.py [--recipients 1000000] [--pairs 5] [--seconds 10] [--keep DIR]

The queue is laid (see laid.py). One recipient in ten is selected, spread over all clusters: the worst case,
for all of it is written anew. Measured are

* `ls_s`: `mqcd queue ls --json` until its first line, the start of the program included;
* on a server at rest: the exact count of the selection, its hold, and the undo of that; with the processor
  time of server and helper for each recipient;
* pairs of deliveries as fast as they go (64 producers of 4 KB messages), alone and beside holds and undos
  that follow one another: `kept` is the rate beside over the rate alone, `kept_cpu` the same of messages in a
  second of the server's processor time, which tells more where other work takes part of the machine;
* pairs at half of that rate: the 99th percentile of the time from enqueue to the recorded verdict.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mqcd.core.model import Action, Amended, Area, Batch, Settlement
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import parse_where
from mqcd.queue.store import ClusterStore
from tests.bench import kit, laid
from tests.bench.engine_scan import PRODUCERS, deliver, listing, produce

CHOSEN = "recipient ~ *7@* and area != held"
_TICK = 0.01


def _selection() -> Selection:
    return Selection(where=parse_where(CHOSEN, 0))


def _batch(action: Action, target: str = "") -> Batch:
    at = time.time_ns() // 1_000_000
    return Batch(id=f"{action}-{time.monotonic_ns()}", action=action, at=at, by="uid:0", target=target)


async def _carry_out(made: ClusterStore, batch: Batch, selection: Selection) -> int:
    changed = 0
    async with aclosing(made.pick(selection, batch)) as parts:
        async for part in parts:
            verdict = Amended(batch=batch)
            await made.settle([Settlement(recipient=each, verdict=verdict) for each in part.recipients])
            changed += part.changed + len(part.recipients)
    return changed


async def _hold_and_undo(made: ClusterStore) -> tuple[int, float, float]:
    """How many were held, and how long hold and undo took."""
    hold, begun = _batch(Action.HOLD), time.perf_counter()
    held = await _carry_out(made, hold, _selection())
    middle = time.perf_counter()
    restored = await _carry_out(made, _batch(Action.UNDO, hold.id), Selection(area=Area.HELD))
    if restored != held:
        raise SystemExit(f"{held} were held, {restored} restored")
    return held, middle - begun, time.perf_counter() - middle


async def rested(root: Path, _given: dict[str, Any]) -> None:
    """Count, hold and undo on a server at rest."""
    made = await _opened(root)
    begun = time.perf_counter()
    count = (await made.measure(_selection())).recipients
    counted = time.perf_counter() - begun
    before = kit.processor_seconds()
    held, hold, undo = await _hold_and_undo(made)
    server, helper = (b - a for a, b in zip(before, kit.processor_seconds(), strict=True))
    await made.close()
    kit.say_and_die(
        {
            "selected": count,
            "count_s": counted,
            "hold_s": hold,
            "undo_s": undo,
            "server_us": server / held / 2 * 1e6,
            "helper_us": helper / held / 2 * 1e6,
        }
    )


async def _opened(root: Path) -> ClusterStore:
    made = kit.store(kit.options(root))
    await made.open()
    await made.recovered()
    return made


async def _act_on(made: ClusterStore, until: float) -> list[float]:
    """Hold and undo again and again until a time; how long each hold took."""
    took = []
    while time.perf_counter() < until:
        _, hold, _ = await _hold_and_undo(made)
        took.append(hold)
    return took


async def saturated(root: Path, given: dict[str, Any]) -> None:
    """Pairs of deliveries alone and beside actions, as fast as they go."""
    made = await _opened(root)
    delivery = asyncio.create_task(deliver(made))
    await _rate(made, 1)
    pairs, holds = [], []
    for _ in range(given["pairs"]):
        alone, alone_cpu = await _rate(made, given["seconds"])
        acting = asyncio.ensure_future(_act_on(made, time.perf_counter() + given["seconds"]))
        beside, beside_cpu = await _rate(made, given["seconds"])
        holds += await acting
        pairs.append((alone, beside, beside / alone, beside_cpu / alone_cpu))
    await _end(made, delivery)
    alone, beside, kept, kept_cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
    kit.say_and_die(
        {
            "alone_per_s": alone,
            "beside_per_s": beside,
            "kept": kept,
            "kept_cpu": kept_cpu,
            "busy_hold_s": statistics.median(holds),
        }
    )


async def _rate(made: ClusterStore, seconds: float) -> tuple[float, float]:
    """Messages in a second, and in a second of processor time of this process."""
    begun, worked = time.perf_counter(), time.process_time()
    count = sum(await asyncio.gather(*(produce(made, begun + seconds) for _ in range(PRODUCERS))))
    return count / (time.perf_counter() - begun), count / (time.process_time() - worked)


async def _end(made: ClusterStore, delivery: asyncio.Task[None]) -> None:
    while made.stats()[Area.INCOMING].recipients:
        await asyncio.sleep(_TICK)
    delivery.cancel()
    await made.close()


async def halved(root: Path, given: dict[str, Any]) -> None:
    """Pairs at a given rate: how long a message takes, alone and beside actions."""
    made = await _opened(root)
    pairs = []
    for _ in range(given["pairs"]):
        alone = await _latency(made, given["rate"], given["seconds"])
        acting = asyncio.ensure_future(_act_on(made, time.perf_counter() + given["seconds"]))
        beside = await _latency(made, given["rate"], given["seconds"])
        await acting
        pairs.append((alone * 1000, beside * 1000, beside / alone))
    await made.close()
    alone, beside, ratio = (statistics.median(column) for column in zip(*pairs, strict=True))
    kit.say_and_die({"p99_alone_ms": alone, "p99_beside_ms": beside, "p99_ratio": ratio})


async def _latency(made: ClusterStore, rate: float, seconds: float) -> float:
    """The 99th percentile of the times that messages take at a rate, s."""
    times: list[float] = []
    change = kit.Change(made)

    async def one() -> None:
        begun = time.perf_counter()
        await made.enqueue(kit.message(made, 4096))
        while found := await made.claim(1, 1):
            await made.begin(found, "mx.example.net")
            await made.settle([kit.delivered(found[0])])
            break
        else:
            await change.wait()
        times.append(time.perf_counter() - begun)

    begun, running = time.perf_counter(), set[asyncio.Task[None]]()
    while (passed := time.perf_counter() - begun) < seconds:
        while len(times) + len(running) < passed * rate:
            task = asyncio.create_task(one())
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.sleep(_TICK)
    await asyncio.gather(*running)
    return kit.percentile(times, 0.99)


def first_row(root: Path) -> float:
    """How long `mqcd queue ls` takes until its first line, s."""
    begun = time.perf_counter()
    process = listing(root)
    assert process.stdout is not None
    with process, process.stdout as out:
        if not os.read(out.fileno(), 1 << 16):
            raise SystemExit("queue ls has printed nothing")
        seconds = time.perf_counter() - begun
        process.kill()
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipients", type=int, default=1_000_000)
    parser.add_argument("--octets", type=int, default=1024, help="of a message's content")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    steps = {"lay": laid.lay, "rest": rested, "saturated": saturated, "half": halved}
    if options.child:
        given = json.loads(options.child)
        kit.run(steps[given["step"]](Path(given["root"]), given))
    with kit.workplace(options.keep) as root:
        given = {"root": str(root), "seconds": options.seconds, "pairs": options.pairs}
        if not (root / "queue/MANIFEST").exists():
            sizes = {"recipients": options.recipients, "octets": options.octets}
            kit.show("laid", kit.child(__file__, step="lay", root=str(root), **sizes))
        first_row(root)
        kit.show("ls", {"first_row_s": statistics.median(first_row(root) for _ in range(5))})
        kit.show("at rest", kit.child(__file__, step="rest", **given))
        busy = kit.child(__file__, step="saturated", **given)
        kit.show("saturated", busy)
        kit.show("half load", kit.child(__file__, step="half", rate=busy["alone_per_s"] / 2, **given))


if __name__ == "__main__":
    main()

"""How soon a queue with much deferred mail takes and hands out mail again, and what memory that takes.

    python tests/bench/engine_startup.py [--recipients 100000] [--rounds 3] [--full-ring] [--keep DIR]

The queue is made by the engine itself (see build.py) and closed in order; --keep leaves it in DIR, or
takes the one that is there. With --full-ring the journal is then filled up to where the door closes, by
stopping the helper, and the server killed. Each start is a process of its own; times count from the
beginning of the process, imports included. After the first hand-outs it claims and puts off 2,000
recipients and waits until the sweep of the start is over; memory is the peak of server and helper then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mqcd.core.errors import StoreUnavailable
from tests.bench import kit
from tests.bench.build import SEVERAL, fill

IMPORTED = kit.age()
WORK = 2000
_IDLE_S = 1.0


async def make(root: Path, given: dict[str, Any]) -> None:
    """Make the queue."""
    made = kit.store(kit.options(root))
    await made.open()
    await made.recovered()
    begun = time.perf_counter()
    built = await fill(made, given["recipients"], given["octets"])
    deferred = time.perf_counter() - begun
    await made.close()
    closed = time.perf_counter() - begun - deferred
    kit.say_and_die(
        {
            "recipients": built.recipients,
            "messages": built.messages,
            "record_octets": built.records / built.recipients,
            "deferred_s": deferred,
            "closed_s": closed,
        }
    )


async def fill_ring(root: Path, given: dict[str, Any]) -> None:
    """Fill the journal: with the helper stopped nothing can be evacuated."""
    made = kit.store(kit.options(root))
    await made.open()
    await made.recovered()
    await _sweep_over()
    for pid in kit.processes()[1:]:
        os.kill(pid, signal.SIGSTOP)
    count, refused = 0, False
    while not refused:
        # Many at once, for a ring that is three quarters full makes each wait.
        several = ([1] * 18 + [SEVERAL] * 2) * 50
        octets = given["octets"]
        came = [made.enqueue(kit.message(made, octets, size)) for size in several]
        for taken in await asyncio.gather(*came, return_exceptions=True):
            match taken:
                case StoreUnavailable():
                    refused = True
                case BaseException():
                    raise taken
                case _:
                    count += len(taken)
    fill_ratio = made.engine().journal_fill_ratio
    # Stopped processes are not sure to end with their parent.
    for pid in kit.processes()[1:]:
        os.kill(pid, signal.SIGKILL)
    kit.say_and_die({"recipients_in_ring": count, "fill": fill_ratio})


async def start(root: Path, _given: dict[str, Any]) -> None:
    """One start, measured."""
    made = kit.store(kit.options(root))
    entered = kit.age()
    await made.open()
    opened = kit.age()
    await made.enqueue(kit.message(made, 4096))
    accepted = kit.age()
    change = kit.Change(made)
    chance = random.Random(1)
    first = 0.0
    count = 0
    while count < WORK:
        now = int(time.time() * 1000)
        found = await made.claim(500, now)
        if not found:
            await change.wait()
            continue
        if any(recipient.attempts for recipient in found):
            first = first or kit.age()
        count += len(found)
        await made.begin(found, "mx.example.net")
        await made.settle([kit.deferred(r, kit.retry_time(chance, now) + kit.HOUR) for r in found])
    worked = kit.age()
    await _sweep_over()
    memory = kit.peak_memory()
    kit.say_and_die(
        {
            "import_s": IMPORTED,
            "open_s": opened - entered,
            "accepted_s": accepted,
            "first_due_s": first,
            "worked_s": worked,
            "server_mb": memory[0] / 1e6,
            "helper_mb": sum(memory[1:]) / 1e6,
            "both_mb": sum(memory) / 1e6,
            "syncs": made.figures.syncs,
        }
    )


async def _sweep_over() -> None:
    """Return when the helper has had nothing to do for a while."""
    before = -1.0
    while (now := round(sum(kit.processor_seconds()[1:]), 2)) != before:
        before = now
        await asyncio.sleep(_IDLE_S)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipients", type=int, default=100_000)
    parser.add_argument("--octets", type=int, default=1024, help="of a message's content")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--full-ring", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        given = json.loads(options.child)
        steps = {"make": make, "fill": fill_ring, "start": start}
        kit.run(steps[given["step"]](Path(given["root"]), given))
    given = {"recipients": options.recipients, "octets": options.octets}
    with kit.workplace(options.keep) as root:
        if not (root / "queue/MANIFEST").exists():
            built = kit.child(__file__, step="make", root=str(root), **given)
            kit.show("made", built | {"lost": built["recipients"] - kit.waiting(root)})
        rounds = []
        promised = kit.waiting(root)
        for _ in range(options.rounds):
            if options.full_ring:
                filled = kit.child(__file__, step="fill", root=str(root), **given)
                kit.show("filled", filled)
                promised += filled["recipients_in_ring"]
            # The message that the start takes, and nobody leaves.
            promised += 1
            figures = kit.child(__file__, step="start", root=str(root), **given)
            rounds.append(figures | {"lost": promised - kit.waiting(root)})
            kit.show("", rounds[-1])
    kit.show("median", kit.medians(rounds))


if __name__ == "__main__":
    main()

"""What a request for a domain's held mail costs, with and without other mail in the queue.

    python tests/bench/held.py [--others 500000] [--held 1000] [--keep DIR]

The domain's mail and the others' are in clusters of a store that was opened again. `first_ms` is the time of
the first claim of the domain's mail, `all_ms` that of claiming and delivering all of it, contents not read.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mqcd.core.queueing.holding import HeldDomain, Holding, HoldMode
from mqcd.queue.store import ClusterStore
from tests.bench import build, kit

DOMAIN = "held.example"
_ROOM = 250


def _store(root: Path) -> ClusterStore:
    options = kit.options(root)
    holding = Holding(domains=(HeldDomain(DOMAIN, HoldMode.ATRN),))
    return kit.store(replace(options, schedule=replace(options.schedule, holding=holding)))


async def _make(root: Path, given: dict[str, Any]) -> None:
    made = _store(root)
    await made.open()
    await made.recovered()
    for _ in range(given["held"]):
        submission = kit.message(made, 1024)
        await made.enqueue(replace(submission, recipients=[f"to@{DOMAIN}"]))
    if given["others"]:
        await build.fill(made, given["others"], 1024)
    await made.close()
    kit.say_and_die({"made": True})


async def _collect(root: Path, given: dict[str, Any]) -> None:
    made = _store(root)
    await made.open()
    await made.recovered()
    begun, times, count = time.perf_counter(), [], 0
    while claimed := await made.claim_held(DOMAIN, _ROOM):
        times.append(time.perf_counter() - begun)
        await made.settle([kit.delivered(each) for each in claimed])
        count += len(claimed)
    total = time.perf_counter() - begun
    if count != given["held"]:
        raise SystemExit(f"{count} of {given['held']} were claimed")
    kit.say_and_die({"first_ms": times[0] * 1000, "all_ms": total * 1000})


def child(given: dict[str, Any]) -> None:
    """A child's work."""
    steps = {"make": _make, "collect": _collect}
    kit.run(steps[given["step"]](Path(given["root"]), given))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--others", type=int, default=500_000, help="recipients of other domains")
    parser.add_argument("--held", type=int, default=1000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(json.loads(given.child))
    with kit.workplace(given.keep) as place:
        for others in (0, given.others):
            root = place / str(others)
            asked = {"root": str(root), "others": others, "held": given.held}
            kit.child(__file__, step="make", **asked)
            kit.show(f"{others} others", kit.child(__file__, step="collect", **asked))


if __name__ == "__main__":
    main()

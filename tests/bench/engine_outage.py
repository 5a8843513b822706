"""What memory an outage takes: every destination is suspended while recipients arrive, in one and several.

    python tests/bench/engine_outage.py [--recipients 500000] [--budget 67108864] [--rounds 1] [--claims]

Nothing is ever delivered. With --claims somebody asks for mail all the time, as delivery does, with all
domains suspended; without, nobody does, as when delivery's active set is full of mail that hangs. Memory is
the server's entry set above that of the open, empty store; entries are recipients in the journal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mqcd.core.errors import StoreUnavailable
from tests.bench import kit

SIZES = (1,) * 18 + (10,) * 2
DOMAIN = "example.net"


async def arrive(root: Path, given: dict[str, Any]) -> None:
    """The outage, measured."""
    made = kit.store(kit.options(root, memory=given["budget"]))
    await made.open()
    await asyncio.sleep(1)
    before = kit.peak_memory()[0]
    change = kit.Change(made)
    asking = asyncio.ensure_future(_ask(made, change)) if given["claims"] else None
    begun = time.perf_counter()
    arrived = refused = most = 0
    while arrived < given["recipients"]:
        jobs = [made.enqueue(kit.message(made, given["octets"], size)) for size in SIZES * 3]
        for done in await asyncio.gather(*jobs, return_exceptions=True):
            if isinstance(done, StoreUnavailable):
                refused += 1
            elif isinstance(done, BaseException):
                raise done
            else:
                arrived += len(done)
        most = max(most, made._live.shard.ring.entries)
    seconds = time.perf_counter() - begun
    if asking is not None:
        asking.cancel()
    shard = made._live.shard
    kit.say_and_die(
        {
            "recipients": arrived,
            "syncs": made.figures.syncs / arrived,
            "seconds": seconds,
            "messages_refused": refused,
            "most_entries": most,
            "clusters": len(shard.cluster_index.clusters),
            "spid_cache_entries": len(shard.references),
            "budget_mb": given["budget"] / 1e6,
            "grown_mb": (kit.peak_memory()[0] - before) / 1e6,
            "server_mb": kit.peak_memory()[0] / 1e6,
        }
    )


async def _ask(made: Any, change: kit.Change) -> None:
    """Claim with everything suspended, whenever there may be something to claim."""
    while True:
        now = int(time.time() * 1000)
        assert not await made.claim(2500, now, {DOMAIN: now + kit.HOUR})
        await change.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipients", type=int, default=500_000)
    parser.add_argument("--octets", type=int, default=1024, help="of a message's content")
    parser.add_argument("--budget", type=int, default=64 << 20, help="memorybudget")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--claims", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        given = json.loads(options.child)
        kit.run(arrive(Path(given["root"]), given))
    given = {key: getattr(options, key) for key in ("recipients", "octets", "budget", "claims")}
    with kit.workplace() as base:
        rounds = []
        for number in range(options.rounds):
            root = base / str(number)
            figures = kit.child(__file__, root=str(root), **given)
            rounds.append(figures | {"lost": figures["recipients"] - kit.waiting(root)})
            kit.show("", rounds[-1])
            shutil.rmtree(root)
    kit.show("median", kit.medians(rounds))


if __name__ == "__main__":
    main()

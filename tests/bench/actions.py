"""How fast an operator's action is on a large queue, and what it costs delivery meanwhile.

    python tests/bench/actions.py [--recipients 1000000] [--rounds 3] [--keep DIR]

One recipient in ten is selected, spread over all clusters. In each round: the exact count of the selection
(a scan); a hold of it and its undo, on a server at rest; the same while 64 producers accept and deliver 4 KB
messages as fast as they can, which is first measured alone. `kept` is the rate beside the action over the
rate alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mqcd.core.model import Action, Amended, Area, Batch, Settlement
from mqcd.core.queueing.amendment import applies
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import parse_where
from mqcd.queue.store import ClusterStore
from tests.bench import engine_startup, kit
from tests.bench.engine_scan import PRODUCERS, deliver, produce

CHOSEN = "area != incoming and recipient ~ *7@*"


def _batch(action: Action, number: int, target: str = "") -> Batch:
    at = int(time.time() * 1000)
    return Batch(id=f"{action}-{number}", action=action, at=at, by="uid:0", target=target)


async def _carry_out(made: ClusterStore, batch: Batch, selection: Selection) -> int:
    changed = 0
    async with aclosing(made.pick(selection, batch)) as parts:
        async for part in parts:
            await made.settle(
                [Settlement(recipient=each, verdict=Amended(batch=batch)) for each in part.recipients]
            )
            changed += part.changed + len(part.recipients)
    return changed


async def _hold_and_undo(made: ClusterStore, number: int) -> dict[str, float]:
    selection = Selection(where=parse_where(CHOSEN, 0))
    hold = _batch(Action.HOLD, number)
    begun = time.perf_counter()
    held = await _carry_out(made, hold, selection)
    middle = time.perf_counter()
    undo = _batch(Action.UNDO, number, hold.id)
    restored = await _carry_out(made, undo, Selection(area=Area.HELD))
    if restored != held:
        raise SystemExit(f"{held} were held, {restored} restored")
    return {"changed": held, "hold_s": middle - begun, "undo_s": time.perf_counter() - middle}


async def _rate(made: ClusterStore, beside: asyncio.Future[Any] | None, seconds: float) -> float:
    """Messages a second, for some seconds or as long as something else takes."""
    begun = time.perf_counter()
    count = 0
    while time.perf_counter() - begun < seconds or (beside is not None and not beside.done()):
        until = time.perf_counter() + 0.5
        count += sum(await asyncio.gather(*(produce(made, until) for _ in range(PRODUCERS))))
    return count / (time.perf_counter() - begun)


async def acted(root: Path, given: dict[str, Any]) -> None:
    """One round."""
    made = kit.store(kit.options(root))
    await made.open()
    await made.recovered()
    selection, batch = Selection(where=parse_where(CHOSEN, 0)), _batch(Action.HOLD, 0)
    begun, count = time.perf_counter(), 0
    async for each in made.scan(selection):
        count += applies(each, batch)
    counted = time.perf_counter() - begun
    at_rest = await _hold_and_undo(made, 1)
    delivery = asyncio.create_task(deliver(made))
    alone = await _rate(made, None, given["seconds"])
    acting = asyncio.ensure_future(_hold_and_undo(made, 2))
    beside = await _rate(made, acting, 0)
    busy = await acting
    while made.stats()[Area.INCOMING].recipients:
        await asyncio.sleep(0.01)
    delivery.cancel()
    await made.close()
    kit.say_and_die(
        {
            "selected": count,
            "count_s": counted,
            "hold_s": at_rest["hold_s"],
            "undo_s": at_rest["undo_s"],
            "messages_per_s": alone,
            "busy_hold_s": busy["hold_s"],
            "busy_undo_s": busy["undo_s"],
            "beside_per_s": beside,
            "kept": beside / alone,
        }
    )


def child(given: dict[str, Any]) -> None:
    """A child's work."""
    steps = {"make": engine_startup.make, "act": acted}
    kit.run(steps[given["step"]](Path(given["root"]), given))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipients", type=int, default=1_000_000)
    parser.add_argument("--octets", type=int, default=1024, help="of a message's content")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(json.loads(options.child))
    given = {"recipients": options.recipients, "octets": options.octets}
    with kit.workplace(options.keep) as root:
        if not (root / "queue/MANIFEST").exists():
            kit.show("made", kit.child(__file__, step="make", root=str(root), **given))
        rounds = []
        for _ in range(options.rounds):
            rounds.append(kit.child(__file__, step="act", root=str(root), seconds=options.seconds))
            kit.show("", rounds[-1])
    kit.show("median", kit.medians(rounds))


if __name__ == "__main__":
    main()

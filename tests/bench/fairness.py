"""What dead destinations cost the healthy ones: the time in queue of healthy mail, with them and without.

    python tests/bench/fairness.py [--dead 50000] [--seconds 15] [--rate 200] [--rounds 2] [--timeout 2s]

One mqcd with a relay for each destination, all on loopback addresses of their own. In each round, first 20
healthy destinations alone; then, on a new queue, the same after so many recipients have been taken for a
destination that accepts connections and never answers, and as many for one that refuses them. Healthy mail
comes evenly, at `--rate` messages of one recipient a second, all destinations in turn. Its time in queue goes
from the source's final dot to the receiver's, so the door's commit is in it. `--timeout` is the client's: who
accepts and says nothing is given up after five times that, so with 1m, the default, never within a round.
Memory is the largest entry size of server and helper. `over_4ms` and `over_8ms` are how many turns of the
server's loop, in a second of the healthy mail's time, took more of the processor than that, `longest_ms` the
bound that the longest was below (see turns.py): these tell of the server on a machine that is busy with other
things too.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import kit, servers, traffic, turns

HEALTHY = {f"healthy{number}.example": f"127.0.1.{number}" for number in range(1, 21)}
SILENT, CLOSED = "silent.example", "closed.example"
_ADDRESSES = HEALTHY | {SILENT: "127.0.2.1", CLOSED: "127.0.2.2"}


def dead_mail(recipients: int, size: int) -> Iterator[traffic.Mail]:
    """So many recipients for each dead destination, in messages to `size` of them."""
    for number in range(0, recipients, size):
        for domain in (SILENT, CLOSED):
            names = range(number, min(number + size, recipients))
            yield traffic.Mail(tuple(f"user{name}@{domain}" for name in names))


def healthy_mail(count: int) -> Iterator[traffic.Mail]:
    """So many messages, the healthy destinations in turn."""
    for number, domain in zip(range(count), itertools.cycle(HEALTHY)):
        yield traffic.Mail((f"user{number}@{domain}",))


async def measure(base: Path, given: argparse.Namespace, dead: int) -> dict[str, float]:
    """One run."""
    receiver, port = traffic.Receiver(), servers.free_port()
    listening = await traffic.receive(receiver, HEALTHY.values(), port)
    listening.append(await traffic.stay_silent(_ADDRESSES[SILENT], port))
    routes = {domain: f"{address}:{port}" for domain, address in _ADDRESSES.items()}
    count = given.rate * given.seconds
    client = f"<timeout>{given.timeout}</timeout>"
    with servers.mqcd(base, routes, client, "tests.bench.turns") as server:
        loading = await traffic.send(server.port, dead_mail(dead, given.per_message), 20) if dead else 0.0
        # What the journal holds of the dead mail moves to spool and clusters meanwhile.
        await asyncio.sleep(given.settle)
        load = kit.processor_seconds(server.pid)
        begun = time.monotonic()
        took = await traffic.send(server.port, healthy_mail(count), 20, given.rate)
        await receiver.have(count)
        beats = turns.between(base / turns.FILE, begun, time.monotonic())
        waits = receiver.waits
        spent = [
            after - before for after, before in zip(kit.processor_seconds(server.pid), load, strict=True)
        ]
        server_mb, *helper_mb = (peak / 1e6 for peak in server.peaks())
        figures = {
            "p50_ms": statistics.median(waits),
            "p99_ms": kit.percentile(waits, 0.99),
            "max_ms": max(waits),
            "over_4ms": sum(number for bound, number in beats.items() if bound > 4) / took,
            "over_8ms": sum(number for bound, number in beats.items() if bound > 8) / took,
            "longest_ms": max(beats),
            "rate": count / took,
            "server_mb": server_mb,
            "helper_mb": sum(helper_mb),
            "busy": spent[0] / took,
            "loading_s": loading,
            "queued": server.metric("mqcd_queue_recipients"),
            "attempts": server.metric("mqcd_attempts_total") - count,
        }
        stopping = time.monotonic()
    figures["stopping_s"] = time.monotonic() - stopping
    for each in listening:
        each.close()
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dead", type=int, default=50_000, help="recipients of each dead destination")
    parser.add_argument("--per-message", type=int, default=10, help="of them in one message")
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--rate", type=int, default=200, help="healthy messages a second")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--settle", type=float, default=0, help="seconds between dead mail and healthy mail")
    parser.add_argument("--timeout", default="2s", help="of the client")
    given = parser.parse_args()
    runs: dict[str, list[dict[str, float]]] = {"healthy alone": [], "beside dead": []}
    with kit.workplace() as base:
        for number in range(given.rounds):
            for name, dead in zip(runs, (0, given.dead), strict=True):
                root = base / f"{number}-{bool(dead)}"
                root.mkdir()
                runs[name].append(kit.run(measure(root, given, dead)))
                kit.show(f"  {name}", runs[name][-1])
        alone, beside = (kit.medians(rounds) for rounds in runs.values())
        kit.show("healthy alone", alone)
        kit.show("beside dead", beside)
        kit.show("ratio", {name: beside[name] / alone[name] for name in ("p50_ms", "p99_ms")})


if __name__ == "__main__":
    main()

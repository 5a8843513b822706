"""What one tenant's backlog costs another's single messages: their time from the source to the next hop.

    python tests/bench/tenants.py [--bulk 200000] [--singles 10] [--pause 0.2] [--due 0] [--alone] [--same]

One mqcd with two next hops, a slow one that answers each message after `--pause` seconds, and a quick one. A
tenant (by a header field) has `--bulk` recipients waiting for the slow one. Then another sends single
messages to each next hop, one a second. `--alone`: without the backlog. `--same`: all is of one tenant, which
is how mail waits without turns. `--due`: retries instead of new mail, as after an outage. The backlog waits
until so many seconds after the start, and is all due then (FUTURERELEASE); ten seconds later the single
messages become due, one a second, and their times begin when they do. A message that is not there when a
minute is over counts as a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import kit, servers, traffic

SLOW, QUICK = "slow.example", "quick.example"
_ADDRESSES = {SLOW: "127.0.2.1", QUICK: "127.0.2.2"}
_PATIENCE_S = 60
_SINGLE = b"X-Single: Y"


def bulk(recipients: int, size: int, at: float) -> Iterator[traffic.Mail]:
    """So many recipients, in messages to `size` of them, due at `at`."""
    for number in range(0, recipients, size):
        names = range(number, min(number + size, recipients))
        yield traffic.Mail(tuple(f"user{name}@{SLOW}" for name in names), header=b"X-Tenant: bulk", at=at)


def single(domain: str, count: int, tenant: bytes, at: float) -> Iterator[traffic.Mail]:
    """Messages to one recipient each; with `at`, due from then on, one a second."""
    for number in range(count):
        header = b"X-Tenant: %b\r\n%b" % (tenant, _SINGLE)
        due = at + number if at else 0
        yield traffic.Mail((f"single{number}@{domain}",), header=header, at=due)


async def measure(base: Path, given: argparse.Namespace) -> dict[str, float]:
    """One run."""
    port = servers.free_port()
    receivers = {
        SLOW: traffic.Receiver(only=_SINGLE, pause=given.pause),
        QUICK: traffic.Receiver(only=_SINGLE),
    }
    listening: list[asyncio.Server] = []
    for domain, receiver in receivers.items():
        listening += await traffic.receive(receiver, [_ADDRESSES[domain]], port)
    routes = {domain: f"{address}:{port}" for domain, address in _ADDRESSES.items()}
    tenant = '<tenant header="X-Tenant">header</tenant><extFUTURERELEASE>Y</extFUTURERELEASE>'
    figures: dict[str, float] = {}
    shards = f"<shards>{given.shards}</shards>"
    with servers.mqcd(base, routes, server=tenant, queue=shards) as server:
        at = time.monotonic() + given.due if given.due else 0
        if not given.alone:
            mails = bulk(given.bulk, given.per_message, at)
            figures["loading_s"] = await traffic.send(server.port, mails, 20)
            await asyncio.sleep(given.settle)
        name = b"bulk" if given.same else b"other"
        at += 10 if at else 0
        async with asyncio.TaskGroup() as group:
            for domain in receivers:
                mails = single(domain, given.singles, name, at)
                group.create_task(traffic.send(server.port, mails, given.singles, 0 if at else 1))
        if at:
            await asyncio.sleep(max(at + given.singles - time.monotonic(), 0))
        for domain, receiver in receivers.items():
            waits = await _all(receiver, given.singles)
            figures |= {f"{domain[:5]}_{part}_ms": value for part, value in waits.items()}
        figures["queued"] = server.metric("mqcd_queue_recipients")
    for each in listening:
        each.close()
    return figures


async def _all(receiver: traffic.Receiver, count: int) -> dict[str, float]:
    try:
        await receiver.have(count)
    except SystemExit:
        receiver.waits += [_PATIENCE_S * 1000.0] * (count - len(receiver.waits))
    waits = sorted(receiver.waits)
    return {"p50": waits[len(waits) // 2], "max": waits[-1]}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bulk", type=int, default=200_000, help="recipients of the backlog")
    parser.add_argument("--per-message", type=int, default=20, help="of them in one message")
    parser.add_argument("--singles", type=int, default=10, help="single messages to each next hop")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds that the slow next hop takes")
    parser.add_argument("--settle", type=float, default=5, help="seconds between backlog and single messages")
    parser.add_argument("--due", type=float, default=0, help="seconds after which all is due; 0 = new mail")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="without the backlog")
    parser.add_argument("--same", action="store_true", help="all mail of one tenant")
    given = parser.parse_args()
    with kit.workplace() as base:
        kit.show("singles", kit.run(measure(base, given)))


if __name__ == "__main__":
    main()

"""What two disks give, and whether the slower of two holds up the quicker.

    python tests/bench/two_disks.py [--messages 4000] [--sessions 40] [--ms 20] [--second DIRECTORY]

Four servers take and relay the same load over kept connections: one shard; two shards on one disk; two shards
of which the second lies in DIRECTORY (another file system; without it on the same disk); and the same with
syncs there that take `--ms` longer. Each message's time to its 250 counts for the shard that took it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mqcd.core.queueing.spid import parse_spid, shard_of
from tests.bench import kit, servers, slow_disk
from tests.bench.traffic import Mail, Receiver, Session, receive

_QUEUED = re.compile(rb"queued as ([0-9A-F]{16})")


class Source:
    """Sends, and keeps each message's time to its 250 by shard."""

    def __init__(self, port: int, messages: int) -> None:
        self.times: dict[int, list[float]] = defaultdict(list)
        self._port = port
        self._left = iter(range(messages))

    async def work(self) -> None:
        """One connection."""
        session = Session()
        await session.open(self._port)
        for number in self._left:
            began = time.monotonic()
            reply = await session.send(Mail((f"user{number}@example.com",)))
            if found := _QUEUED.search(reply):
                shard = shard_of(parse_spid(found[1].decode()))
                self.times[shard].append((time.monotonic() - began) * 1000)
        await session.close()


async def relay(port: int, sink: int, messages: int, sessions: int) -> dict[str, float]:
    """Send all, and wait until all has come out."""
    receiver = Receiver()
    listening = await receive(receiver, ["127.0.0.1"], sink)
    source = Source(port, messages)
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(sessions):
            group.create_task(source.work())
    accepted = time.monotonic() - began
    await receiver.have(messages)
    took = time.monotonic() - began
    for each in listening:
        each.close()
    by_shard = {f"p50_ms_{shard}": statistics.median(times) for shard, times in sorted(source.times.items())}
    rates = {f"rate_{shard}": len(times) / accepted for shard, times in sorted(source.times.items())}
    return {"accepted": messages / accepted, "end_to_end": messages / took, **rates, **by_shard}


def cases(second: Path) -> Iterator[tuple[str, str]]:
    """By name: the shards."""
    other = f'<shards><shard/><shard rootpath="{second}/queue" spool="{second}/spool"/></shards>'
    yield "one shard", "<shards>1</shards>"
    yield "two shards, one disk", "<shards>2</shards>"
    yield "two shards, two disks", other
    yield "two shards, the second slow", other


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=4000)
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--ms", type=float, default=20.0)
    parser.add_argument("--second", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with kit.workplace() as base:
        found: dict[str, list[dict[str, float]]] = defaultdict(list)
        for number in range(given.rounds):
            second = (given.second or base) / f"second{number}"
            for name, queue in cases(second):
                shutil.rmtree(second, ignore_errors=True)
                directory = base / f"run{number}"
                directory.mkdir()
                os.environ[slow_disk.ROOT] = str(second)
                os.environ[slow_disk.MS] = str(given.ms if name.endswith("slow") else 0)
                sink = servers.free_port()
                routes = {"": f"127.0.0.1:{sink}"}
                with servers.mqcd(directory, routes, module="tests.bench.slow_disk", queue=queue) as server:
                    figures = kit.run(relay(server.port, sink, given.messages, given.sessions))
                found[name].append(figures)
                kit.show(f"  {name}", figures)
                shutil.rmtree(directory)
            shutil.rmtree(second, ignore_errors=True)
        for name, rounds in found.items():
            kit.show(name, kit.medians(rounds))


if __name__ == "__main__":
    main()

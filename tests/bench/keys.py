"""What idempotency keys cost: processor time a message and rate, of the engine, a door, the whole server; and
memory a key.

    python tests/bench/keys.py [engine|door|kept|new|memory ...] [--messages 640] [--pairs 40] [--octets 2048]

Blocks of messages without and with new keys take turns; those without have a field of the same length that
means nothing, so that source and door carry as many octets:

* engine: enqueue, claim, begin and settle, in one process
* door: a door with the engine behind it, in one process, to which 32 clients of another submit over kept
  connections
* kept, new: a server of one shard with default settings, to which the clients submit over kept connections,
  or over a connection for each message, and which relays to Postfix's smtp-sink: a block ends there

What counts is processor time, of the process or of all that the server has, as the median of the pairs'
ratios: other load on the machine makes a block longer, and costs it less processor time. The totals are
ratios of all blocks together: what is seldom done, such as writing key files, is in there, and in few of the
pairs. A segment has about 25,000 messages of 2 KB, so its evacuation falls into few blocks of 640, and
medians leave it out; also, filling and draining the server is a part of each block. For a `rate` take
`--messages 25000 --pairs 10`, an idle machine, and some minutes after files have been removed: ext4 looks at
each inode that was freed lately when the helper makes a file.
Memory is that of the process for 200,000 keys of live segments, and for 1,000,000 in key files.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import ipaddress
import itertools
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mqcd.config.settings import ListenerSettings, ServerSettings
from mqcd.core.model import Key, Recipient, Submission
from mqcd.disk.durable import Disk
from mqcd.net.clock import SystemClock
from mqcd.queue.format import keys
from mqcd.queue.keys.file import OpenFile, WriteKeys, write_keys
from mqcd.queue.keys.filter import Filter
from mqcd.queue.keys.live import LiveKeys
from mqcd.queue.store import ClusterStore
from mqcd.submit import Door
from tests.bench import engine_throughput, kit, servers, traffic

CLIENTS = 32
LIVE, FILED = 200_000, 1_000_000
_DIGEST = bytes(8)


def name(number: int) -> bytes:
    """Of a key."""
    return hashlib.blake2b(number.to_bytes(8, "big"), digest_size=16).digest()


Block = Callable[[bool], Awaitable[None]]
"""Sends the messages of one block, with keys or without."""


async def paired(given: dict[str, Any], block: Block, spent: Callable[[], float] = time.process_time) -> None:
    """Let blocks take turns; say what they cost, and end the process. `spent`: processor time so far, s."""

    async def cost(keyed: bool) -> tuple[float, float]:
        before, begun = spent(), time.perf_counter()
        await block(keyed)
        took = time.perf_counter() - begun
        return spent() - before, took

    for keyed in (False, True, True, False):
        await block(keyed)
    pairs = []
    for number in range(given["pairs"]):
        first = bool(number % 2)
        took = {first: await cost(first), not first: await cost(not first)}
        pairs.append((took[False], took[True]))
    micros = 1e6 / given["messages"]
    kit.say_and_die(
        {
            "without_us": statistics.median(without for (without, _), _ in pairs) * micros,
            "with_us": statistics.median(keyed for _, (keyed, _) in pairs) * micros,
            "processor": statistics.median(keyed / without for (without, _), (keyed, _) in pairs),
            "total": sum(keyed for _, (keyed, _) in pairs) / sum(without for (without, _), _ in pairs),
            "rate": statistics.median(without / keyed for (_, without), (_, keyed) in pairs),
            "total_rate": sum(without for (_, without), _ in pairs) / sum(keyed for _, (_, keyed) in pairs),
        }
    )


async def engine(root: Path, given: dict[str, Any]) -> None:
    """The engine."""
    made = kit.store(kit.options(root))
    await made.open()
    await made.recovered()
    todo: asyncio.Queue[Recipient] = asyncio.Queue()
    room = asyncio.Semaphore(engine_throughput.UNDER_WAY)
    change, numbers = kit.Change(made), itertools.count()
    workers = (engine_throughput.work(made, todo, room) for _ in range(256))

    async def produce(submissions: list[Submission]) -> None:
        for submission in submissions:
            await room.acquire()
            await made.enqueue(submission)

    async def block(keyed: bool) -> None:
        given_keys = [Key(name=name(next(numbers)), digest=_DIGEST) for _ in range(given["messages"])]
        # Replaced in both cases: what that costs is not the engine's.
        submissions = [
            replace(kit.message(made, given["octets"]), key=key if keyed else None) for key in given_keys
        ]
        dispatching = asyncio.create_task(engine_throughput.dispatch(made, len(submissions), todo, change))
        await asyncio.gather(*(produce(submissions[part::64]) for part in range(64)))
        await dispatching

    await asyncio.gather(paired(given, block), *workers)


async def door(root: Path, given: dict[str, Any]) -> None:
    """A door; the clients are another process."""
    made: ClusterStore = kit.store(kit.options(root))
    await made.open()
    await made.recovered()
    server = ServerSettings(submission=True, relay_clients=(ipaddress.ip_network("127.0.0.0/8"),))
    settings = ListenerSettings(name="submission", port=0, server=server)
    taken = Door(settings, made, SystemClock(), kit.NobodyHears(), inline_max=256 << 10)
    await taken.start()
    send = await start_clients(given, taken.port)
    await paired(given, send)


async def server(root: Path, given: dict[str, Any]) -> None:
    """The whole server, to a sink; clients and sink are other processes."""
    root.mkdir()
    sink = servers.Sink(root)
    with servers.mqcd(root, {"": f"127.0.0.1:{sink.port}"}, server="<submission>Y</submission>") as running:
        send = await start_clients(given, running.port)

        async def block(keyed: bool) -> None:
            wanted = sink.messages() + given["messages"]
            await send(keyed)
            servers.until(lambda: sink.messages() >= wanted, "all messages at the sink")

        await paired(given, block, lambda: sum(running.spent()))


async def start_clients(given: dict[str, Any], port: int) -> Block:
    """A process of clients; a block is over when all its messages have their 250."""
    arguments = json.dumps({**given, "part": "clients", "port": port, "fresh": given["part"] == "new"})
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        "--child",
        arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    to_clients, from_clients = process.stdin, process.stdout

    async def block(keyed: bool) -> None:
        to_clients.write(b"with\n" if keyed else b"without\n")
        if not await from_clients.readline():
            raise SystemExit("the clients ended")

    return block


async def clients(given: dict[str, Any]) -> None:
    """Send a block for each line of the standard input."""
    port, numbers = given["port"], itertools.count()

    def mail(keyed: bool) -> traffic.Mail:
        number = next(numbers)
        header = f"Message-ID: <{number}@client.example>\r\nDate: Tue, 24 Nov 2026 08:00:00 +0000"
        header += f"\r\n{'X-mqcd-Key' if keyed else 'X-made-Key'}: order-{number}"
        return traffic.Mail((f"customer{number}@example.net",), given["octets"], header.encode())

    async def opened() -> traffic.Session:
        session = traffic.Session()
        await session.open(port)
        return session

    async def send(number: int, kept: traffic.Session | None, keyed: bool) -> None:
        for _ in range(number, given["messages"], CLIENTS):
            session = kept or await opened()
            await session.send(mail(keyed))
            if kept is None:
                await session.close()

    sessions = [None if given["fresh"] else await opened() for _ in range(CLIENTS)]
    while line := await asyncio.to_thread(sys.stdin.readline):
        keyed = line == "with\n"
        await asyncio.gather(*(send(number, each, keyed) for number, each in enumerate(sessions)))
        print("sent", flush=True)


def resident() -> int:
    """Octets of this process's memory."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def memory(root: Path) -> dict[str, float]:
    """Octets a key."""
    before = resident()
    live = LiveKeys()
    for number in range(LIVE):
        live.add(keys.pack(name(number), _DIGEST, number, 1, 1))
    of_live = (resident() - before) / LIVE
    records = b"".join(keys.pack(name(number), _DIGEST, number, 1, 1) for number in range(FILED))
    task = WriteKeys(queue_root=root, segment=1, records=records, merged=[], since=0)
    file = write_keys(Disk(), task).file
    assert file is not None
    del records, task
    before = resident()
    opened, filed = OpenFile.open(Disk(), root, file), Filter()
    filed.add(memoryview(opened.prints).cast("I"), file.newest)
    of_file = (resident() - before) / FILED
    assert filed.perhaps(name(1))
    assert opened.perhaps(name(1), keys.top_of(name(1)))
    return {"octets_live": of_live, "octets_filed": of_file}


PARTS: dict[str, Callable[[Path, dict[str, Any]], Coroutine[Any, Any, None]]] = {
    "engine": engine,
    "door": door,
    "kept": server,
    "new": server,
}


def one(given: dict[str, Any]) -> None:
    """A child's work."""
    if given["part"] == "clients":
        kit.run(clients(given))
    elif given["part"] == "memory":
        Path(given["root"]).mkdir(parents=True)
        kit.say_and_die(memory(Path(given["root"])))
    else:
        kit.run(PARTS[given["part"]](Path(given["root"]), given))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    known = [*PARTS, "memory"]
    parser.add_argument("parts", nargs="*", metavar="PART", help="all if none is named")
    parser.add_argument("--messages", type=int, default=640, help="of a block")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--octets", type=int, default=2048)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        one(json.loads(options.child))
        return
    if unknown := set(options.parts) - set(known):
        parser.error(f"there is no part {' '.join(sorted(unknown))}")
    with kit.workplace() as base:
        given = {"messages": options.messages, "octets": options.octets, "pairs": options.pairs}
        for part in options.parts or known:
            kit.show(part, kit.child(__file__, part=part, root=str(base / part), **given))


if __name__ == "__main__":
    main()

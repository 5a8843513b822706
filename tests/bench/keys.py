"""What idempotency keys cost: processor time a message, in the engine and at the door, and memory a key.

    python tests/bench/keys.py [--messages 640] [--pairs 40] [--octets 2048]

In one process, blocks of messages without and with new keys take turns: enqueue, claim, begin and settle in
the engine; a door with the engine behind it, to which 32 clients of another process submit over kept
connections. What counts is the processor time of this process, as the median of the pairs' ratios: other load
on the machine makes a block longer, and costs it less processor time. Memory is that of the process for
200,000 keys of live segments, and for 1,000,000 in key files.
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
from collections.abc import Awaitable, Callable
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
from mqcd.queue.keys.live import LiveKeys
from mqcd.queue.store import ClusterStore
from mqcd.submit import Door
from tests.bench import engine_throughput, kit

CLIENTS = 32
LIVE, FILED = 200_000, 1_000_000
_DIGEST = bytes(8)


def name(number: int) -> bytes:
    """Of a key."""
    return hashlib.blake2b(number.to_bytes(8, "big"), digest_size=16).digest()


Block = Callable[[bool], Awaitable[None]]
"""Sends the messages of one block, with keys or without."""


async def paired(given: dict[str, Any], block: Block) -> None:
    """Let blocks take turns; say what they cost, and end the process."""

    async def cost(keyed: bool) -> tuple[float, float]:
        spent, begun = time.process_time(), time.perf_counter()
        await block(keyed)
        return time.process_time() - spent, time.perf_counter() - begun

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
            "rate": statistics.median(without / keyed for (_, without), (_, keyed) in pairs),
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
        given_keys = [Key(name=name(next(numbers)), digest=lambda: _DIGEST) for _ in range(given["messages"])]
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
    told = json.dumps({**given, "part": "clients", "port": taken.port})
    clients = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        "--child",
        told,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert clients.stdin is not None
    assert clients.stdout is not None
    to_clients, from_clients = clients.stdin, clients.stdout

    async def block(keyed: bool) -> None:
        to_clients.write(b"with\n" if keyed else b"without\n")
        await from_clients.readline()

    await paired(given, block)


async def clients(given: dict[str, Any]) -> None:
    """Send a block for each line of the standard input."""
    numbers = itertools.count()
    dated = b"Subject: order\r\nDate: Tue, 24 Nov 2026 08:00:00 +0000\r\n"
    body = dated + b"Message-ID: <%d@client.example>\r\n%s\r\n%s.\r\n"
    text = (b"x" * 70 + b"\r\n") * (given["octets"] // 72)
    envelope = b"MAIL FROM:<shop@example.org>\r\nRCPT TO:<customer%d@example.net>\r\nDATA\r\n"

    async def session() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", given["port"])
        await reader.readline()
        writer.write(b"EHLO client.example\r\n")
        while (await reader.readline())[3:4] == b"-":
            continue
        return reader, writer

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keyed: bool) -> None:
        for number in itertools.islice(numbers, given["messages"] // CLIENTS):
            field = b"X-mqcd-Key: order-%d\r\n" % number if keyed else b""
            writer.write(envelope % number)
            for _ in range(3):
                await reader.readline()
            writer.write(body % (number, field, text))
            reply = await reader.readline()
            if not reply.startswith(b"250"):
                raise SystemExit(f"the door said {reply!r}")

    sessions = [await session() for _ in range(CLIENTS)]
    while line := await asyncio.to_thread(sys.stdin.readline):
        await asyncio.gather(*(send(*each, line == "with\n") for each in sessions))
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
    opened = OpenFile.open(Disk(), root, file, prints=True)
    of_file = (resident() - before) / FILED
    assert opened.perhaps(name(1), keys.top_of(name(1)))
    return {"live": of_live, "filed": of_file}


def one(given: dict[str, Any]) -> None:
    """A child's work."""
    if given["part"] == "clients":
        asyncio.run(clients(given))
    elif given["part"] == "memory":
        Path(given["root"]).mkdir(parents=True)
        kit.say_and_die(memory(Path(given["root"])))
    else:
        kit.run((engine if given["part"] == "engine" else door)(Path(given["root"]), given))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=640, help="of a block")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--octets", type=int, default=2048)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        one(json.loads(options.child))
        return
    with kit.workplace() as base:
        given = {"messages": options.messages, "octets": options.octets, "pairs": options.pairs}
        for part in ("engine", "door"):
            kit.show(part, kit.child(__file__, part=part, root=str(base / part), **given))
        of = kit.child(__file__, part="memory", root=str(base / "memory"))
        print(f"octets a key: {of['live']:.1f} in live segments, {of['filed']:.1f} in key files")


if __name__ == "__main__":
    main()

"""What idempotency keys cost: processor time a message, in the engine and at the door, and memory a key.

    python tests/bench/keys.py [--messages 20000] [--rounds 5] [--octets 2048]

Runs without and with keys take turns, each in a process of its own: enqueue, claim, begin and settle of new
keys in the engine; a door with the engine behind it, to which 32 clients submit over kept connections. What
counts is the processor time of the server's process, as the median of the pairs' ratios: other load on the
machine makes a run longer, and costs it little processor time. Memory is that of the process for 200,000 keys
of live segments, and for 1,000,000 in key files.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import ipaddress
import json
import shutil
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mqcd.config.settings import ListenerSettings, ServerSettings
from mqcd.core.model import Key, Recipient
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


async def engine(root: Path, given: dict[str, Any]) -> None:
    """One run of the engine."""
    made = kit.store(kit.options(root))
    await made.open()
    await made.recovered()
    todo: asyncio.Queue[Recipient] = asyncio.Queue()
    room = asyncio.Semaphore(engine_throughput.UNDER_WAY)
    workers = [asyncio.create_task(engine_throughput.work(made, todo, room)) for _ in range(256)]
    each = given["messages"] // 64

    made_keys = [Key(name=name(number), digest=lambda: _DIGEST) for number in range(each * 64)]

    async def produce(first: int) -> None:
        for number in range(first, first + each):
            await room.acquire()
            submission = kit.message(made, given["octets"])
            # Replaced in both cases: what that costs is not the engine's.
            submission = replace(submission, key=made_keys[number] if given["keyed"] else None)
            await made.enqueue(submission)

    spent, begun = kit.processor_seconds()[0], time.perf_counter()
    dispatching = asyncio.create_task(engine_throughput.dispatch(made, each * 64, todo))
    await asyncio.gather(*(produce(part * each) for part in range(64)))
    await dispatching
    used = kit.processor_seconds()[0] - spent
    for worker in workers:
        worker.cancel()
    kit.say_and_die({"us": used / (each * 64) * 1e6, "rate": each * 64 / (time.perf_counter() - begun)})


async def door(root: Path, given: dict[str, Any]) -> None:
    """One run of a door; the clients are another process."""
    made: ClusterStore = kit.store(kit.options(root))
    await made.open()
    await made.recovered()
    server = ServerSettings(submission=True, relay_clients=(ipaddress.ip_network("127.0.0.0/8"),))
    settings = ListenerSettings(name="submission", port=0, server=server)
    taken = Door(settings, made, SystemClock(), kit.NobodyHears(), inline_max=256 << 10)
    await taken.start()
    spent, begun = kit.processor_seconds()[0], time.perf_counter()
    command = [
        sys.executable,
        __file__,
        "--child",
        json.dumps({**given, "part": "clients", "port": taken.port}),
    ]
    clients = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await clients.communicate()
    used, sent = kit.processor_seconds()[0] - spent, json.loads(said)["sent"]
    kit.say_and_die({"us": used / sent * 1e6, "rate": sent / (time.perf_counter() - begun)})


async def clients(given: dict[str, Any]) -> int:
    """Submit; returns how many were accepted."""
    each = given["messages"] // CLIENTS
    dated = b"Subject: order\r\nDate: Tue, 24 Nov 2026 08:00:00 +0000\r\n"
    body = dated + b"Message-ID: <%d@client.example>\r\n%s\r\n%s.\r\n"
    text = b"x" * 70 + b"\r\n"
    envelope = b"MAIL FROM:<shop@example.org>\r\nRCPT TO:<customer%d@example.net>\r\nDATA\r\n"

    async def one(first: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", given["port"])
        await reader.readline()
        writer.write(b"EHLO client.example\r\n")
        while (await reader.readline())[3:4] == b"-":
            continue
        accepted = 0
        for number in range(first, first + each):
            field = b"X-mqcd-Key: order-%d\r\n" % number if given["keyed"] else b""
            writer.write(envelope % number)
            for _ in range(3):
                await reader.readline()
            writer.write(body % (number, field, text * (given["octets"] // 72)))
            accepted += (await reader.readline()).startswith(b"250")
        writer.close()
        return accepted

    return sum(await asyncio.gather(*(one(part * each) for part in range(CLIENTS))))


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
        print(json.dumps({"sent": asyncio.run(clients(given))}))
    elif given["part"] == "memory":
        Path(given["root"]).mkdir(parents=True)
        kit.say_and_die(memory(Path(given["root"])))
    else:
        kit.run((engine if given["part"] == "engine" else door)(Path(given["root"]), given))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--octets", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        one(json.loads(options.child))
        return
    with kit.workplace() as base:
        for part in ("engine", "door"):
            pairs = []
            for number in range(options.rounds):
                pair = {}
                for keyed in (False, True) if number % 2 else (True, False):
                    root = base / f"{part}{number}{keyed}"
                    given = {"messages": options.messages, "octets": options.octets, "keyed": keyed}
                    pair[keyed] = kit.child(__file__, part=part, root=str(root), **given)
                    shutil.rmtree(root)
                pairs.append(pair[True]["us"] / pair[False]["us"])
                print(part, f"{pair[False]['us']:.1f} us, with keys {pair[True]['us']:.1f} us", flush=True)
            print(part, f"with keys {statistics.median(pairs):.3f} times the processor time (median)")
        of = kit.child(__file__, part="memory", root=str(base / "memory"))
        print(f"octets a key: {of['live']:.1f} in live segments, {of['filed']:.1f} in key files")


if __name__ == "__main__":
    main()

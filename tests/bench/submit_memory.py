"""How fast the door takes mail, with a store that costs nothing: messages a second from smtp-source.

    python tests/bench/submit_memory.py [--messages 5000] [--sessions 20] [--length 4096] [--aiosmtpd]

Runs the door with the memory store in this process and smtp-source beside it; prints one line for kept
connections (-d) and one for a connection each. `--aiosmtpd` measures aiosmtpd as it comes, with a handler
that stores nothing, for comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import shutil
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from aiosmtpd.smtp import SMTP

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mqcd.config.settings import ListenerSettings, ServerSettings
from mqcd.core.model import Recipient, Submission
from mqcd.submit import Door
from tests.fakes.observer import RecordingObserver
from tests.fakes.store import MemoryStore


class SystemClock:
    """The real time."""

    def now(self) -> int:
        """Wall time, ms."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> int:
        """Monotonic ms."""
        return time.monotonic_ns() // 1_000_000

    def micros(self) -> int:
        return time.monotonic_ns() // 1000

    async def sleep(self, ms: int) -> None:
        """Sleep for real."""
        await asyncio.sleep(ms / 1000)


class CountingStore(MemoryStore):
    """The memory store, and how much it took."""

    taken = 0

    async def enqueue(self, submission: Submission) -> Sequence[Recipient]:
        """Take a message and count it."""
        records = await super().enqueue(submission)
        self.taken += 1
        return records


class Taker:
    """aiosmtpd's handler at its cheapest."""

    taken = 0

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """Count."""
        self.taken += 1
        return "250 Ok"


async def load(port: int, options: argparse.Namespace, kept: bool) -> float:
    """Seconds that smtp-source takes to send everything."""
    source = shutil.which("smtp-source") or "/usr/sbin/smtp-source"
    words = ["-s", options.sessions, "-l", options.length, "-m", options.messages]
    words += ["-d"] if kept else []
    words += ["-f", "from@example.org", "-t", "to@example.com", f"127.0.0.1:{port}"]
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(source, *map(str, words))
    if await process.wait():
        raise SystemExit("smtp-source failed")
    return time.perf_counter() - began


async def measure_door(options: argparse.Namespace, kept: bool) -> tuple[int, float]:
    """Messages taken by mqcd's door, and seconds."""
    clock = SystemClock()
    observer = RecordingObserver()
    store = CountingStore(clock, observer)
    await store.open()
    server = ServerSettings(
        relay_domains=("example.com",), announcehost="bench.example.org", maxpeerconnections=0
    )
    door = Door(ListenerSettings(port=0, server=server), store, clock, observer, inline_max=65536)
    await door.start()
    seconds = await load(door.port, options, kept)
    await door.stop()
    return store.taken, seconds


async def measure_aiosmtpd(options: argparse.Namespace, kept: bool) -> tuple[int, float]:
    """Messages taken by aiosmtpd as it comes, and seconds."""
    loop = asyncio.get_running_loop()
    taker = Taker()
    server = await loop.create_server(partial(SMTP, taker, hostname="bench", loop=loop), "127.0.0.1", 0)
    seconds = await load(server.sockets[0].getsockname()[1], options, kept)
    server.close()
    return taker.taken, seconds


def main() -> None:
    """Measure both ways and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--aiosmtpd", action="store_true")
    options = parser.parse_args()
    measure = measure_aiosmtpd if options.aiosmtpd else measure_door
    for kept in (True, False):
        gc.collect()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            taken, seconds = runner.run(measure(options, kept))
        manner = "kept connections" if kept else "a connection each"
        print(f"{manner}: {taken} messages in {seconds:.2f} s, {taken / seconds:.0f}/s")


if __name__ == "__main__":
    main()

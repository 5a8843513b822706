"""How long a message waits for its 250 when more mail comes than the disk commits.

    python tests/bench/overload.py [--ms 20] [--rate 5] [--sessions 300] [--octets 50000] [--seconds 20]

One mqcd whose journal's syncs take `--ms` longer, and its disk `--rate` MB a second (see slow_disk.py). So
many sessions send messages, each the next one as soon as it has its reply; a session that gets 4yz waits a
second first. Times are from the final dot to the 250; `refused` counts 452 at MAIL, `failed` any other
refusal. `first` is the wave in which the server does not know yet that it is overloaded: two seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import kit, servers, slow_disk, traffic

_FIRST_S = 2.0
_REST_S = 1.0


class Flood:
    """All sessions, and what they saw."""

    def __init__(self, port: int, given: argparse.Namespace) -> None:
        self._port = port
        self._end = time.monotonic() + given.seconds
        self._began = time.monotonic()
        self._content = (
            b"Subject: flood\r\nX-Sent: 0\r\n\r\n" + (b"x" * 76 + b"\r\n") * (given.octets // 78) + b".\r\n"
        )
        self.waits: list[tuple[float, float]] = []
        """When it began, and how long it took, s."""
        self.counts: Counter[str] = Counter()

    async def session(self) -> None:
        """One connection, until the time is over."""
        while time.monotonic() < self._end:
            try:
                await self._connected()
            except (OSError, EOFError, RuntimeError):
                self.counts["broken"] += 1
                await asyncio.sleep(_REST_S)

    async def _connected(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            if await _reply(reader) != b"220":
                raise ConnectionError
            writer.write(b"EHLO flood.example\r\n")
            await _reply(reader)
            while time.monotonic() < self._end:
                await self._message(reader, writer)
        finally:
            writer.close()

    async def _message(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for command in (b"MAIL FROM:<>", b"RCPT TO:<to@example.com>", b"DATA"):
            writer.write(command + b"\r\n")
            code = await _reply(reader)
            if code[:1] == b"4":
                self.counts["refused" if code == b"452" else "failed"] += 1
                await asyncio.sleep(_REST_S)
                return
        writer.write(self._content)
        await writer.drain()
        began = time.monotonic()
        code = await _reply(reader)
        if code == b"250":
            self.waits.append((began - self._began, time.monotonic() - began))
        else:
            self.counts["failed"] += 1
            await asyncio.sleep(_REST_S)


async def _reply(reader: asyncio.StreamReader) -> bytes:
    line = await reader.readline()
    while line[3:4] == b"-":
        line = await reader.readline()
    if not line:
        raise EOFError
    return line[:3]


async def flood(port: int, sink: int, given: argparse.Namespace) -> dict[str, float]:
    """Send; the figures."""
    listening = await traffic.receive(traffic.Receiver(), ["127.0.0.1"], sink)
    made = Flood(port, given)
    async with asyncio.TaskGroup() as group:
        for _ in range(given.sessions):
            group.create_task(made.session())
    for each in listening:
        each.close()
    figures: dict[str, float] = {"accepted": len(made.waits) / given.seconds}
    for name, low, high in (("first", 0.0, _FIRST_S), ("then", _FIRST_S, float("inf"))):
        waits = [wait * 1000 for at, wait in made.waits if low <= at < high]
        for part in (50, 99, 100) if waits else ():
            figures[f"{name}_p{part}_ms"] = kit.percentile(waits, part / 100)
    return figures | {name: float(made.counts[name]) for name in ("refused", "failed", "broken")}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ms", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=5.0)
    parser.add_argument("--sessions", type=int, default=300)
    parser.add_argument("--octets", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    with kit.workplace() as base:
        os.environ |= {
            slow_disk.ROOT: str(base),
            slow_disk.MS: str(given.ms),
            slow_disk.RATE: str(given.rate * 1e6),
        }
        sink = servers.free_port()
        server = "<maxpeerconnections>0</maxpeerconnections>"
        with servers.mqcd(
            base, {"": f"127.0.0.1:{sink}"}, "", "tests.bench.slow_disk", server=server
        ) as running:
            kit.show("flood", kit.run(flood(running.port, sink, given)))


if __name__ == "__main__":
    main()

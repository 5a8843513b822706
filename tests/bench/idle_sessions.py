"""Memory that idle sessions add: a real server before and with many clients that have said EHLO and wait.

    python tests/bench/idle_sessions.py [--sessions 5000] [--shards 2]

Prints the proportional memory (PSS) of all processes of the server before and with them, and what each
session costs. The clients are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import kit, servers

AT_ONCE = 100
"""Clients that are connecting at any moment."""
REST_S = 2.0
"""Time for the server to become quiet before it is measured."""


def memory(pid: int) -> int:
    """The proportional memory of a process and of all below it, octets."""
    found = 0
    for each in kit.processes(pid):
        for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                found += int(line.split()[1]) * 1024
    return found


async def connect(port: int, turns: asyncio.Semaphore) -> asyncio.StreamWriter:
    """A client that has said EHLO."""
    async with turns:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        greeting = await reader.readline()
        if not greeting.startswith(b"220 "):
            raise SystemExit(f"turned away: {greeting.decode().strip()}")
        writer.write(b"EHLO idle.example\r\n")
        while (await reader.readline())[3:4] == b"-":
            pass
        return writer


async def measure(server: servers.Server, sessions: int) -> dict[str, object]:
    """The figures."""
    await asyncio.sleep(REST_S)
    before = memory(server.pid)
    turns = asyncio.Semaphore(AT_ONCE)
    clients = await asyncio.gather(*(connect(server.port, turns) for _ in range(sessions)))
    await asyncio.sleep(REST_S)
    added = memory(server.pid) - before
    for each in clients:
        each.close()
    return {
        "sessions": sessions,
        "before MB": round(before / 1e6, 1),
        "added MB": round(added / 1e6, 1),
        "KB a session": round(added / sessions / 1000, 1),
    }


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=5000)
    parser.add_argument("--shards", type=int, default=2)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with (
        kit.workplace() as directory,
        servers.mqcd(directory, {"": "127.0.0.1:1"}, queue=f"<shards>{options.shards}</shards>") as server,
    ):
        kit.show("idle sessions", asyncio.run(measure(server, options.sessions)))


if __name__ == "__main__":
    main()

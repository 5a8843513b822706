"""Three nodes on one real Redis, each in a network namespace, their clocks an hour apart; killed and cut off.

The history is what nodes say outside (`sharing_node`) and their events, folded by id. It is checked: a
recipient has one owner at a time (each attempt has one end), a second delivery follows an outcome-unknown,
nothing is lost.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcd.core.queueing.spid import parse_spid
from mqcd.core.selecting.selection import Selection
from mqcd.eventlog.files import Source
from mqcd.eventlog.retention import Retention
from mqcd.net.clock import SystemClock
from mqcd.ops.fanout import Fanout
from mqcd.stores.queue.exporting import EventFiles
from mqcd.stores.queue.stored_queue import StoredQueue
from mqcd.stores.redis import RedisStore
from tests.contract.harness import HOUR, SCHEDULE
from tests.e2e.kit.waiting import poll
from tests.fakes.network import Network
from tests.fakes.redis_server import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.crash, pytest.mark.needs("redis-server", "ip")]

SKEWS = (-HOUR, 0, HOUR)
LEASE_MS = 2000
LOG_LINES = 60
REST_S = 60
MISHAPS = ("cut", "kill", "cut", "kill")
ROOT = Path(__file__).resolve().parents[2]
Key = tuple[int, int]


class World:
    """The server, and the nodes that run."""

    def __init__(self, path: Path) -> None:
        self.network = Network(len(SKEWS))
        self.path = path
        self.redis = RedisServer(
            path / "redis", "--appendonly", "yes", "--appendfsync", "always", "--port", "6379",
            "--bind", "0.0.0.0", "--protected-mode", "no", inside=self.network.inside(self.network.server),
        )  # fmt: skip
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, number: int) -> None:
        """A node, which was not there or has been killed."""
        directory = self.path / f"node{number}"
        directory.mkdir(exist_ok=True)
        words = [
            *self.network.inside(self.network.host(number)),
            sys.executable,
            "-m",
            "tests.contract.sharing_node",
        ]
        words += [f"redis://{self.network.server_address(number)}:6379/0", str(directory), f"n{number}"]
        with (directory / "log").open("ab") as log:
            self.nodes[number] = subprocess.Popen(
                [*words, str(SKEWS[number]), str(LEASE_MS)], cwd=ROOT, stderr=log
            )

    def kill(self, number: int) -> None:
        node = self.nodes.pop(number)
        node.send_signal(signal.SIGKILL)
        node.wait()

    def sessions(self) -> set[str]:
        """Those that have messages."""
        with self.redis.client() as client:
            return {key.decode() for key in client.scan_iter("mqcd:session:*")}

    def messages(self) -> int:
        """How many there are."""
        with self.redis.client() as client:
            return sum(1 for _ in client.scan_iter("mqcd:message:*"))

    def said(self, number: int) -> Counter[tuple[str, Key]]:
        """What a node has said outside."""
        path = self.path / f"node{number}" / "journal"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return Counter((what, (int(spid), int(qid))) for what, spid, qid in lines)

    def works(self, number: int) -> None:
        """Return once a node has taken mail and delivered some from now on."""
        before = Counter(what for what, _ in self.said(number))

        def more() -> bool:
            now = Counter(what for what, _ in self.said(number))
            return all(now[what] > before[what] for what in ("accepted", "delivered"))

        try:
            poll(more, f"mail through node {number}")
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.condition(number)}") from None

    def condition(self, number: int) -> str:
        """Whether a node runs, and the end of its log."""
        code = self.nodes[number].poll()
        log = (self.path / f"node{number}/log").read_text().splitlines()[-LOG_LINES:]
        return "\n".join(["it runs" if code is None else f"it ended with {code}", *log])

    def taken_over(self, sessions: set[str]) -> None:
        """Return once one of these sessions has no message any more."""
        poll(lambda: not sessions <= self.sessions(), "a session that is taken over")

    def close(self) -> None:
        for number in list(self.nodes):
            self.kill(number)
        self.redis.stop()
        self.network.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


async def rest(world: World) -> set[Key]:
    """What is left in the queue when the last node is gone; all events are in files then."""
    clock = SystemClock()
    events = EventFiles(directory=world.path / "last/events", source=Source("last", 0), retention=Retention())
    queue = StoredQueue(RedisStore(world.redis.url, lease_ms=LEASE_MS), clock, Fanout(), SCHEDULE, events)
    others = world.sessions()
    await queue.open()
    await queue.recovered()
    async with asyncio.timeout(REST_S):
        while others & world.sessions() or world.messages() > len(queue._live.documents.messages):
            await clock.sleep(100)
    left = {(line.spid, line.qid) async for line in queue.scan(Selection())}
    await queue.close()
    return left


def history(path: Path) -> Counter[tuple[str, Key]]:
    """How often each recipient has had each event."""
    found: dict[str, tuple[str, Key]] = {}
    for file in path.glob("*/events/*.jsonl.gz"):
        for line in gzip.decompress(file.read_bytes()).splitlines():
            event = json.loads(line)
            found[event["id"]] = event["event"], (parse_spid(event["spid"]), event["qid"])
    return Counter(found.values())


async def test_partitioned_nodes_share_a_queue(world: World) -> None:
    for number in range(len(SKEWS)):
        world.start(number)
    for number in range(len(SKEWS)):
        world.works(number)
    for turn, mishap in enumerate(MISHAPS):
        number = turn % len(SKEWS)
        sessions = world.sessions()
        if mishap == "cut":
            world.network.pull(number)
        else:
            world.kill(number)
        world.taken_over(sessions)
        if mishap == "cut":
            world.network.plug(number)
        else:
            world.start(number)
        world.works(number)
    for number in list(world.nodes):
        world.kill(number)
    outside = sum((world.said(number) for number in range(len(SKEWS))), Counter[tuple[str, Key]]())
    left = await rest(world)
    events = history(world.path)

    accepted = {key for what, key in outside if what == "accepted"}
    delivered = {key for what, key in events if what == "delivered"}
    unknown = {key: events["outcome-unknown", key] for _, key in events}
    assert accepted <= {key for what, key in events if what == "accepted"}
    assert accepted - delivered <= left
    assert [key for key in left & delivered if not unknown[key]] == []
    twice = [key for what, key in outside if what == "delivered" and outside[what, key] > 1 + unknown[key]]
    assert twice == []
    ends = ("delivered", "deferred", "outcome-unknown")
    uneven = [key for key in unknown if events["attempted", key] != sum(events[end, key] for end in ends)]
    assert uneven == []
    assert sum(unknown.values()) > 0

"""A node that takes mail and delivers it, without end, in a process of its own; see `test_partitions`.

    python -m tests.contract.sharing_node URL DIRECTORY NODE SKEW LEASE

It appends to DIRECTORY/journal what has happened outside of the queue: `accepted SPID QID` once a sender has
its 250, `delivered SPID QID` when the next hop has the message. Its wall clock is SKEW ms off.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Envelope, Recipient, Settlement, Submission
from mqcd.eventlog.files import Source
from mqcd.eventlog.retention import Retention
from mqcd.net.clock import SystemClock
from mqcd.ops.fanout import Fanout
from mqcd.stores.queue.exporting import EventFiles
from mqcd.stores.queue.stored_queue import StoredQueue
from mqcd.stores.redis import RedisStore
from tests.contract.harness import HOUR, SCHEDULE
from tests.contract.mail import BODY, deferred, delivered

BREATH_MS = 20


class Skewed(SystemClock):
    """A clock that goes wrong."""

    def __init__(self, skew: int) -> None:
        self._skew = skew

    def now(self) -> int:
        return super().now() + self._skew


class Node:
    """One node."""

    def __init__(self, url: str, directory: Path, name: str, skew: int, lease_ms: int) -> None:
        self.clock = Skewed(skew)
        events = EventFiles(directory=directory / "events", source=Source(name, 0), retention=Retention())
        store = RedisStore(url, lease_ms=lease_ms)
        self.queue = StoredQueue(store, self.clock, Fanout(), SCHEDULE, events)
        self._journal = os.open(directory / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, recipients: Sequence[Recipient]) -> None:
        """Known outside from now on."""
        lines = [f"{what} {each.spid} {each.qid}\n" for each in recipients]
        os.write(self._journal, "".join(lines).encode())

    async def take_mail(self) -> None:
        """One sender."""
        number = 0
        while True:
            number += 1
            try:
                self.note("accepted", await self.queue.enqueue(self._message(number)))
            except StoreUnavailable as error:
                logging.info("%s", error)
            await self.clock.sleep(BREATH_MS)

    def _message(self, number: int) -> Submission:
        envelope = Envelope(spid=self.queue.reserve(True), sender="s@here.test", received=self.clock.now())
        recipients = [f"a{number}@one.test", f"b{number}@two.test"]
        return Submission(envelope=envelope, recipients=recipients, content=BODY)

    async def deliver(self) -> None:
        """One delivery agent; every fifth message is deferred by the next hop."""
        turn = 0
        while True:
            for recipient in await self.queue.claim(2, self.clock.now()):
                turn += 1
                await self._attempt(recipient, good=bool(turn % 5))
            await self.clock.sleep(BREATH_MS)

    async def stall(self) -> None:
        """An attempt that never ends: the next hop does not answer."""
        while True:
            claimed = await self.queue.claim(1, self.clock.now())
            try:
                await self.queue.begin(claimed, "mx.example")
            except StoreUnavailable as error:
                logging.info("%s", error)
                await self._insist(partial(self.queue.park, claimed, 0))
            else:
                if claimed:
                    return
            await self.clock.sleep(BREATH_MS)

    async def _attempt(self, recipient: Recipient, *, good: bool) -> None:
        try:
            await self.queue.begin([recipient], "mx.example")
        except StoreUnavailable as error:
            logging.info("%s", error)
            await self._insist(lambda: self.queue.park([recipient], 0))
            return
        if good:
            self.note("delivered", [recipient])
        verdict = delivered() if good else deferred(self.clock.now() + HOUR)
        await self._insist(lambda: self.queue.settle([Settlement(recipient=recipient, verdict=verdict)]))

    async def _insist(self, change: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await change()
            except StoreUnavailable as error:
                logging.info("%s", error)
                await self.clock.sleep(BREATH_MS)
            else:
                return


async def main(url: str, directory: str, name: str, skew: str, lease_ms: str) -> None:
    """Until it is killed."""
    node = Node(url, Path(directory), name, int(skew), int(lease_ms))
    await node.queue.open()
    await node.queue.recovered()
    async with asyncio.TaskGroup() as group:
        group.create_task(node.take_mail())
        group.create_task(node.stall())
        for _ in range(2):
            group.create_task(node.deliver())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(*sys.argv[1:]))

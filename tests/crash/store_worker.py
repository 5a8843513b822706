"""A process that takes and delivers mail without end, and prints what it asks for and what is durable.

Arguments: the name of the store, its directory. Lines: `A` accepted, `e` its end is asked for, `D` delivered,
each with SPID and number.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from mqcd.config.load import defaults
from mqcd.config.settings import JournalSettings
from mqcd.core.model import Recipient, Settlement
from mqcd.core.observing.null_observer import NullObserver
from mqcd.core.ports import QueueStore
from mqcd.embed import Queue
from mqcd.stores.backend import Backend
from mqcd.stores.files import FilesStore
from mqcd.stores.queue.stored_queue import StoredQueue
from mqcd.stores.symlinks import SymlinksStore
from tests.contract.harness import SCHEDULE
from tests.contract.mail import Post, chunks, delivered
from tests.fakes.clock import FakeClock

BACKENDS: Mapping[str, Callable[[Path], Backend]] = {
    "files": lambda path: FilesStore(path / "env", path / "meta"),
    "symlinks": lambda path: SymlinksStore(path / "mail"),
}
EMBEDDED = "embedded"
STORES = (*BACKENDS, EMBEDDED)
CONTENT = b"Subject: test\r\n\r\n" + b"0123456789" * 2000


@asynccontextmanager
async def opened(name: str, path: Path, clock: FakeClock) -> AsyncIterator[QueueStore]:
    """A store of this name; `embedded`: that of a queue in a program."""
    if name == EMBEDDED:
        settings = defaults(var=path / "outbox", hostname="embedded.test")
        journal = JournalSettings(segmentsize=1 << 22, segments=8)
        settings = replace(settings, queue=replace(settings.queue, journal=journal))
        async with Queue(path / "outbox", settings=settings, clock=clock) as embedded:
            yield embedded.store
        return
    queue = StoredQueue(BACKENDS[name](path), clock, NullObserver(), SCHEDULE)
    await queue.open()
    await queue.recovered()
    yield queue
    await queue.close()


def say(word: str, *recipients: Recipient) -> None:
    print("".join(f"{word} {each.spid} {each.qid}\n" for each in recipients), end="", flush=True)


async def senders(queue: QueueStore, post: Post) -> None:
    while True:
        for addresses in (["a@x.example"], ["a@x.example", "b@x.example", "c@y.example"]):
            for content in (CONTENT, chunks(CONTENT, 4000)):
                say("A", *await queue.enqueue(post.submission(*addresses, content=content)))


async def deliveries(queue: QueueStore, clock: FakeClock) -> None:
    while True:
        for each in await queue.claim(2, clock.now()):
            await queue.begin([each], "mx.example")
            say("e", each)
            await queue.settle([Settlement(recipient=each, verdict=delivered())])
            say("D", each)
        await asyncio.sleep(0)


async def main(name: str, path: Path) -> None:
    clock = FakeClock()
    async with opened(name, path, clock) as queue:
        post = Post(queue, clock)
        await asyncio.gather(*(senders(queue, post) for _ in range(3)), deliveries(queue, clock))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))

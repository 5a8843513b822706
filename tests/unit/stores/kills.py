"""A process that works with a store until it is killed, and what it said of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mqcd.core.observing.null_observer import NullObserver
from mqcd.net.clock import SystemClock
from mqcd.stores.backend import Backend
from mqcd.stores.queue.stored_queue import StoredQueue
from tests.contract.harness import SCHEDULE
from tests.contract.mail import Post
from tests.fakes.clock import FakeClock

_LINES = 300
"""After so many it is killed."""
_WORK = """
import asyncio, sys
from pathlib import Path
from mqcd.core.observing.null_observer import NullObserver
from mqcd.net.clock import SystemClock
from mqcd.stores.{name} import {name_of_class}
from mqcd.stores.queue.stored_queue import StoredQueue
from tests.contract.harness import SCHEDULE
from tests.contract.mail import Post, delivered

async def main():
    where = Path(sys.argv[1]) if sys.argv[1].startswith("/") else sys.argv[1]
    queue = StoredQueue({name_of_class}(where), SystemClock(), NullObserver(), SCHEDULE)
    await queue.open()
    await queue.recovered()
    post = Post(queue, SystemClock())
    for number in range(10_000):
        [sent] = await post.send(f"r{{number}}@example.org")
        print("taken", sent.spid, flush=True)
        if number % 3 == 0:
            [claimed] = await queue.claim(1, post.clock.now())
            print("asked", claimed.spid, flush=True)
            await post.settle(delivered(), claimed)
            print("ended", claimed.spid, flush=True)

asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Said:
    """SPIDs, as the store acknowledged them."""

    taken: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    """To be ended; that may have been done, or not."""
    ended: set[int] = field(default_factory=set)


def killed(name: str, where: str, before: Callable[[], None] = lambda: None) -> Said:
    """Work with the store NAMEStore until it is killed; `before` is called just before that."""
    script = _WORK.format(name=name, name_of_class=f"{name.capitalize()}Store")
    said = Said()
    with subprocess.Popen(
        [sys.executable, "-c", script, where],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as child:
        assert child.stdout is not None
        for number, line in enumerate(child.stdout):
            if number > _LINES and not line.endswith("\n"):
                # The kill came while it was printed.
                break
            word, spid = line.split()
            getattr(said, word).add(int(spid))
            if number == _LINES:
                before()
                child.send_signal(signal.SIGKILL)
    return said


async def check(said: Said, backend: Backend) -> None:
    """Nothing that was taken is lost, nothing that was ended is back."""
    queue = StoredQueue(backend, SystemClock(), NullObserver(), SCHEDULE)
    await queue.open()
    await queue.recovered()
    left = {spid for spid, _ in await Post(queue, FakeClock()).scan()}
    await queue.close()
    assert said.taken - said.asked <= left
    assert not left & said.ended
    assert said.ended

"""Scans of the queue for the server itself, each in a process of its own: the end that the loop holds.

A scan reads every cluster. As a thread it would take the processor from the commits; in the shard's helper,
exports and evacuations would wait for it, or it for them with its pin held. So it is a process that lives as
long as the scan (see `scanner`). It has a low priority, and the loop is left to others between two batches;
for a while when they have committed something meanwhile, so that a scan's share of a busy server is small,
and an idle one scans at full speed. Its memory does not grow with the queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from mqcd.core.errors import DecodeError, StoreBusy, StoreDamaged, StoreUnavailable
from mqcd.core.model import Recipient
from mqcd.queue.format.record import parse
from mqcd.queue.helper import pipe, scanner
from mqcd.queue.helper.scanner import Request
from mqcd.queue.reading.listing import Question

log = logging.getLogger(__name__)

_BATCH = 100
"""Recipients that are decoded in one turn of the loop."""
REST = 0.005
"""Seconds that a scan leaves to others when they have committed something since its last batch: some ten
times what the server takes for one."""
_BUFFER = 1 << 16


class Process(Protocol):
    """What is asked of the process that does a scan; `child.Child` is one."""

    async def send(self, value: object) -> None:
        """Give it the request. Raises ConnectionError."""

    async def receive(self) -> Any:
        """Its next answer. Raises IncompleteReadError, ConnectionError."""

    async def kill(self) -> int:
        """End it."""


class Precedence:
    """Between two batches of a scan: commits go first."""

    def __init__(
        self, commits: Callable[[], int], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._sleep = sleep
        self.commits = commits
        """Counts them."""
        self._seen = commits()

    async def __call__(self) -> None:
        """Return when the next batch may be decoded."""
        before, self._seen = self._seen, self.commits()
        await self._sleep(0 if self._seen == before else REST)


async def next_turn() -> None:
    """What has arrived already would be decoded without a pause."""
    await asyncio.sleep(0)


class Scans:
    """Those of one shard that are under way."""

    def __init__(self) -> None:
        self._running: set[Process] = set()
        self._stopped = False

    async def run(
        self, request: Request, pause: Callable[[], Awaitable[None]] = next_turn
    ) -> AsyncGenerator[list[Recipient], None]:
        """The recipients that match, a batch at a time, a `pause` after each. Raises StoreUnavailable."""
        async with self._asked(request) as process:
            answer: object
            while isinstance(answer := await process.receive(), bytes):
                texts = answer.decode().split("\n")
                for start in range(0, len(texts), _BATCH):
                    yield _decoded(texts[start : start + _BATCH])
                    await pause()
        if _checked(answer):
            log.error("%d damaged records were left out of a scan; `mqcd fsck` lists them", answer)

    async def ask(self, question: Question) -> Any:
        """The answer to a question. Raises as `run` does, and what the question raises."""
        async with self._asked(question) as process:
            answer = await process.receive()
        return _checked(answer)

    @asynccontextmanager
    async def _asked(self, request: object) -> AsyncGenerator[Process]:
        """A process that has the request; it is ended with the block."""
        process = await self._start()
        self._running.add(process)
        try:
            if self._stopped:
                raise StoreUnavailable("the queue is not open")
            await process.send(request)
            yield process
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise StoreUnavailable("the scan was cut off; try again") from error
        finally:
            self._running.discard(process)
            await process.kill()

    async def _start(self) -> Process:
        return await pipe.start(scanner.__name__, buffer=_BUFFER)

    async def stop(self) -> None:
        """Cut off the scans that are under way, and all that come."""
        self._stopped = True
        while self._running:
            await self._running.pop().kill()


def _checked(answer: object) -> Any:
    """The last answer of a process. Raises what went wrong there; StoreUnavailable for the queue's faults, so
    that the server's parts have one error to wait out."""
    if isinstance(answer, OSError | StoreBusy | StoreDamaged):
        raise StoreUnavailable(f"the queue could not be read: {answer}") from answer
    if isinstance(answer, Exception):
        raise answer
    return answer


def _decoded(texts: list[str]) -> list[Recipient]:
    try:
        return [parse(text) for text in texts]
    except DecodeError:
        return [recipient for text in texts if (recipient := _decoded_alone(text)) is not None]


def _decoded_alone(text: str) -> Recipient | None:
    try:
        return parse(text)
    except DecodeError as error:
        log.error("a record was left out of a scan: %s", error)
        return None

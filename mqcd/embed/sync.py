"""A queue for a program without an event loop, such as a script: one class around `queue.Queue`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Area, Recipient
from mqcd.core.selecting.selection import Selection
from mqcd.embed.queue import Queue

if TYPE_CHECKING:
    import email.message

Result = TypeVar("Result")


class SyncQueue:
    """Runs an event loop in a thread of its own from `open` to `close`. Its methods may be called from any
    thread, and raise what those of `Queue` raise.

        with SyncQueue(Queue("/var/spool/mine", relay)) as queue:
            queue.enqueue("me@example.org", ["you@example.net"], message)
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> SyncQueue:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Open the queue. Harmless when it is open."""
        if self._loop is not None:
            return
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="mqcd queue", daemon=True)
        self._thread.start()
        try:
            self._call(self._queue.open())
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """Close the queue. Harmless when it is not open."""
        if self._loop is None:
            return
        try:
            self._call(self._queue.close())
        finally:
            self._end()

    def _end(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._loop is None:
            work.close()
            raise StoreUnavailable("the queue is not open")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def enqueue(
        self,
        sender: str,
        recipients: Sequence[str],
        content: bytes | str | email.message.Message,
        *,
        key: str = "",
    ) -> Sequence[str]:
        """See `Queue.enqueue`."""
        return self._call(self._queue.enqueue(sender, recipients, content, key=key))

    def recipients(self, selection: Selection | None = None) -> Sequence[Recipient]:
        """See `Queue.recipients`."""

        async def look() -> Sequence[Recipient]:
            return [each async for each in self._queue.recipients(selection)]

        return self._call(look())

    def waiting(self) -> int:
        """How many recipients are in the queue, without bounces that wait for their report."""

        async def count() -> int:
            return sum(
                held.recipients for area, held in self._queue.stats().items() if area is not Area.BOUNCES
            )

        return self._call(count())

    def retry(self, selection: Selection | None = None) -> int:
        """See `Queue.retry`."""
        return self._call(self._queue.retry(selection))

"""A thread that writes queued items, so that a slow or stuck disk or pipe delays no caller.

    writer = Writer("audit", write, limit=10_000, gather=0.5)
    writer.put([line])

The order is kept. `write` gets the waiting items, in the thread, and returns how many it is done with; the
rest is offered again later. It must not raise. The buffer is bounded: `put` takes as many items as fit and
returns their number. The thread starts with the first item, or later if none can be started then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Writer(Generic[Item]):
    """Made by its user; `close` ends it."""

    def __init__(
        self,
        name: str,
        write: Callable[[Sequence[Item]], int],
        *,
        limit: int,
        gather: float = 0.0,
        retry: float = 1.0,
    ) -> None:
        """`limit`: items that may wait. Seconds: `gather` to wait for more before a write, `retry` after
        one that has left some.
        """
        self._name = name
        self._write = write
        self._limit = limit
        self._gather = gather
        self._retry = retry
        self._changed = threading.Condition()
        self._waiting: list[Item] = []
        self._under_way = 0
        self._given = 0
        self._done = 0
        self._refused = 0
        self._refused_before = 0
        """Of those, what has been asked for."""
        self._given_up = 0
        self._hurry = False
        self._closing = False
        self._last = False
        """What is being written was taken up after `finish`: it is not offered again."""
        self._thread: threading.Thread | None = None

    def put(self, items: Sequence[Item]) -> int:
        """Queue items; returns how many were taken, from the first on. From any thread; waits for no
        write."""
        with self._changed:
            room = self._limit - len(self._waiting) - self._under_way
            taken = items if len(items) <= room else items[: max(room, 0)]
            self._refused += len(items) - len(taken)
            if not taken:
                return 0
            idle = not self._waiting
            self._waiting += taken
            self._given += len(taken)
            if self._thread is None:
                self._begin()
            elif idle:
                self._changed.notify_all()
            return len(taken)

    def refused(self) -> int:
        """How many items there was no room for since this was asked last."""
        with self._changed:
            refused = self._refused - self._refused_before
            self._refused_before = self._refused
            return refused

    @property
    def lost(self) -> int:
        """How many items were never written, from the beginning on: refused, or left at the end."""
        return self._refused + self._given_up

    def drain(self, seconds: float) -> bool:
        """Wait until everything handed over so far is written, `seconds` at most; whether it is."""
        with self._changed:
            target = self._given
            self._hurry = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._done >= target, seconds)

    def finish(self) -> None:
        """Let the thread end once it has offered what waits a last time. Does not wait for that."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def close(self, seconds: float) -> bool:
        """`finish`, and wait for it; whether everything is written."""
        self.finish()
        if self._thread is not None:
            self._thread.join(seconds)
        return self._done >= self._given

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _begin(self) -> None:
        # A daemon: one that hangs on a disk must not keep the process from ending.
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # No thread can be started now: waiting items go with the next one, as if the disk were stuck.
            return
        self._thread = thread

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            done = self._write(batch)
            with self._changed:
                self._waiting[:0] = batch[done:]
                self._under_way = 0
                self._done += done
                self._changed.notify_all()
                if done < len(batch):
                    if self._last:
                        self._given_up = len(self._waiting)
                        return
                    self._changed.wait_for(lambda: self._closing, self._retry)

    def _next(self) -> list[Item] | None:
        """The items to write next; None once the writer has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            if self._gather:
                self._changed.wait_for(self._in_haste, self._gather)
            self._hurry, self._last = False, self._closing
            batch, self._waiting = self._waiting, []
            self._under_way = len(batch)
            return batch or None

    def _in_haste(self) -> bool:
        return self._hurry or self._closing or len(self._waiting) >= self._limit // 2

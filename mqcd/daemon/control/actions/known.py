"""The batches that one process knows, by name, and their files. A name is in one state at most.

| state | it is in | on disk | entered by | left by |
|---|---|---|---|---|
| recording | `_recording` | perhaps its file | `begin` | its file is written: waiting; that fails: unknown |
| waiting | `outcomes`, `_waiting` | its file | `_add` | `next`: under way |
| under way | `outcomes` | its file | `next` | `end` |
| ended | `outcomes`, `done` | a file in `ended` | `end`, `resume` | `_add`, with more than `KEPT`: unknown |

What comes in, and what becomes of it where its name is in a state already:

| it is | comes by | before `resume` | recording | waiting, under way | ended |
|---|---|---|---|---|---|
| asked for, or of a standing rule | `begin` | resumes | waits for that | is this one | is this one |
| left by the last run | `resume`, of `run` | | left alone | left alone | its file goes |
| recorded by the front process | `look`, of `tend` | overlooked | left alone | left alone | its file goes |

Before `resume` it is not known what has ended, nor what is to go on: a batch whose file could not go would be
carried out again, and one of the last run that is asked for again would not count what it has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path

from mqcd.core.errors import StoreUnavailable
from mqcd.daemon.control.actions.orders import KEPT, Ended, Order, Outcome, files_of, path_of, record
from mqcd.disk.durable import Disk, describe

log = logging.getLogger(__name__)

Made = Callable[[Order], Awaitable[Order]]


class Known:
    """Those of one process."""

    def __init__(self, disk: Disk, directory: Path, shard: int) -> None:
        """`directory` is that of the files, which the shards share."""
        self._disk = disk
        self._directory = directory
        self._shard = shard
        self._ended = Ended(disk, directory / "ended", shard)
        self._logged: set[Path] = set()
        """Files that are no batches."""
        self._resumed = False
        self._recording: dict[str, asyncio.Event] = {}
        """Set when the name is no longer in this state."""
        self.outcomes: OrderedDict[str, Outcome] = OrderedDict()
        """By name, the newest last. Changed here alone; how far one under way is, by what carries it out."""
        self._waiting: asyncio.Queue[Outcome] = asyncio.Queue()

    # ------------------------------------------------------------ ways in

    async def begin(self, order: Order, made: Made | None = None) -> Outcome:
        """The batch of this name: the known one, else this one, once it is recorded; `made` gives what is
        recorded of the order. Raises StoreUnavailable, and what `made` raises: then it is unknown."""
        name = order.batch.id
        try:
            self.resume()
            while name in self._recording:
                # If that fails it is the turn of this one.
                await self._recording[name].wait()
            # Nothing awaits between this look and the entry.
            return self.outcomes.get(name) or await self._record(order, made)
        except OSError as error:
            raise StoreUnavailable(f"the batch cannot be recorded: {describe(error)}") from error

    async def _record(self, order: Order, made: Made | None) -> Outcome:
        name = order.batch.id
        over = self._recording[name] = asyncio.Event()
        try:
            order = order if made is None else await made(order)
            await asyncio.to_thread(record, self._disk, self._directory, self._shard, order)
            return self._add(Outcome(order=order))
        finally:
            del self._recording[name]
            over.set()

    def resume(self) -> None:
        """Once: remember what has ended, and go on with what the last run began. A file that is no batch is
        logged, and stays. Raises OSError: then this can be called again."""
        if self._resumed:
            return
        for outcome in self._ended.load():
            self.outcomes.setdefault(outcome.order.batch.id, outcome)
        self._take_up("the last run did not end it")
        self._resumed = True

    def look(self) -> None:
        """Take up what the front process has recorded since. Raises OSError."""
        if self._resumed:
            self._take_up("it was asked for while this shard was out of service")

    def _take_up(self, why: str) -> None:
        for path, order, _ in files_of(self._disk, self._directory, self._shard, self._logged):
            name = order.batch.id
            known = self.outcomes.get(name)
            if known is None and name not in self._recording:
                log.warning("batch %s goes on: %s", name, why)
                self._add(Outcome(order=order, resumed=True))
            elif known is not None and known.done:
                # The front process recorded it for a shard that was slow to answer.
                self._disk.unlink(path)

    def _add(self, outcome: Outcome) -> Outcome:
        self.outcomes[outcome.order.batch.id] = outcome
        while len(self.outcomes) > KEPT and next(iter(self.outcomes.values())).done:
            self.outcomes.popitem(last=False)
        self._waiting.put_nowait(outcome)
        return outcome

    # ------------------------------------------------------------ for what carries them out

    async def next(self) -> Outcome:
        """The one whose turn it is; waits for one."""
        return await self._waiting.get()

    async def end(self, outcome: Outcome, trouble: str) -> None:
        """It is carried out, or means nothing (`trouble`). Raises OSError: it is under way still, and a start
        would repeat it."""
        await asyncio.to_thread(self._forget, outcome)
        outcome.done, outcome.trouble = True, trouble

    def _forget(self, outcome: Outcome) -> None:
        self._ended.add(outcome)
        path = path_of(self._directory, self._shard, outcome.order)
        # Durable, or a later start would do it again, to recipients that were released since.
        self._disk.unlink(path)
        self._disk.sync_dir(path.parent)

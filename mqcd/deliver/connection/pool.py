"""All workers of one deliverer: starts them, assigns jobs, cancels attempts, ends them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from mqcd.core.ports import Clock
from mqcd.deliver.connection.link import LinkView
from mqcd.deliver.connection.worker import Idle, Worker
from mqcd.deliver.lanes.decisions import STUCK_MS
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import TRIAL_MS, Lane, Start
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.outlook import Way
from mqcd.deliver.routing.policy import Hop


@dataclass(eq=False, repr=False)
class Pool:
    """One per deliverer."""

    _clock: Clock
    _table: LaneTable
    _make: Callable[[Idle, Lane, Job, int], Worker]
    """See `Worker`."""
    _workers: dict[Worker, asyncio.Task[None]] = field(default_factory=dict)
    _idle: Idle = field(default_factory=dict)
    _turns: Counter[str] = field(default_factory=Counter)
    """By zone: connections opened, so that each zone's source addresses take turns."""
    _review_at: int = 0

    def dispatch(self) -> None:
        """Start the jobs that the table returns; where connections are scarce, end idle ones and cancel
        attempts."""
        for start in self._table.dispatch(self._clock.monotonic()):
            if start.reuse:
                # It takes the job: it was at rest when it was reserved, in this turn, and only a stop cancels
                # one at rest, which dispatches nothing more (`Deliverer.stop`).
                self.reserve(start.lane).hand(start.job)
            else:
                self._open(start)
        if self._table.slots.scarce:
            for worker in self._idling():
                if self._table.slots.others_wait(worker.lane):
                    worker.expire()
            self._take_back()

    def reserve(self, lane: Lane) -> Worker:
        """An idle connection of a lane that has one: the caller gives it a job, or lets it rest again."""
        return self._idle[lane.name].pop().reserve()

    def way(self, hop: Hop, key: tuple[int, int]) -> Way:
        """How a recipient goes: over the connection that tries it, or one that its lane has open, or a new
        one."""
        open_ = [each for each in self._workers if each.lane.name == hop.key and each.host]
        own = [each for each in open_ if each.tries(key)]
        turn = self._turns[hop.policy.zone] + 1
        for worker in own or open_:
            return Way(turn=turn, host=worker.host, source=worker.source)
        return Way(turn=turn)

    def at_work(self) -> Iterator[tuple[Job, int]]:
        """Jobs that are being tried, and since when."""
        return (each for worker in self._workers if (each := worker.at_work) is not None)

    def views(self) -> Sequence[LinkView]:
        """Its connections as operators see them."""
        now = self._clock.monotonic()
        return [worker.view(now) for worker in self._workers]

    def renew(self, wanted: Callable[[Sequence[str]], bool]) -> None:
        """End connections to such peers, each once its present job is done."""
        for worker in list(self._workers):
            if worker.peer and wanted(worker.peer):
                worker.wear()

    async def end(self, grace_ms: int) -> None:
        """Close idle connections, wait up to `grace_ms` for attempts, then cancel them."""
        for worker in self._idling():
            worker.expire()
        if not self._workers:
            return
        ends = asyncio.ensure_future(asyncio.wait(tuple(self._workers.values())))
        timer = asyncio.ensure_future(self._clock.sleep(grace_ms))
        await asyncio.wait([ends, timer], return_when=asyncio.FIRST_COMPLETED)
        ends.cancel()
        timer.cancel()
        left = tuple(self._workers.values())
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    def _idling(self) -> list[Worker]:
        return [worker for group in self._idle.values() for worker in group]

    def _open(self, start: Start) -> None:
        zone = start.lane.hop.policy.zone
        self._turns[zone] += 1
        worker = self._make(self._idle, start.lane, start.job, self._turns[zone])
        task = asyncio.get_running_loop().create_task(worker.run())
        self._workers[worker] = task
        task.add_done_callback(lambda _: self._workers.pop(worker, None))

    def _take_back(self) -> None:
        """Cancel attempts at destinations that do not answer where other lanes need the connections: the
        newest first, so that older ones can end."""
        now = self._clock.monotonic()
        if now < self._review_at:
            return
        self._review_at = now + STUCK_MS
        self._table.review(now)
        if not (count := self._table.slots.overdrawn):
            return
        lasting = [
            worker
            for worker in self._workers
            if worker.lane.doubted and worker.may_be_taken_back and now - worker.began > TRIAL_MS
        ]
        for worker in sorted(lasting, key=lambda each: each.began, reverse=True)[:count]:
            worker.recall()
            self._workers[worker].cancel()

"""What a queue has from `open` to `close`: its state, its event files, and the tasks that go on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from mqcd.core.errors import StoreUnavailable
from mqcd.stores.queue.exporting import Exporter
from mqcd.stores.queue.state import State
from mqcd.stores.queue.taking import load, log_failure, once_loaded, share


class Run:
    """Of one queue; its backend is open until it has been closed."""

    def __init__(self, state: State, exporter: Exporter | None) -> None:
        """`exporter` has started; None = events are not kept."""
        self.state = state
        self.exporter = exporter
        self._loading = asyncio.ensure_future(load(state))
        self._exporting = self._sharing = None
        if state.around.backend.lease_ms:
            self._sharing = self._go_on(partial(share, state), "mail of other nodes is not taken over")
        if exporter is not None:
            # What is read later may be in the newest file, which a new one would make forgotten.
            self._exporting = self._go_on(exporter.run, "events are not exported")

    def _go_on(self, work: Callable[[], Awaitable[None]], otherwise: str) -> asyncio.Task[None]:
        task = asyncio.ensure_future(once_loaded(self._loading, self.state, work))
        task.add_done_callback(partial(log_failure, otherwise))
        return task

    async def recovered(self) -> None:
        """Return when what the last run left may be claimed. Raises StoreUnavailable, also where it is closed
        before that, and StoreDamaged."""
        await asyncio.wait([self._loading])
        if self._loading.cancelled():
            raise StoreUnavailable("the queue was closed while it was being read")
        self._loading.result()

    async def stop_sharing(self) -> None:
        """Keep the lease no longer, and take nothing of other nodes."""
        await _stop(self._sharing)

    async def close(self) -> None:
        """End what is being written. Not to be cancelled."""
        self.state.closing = True
        for task in (self._loading, self._sharing, self._exporting):
            await _stop(task)
        await self.state.idle()
        if self.exporter is not None:
            await self.exporter.close(export=self.state.loaded)


async def _stop(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait([task])

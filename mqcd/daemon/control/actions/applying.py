"""Applies to a store what operators ask for: a batch, part by part; the end of removals."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Amended, Area, Batch, Purged, Settlement
from mqcd.core.ports import Clock, Picked, QueueStore
from mqcd.core.selecting.selection import Selection

log = logging.getLogger(__name__)

AGAIN_MS = 1000
"""How long after a failure of the store it is asked again."""
_PURGE_MS = 5000
"""How often ended graces are looked for."""
_PURGED_AT_ONCE = 500
_PURGE_RESTS = 4
"""So many times as long as a part of it took a purge rests."""


async def apply(
    store: QueueStore, clock: Clock, selection: Selection, batch: Batch
) -> AsyncGenerator[Picked, None]:
    """Gives each part once it is changed. Raises StoreUnavailable."""
    async with aclosing(store.pick(selection, batch)) as parts:
        async for part in parts:
            amended = Amended(batch=batch)
            settlements = [Settlement(recipient=each, verdict=amended) for each in part.recipients]
            await settle(store, clock, settlements)
            yield part


async def settle(store: QueueStore, clock: Clock, settlements: Sequence[Settlement]) -> None:
    """What was claimed is settled; a store that cannot record it now is asked again."""
    while settlements:
        try:
            await store.settle(settlements)
            return
        except StoreUnavailable as error:
            log.warning("a batch waits: %s", error)
            await clock.sleep(AGAIN_MS)


async def purge(store: QueueStore, clock: Clock) -> None:
    """End removals whose grace is over, unless the clock is in doubt, for ever."""
    while True:
        await clock.sleep(_PURGE_MS)
        begun = clock.monotonic()
        while (
            store.stats()[Area.REMOVED].recipients
            and store.may_expire()
            and (found := await store.claim_removed(_PURGED_AT_ONCE))
        ):
            await settle(store, clock, [Settlement(recipient=each, verdict=Purged()) for each in found])
            # It takes a fifth of the time: a batch may have removed all that waited.
            took = clock.monotonic() - begun
            await clock.sleep(min(_PURGE_RESTS * took, _PURGE_MS))
            begun = clock.monotonic()

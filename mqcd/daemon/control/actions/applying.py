"""Applies a batch to a store, part by part."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Amended, Batch, Settlement
from mqcd.core.ports import Clock, Picked, QueueStore
from mqcd.core.selecting.selection import Selection

log = logging.getLogger(__name__)

AGAIN_MS = 1000
"""How long after a failure of the store it is asked again."""


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

"""The parts of an open store, from `open` to `close`."""

from __future__ import annotations

import asyncio

from mqcd.queue.admission import Pressure
from mqcd.queue.checkpoint.checkpointer import Checkpointer
from mqcd.queue.disk.space import Space
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.requests.accept import Acceptance
from mqcd.queue.requests.claim import Claims
from mqcd.queue.requests.upload import Staging
from mqcd.queue.requests.write import Writer


class Parts:
    """The parts of an open store."""

    __slots__ = ("acceptance", "checkpointer", "claims", "pressure", "recovery", "shard", "staging", "writer")

    def __init__(
        self,
        shard: Shard,
        acceptance: Acceptance,
        writer: Writer,
        claims: Claims,
        checkpointer: Checkpointer,
        space: Space,
        recovery: asyncio.Task[None],
    ) -> None:
        self.shard = shard
        self.acceptance = acceptance
        self.writer = writer
        self.claims = claims
        self.checkpointer = checkpointer
        self.recovery = recovery
        """Brings in what the last run left."""
        self.staging = Staging(shard, space)
        self.pressure = Pressure(shard, checkpointer)

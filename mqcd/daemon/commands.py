"""The pages of the control socket: what the commands ask a running server for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mqcd.core.ports import Clock, QueueStore
from mqcd.daemon.advised import Adviser
from mqcd.daemon.derived import suppressions_of
from mqcd.daemon.explaining import Explanations, explain_live
from mqcd.daemon.retrying import Retrying, Tell
from mqcd.daemon.rows import destination_rows, lane_rows, stuck_rows
from mqcd.deliver.service import Deliverer
from mqcd.ops.http.pages import explain_page, rows_page
from mqcd.ops.http.server import Action, Page
from mqcd.ops.last_replies import LastWords
from mqcd.ops.metrics.breakdown import Breakdown


@dataclass(kw_only=True, slots=True)
class Commands:
    """The parts of a server that commands look at and act on."""

    store: QueueStore
    deliverer: Deliverer
    adviser: Adviser
    breakdown: Breakdown
    words: LastWords
    clock: Clock
    tell: Tell
    key: bytes
    """What addresses in advice are hashed with; b"" = they are in clear."""

    def pages(self) -> Mapping[str, Page | Action]:
        """By path."""
        return {
            "/v1/explain": explain_page(self._explain),
            "/v1/lanes": rows_page(lambda: lane_rows(self.deliverer.lanes())),
            "/v1/destinations": rows_page(self._destinations),
            "/v1/retry": Action(Retrying(self.store, self.deliverer, self.clock, self.tell).page),
            "/v1/stuck": rows_page(lambda: stuck_rows(self.deliverer.stuck())),
        }

    def _destinations(self) -> list[dict[str, object]]:
        now = self.clock.now()
        oldest = dict(self.breakdown.elders.oldest(now))
        for name, received in self.deliverer.gauges(()).oldest.items():
            oldest[name] = min(received, oldest.get(name, received))
        return destination_rows(self.deliverer.lanes(), oldest, self.words.said, now)

    async def _explain(self, asked: str, sender: str) -> Explanations:
        listed = suppressions_of(self.adviser.advice, self.key)
        return await explain_live(self.store, self.deliverer, listed, asked, sender)

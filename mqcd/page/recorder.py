"""The server's figures of the last half hour, kept in the memory of the page's process.

A sample is taken every STEP_S, so that the pictures reach back to before somebody looked. Names with many
series are left out of what is kept. While the server does not answer no sample is taken: pictures have a gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from mqcd.core.ports import Clock
from mqcd.core.samples import Sample, Series, parse
from mqcd.page.client import Client, Question, ServerDown

STEP_MS = 10_000
KEPT_MS = 1_800_000
FRESH_MS = 2_000
"""How old the latest sample may be for a page that shows the state of now."""


class Recorder:
    """Takes samples, and keeps them."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._kept: deque[Sample] = deque(maxlen=KEPT_MS // STEP_MS + 1)
        self._latest: Sample | None = None

    def samples(self) -> Sequence[Sample]:
        """Oldest first; the last one may be younger than a step."""
        latest = self._latest
        extra = [latest] if latest is not None and (not self._kept or self._kept[-1] is not latest) else []
        oldest = self._clock.monotonic() - KEPT_MS
        return [each for each in (*self._kept, *extra) if each.taken * 1000 >= oldest]

    async def fresh(self) -> Sample:
        """The state of now. Raises ServerDown."""
        latest = self._latest
        if latest is not None and self._clock.monotonic() - latest.taken * 1000 < FRESH_MS:
            return latest
        ready = await self._client.ask(Question.get("/readyz"))
        figures = await self._client.ask(Question.get("/metrics"))
        sample = Sample(
            taken=self._clock.monotonic() / 1000,
            at=self._clock.now(),
            metrics=_few(parse(figures.text)) if figures.good else {},
            against="" if ready.good else ready.text or "no reason given",
        )
        self._latest = sample
        if sample.metrics and (not self._kept or sample.taken - self._kept[-1].taken >= STEP_MS / 1000 - 1):
            self._kept.append(sample)
        return sample

    async def run(self) -> None:
        """Take samples for ever."""
        while True:
            try:
                await self.fresh()
            except ServerDown:
                # The gap in the pictures says so, and each page says why.
                self._latest = None
            await self._clock.sleep(STEP_MS)


def _few(found: Mapping[str, Series]) -> dict[str, Series]:
    return {
        name: series
        for name, series in found.items()
        if not name.endswith("_bucket") and not name.startswith("mqcd_site_")
    }

"""Health and readiness."""

from __future__ import annotations

import pytest

from mqcd.ops.http.pages import MAX_LAG_MS, pages
from mqcd.ops.http.server import Answer, Request
from mqcd.ops.metrics.lag import KEPT, STEP_MS, LoopLag
from mqcd.ops.metrics.meters import Meters
from mqcd.ops.metrics.metrics import CONTENT_TYPE, Metrics
from tests.fakes.clock import FakeClock
from tests.fakes.store import MemoryStore


def ask(path: str, against: list[str] | None = None, lag: int = 0, accept: str = "") -> Answer:
    clock = FakeClock()
    meters = Meters()
    metrics = Metrics(clock, meters, MemoryStore(clock, meters))
    page = pages(metrics, lambda: against or [], lambda: lag)[path]
    answer = page(Request(method="GET", path=path, accept=accept))
    assert isinstance(answer, Answer)
    return answer


def test_metrics() -> None:
    answer = ask("/metrics")
    assert answer.content_type == CONTENT_TYPE
    assert b"\nmqcd_attempts_total 0.0\n" in answer.body


def test_metrics_as_openmetrics() -> None:
    answer = ask("/metrics", accept="application/openmetrics-text;version=1.0.0")
    assert answer.content_type.startswith("application/openmetrics-text")
    assert answer.body.endswith(b"# EOF\n")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_all_is_well(path: str) -> None:
    answer = ask(path)
    assert (answer.status, answer.body) == (200, b"ok\n")


def test_not_ready_says_why() -> None:
    answer = ask("/readyz", ["the disk is full", "delivery is stopping"])
    assert (answer.status, answer.body) == (503, b"the disk is full\ndelivery is stopping\n")
    assert ask("/healthz", ["the disk is full"]).status == 200


def test_a_loop_that_hangs_is_not_healthy() -> None:
    assert ask("/healthz", lag=MAX_LAG_MS).status == 200
    answer = ask("/healthz", lag=MAX_LAG_MS + 1)
    assert (answer.status, answer.body) == (503, b"the event loop ran 5001 ms late\n")


class LateClock(FakeClock):
    """Each sleep takes longer than asked, by the next of `late` (ms)."""

    def __init__(self, late: list[int]) -> None:
        super().__init__()
        self.late = late

    async def sleep(self, ms: int) -> None:
        if not self.late:
            raise EOFError
        self.advance(ms + self.late.pop(0))


@pytest.mark.parametrize(
    ("late", "worst"), [([], 0), ([0, 700, 3], 700), ([700, *[2] * KEPT], 2), ([-STEP_MS], 0)]
)
async def test_the_worst_lag_of_late(late: list[int], worst: int) -> None:
    lag = LoopLag(LateClock(late))
    with pytest.raises(EOFError):
        await lag.run()
    assert lag.worst_ms() == worst

"""The pages /metrics, /healthz and /readyz, of the ops listener and of the control socket.

Health and readiness are each a callable that gives the reasons against it, most important first; none
is good. The composition root supplies the reasons; these pages only show them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

from mqcd.ops.http.server import Answer, Page, Request
from mqcd.ops.metrics.metrics import Metrics

Reasons = Callable[[], Sequence[str]]
MAX_LAG_MS = 5_000
"""An event loop later than this counts as dead."""


def pages(metrics: Metrics, not_ready: Reasons, loop_lag_ms: Callable[[], int]) -> Mapping[str, Page]:
    """The pages by path. `not_ready`: what keeps the door shut or delivery from running."""
    return {
        "/metrics": lambda request: _exposition(metrics, request),
        "/healthz": _state(lambda: _unhealthy(loop_lag_ms())),
        "/readyz": _state(not_ready),
    }


def _exposition(metrics: Metrics, request: Request) -> Answer:
    body, content_type = metrics.exposition(request.accept)
    return Answer(body=body, content_type=content_type)


def _unhealthy(lag_ms: int) -> Sequence[str]:
    return [f"the event loop ran {lag_ms} ms late"] if lag_ms > MAX_LAG_MS else []


def _state(reasons: Reasons) -> Page:
    def page(_: Request) -> Answer:
        against = reasons()
        if not against:
            return Answer(body=b"ok\n")
        body = "".join(f"{reason}\n" for reason in against).encode()
        return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, body=body)

    return page

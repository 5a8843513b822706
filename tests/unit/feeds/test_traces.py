"""Spans of events, as a collector reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mqcd.feeds.sink import NotTaken
from mqcd.feeds.traces import Traces, spans_of, wanted

BASE = {
    "v": 1, "id": "n/0/1", "spid": "1956F9221B010078", "qid": 1, "sender": "a@x.example",
    "recipient": "b@y.example", "domain": "y.example", "destination": "mx.y.example",
    "connect_ms": 20, "attempt_ms": 30, "queued_ms": 5000,
}  # fmt: skip
DEFERRED = {
    **BASE, "event": "deferred", "at": "2027-01-15T08:00:01.000Z", "attempt": 1, "code": 451,
    "reply": "later",
}  # fmt: skip
DELIVERED = {**BASE, "event": "delivered", "at": "2027-01-15T08:00:05.000Z", "attempt": 2, "code": 250}


def spans(*events: dict[str, Any]) -> list[ReadableSpan]:
    return [span for event in events for span in spans_of(event, Resource.create({}))]


def test_attempts_lie_below_the_recipient() -> None:
    first, second, root = spans(DEFERRED, DELIVERED)
    assert [each.name for each in (first, second, root)] == [
        "attempt mx.y.example", "attempt mx.y.example", "message delivered",
    ]  # fmt: skip
    ids = {each.context.trace_id for each in (first, second, root)}
    assert len(ids) == 1
    for each in (first, second):
        assert each.parent is not None
        assert each.parent.span_id == root.context.span_id
    assert len({each.context.span_id for each in (first, second, root)}) == 3
    assert (first.status.is_ok, second.status.is_ok, first.status.description) == (False, True, "later")


def test_times_are_those_of_the_events() -> None:
    _, attempt, root = spans(DEFERRED, DELIVERED)
    assert None not in (attempt.start_time, attempt.end_time, root.start_time, root.end_time)
    assert (attempt.end_time or 0) - (attempt.start_time or 0) == 50_000_000
    assert (root.end_time or 0) - (root.start_time or 0) == 5_000_000_000
    assert root.end_time == attempt.end_time == 1_800_000_005_000_000_000


def test_an_event_sent_twice_is_the_same_span() -> None:
    once, again = spans(DELIVERED, DELIVERED)[::2]
    assert once.context.span_id == again.context.span_id


@pytest.mark.parametrize(
    ("verb", "is_wanted"), [("delivered", True), ("deferred", True), ("removed", True), ("accepted", False)]
)
def test_only_ends_make_spans(verb: str, is_wanted: bool) -> None:
    assert wanted(json.dumps({**BASE, "event": verb}, separators=(",", ":")).encode()) is is_wanted


class Collector(SpanExporter):
    def __init__(self, result: SpanExportResult) -> None:
        self.result = result
        self.names: list[str] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.names += [span.name for span in spans]
        return self.result


async def test_a_collector_that_fails_takes_nothing() -> None:
    collector = Collector(SpanExportResult.FAILURE)
    traces = Traces("http://collector.example", "node", collector)
    with pytest.raises(NotTaken):
        await traces.send([json.dumps(DELIVERED).encode()])
    collector.result = SpanExportResult.SUCCESS
    await traces.send([json.dumps(DELIVERED).encode()])
    await traces.close()
    assert collector.names == ["attempt mx.y.example", "message delivered"] * 2

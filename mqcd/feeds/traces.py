"""Events as spans of OpenTelemetry: a trace a message, a span a recipient, and one for each attempt below it.

A recipient's span is sent when it ends: it begins with the acceptance (`queued_ms` before the end). An
attempt's is sent when it ends, too, with the time that it took. Their identifiers are made of SPID, QID and
the attempt's number: so spans of one message meet whatever was sent when, and one sent twice is the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from mqcd import __version__
from mqcd.core.events import ATTEMPT_ENDS, LIFE_ENDS, NOT_DELIVERED
from mqcd.feeds.reader import chooser
from mqcd.feeds.sink import NotTaken

wanted = chooser(sorted({*ATTEMPT_ENDS, *LIFE_ENDS}), ())
"""The events that spans are made of."""
_TIMEOUT_S = 10
_NS = 1_000_000
_SHOWN = (
    "sender", "recipient", "domain", "size", "origin", "listener", "client", "user", "tenant", "zone",
    "attempt", "destination", "site", "remote_host", "remote_addr", "source_addr", "code", "status",
    "reply", "phase", "class", "tls", "reason",
)  # fmt: skip
"""Fields of an event that are attributes of its spans, as `mqcd.NAME`."""


class Traces:
    """A collector that takes OTLP over HTTP."""

    def __init__(self, endpoint: str, node: str, exporter: SpanExporter | None = None) -> None:
        self._exporter = exporter or OTLPSpanExporter(endpoint=endpoint, timeout=_TIMEOUT_S)
        self._resource = Resource.create(
            {"service.name": "mqcd", "service.version": __version__, "service.instance.id": node}
        )

    async def send(self, lines: Sequence[bytes]) -> None:
        """One request. Raises NotTaken."""
        spans = [span for line in lines for span in spans_of(json.loads(line), self._resource)]
        if await asyncio.to_thread(self._exporter.export, spans) is not SpanExportResult.SUCCESS:
            raise NotTaken("the collector has not taken the spans")

    async def close(self) -> None:
        """Close its connections."""
        await asyncio.to_thread(self._exporter.shutdown)


def spans_of(event: Mapping[str, Any], resource: Resource) -> Iterator[ReadableSpan]:
    """Of one event: the attempt that ended, the recipient that ended."""
    verb, at = event["event"], _ns(event["at"])
    shown = {f"mqcd.{name}": event[name] for name in _SHOWN if name in event}
    failed = verb in NOT_DELIVERED
    status = Status(StatusCode.ERROR, event.get("reply", "")) if failed else Status(StatusCode.OK)
    root = _context(event)
    if verb in ATTEMPT_ENDS and event.get("destination"):
        spent = event.get("connect_ms", 0) + event.get("attempt_ms", 0)
        yield ReadableSpan(
            name=f"attempt {event['destination']}",
            context=_context(event, event["attempt"]),
            parent=root,
            resource=resource,
            attributes=shown,
            kind=SpanKind.CLIENT,
            status=status,
            start_time=at - spent * _NS,
            end_time=at,
        )
    if verb in LIFE_ENDS:
        yield ReadableSpan(
            name=f"message {verb}",
            context=root,
            resource=resource,
            attributes={"mqcd.spid": event["spid"], "mqcd.qid": event["qid"], **shown},
            kind=SpanKind.SERVER,
            status=status,
            start_time=at - event.get("queued_ms", 0) * _NS,
            end_time=at,
        )


def _context(event: Mapping[str, Any], attempt: int = 0) -> SpanContext:
    spid = event["spid"]
    trace = int.from_bytes(hashlib.sha256(f"mqcd {spid}".encode()).digest()[:16])
    span = int.from_bytes(hashlib.sha256(f"mqcd {spid}/{event['qid']}/{attempt}".encode()).digest()[:8])
    return SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _ns(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000) * _NS

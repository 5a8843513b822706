"""`queue retry`: mail that waits becomes due now, and suspended destinations of it are tried once more.

The command sends a selection as a JSON object, the server answers with `batch`, `matched`, `changed`. Each
suspended destination gets a probe, one recipient; the rest of its mail follows when that got through. One
line of the log names the batch, who asked, and the selection.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from mqcd.core.display import printable
from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import Area
from mqcd.core.ports import Clock, QueueStore
from mqcd.core.queueing.spid import format_spid, parse_spid
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import parse_where
from mqcd.daemon.control.resolving import Resolve, as_it_is
from mqcd.deliver.service import Deliverer
from mqcd.net.control.client import Control, NoAccess, NoAnswer
from mqcd.ops.http.pages import JSON
from mqcd.ops.http.server import Answer, Request

_ASK_S = 600
"""How long a server may take to look through its queue."""
MOST_REASON = 200
"""Characters of a reason that the log keeps."""


class LogEvent(Protocol):
    """Writes one event to the log."""

    def __call__(self, event: str, **fields: str | int) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """The request."""

    selection: Selection
    dry_run: bool = False
    reason: str = ""
    batch: str = ""
    """What the log calls it by; "" = a new name."""

    def fields(self) -> dict[str, object]:
        """As a JSON object; what does not restrict is left out."""
        chosen = self.selection
        fields: dict[str, object] = {
            "area": chosen.area.value if chosen.area is not None else None,
            "spid": format_spid(chosen.spid) if chosen.spid is not None else None,
            "sender": chosen.sender,
            "recipient": chosen.recipient or None,
            "domain": chosen.domain or None,
            "received_before": chosen.received_before,
            "where": str(chosen.where) if chosen.where is not None else None,
            "now": chosen.where.now if chosen.where is not None else None,
            "limit": chosen.limit,
            "dry_run": self.dry_run or None,
            "reason": self.reason or None,
            "batch": self.batch or None,
        }
        return {name: value for name, value in fields.items() if value is not None}


def parse_retry(body: bytes, *, live: bool = False) -> Retry:
    """What `Retry.fields` made; `live` as `parse_where` has it. Raises DecodeError: a condition that is not
    understood selects other mail."""
    try:
        fields = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise DecodeError("expected one JSON object")
    if unknown := fields.keys() - _KINDS.keys():
        raise DecodeError(f"no such field: {min(unknown)}")
    for name, value in fields.items():
        if type(value) is not _KINDS[name]:
            raise DecodeError(f"{name}: expected {_KINDS[name].__name__}")
    return _retry(fields, live)


_KINDS: Mapping[str, type] = {
    "area": str,
    "spid": str,
    "sender": str,
    "recipient": str,
    "domain": str,
    "received_before": int,
    "where": str,
    "now": int,
    "limit": int,
    "dry_run": bool,
    "reason": str,
    "batch": str,
}


def _retry(fields: Mapping[str, Any], live: bool) -> Retry:
    if (limit := fields.get("limit")) is not None and limit < 0:
        raise DecodeError("limit: expected 0 or more")
    try:
        area = Area(fields["area"]) if "area" in fields else None
    except ValueError as error:
        raise DecodeError(f"area: {error}") from error
    if ("where" in fields) is not ("now" in fields):
        raise DecodeError("where and now: expected both, now in ms since 1970")
    try:
        where = parse_where(fields["where"], fields["now"], live=live) if "where" in fields else None
    except DecodeError as error:
        raise DecodeError(f"where: {error}") from error
    selection = Selection(
        area=area,
        spid=parse_spid(fields["spid"]) if "spid" in fields else None,
        sender=fields.get("sender"),
        recipient=fields.get("recipient", ""),
        domain=fields.get("domain", ""),
        received_before=fields.get("received_before"),
        where=where,
        limit=limit,
    )
    reason = printable(fields.get("reason", ""))[:MOST_REASON]
    batch = printable(fields.get("batch", ""))[:MOST_REASON]
    return Retry(
        selection=selection,
        dry_run=fields.get("dry_run", False),
        reason=reason,
        batch=batch,
    )


def ask_retry(control: Path, retry: Retry) -> Mapping[str, object]:
    """The running server's answer. Raises NoAnswer, DecodeError."""
    try:
        status, text = Control(control).post("/v1/retry", retry.fields(), _ASK_S)
    except NoAccess:
        raise
    except NoAnswer as error:
        raise NoAnswer(f"{error}; only a running server tries mail") from error
    if status == HTTPStatus.BAD_REQUEST:
        raise DecodeError(text.strip())
    if status != HTTPStatus.OK:
        raise NoAnswer(f"the server says: {text.strip()}")
    done: Mapping[str, object] = json.loads(text)
    return done


class Retrying:
    """The page /v1/retry, one request at a time."""

    def __init__(
        self,
        store: QueueStore,
        deliverer: Deliverer,
        clock: Clock,
        log_event: LogEvent,
        resolve: Resolve = as_it_is,
    ) -> None:
        self._store = store
        self._deliverer = deliverer
        self._clock = clock
        self._log_event = log_event
        self._resolve = resolve
        self._turn = asyncio.Lock()

    async def page(self, request: Request) -> Answer:
        """Do it, and say what came of it."""
        try:
            retry = parse_retry(request.body, live=True)
            async with self._turn:
                done = await self._do(retry, request.by)
        except DecodeError as error:
            return Answer(status=HTTPStatus.BAD_REQUEST, body=f"{error}\n".encode())
        except StoreUnavailable as error:
            return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, body=f"{error}\n".encode())
        return Answer(body=json.dumps(done, separators=(",", ":")).encode() + b"\n", content_type=JSON)

    async def _do(self, retry: Retry, by: str) -> Mapping[str, object]:
        resolved = await self._resolve(retry.selection)
        found = await self._store.expedite(resolved.selection, dry_run=True)
        if retry.dry_run or not found.matched:
            return {"batch": None, "matched": found.matched, "changed": 0, **resolved.fields()}
        batch = retry.batch or f"{self._clock.now():X}-{secrets.token_hex(2)}"
        # Before its mail is due: claims would pass it over until the next probe's time.
        self._deliverer.probe(found.domains)
        done = await self._store.expedite(resolved.selection)
        fields = {name: str(value) for name, value in retry.fields().items() if name != "batch"}
        self._log_event("retry", batch=batch, by=by, matched=done.matched, changed=done.changed, **fields)
        return {"batch": batch, "matched": done.matched, "changed": done.changed, **resolved.fields()}

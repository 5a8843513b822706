"""Batches: what operators do to a selection of recipients, carried out some at a time beside delivery.

A request is written to a file before anything is changed, and the file goes when all is done. So a batch that
was answered is carried out whole: a start continues each one that it finds. A recipient is changed by one
frame or transaction, and bears the batch's id: no batch changes it twice. One batch runs at a time.

A recipient in flight is passed over, and counted in `in_flight`.

Pages: POST /v1/batch asks for one (`dry_run`: counts, and shows the first few); GET /v1/batches?id=ID says
how far it is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from mqcd.config.kinds.fields import BadValue
from mqcd.config.kinds.names import Endpoint
from mqcd.core.address import check_address
from mqcd.core.display import printable
from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import Action, Amended, Area, Batch, Purged, Recipient, Settlement
from mqcd.core.ports import Clock, QueueStore
from mqcd.core.queueing.amendment import ENDS, applies, batch_of
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.control.retrying import MOST_REASON, LogEvent, Retry, parse_retry
from mqcd.disk.durable import Disk, describe
from mqcd.ops.http.pages import JSON
from mqcd.ops.http.server import Answer, Request

log = logging.getLogger(__name__)

BATCH, BATCHES = "/v1/batch", "/v1/batches"
DEFAULT_PORT = 25
"""Of a next hop that is named without one."""
SAMPLE = 5
"""Recipients that a dry run shows."""
_KEPT = 100
"""Ended batches of which the outcome is remembered."""
_AGAIN_MS = 1000
"""How long after a failure of the store it is asked again."""
_PURGE_MS = 5000
"""How often ended graces are looked for."""
_PURGED_AT_ONCE = 500
_AREA_UNDONE = {Action.HOLD: Area.HELD, Action.REMOVE: Area.REMOVED, Action.BOUNCE: Area.REMOVED}
"""Where the recipients of a batch are as long as it can be undone; of other actions they may be anywhere."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """A batch and what it is for."""

    batch: Batch
    selection: Selection

    def fields(self) -> dict[str, object]:
        """As a JSON object."""
        batch = {name: getattr(self.batch, name) for name in _BATCH} | {"action": self.batch.action.value}
        return {**batch, "selection": Retry(selection=self.selection).fields()}


_BATCH: Mapping[str, type] = {
    "id": str,
    "action": str,
    "at": int,
    "by": str,
    "reason": str,
    "until": int,
    "target": str,
    "report": bool,
}


def parse_order(fields: Mapping[str, Any]) -> Order:
    """What `Order.fields` made. Raises DecodeError."""
    known = {name: fields[name] for name in _BATCH if name in fields}
    for name, value in known.items():
        if type(value) is not _BATCH[name]:
            raise DecodeError(f"{name}: expected {_BATCH[name].__name__}")
    if unknown := fields.keys() - _BATCH.keys() - {"selection"}:
        raise DecodeError(f"no such field: {min(unknown)}")
    try:
        action = Action(known.pop("action", ""))
    except ValueError as error:
        raise DecodeError(f"action: {error}") from error
    reason = printable(known.pop("reason", ""))[:MOST_REASON]
    selection = parse_retry(json.dumps(fields.get("selection", {})).encode()).selection
    batch = Batch(**{"id": "", "at": 0, "by": "", **known}, action=action, reason=reason)
    if not batch.id.isprintable() or " " in batch.id or "/" in batch.id:
        raise DecodeError("id: expected a word")
    if action is Action.UNDO and not batch.target:
        raise DecodeError("target: expected the name of a batch")
    if action is Action.REDIRECT:
        batch = replace(batch, target=_target(batch.target))
    return Order(batch=batch, selection=selection)


def _target(text: str) -> str:
    """An address, or a next hop as `host:port`. Raises DecodeError."""
    if "@" in text:
        return check_address(text)
    try:
        hop = Endpoint(DEFAULT_PORT).parse(text)
    except BadValue as error:
        raise DecodeError(f"target: {error}") from error
    return f"{hop.host}:{hop.port}"


def name_of(action: str, at: int) -> str:
    """A name for a new batch."""
    return f"{action}-{at:X}-{secrets.token_hex(2)}"


def widest(order: Order) -> Selection:
    """The selection that an undo has to look through: what its batch's name says of it."""
    if order.batch.action is not Action.UNDO:
        return order.selection
    action = order.batch.target.partition("-")[0]
    area = _AREA_UNDONE.get(Action(action)) if action in [each.value for each in Action] else None
    return replace(order.selection, area=area)


@dataclass(slots=True)
class Outcome:
    """How far a batch is."""

    changed: int = 0
    in_flight: int = 0
    done: bool = False
    resumed: bool = False
    """Whether an earlier run has begun it."""
    trouble: str = ""
    """Why it does not go on."""
    sample: list[dict[str, object]] = field(default_factory=list)

    def fields(self, batch: str | None) -> dict[str, object]:
        """As answered; `matched` is what was selected and could be changed, or was in flight."""
        return {
            "batch": batch,
            "matched": self.changed + self.in_flight,
            "changed": self.changed,
            "in_flight": self.in_flight,
            "done": self.done,
            "trouble": self.trouble,
        }


class Batches:
    """Those of one process."""

    def __init__(
        self,
        store: QueueStore,
        clock: Clock,
        directory: Path,
        shard: int,
        grace_ms: int,
        log_event: LogEvent,
        disk: Disk | None = None,
    ) -> None:
        """`directory` is that of the files, which the shards share."""
        self._store = store
        self._clock = clock
        self._directory = directory
        self._shard = shard
        self._log_event = log_event
        self._disk = disk or Disk()
        self._waiting: asyncio.Queue[Order] = asyncio.Queue()
        self._outcomes: OrderedDict[str, Outcome] = OrderedDict()
        self.grace_ms = grace_ms
        """How long what is removed can be restored."""

    # ------------------------------------------------------------ pages

    async def ask(self, request: Request) -> Answer:
        """POST: count for a dry run, or begin."""
        try:
            fields = json.loads(request.body or b"{}")
            if not isinstance(fields, dict):
                raise DecodeError("expected one JSON object")
            dry_run = fields.pop("dry_run", False) is True
            order = self._complete(parse_order(fields), request.uid)
            if dry_run:
                outcome = await self.count(order)
                return _json({**outcome.fields(None), "sample": outcome.sample})
            await self.begin(order)
        except (ValueError, RecursionError, DecodeError) as error:
            return Answer(status=HTTPStatus.BAD_REQUEST, body=f"{error}\n".encode())
        except StoreUnavailable as error:
            return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, body=f"{error}\n".encode())
        return _json(self._outcomes[order.batch.id].fields(order.batch.id))

    def progress(self, request: Request) -> Answer:
        """GET: how far a batch is."""
        name = parse_qs(request.query).get("id", [""])[0]
        outcome = self._outcomes.get(name)
        if outcome is None:
            return Answer(status=HTTPStatus.NOT_FOUND, body=b"no such batch since the server's start\n")
        return _json(outcome.fields(name))

    def _complete(self, order: Order, uid: int) -> Order:
        """With what the asker left to the server."""
        batch = order.batch
        at = batch.at or self._clock.now()
        return replace(
            order,
            batch=replace(
                batch,
                id=batch.id or name_of(batch.action, at),
                at=at,
                # The front process is of the server's own user, and says who asked it.
                by=batch.by if batch.by and uid == os.geteuid() else f"uid:{uid}",
                until=at + self.grace_ms if batch.action in ENDS else batch.until,
                report=batch.report and batch.action in ENDS,
            ),
        )

    async def count(self, order: Order) -> Outcome:
        """What a batch would change."""
        outcome = Outcome(done=True)
        selection = widest(order)
        async for each in self._store.scan(replace(selection, limit=None)):
            if selection.limit is not None and outcome.changed >= selection.limit:
                break
            if not applies(each, order.batch):
                continue
            if self._store.in_flight(each):
                outcome.in_flight += 1
                continue
            outcome.changed += 1
            if len(outcome.sample) < SAMPLE:
                outcome.sample.append(_shown(each))
        return outcome

    # ------------------------------------------------------------ work

    async def begin(self, order: Order) -> None:
        """Take responsibility for a batch. Raises StoreUnavailable."""
        path = self._path(order.batch.id)
        text = json.dumps(order.fields()).encode()
        try:
            self._disk.mkdir(self._directory)
            await asyncio.to_thread(self._disk.replace_file, path, [text])
        except OSError as error:
            raise StoreUnavailable(f"the batch cannot be recorded: {describe(error)}") from error
        self._add(order)

    def _add(self, order: Order) -> None:
        self._outcomes[order.batch.id] = Outcome()
        while len(self._outcomes) > _KEPT and next(iter(self._outcomes.values())).done:
            self._outcomes.popitem(last=False)
        self._waiting.put_nowait(order)

    def _path(self, name: str) -> Path:
        return self._directory / f"{self._shard}-{name}.json"

    def resume(self) -> None:
        """Go on with what the last run began. A file that is no batch is logged, and stays."""
        try:
            names = self._disk.names(self._directory)
        except FileNotFoundError:
            return
        for name in sorted(names):
            if name.startswith(f"{self._shard}-") and name.endswith(".json"):
                path = self._directory / name
                try:
                    order = parse_order(json.loads(self._disk.read_file(path)))
                except (OSError, ValueError, DecodeError) as error:
                    log.error("%s is no batch: %s", path, error)
                    continue
                log.warning("batch %s goes on: the last run did not end it", order.batch.id)
                self._add(order)
                self._outcomes[order.batch.id].resumed = True

    async def _changed_before(self, order: Order) -> int:
        """How many recipients bear the mark of a batch."""
        found = [batch_of(each) async for each in self._store.scan(replace(widest(order), limit=None))]
        return found.count(order.batch.id)

    async def run(self) -> None:
        """Carry out batches, one after another, for ever."""
        self.resume()
        while True:
            order = await self._waiting.get()
            outcome = self._outcomes[order.batch.id]
            while not outcome.done:
                try:
                    await self._carry_out(order, outcome)
                except StoreUnavailable as error:
                    outcome.trouble = str(error)
                    await self._clock.sleep(_AGAIN_MS)

    async def _carry_out(self, order: Order, outcome: Outcome) -> None:
        batch = order.batch
        selection = widest(order)
        if selection.limit is not None:
            if outcome.resumed:
                outcome.changed = await self._changed_before(order)
                outcome.resumed = False
            selection = replace(selection, limit=selection.limit - outcome.changed)
        outcome.in_flight = 0
        async with aclosing(self._store.pick(selection, batch)) as parts:
            async for part in parts:
                outcome.in_flight += part.in_flight
                await self._settle([
                    Settlement(recipient=each, verdict=Amended(batch=batch)) for each in part.recipients
                ])  # fmt: skip
                outcome.changed += len(part.recipients)
                outcome.trouble = ""
        try:
            await asyncio.to_thread(self._forget, self._path(batch.id))
        except OSError as error:
            raise StoreUnavailable(f"the batch is done, its file cannot go: {describe(error)}") from error
        outcome.done = True
        fields: dict[str, str | int] = {
            "batch": batch.id,
            "by": batch.by,
            "changed": outcome.changed,
            "in_flight": outcome.in_flight,
        }
        self._log_event(batch.action.value, **fields, **({"reason": batch.reason} if batch.reason else {}))

    def _forget(self, path: Path) -> None:
        # Durable, or a later start would do it again, to recipients that were released since.
        self._disk.unlink(path)
        self._disk.sync_dir(path.parent)

    async def _settle(self, settlements: list[Settlement]) -> None:
        """What was claimed is settled; a store that cannot record it now is asked again."""
        while settlements:
            try:
                await self._store.settle(settlements)
                return
            except StoreUnavailable as error:
                log.warning("a batch waits: %s", error)
                await self._clock.sleep(_AGAIN_MS)

    async def purge(self) -> None:
        """End removals whose grace is over, for ever."""
        while True:
            await self._clock.sleep(_PURGE_MS)
            while self._store.stats()[Area.REMOVED].recipients and (
                found := await self._store.claim_removed(_PURGED_AT_ONCE)
            ):
                await self._settle([Settlement(recipient=each, verdict=Purged()) for each in found])


def _shown(recipient: Recipient) -> dict[str, object]:
    return {
        "spid": format_spid(recipient.spid),
        "qid": recipient.qid,
        "area": recipient.area.value,
        "sender": recipient.envelope.sender,
        "recipient": recipient.address,
    }


def _json(fields: Mapping[str, object]) -> Answer:
    return Answer(body=json.dumps(fields, separators=(",", ":")).encode() + b"\n", content_type=JSON)

"""What a batch is asked to do, how far it is, and the files that keep both.

A file in the directory of batches is a batch that is under way; one in `ended` below it is one of the last
that have ended, with what came of it.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mqcd.config.kinds.fields import BadValue
from mqcd.config.kinds.names import Endpoint
from mqcd.core.address import check_address
from mqcd.core.display import printable
from mqcd.core.errors import DecodeError
from mqcd.core.events import format_time
from mqcd.core.model import Action, Area, Batch
from mqcd.core.queueing.amendment import ENDS, LATEST_MS, SPENT
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import Where, parse_where
from mqcd.core.selecting.where_fields import LIVE
from mqcd.core.value import value
from mqcd.daemon.control.api.fields import object_in
from mqcd.daemon.control.selections import parse_selection, selection_fields
from mqcd.disk.durable import Disk, describe
from mqcd.ops.http.server import Request
from mqcd.ops.log.log import MOST_REASON

log = logging.getLogger(__name__)

DEFAULT_PORT = 25
"""Of a next hop that is named without one."""
_NAME = re.compile(r"[!-.0-~]{0,100}")
"""Of a batch: it is a word in records, and part of the name of a file."""
RESOLVED = "resolved"
SAMPLE = 5
"""Recipients that a dry run shows."""
KEPT = 100
"""Ended batches of which the outcome is remembered."""
_AREA_UNDONE = {Action.HOLD: Area.HELD, Action.REMOVE: Area.REMOVED, Action.BOUNCE: Area.REMOVED}
"""Where the recipients of a batch are as long as it can be undone; of other actions they may be anywhere."""


@value
class Order:
    """A batch and what it is for."""

    batch: Batch
    selection: Selection
    """As it was asked for."""
    resolved: Where | None = None
    """What its condition meant for records then; None = the same."""
    unrouted: int = 0
    """Domains that had no route then: their mail is of no site."""

    @property
    def unresolved(self) -> bool:
        """Whether its condition is not one on records: it was recorded while the shard was out of service."""
        where = self.selection.where
        return self.resolved is None and where is not None and not where.fields.isdisjoint(LIVE)

    @property
    def effective(self) -> Selection:
        """The selection of records."""
        return self.selection if self.resolved is None else replace(self.selection, where=self.resolved)

    def asks_as(self, other: Order) -> bool:
        """Whether the same was asked for."""
        return (self.batch, self.selection) == (other.batch, other.selection)

    def fields(self) -> dict[str, object]:
        """As a JSON object."""
        batch = {name: getattr(self.batch, name) for name in _BATCH} | {"action": self.batch.action.value}
        resolved = {} if self.resolved is None else {RESOLVED: str(self.resolved)}
        return {**batch, "selection": selection_fields(self.selection), **resolved}


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


def parse_order(fields: Mapping[str, Any], *, dry_run: bool = False) -> Order:
    """What `Order.fields` made; for a dry run it may lack what only a change needs. Raises DecodeError."""
    known = {name: fields[name] for name in _BATCH if name in fields}
    for name, given in known.items():
        if type(given) is not _BATCH[name]:
            raise DecodeError(f"{name}: expected {_BATCH[name].__name__}")
        if type(given) is int and not 0 <= given <= LATEST_MS:
            raise DecodeError(f"{name}: expected a time in ms since 1970, 0 to {LATEST_MS}")
    if unknown := fields.keys() - _BATCH.keys() - {"selection", RESOLVED}:
        raise DecodeError(f"no such field: {min(unknown)}")
    try:
        action = Action(known.pop("action", ""))
    except ValueError:
        raise DecodeError(f"action: expected one of {', '.join(Action)}") from None
    reason = printable(known.pop("reason", ""))[:MOST_REASON]
    selection = parse_selection(fields.get("selection", {}), live=True)
    batch = Batch(**{"id": "", "at": 0, "by": "", **known}, action=action, reason=reason)
    if not _is_name(batch.id):
        raise DecodeError("id: expected a word of at most 100 letters, digits and signs, without /")
    batch = _detailed(batch, dry_run=dry_run)
    return Order(batch=batch, selection=selection, resolved=_resolved(fields, selection))


def _detailed(batch: Batch, *, dry_run: bool) -> Batch:
    """With its target as it is recorded. Raises DecodeError for what its action needs and has not."""
    if batch.action is Action.UNDO and not (batch.target and _is_name(batch.target)):
        # A dry run needs it too: it selects what would be restored.
        raise DecodeError("target: expected the name of a batch")
    if batch.action is Action.RESCHEDULE and not (batch.until or dry_run):
        raise DecodeError("until: expected the time of the next attempt")
    if batch.action is Action.REDIRECT and (batch.target or not dry_run):
        return replace(batch, target=_target(batch.target))
    return batch


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and not text.startswith(SPENT)


def _resolved(fields: Mapping[str, Any], selection: Selection) -> Where | None:
    if RESOLVED not in fields:
        return None
    if selection.where is None or not isinstance(fields[RESOLVED], str):
        raise DecodeError(f"{RESOLVED}: expected a condition, and one in the selection, too")
    return parse_where(fields[RESOLVED], selection.where.now)


def fields_in(request: Request) -> dict[str, Any]:
    """The JSON object of a request. Raises DecodeError."""
    return object_in(request.body or b"{}")


def take_dry_run(fields: dict[str, Any]) -> bool:
    """Take out whether a request only asks what it would do. Raises DecodeError for what is neither: it might
    be meant so."""
    value = fields.pop("dry_run", False)
    if not isinstance(value, bool):
        raise DecodeError("dry_run: expected bool")
    return value


def _target(text: str) -> str:
    """An address, or a next hop as `host:port`. Raises DecodeError."""
    if "@" in text:
        return check_address(text)
    try:
        hop = Endpoint(DEFAULT_PORT).parse(text)
    except BadValue as error:
        raise DecodeError(f"target: {error}") from error
    return f"{hop.host}:{hop.port}"


def completed(order: Order, *, by: str, now: int, grace_ms: int) -> Order:
    """With what the asker left to the server; `grace_ms`: how long what is removed can be restored."""
    batch, action = order.batch, order.batch.action
    at = batch.at or now
    times = {**dict.fromkeys(ENDS, min(at + grace_ms, LATEST_MS)), Action.RETRY: at}
    name, report = batch.id or name_of(action, at), batch.report and action in ENDS
    until = times.get(action, batch.until)
    return replace(order, batch=replace(batch, id=name, at=at, by=by, until=until, report=report))


def record(disk: Disk, directory: Path, shard: int, order: Order) -> None:
    """Have a shard carry out a batch, now or when it is back in service. Raises OSError: then it does not,
    unless the error says so or the batch was recorded before."""
    path = path_of(directory, shard, order)
    disk.mkdir(directory)
    before = path.exists()
    try:
        disk.replace_file(path, [json.dumps(order.fields()).encode()])
    except OSError as error:
        try:
            if not before and path.exists():
                # It has its name: the directory is synced after that.
                disk.unlink(path)
        except OSError:
            text = f"{error.strerror}; its file cannot be removed, so it may be carried out all the same"
            raise OSError(error.errno, text, error.filename) from error
        raise


def path_of(directory: Path, shard: int, order: Order) -> Path:
    """The file of a shard's part of a batch."""
    return directory / f"{shard}-{order.batch.id}.json"


def name_of(action: str, at: int) -> str:
    """A name for a new batch."""
    return f"{action}-{at:X}-{secrets.token_hex(2)}"


@dataclass(slots=True)
class Outcome:
    """How far a batch is."""

    order: Order
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
            **({"unrouted": self.order.unrouted} if self.order.unrouted else {}),
        }

    @property
    def takes_back(self) -> str:
        """The name of the batch that it has undone as a whole; "" = none."""
        undoes = self.order.batch.action is Action.UNDO and self.order.selection.everything
        return self.order.batch.target if undoes and self.done else ""

    def row(self, now: int, undone: Container[str]) -> dict[str, object]:
        """A batch with all that is known of it: also who asked for it, and whether it can be undone, which
        those in `undone` have been. Graces that end until `now` are over."""
        batch = self.order.batch
        until = batch.until if batch.action in ENDS else 0
        return {
            **self.fields(batch.id),
            "action": batch.action.value,
            "at": format_time(batch.at),
            "by": batch.by,
            "reason": batch.reason,
            "selection": selection_fields(self.order.selection),
            "undo": self.changed > 0
            and batch.action is not Action.UNDO
            and batch.id not in undone
            and (not until or until > now),
            "undo_until": format_time(until) if until else None,
        }


def sought(order: Order, known: Mapping[str, Outcome]) -> Selection:
    """What a batch looks through. An undo of a known batch need not look everywhere; a name says nothing."""
    selection, batch = order.effective, order.batch
    if batch.action is not Action.UNDO or batch.target not in known or selection.area is not None:
        return selection
    return replace(selection, area=_AREA_UNDONE.get(known[batch.target].order.batch.action))


Found = tuple[Path, Order, Mapping[str, Any]]
"""A file, the batch in it, and what else it says."""


def files_of(disk: Disk, directory: Path, shard: int, logged: set[Path]) -> Iterator[Found]:
    """The batches of a shard in a directory, the oldest first. A file that is none stays; it is logged unless
    it is in `logged` already."""
    try:
        names = disk.names(directory)
    except FileNotFoundError:
        return
    found: list[Found] = []
    for name in sorted(names):
        if not (name.startswith(f"{shard}-") and name.endswith(".json")):
            continue
        path = directory / name
        try:
            fields = object_in(disk.read_file(path))
            outcome = fields.pop("outcome", {})
            if not isinstance(outcome, dict):
                raise DecodeError("outcome: expected one JSON object")
            found.append((path, parse_order(fields), outcome))
        except (OSError, DecodeError) as error:
            if path not in logged:
                log.error("%s is no batch: %s", path, error)
            logged.add(path)
    # An undo comes after what it undoes.
    yield from sorted(found, key=_asked_at)


class Ended:
    """Files of the last batches that have ended: a start knows them, and what can be undone."""

    def __init__(self, disk: Disk, directory: Path, shard: int) -> None:
        self._disk = disk
        self._directory = directory
        self._shard = shard
        self._logged: set[Path] = set()

    def add(self, outcome: Outcome) -> None:
        """Keep one, and no more than there may be. A disk that does not take it costs the list an entry."""
        order = outcome.order
        fields = {**order.fields(), "outcome": {"changed": outcome.changed, "in_flight": outcome.in_flight}}
        try:
            self._disk.mkdir(self._directory)
            path = path_of(self._directory, self._shard, order)
            self._disk.replace_file(path, [json.dumps(fields).encode()])
            found = list(files_of(self._disk, self._directory, self._shard, self._logged))
            for old, _, _ in found[:-KEPT]:
                self._disk.unlink(old)
        except OSError as error:
            log.warning("batch %s has ended, and will not be listed: %s", order.batch.id, describe(error))

    def load(self) -> Sequence[Outcome]:
        """The kept ones, the oldest first."""
        return [
            Outcome(
                order=order,
                done=True,
                changed=_number(outcome, "changed"),
                in_flight=_number(outcome, "in_flight"),
            )
            for _, order, outcome in files_of(self._disk, self._directory, self._shard, self._logged)
        ]


def _asked_at(found: Found) -> int:
    return found[1].batch.at


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name, 0)
    return value if isinstance(value, int) else 0

"""Batches: what operators do to a selection of recipients, carried out some at a time beside delivery.

A request is written to a file before anything is changed, and the file goes when all is done. So a batch that
was answered is carried out whole: a start continues each one that it finds. A recipient is changed by one
frame or transaction, and bears the batch's id: no batch changes it twice. One batch runs at a time.

| state | it is in | on disk | entered by | left |
|---|---|---|---|---|
| recording | `_recording` | perhaps its file | `_new` | file written: waiting; it fails: unknown again |
| waiting | `_outcomes`, `_waiting` | its file | `_add` | its turn in `run`: under way |
| under way | `_outcomes` | its file | `run` | all is done, or it means nothing: ended (`_end`) |
| ended | `_outcomes`, `done` | a file in `ended` | `_end` | more than `KEPT` are known: it is unknown again |

A batch under way stays so while the store or the disk fails (`trouble`). What has its file waits again in the
next run (`resumed`). A name is in one state at most: only `_new` lets a batch in.

A recipient in flight is passed over, and counted in `in_flight`. Delivery does not try it any more, unless
its attempt is under way and succeeds; what has not followed yet outlives the server (`following`).

Pages: POST /v1/batch asks for one (`dry_run`: counts, and shows the first few); GET /v1/batches lists the
last ones, also those of earlier runs, and with ?id=ID says how far one is.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

from mqcd.core.display import span
from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import Action, Area, Batch, Purged, Recipient, Settlement
from mqcd.core.ports import Clock
from mqcd.core.queueing.amendment import applies
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.control.actions.applying import AGAIN_MS, apply, settle
from mqcd.daemon.control.actions.following import Following, Source
from mqcd.daemon.control.actions.orders import (
    KEPT,
    SAMPLE,
    Ended,
    Order,
    Outcome,
    completed,
    fields_in,
    files_of,
    parse_order,
    path_of,
    record,
    sought,
    take_dry_run,
)
from mqcd.daemon.control.api.binding import Given, Missing
from mqcd.daemon.control.resolving import Resolve, as_it_is
from mqcd.daemon.control.selections import selection_fields
from mqcd.daemon.storing import ServedStore
from mqcd.disk.durable import Disk, describe
from mqcd.ops.http.pages import JSON
from mqcd.ops.http.server import Answer, Request
from mqcd.ops.log.log import MOST_REASON, LogEvent

log = logging.getLogger(__name__)

BATCH, BATCHES = "/v1/batch", "/v1/batches"
_PURGE_MS = 5000
"""How often ended graces are looked for."""
MOST_PROBED = 10_000
"""Lane keys that a probe is asked for by name; with more of them all are probed."""
_PURGED_AT_ONCE = 500
_PURGE_RESTS = 4
"""So many times as long as a part of it took a purge rests."""


Reach = Callable[[Collection[tuple[int, int]], Batch, Selection], None]
"""Takes SPID and QID of each, and what the batch selects."""


class Batches:
    """Those of one process."""

    def __init__(
        self,
        store: ServedStore,
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
        self._waiting: asyncio.Queue[Outcome] = asyncio.Queue()
        self._outcomes: OrderedDict[str, Outcome] = OrderedDict()
        self._resumed = False
        """Whether it is known what has ended and what is to go on."""
        self._recording: dict[str, asyncio.Event] = {}
        """Names of batches whose files are not written yet; set when that has ended."""
        self._believed = 0
        """The wall time when the clock was not in doubt last: no grace that ends later is over."""
        self._ended = Ended(self._disk, directory / "ended", shard)
        self._following = Following(self._disk, directory / "following" / f"{shard}.json")
        self._noting = asyncio.Lock()
        self.reach: Reach = lambda _keys, _batch, _selection: None
        """Has a batch reach recipients in flight. Set where mail is delivered."""
        self.probe: Callable[[Collection[str] | None], None] = lambda _keys: None
        """Has suspended destinations of mail with these lane keys (None = all) tried. Set as well."""
        self.resolve: Resolve = as_it_is
        """Set where routes are known."""
        self.pending: Source = tuple
        """What batches have still to do to recipients that were in flight. Set with it."""
        self.longest_ms = 0
        """The longest retry delay: no due time lies further ahead. 0 = not known."""
        self.grace_ms = grace_ms
        """How long what is removed can be restored."""

    # ------------------------------------------------------------ pages

    async def ask(self, request: Request) -> Answer:
        """POST: count for a dry run, or begin."""
        try:
            fields = fields_in(request)
            dry_run = take_dry_run(fields)
            now = self._clock.now()
            order = parse_order(fields, dry_run=dry_run)
            order = completed(order, by=request.by, now=now, grace_ms=self.grace_ms)
            self._check(order.batch)
            if dry_run:
                outcome = await self.counted(order)
                return _json({**outcome.fields(None), "sample": outcome.sample})
            await self._begin_or_find(order)
        except DecodeError as error:
            return Answer(status=HTTPStatus.BAD_REQUEST, body=f"{error}\n".encode())
        except StoreUnavailable as error:
            return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, body=f"{error}\n".encode())
        return _json(self._outcomes[order.batch.id].fields(order.batch.id))

    async def _begin_or_find(self, order: Order) -> None:
        """Have a batch that does this, of its name. Raises StoreUnavailable, DecodeError if it is another."""
        name = order.batch.id
        if not self._resumed:
            # It may be one of the last run, which has changed some already.
            try:
                self.resume()
            except OSError as error:
                raise StoreUnavailable(f"the batch cannot be recorded: {describe(error)}") from error
        while name in self._recording:
            # If that fails it is the turn of this one.
            await self._recording[name].wait()
        with self._new(name) as new:
            if new:
                await self._record(await self._resolved(order))
            elif not self._outcomes[name].order.asks_as(order):
                text = f"there is another batch {name}; leave the id out, or give another one"
                raise DecodeError(f"id: {text}")

    def progress(self, _request: Request, given: Given) -> object:
        """GET: the last batches, the newest first; or how far one is."""
        now = self._last_believed()
        undone = {outcome.takes_back for outcome in self._outcomes.values()}
        if "id" not in given:
            return [outcome.row(now, undone) for outcome in reversed(self._outcomes.values())]
        outcome = self._outcomes.get(given["id"])
        if outcome is None:
            raise Missing("no such batch among the last ones")
        return outcome.row(now, undone)

    def _last_believed(self) -> int:
        if self._store.may_expire():
            self._believed = self._clock.now()
        return self._believed

    def _check(self, batch: Batch) -> None:
        """Raises DecodeError for what cannot be done."""
        latest = self._clock.now() + self.longest_ms
        if batch.action is Action.RESCHEDULE and self.longest_ms and batch.until > latest:
            most = span(self.longest_ms)
            text = f"until: no attempt can be put off by more than the longest retry delay, {most}"
            raise DecodeError(f"{text}; a hold keeps mail back until it is released")

    async def _resolved(self, order: Order) -> Order:
        """With the condition as it is meant for records now. Raises DecodeError, StoreUnavailable."""
        found = await self.resolve(order.selection)
        where = found.selection.where
        return replace(
            order, resolved=where if where != order.selection.where else None, unrouted=found.unrouted
        )

    async def counted(self, order: Order) -> Outcome:
        """What a batch would change. Raises DecodeError, StoreUnavailable."""
        order = await self._resolved(order)
        outcome = Outcome(order=order, done=True)
        selection = sought(order, self._outcomes)
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
        """Take responsibility for a batch, unless one of its name is known. Raises StoreUnavailable."""
        with self._new(order.batch.id) as new:
            if new:
                await self._record(order)

    @contextmanager
    def _new(self, name: str) -> Iterator[bool]:
        """While one is recorded; False where a batch of this name is known. Nothing awaits between the look
        and the entry."""
        if name in self._recording or name in self._outcomes:
            yield False
            return
        ended = self._recording[name] = asyncio.Event()
        try:
            yield True
        finally:
            del self._recording[name]
            ended.set()

    async def _record(self, order: Order) -> None:
        try:
            await asyncio.to_thread(record, self._disk, self._directory, self._shard, order)
        except OSError as error:
            raise StoreUnavailable(f"the batch cannot be recorded: {describe(error)}") from error
        self._add(Outcome(order=order))

    def _add(self, outcome: Outcome) -> None:
        self._outcomes[outcome.order.batch.id] = outcome
        while len(self._outcomes) > KEPT and next(iter(self._outcomes.values())).done:
            self._outcomes.popitem(last=False)
        self._waiting.put_nowait(outcome)

    async def recall(self) -> None:
        """Have the batches of earlier runs reach what was in flight then."""
        for batch, selection, keys in self._following.load():
            self.reach(keys, batch, selection)

    def resume(self) -> None:
        """Remember what has ended, and go on with what the last run began. A file that is no batch is logged,
        and stays. Raises OSError."""
        for outcome in self._ended.load():
            self._outcomes.setdefault(outcome.order.batch.id, outcome)
        self._take_up("the last run did not end it")
        self._resumed = True

    def _take_up(self, why: str) -> None:
        """Go on with recorded batches that this process does not know. Raises OSError."""
        for path, order, _ in files_of(self._disk, self._directory, self._shard):
            name = order.batch.id
            with self._new(name) as new:
                if new:
                    log.warning("batch %s goes on: %s", name, why)
                    self._add(Outcome(order=order, resumed=True))
                elif name in self._outcomes and self._outcomes[name].done:
                    # The front process recorded it for a shard that was slow to answer.
                    self._disk.unlink(path)

    async def _changed_before(self, batch: Batch) -> int:
        """How many recipients a batch has changed in earlier runs, also those that have left the queue or
        were changed again. Raises StoreUnavailable."""
        try:
            return await self._store.changed_by(batch.id, batch.at)
        except OSError as error:
            raise StoreUnavailable(f"what the batch has done cannot be counted: {error}") from error

    async def run(self) -> None:
        """Carry out batches, one after another, for ever."""
        while not self._resumed:
            try:
                self.resume()
            except OSError as error:
                log.warning("what the last run left of batches cannot be read: %s", describe(error))
                await self._clock.sleep(AGAIN_MS)
        while True:
            outcome = await self._waiting.get()
            while not outcome.done:
                try:
                    if outcome.order.unresolved:
                        outcome.order = await self._resolved(outcome.order)
                    await self._carry_out(outcome)
                except DecodeError as error:
                    log.error("batch %s changes nothing: %s", outcome.order.batch.id, error)
                    await self._end(outcome, str(error))
                except StoreUnavailable as error:
                    outcome.trouble = str(error)
                    await self._clock.sleep(AGAIN_MS)

    async def _carry_out(self, outcome: Outcome) -> None:
        order, batch = outcome.order, outcome.order.batch
        selection = sought(order, self._outcomes)
        if outcome.resumed:
            outcome.changed = await self._changed_before(batch)
            outcome.resumed = False
        if selection.limit is not None:
            selection = replace(selection, limit=selection.limit - outcome.changed)
        if batch.action is Action.RETRY:
            # Before its mail is due: claims would pass it over until the next probe's time.
            await self._probe(selection)
        busy: list[tuple[int, int]] = []
        async with aclosing(apply(self._store, self._clock, selection, batch)) as parts:
            async for part in parts:
                busy += part.in_flight
                outcome.changed += part.changed + len(part.recipients)
                outcome.in_flight, outcome.trouble = len(busy), ""
        # Of a limit it is not known how many of them it would leave. What a retry wants is being tried.
        if selection.limit is None and batch.action is not Action.RETRY:
            self.reach(busy, batch, selection)
        await self._end(outcome)
        fields: dict[str, str | int] = {
            "batch": batch.id,
            "by": batch.by,
            "changed": outcome.changed,
            "in_flight": outcome.in_flight,
        }
        chosen = {name: str(each)[:MOST_REASON] for name, each in selection_fields(order.selection).items()}
        reason = {"reason": batch.reason} if batch.reason else {}
        self._log_event(batch.action.value, **fields, **reason, **chosen)

    async def _probe(self, selection: Selection) -> None:
        """One recipient for each suspended destination of what is selected; the others follow when it got
        through. Raises StoreUnavailable."""
        if selection.everything:
            self.probe(None)
            return
        keys = await self._store.lane_keys(replace(selection, limit=None))
        self.probe(keys if len(keys) <= MOST_PROBED else None)

    async def _end(self, outcome: Outcome, trouble: str = "") -> None:
        """Let the file go of what is done; a disk that fails is asked again, for a start would repeat it."""
        while not outcome.done:
            try:
                await self._note()
                await asyncio.to_thread(self._forget, outcome)
            except OSError as error:
                outcome.trouble = f"the batch is done, its file cannot go: {describe(error)}"
                await self._clock.sleep(AGAIN_MS)
            else:
                outcome.done, outcome.trouble = True, trouble

    async def _note(self) -> None:
        """Write down what batches have still to do. Raises OSError."""
        async with self._noting:
            await asyncio.to_thread(self._following.write, self.pending())

    def _forget(self, outcome: Outcome) -> None:
        self._ended.add(outcome)
        path = path_of(self._directory, self._shard, outcome.order)
        # Durable, or a later start would do it again, to recipients that were released since.
        self._disk.unlink(path)
        self._disk.sync_dir(path.parent)

    async def purge(self) -> None:
        """End removals whose grace is over, unless the clock is in doubt, and keep note of what batches have
        still to do, for ever."""
        while True:
            await self._clock.sleep(_PURGE_MS)
            self._last_believed()
            try:
                # Before, an ended batch whose file could not go would be taken for a new one.
                if self._resumed:
                    self._take_up("it was asked for while this shard was out of service")
                await self._note()
            except OSError as error:
                # A batch that ends needs it, and says so.
                log.debug("what batches have still to do is not written: %s", describe(error))
            begun = self._clock.monotonic()
            while (
                self._store.stats()[Area.REMOVED].recipients
                and self._store.may_expire()
                and (found := await self._store.claim_removed(_PURGED_AT_ONCE))
            ):
                purged = [Settlement(recipient=each, verdict=Purged()) for each in found]
                await settle(self._store, self._clock, purged)
                # It takes a fifth of the time: a batch may have removed all that waited.
                took = self._clock.monotonic() - begun
                await self._clock.sleep(min(_PURGE_RESTS * took, _PURGE_MS))
                begun = self._clock.monotonic()


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

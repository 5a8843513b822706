"""Batches: what operators do to a selection of recipients, carried out some at a time beside delivery.

A request is written to a file before anything is changed, and the file goes when all is done. So a batch that
was answered is carried out whole: a start continues each one that it finds. A recipient is changed by one
frame or transaction, and bears the batch's id: no batch changes it twice. One batch runs at a time. Its
states, and what lets one in, are in `known`; one under way stays so while the store or the disk fails
(`trouble`).

A recipient in flight is passed over, and counted in `in_flight`. Delivery does not try it any more, unless
its attempt is under way and succeeds; what has not followed yet outlives the server (`following`).

Pages: POST /v1/batch asks for one (`dry_run`: counts, and shows the first few); GET /v1/batches lists the
last ones, also those of earlier runs, and with ?id=ID says how far one is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from mqcd.core.display import span
from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import Action, Batch, Recipient
from mqcd.core.ports import Clock
from mqcd.core.queueing.amendment import applies
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.control.actions.applying import AGAIN_MS, apply
from mqcd.daemon.control.actions.following import Following
from mqcd.daemon.control.actions.known import Known
from mqcd.daemon.control.actions.orders import (
    SAMPLE,
    Order,
    Outcome,
    completed,
    fields_in,
    parse_order,
    sought,
    take_dry_run,
)
from mqcd.daemon.control.api.binding import Given, Missing
from mqcd.daemon.control.resolving import Resolve, as_it_is
from mqcd.daemon.control.selections import selection_fields
from mqcd.daemon.storing import ServedStore
from mqcd.disk.durable import Disk, describe
from mqcd.ops.http.server import Request
from mqcd.ops.log.log import MOST_REASON, LogEvent

log = logging.getLogger(__name__)

_TEND_MS = 5000
"""How often the files are looked after."""
MOST_PROBED = 10_000
"""Lane keys that a probe is asked for by name; with more of them all are probed."""


class Batches:
    """Those of one process: the pages, `run` and `tend`."""

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
        self._log_event = log_event
        disk = disk or Disk()
        self.known = Known(disk, directory, shard)
        self.following = Following(disk, directory / "following" / f"{shard}.json")
        self._believed = 0
        """The wall time when the clock was not in doubt last: no grace that ends later is over."""
        self.probe: Callable[[Collection[str] | None], None] = lambda _keys: None
        """Has suspended destinations of these lane keys (None = all) tried. Set where mail is delivered."""
        self.resolve: Resolve = as_it_is
        """Set where routes are known."""
        self.longest_ms = 0
        """The longest retry delay: no due time lies further ahead. 0 = not known."""
        self.grace_ms = grace_ms
        """How long what is removed can be restored."""

    # ------------------------------------------------------------ pages

    async def ask(self, request: Request, _given: Given) -> object:
        """POST: count for a dry run, or have a batch that does this. Raises DecodeError, StoreUnavailable."""
        fields = fields_in(request)
        dry_run = take_dry_run(fields)
        now = self._clock.now()
        order = parse_order(fields, dry_run=dry_run)
        order = completed(order, by=request.by, now=now, grace_ms=self.grace_ms)
        self._check(order.batch)
        if dry_run:
            outcome = await self.counted(order)
            return {**outcome.fields(None), "sample": outcome.sample}
        name = order.batch.id
        outcome = await self.known.begin(order, self._resolved)
        if not outcome.order.asks_as(order):
            raise DecodeError(f"id: there is another batch {name}; leave the id out, or give another one")
        return outcome.fields(name)

    def progress(self, _request: Request, given: Given) -> object:
        """GET: the last batches, the newest first; or how far one is."""
        now, outcomes = self._last_believed(), self.known.outcomes
        undone = {outcome.takes_back for outcome in outcomes.values()}
        if "id" not in given:
            return [outcome.row(now, undone) for outcome in reversed(outcomes.values())]
        outcome = outcomes.get(given["id"])
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
        changed = where if where != order.selection.where else None
        return replace(order, resolved=changed, unrouted=found.unrouted)

    async def counted(self, order: Order) -> Outcome:
        """What a batch would change. Raises DecodeError, StoreUnavailable."""
        order = await self._resolved(order)
        outcome = Outcome(order=order, done=True)
        selection = sought(order, self.known.outcomes)
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

    async def run(self) -> None:
        """Carry out batches, one after another, for ever."""
        await self._resume()
        while True:
            outcome = await self.known.next()
            refused = await self._carry_out(outcome)
            await self._end(outcome, refused)
            if not refused:
                self._log(outcome)

    async def _resume(self) -> None:
        while True:
            try:
                self.known.resume()
                return
            except OSError as error:
                log.warning("what the last run left of batches cannot be read: %s", describe(error))
                await self._clock.sleep(AGAIN_MS)

    async def _carry_out(self, outcome: Outcome) -> str:
        """Change all that is selected; why it changes nothing, "" if it does. Each time that the store fails
        another pass begins, which keeps of the others what they have changed."""
        while True:
            try:
                if outcome.order.unresolved:
                    outcome.order = await self._resolved(outcome.order)
                await self._pass(outcome)
                return ""
            except DecodeError as error:
                log.error("batch %s changes nothing: %s", outcome.order.batch.id, error)
                return str(error)
            except StoreUnavailable as error:
                outcome.trouble = str(error)
                await self._clock.sleep(AGAIN_MS)

    async def _pass(self, outcome: Outcome) -> None:
        """Go through the selection once. `changed` grows over all passes and runs: what bears the batch's id
        does not come again. What is in flight does, so each pass counts it anew, and the one that comes to
        the end has it reached. Raises StoreUnavailable."""
        order, batch = outcome.order, outcome.order.batch
        selection = sought(order, self.known.outcomes)
        if outcome.resumed:
            outcome.changed = await self._changed_before(batch)
            outcome.resumed = False
        if selection.limit is not None:
            selection = replace(selection, limit=selection.limit - outcome.changed)
        if batch.action is Action.RETRY:
            # Before its mail is due: claims would pass it over until the next probe's time.
            await self._probe(selection)
        busy: list[tuple[int, int]] = []
        outcome.in_flight = 0
        async with aclosing(apply(self._store, self._clock, selection, batch)) as parts:
            async for part in parts:
                busy += part.in_flight
                outcome.changed += part.changed + len(part.recipients)
                outcome.in_flight, outcome.trouble = len(busy), ""
        # Of a limit it is not known how many of them it would leave. What a retry wants is being tried.
        if selection.limit is None and batch.action is not Action.RETRY:
            self.following.reach(busy, batch, selection)

    async def _changed_before(self, batch: Batch) -> int:
        """How many recipients a batch has changed in earlier runs, also those that have left the queue or
        were changed again. Raises StoreUnavailable."""
        try:
            return await self._store.changed_by(batch.id, batch.at)
        except OSError as error:
            raise StoreUnavailable(f"what the batch has done cannot be counted: {error}") from error

    async def _probe(self, selection: Selection) -> None:
        """One recipient for each suspended destination of what is selected; the others follow when it got
        through. Raises StoreUnavailable."""
        if selection.everything:
            self.probe(None)
            return
        keys = await self._store.lane_keys(replace(selection, limit=None))
        self.probe(keys if len(keys) <= MOST_PROBED else None)

    async def _end(self, outcome: Outcome, trouble: str) -> None:
        """Let it end; a disk that fails is asked again."""
        while not outcome.done:
            try:
                # First: what it has still to do must outlive its file.
                await self.following.note()
                await self.known.end(outcome, trouble)
            except OSError as error:
                outcome.trouble = f"the batch is done, its file cannot go: {describe(error)}"
                await self._clock.sleep(AGAIN_MS)

    def _log(self, outcome: Outcome) -> None:
        batch, selection = outcome.order.batch, selection_fields(outcome.order.selection)
        counts = {"changed": outcome.changed, "in_flight": outcome.in_flight}
        reason = {"reason": batch.reason} if batch.reason else {}
        chosen = {name: str(each)[:MOST_REASON] for name, each in selection.items()}
        self._log_event(batch.action.value, batch=batch.id, by=batch.by, **counts, **reason, **chosen)

    async def tend(self) -> None:
        """Take up what the front process records, and note what batches have still to do, for ever."""
        while True:
            await self._clock.sleep(_TEND_MS)
            self._last_believed()
            try:
                self.known.look()
                await self.following.note()
            except OSError as error:
                # A batch that ends needs it, and says so.
                log.debug("what batches have still to do is not written: %s", describe(error))


def _shown(recipient: Recipient) -> dict[str, object]:
    return {
        "spid": format_spid(recipient.spid),
        "qid": recipient.qid,
        "area": recipient.area.value,
        "sender": recipient.envelope.sender,
        "recipient": recipient.address,
    }

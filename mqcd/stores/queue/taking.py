"""How messages become a queue's own: at its start, and of a shared store whenever another node is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mqcd.core.errors import StoreBusy, StoreDamaged, StoreUnavailable
from mqcd.core.queueing.transition import unknown
from mqcd.stores.backend import Stored
from mqcd.stores.queue import keys
from mqcd.stores.queue.edits import Edit
from mqcd.stores.queue.message import decode
from mqcd.stores.queue.state import State

POLL_MS = 1000
"""How often a shared store is asked for messages that have become free."""
_TAKEN_AT_ONCE = 1000
"""Messages that are read at once."""
_LEFT = "the store has what cannot be read, and is left as it is: %s"

log = logging.getLogger(__name__)


async def load(state: State) -> None:
    """Read what the last run left. Raises StoreUnavailable, StoreDamaged."""
    await _take(state)
    state.loaded = True
    state.around.notify()


async def once_loaded(loading: asyncio.Task[None], state: State, work: Callable[[], Awaitable[None]]) -> None:
    """Where it cannot be loaded there is no such work: the start has failed, as `recovered` says."""
    await asyncio.wait([loading])
    if state.loaded:
        await work()


def log_failure(what: str, task: asyncio.Task[None]) -> None:
    """A task that lasts as long as the queue has ended before it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("%s any more, because of a fault; restart the server", what, exc_info=error)


async def share(state: State) -> None:
    """Keep this node's lease, and take what other nodes have left, until the queue is closed."""
    # A client library may lose the cancellation of a call that has just been answered.
    while not state.closing:
        await state.around.clock.sleep(POLL_MS)
        try:
            await _keep_lease(state)
            await _take(state)
        except StoreDamaged as error:
            log.error(_LEFT, error)
        except StoreUnavailable as error:
            log.warning("the store cannot be asked for mail of other nodes: %s", error)


async def _keep_lease(state: State) -> None:
    """Renew it in time. A failure counts once the lease is over: until then it is tried again. Raises
    StoreUnavailable."""
    clock, backend = state.around.clock, state.around.backend
    if not backend.lease_ms or clock.monotonic() - state.renewed < backend.lease_ms // 3:
        return
    try:
        marks = await backend.renew()
    except StoreBusy as error:
        # The lease is over, and all node numbers are in use.
        raise StoreUnavailable(str(error)) from error
    except StoreUnavailable as error:
        if clock.monotonic() - state.renewed >= backend.lease_ms:
            raise
        log.warning("the lease is not renewed yet: %s", error)
        return
    if marks is not None:
        log.warning("the lease has run out: other nodes may have taken this node's mail")
        state.begin_again(marks)
    state.renewed = clock.monotonic()


async def _take(state: State) -> None:
    """All messages that are free."""
    # Of mail whose record could not be written when it was taken.
    await _end_unknown(state)
    any_taken = False
    try:
        while (taken := await state.around.backend.take(_TAKEN_AT_ONCE)) is None or taken:
            any_taken |= bool(taken)
            for stored in taken or ():
                is_refused = state.documents.take_back(stored)
                # What is known was written under a lease that ran out meanwhile, and is still ours.
                if not is_refused and stored.spid not in state.documents.messages:
                    _try_to_add(state, stored)
            await _end_unknown(state)
            # There may be more than is read in the time of a lease.
            await _keep_lease(state)
    finally:
        if any_taken:
            state.waiting.bring_forward(state.latest_due())
            state.around.notify()


def _try_to_add(state: State, stored: Stored) -> None:
    """What is damaged ends a start (StoreDamaged). It does not end a node that has mail: it is left as it is
    in the store."""
    try:
        _add(state, stored)
    except StoreDamaged as error:
        if not state.loaded:
            raise
        log.error(_LEFT, error)


def _add(state: State, stored: Stored) -> None:
    message = decode(stored)
    if message.key:
        state.keys.add(*keys.decode(message.key), stored.spid)
    state.documents.add(stored.spid, message)
    for recipient in message.records.values():
        state.figures.replace(None, recipient)
        if recipient.qid in message.begun:
            state.unknown[recipient.key] = recipient
        else:
            state.wait(recipient)


async def _end_unknown(state: State) -> None:
    """A crash took the verdicts of these attempts."""
    now = state.around.clock.now()
    begun = list(state.unknown.values())
    if not begun:
        return
    ended = [unknown(each, state.schedule, now) for each in begun]

    def end(durable: bool) -> None:
        for old, new in zip(begun, ended, strict=True):
            if durable and state.unknown.pop(old.key, None) is not None:
                state.replace(old, new)
                state.around.observer.outcome_unknown(now, old)

    events = [state.lines.unknown(now, each) for each in ended] if state.lines is not None else ()
    await state.documents.edit(Edit(puts=ended, events=events, ended=end))

"""New messages and verdicts: how each becomes one change of the store, and what follows once durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Purged, Recipient, Settlement, Submission, Verdict
from mqcd.core.observing.notifying import notify_verdict
from mqcd.core.ports import Reservation
from mqcd.core.queueing.idempotency import Used
from mqcd.core.queueing.spid import format_spid, is_several, shard_of
from mqcd.core.queueing.transition import after, not_later
from mqcd.core.queueing.transition import arrived as arrival_of
from mqcd.core.value import value
from mqcd.queue.keys.turns import Turn
from mqcd.stores.backend import StoreFull
from mqcd.stores.queue.edits import Edit
from mqcd.stores.queue.events import Line
from mqcd.stores.queue.keys import encode
from mqcd.stores.queue.message import KEY_SLOT
from mqcd.stores.queue.state import State


@value(kw_only=False)
class Arrival:
    """A new message."""

    recipients: Sequence[Recipient]
    content: bytes | None
    """None = it is staged."""
    turn: Turn | None = None
    """The use of its idempotency key."""

    @property
    def spid(self) -> int:
        return self.recipients[0].spid


@value(kw_only=False)
class Move:
    """The end of a claim."""

    old: Recipient
    new: Recipient | None
    """None = it leaves the queue."""
    verdict: Verdict | None
    """None = given back untried."""


# ------------------------------------------------------------ new messages


async def arrive(state: State, submission: Submission, turn: Turn | None = None) -> Arrival:
    """A new message, its content staged; `turn`: the use of its key. Raises what its content raises."""
    content, spid = submission.content, submission.envelope.spid
    if isinstance(content, bytes):
        return arrived(state, submission, content, len(content), turn)
    check_arrival(state, submission)
    backend = state.around.backend
    await state.documents.may_come(spid)
    try:
        size = await backend.stage(spid, content)
    except StoreFull as error:
        state.documents.is_full(error)
        raise
    try:
        return arrived(state, submission, None, size, turn)
    except BaseException:
        await backend.unstage(spid)
        raise


def arrived(
    state: State, submission: Submission, content: bytes | None, size: int, turn: Turn | None = None
) -> Arrival:
    """A new message whose size is known. Raises ValueError."""
    check_arrival(state, submission)
    envelope = submission.envelope
    if state.clock_watch.in_doubt:
        envelope = replace(envelope, received=max(envelope.received, state.believed()))
    dsns = submission.recipient_dsn or [""] * len(submission.recipients)
    now = state.believed()
    holding = state.schedule.holding
    recipients = [
        arrival_of(Recipient(envelope=envelope, size=size, qid=qid, address=address, dsn=dsn), now, holding)
        for qid, (address, dsn) in enumerate(zip(submission.recipients, dsns, strict=True), 1)
    ]
    return Arrival(recipients, content, turn)


def check_arrival(state: State, submission: Submission) -> None:
    """Raises ValueError for one that contradicts itself or its SPID, or whose SPID is not reserved;
    StoreUnavailable for a SPID of before this node's lease ran out."""
    count = len(submission.recipients)
    if not count:
        raise ValueError("a message needs a recipient")
    if submission.recipient_dsn and len(submission.recipient_dsn) != count:
        raise ValueError("a message has other numbers of recipients and of their DSN parameters")
    if is_several(submission.envelope.spid) is not (count > 1):
        spid = format_spid(submission.envelope.spid)
        raise ValueError(f"SPID {spid} was reserved for another number of recipients than {count}")
    if shard_of(submission.envelope.spid) != state.around.backend.node:
        raise StoreUnavailable("the lease has run out meanwhile, try again")
    state.reserved.check([submission.envelope.spid])


def hand_over(state: State, arrival: Arrival, reserved: Reservation) -> asyncio.Future[None]:
    """Write a new message together with the begin of its attempt."""
    state.reserved.used(arrival.spid)
    key = _use_key(state, arrival)

    def end(durable: bool) -> None:
        key.ended(durable)
        if not durable:
            reserved.release()
            state.reserved.add(arrival.spid)
            return
        for recipient in arrival.recipients:
            state.figures.replace(None, recipient)
            state.claimed.add(recipient.key)
        now, observer = state.around.clock.now(), state.around.observer
        observer.accepted(now, arrival.recipients)
        observer.attempted(now, arrival.recipients, reserved.destination)
        reserved.use(arrival.content)

    events: list[Line] = []
    if state.lines is not None:
        at = state.around.clock.now()
        events += state.lines.accepted(at, arrival.recipients)
        events += state.lines.attempted(at, arrival.recipients, reserved.destination)
    contents = {arrival.spid: arrival.content, **key.contents}
    return state.documents.edit(
        Edit(puts=arrival.recipients, begun=True, contents=contents, events=events, keys=key.lines, ended=end)
    )


@value(kw_only=False)
class _KeyUse:
    """What the use of an idempotency key adds to the change that accepts its message."""

    lines: Sequence[Line] = ()
    contents: Mapping[int, bytes] = field(default_factory=dict)
    ended: Callable[[bool], None] = lambda _: None
    """To be called as the change's own."""


def _use_key(state: State, arrival: Arrival) -> _KeyUse:
    turn = arrival.turn
    if turn is None:
        return _KeyUse()
    document = state.spids.next(state.believed(), several=False)
    name, used = turn.key.name, Used(arrival.spid, turn.key.digest, state.believed() // 1000)
    turn.hold()

    def ended(durable: bool) -> None:
        if durable:
            state.keys.add(name, used, document)
        turn.let_go()

    _forget_expired(state)
    return _KeyUse([(document, encode(name, used))], {document: b""}, ended)


def _forget_expired(state: State) -> None:
    """A change of its own: another node may have taken a key, which must not fail the new message."""
    expired = [(spid, KEY_SLOT) for spid in state.keys.take_expired()]
    if expired:
        done = state.documents.edit(Edit(drops=expired))
        # What stays is forgotten at the next start.
        done.add_done_callback(lambda future: future.cancelled() or future.exception())


# ------------------------------------------------------------ ends of claims


def moves(state: State, settlements: Sequence[Settlement]) -> Sequence[Move]:
    """What verdicts make of the recipients; of those that another node has taken since, nothing. Raises
    ValueError."""
    settlements = [each for each in settlements if each.recipient.key not in state.lost]
    records = state.claimed_records([settlement.recipient for settlement in settlements])
    latest = state.latest_due()
    made: list[Move] = []
    for record, settlement in zip(records, settlements, strict=True):
        verdict = not_later(settlement.verdict, latest)
        made.append(Move(record, after(record, verdict), verdict))
    return made


async def settle_streamed(
    state: State,
    settlements: Sequence[Settlement],
    submissions: Sequence[Submission],
    claims: Sequence[Recipient],
) -> None:
    """`record`, of messages that are not all in memory; where all recipients are lost meanwhile, of none."""
    arrivals: list[Arrival] = []
    try:
        for submission in submissions:
            arrivals += [await arrive(state, submission)]
        made = moves(state, settlements)
    except BaseException:
        await _unstage(state, arrivals)
        raise
    if settlements and not made:
        await _unstage(state, arrivals)
        state.end_claims(claims)
        return
    await record(state, made, arrivals, claims)


async def _unstage(state: State, arrivals: Sequence[Arrival]) -> None:
    for arrival in arrivals:
        await state.around.backend.unstage(arrival.spid)


def record(
    state: State, moves: Sequence[Move], arrivals: Sequence[Arrival], claims: Sequence[Recipient] = ()
) -> asyncio.Future[None]:
    """Write ends of claims and new messages as one change. `claims`: all that end, also those of recipients
    that another node has taken since."""
    for move in moves:
        state.claimed.discard(move.old.key)
        state.ending.add(move.old.key)
    for arrival in arrivals:
        state.reserved.used(arrival.spid)
    keys = [_use_key(state, arrival) for arrival in arrivals if arrival.turn is not None]
    news = [move.new for move in moves if move.new is not None]

    def end(durable: bool) -> None:
        for key in keys:
            key.ended(durable)
        _recorded(state, moves, arrivals, durable)
        if durable:
            state.end_claims(claims)

    edit = Edit(
        puts=[*news, *(each for arrival in arrivals for each in arrival.recipients)],
        drops=[move.old.key for move in moves if move.new is None],
        keys=[line for key in keys for line in key.lines],
        contents={
            **{arrival.spid: arrival.content for arrival in arrivals},
            **{spid: content for key in keys for spid, content in key.contents.items()},
        },
        replaces=bool(moves and arrivals),
        events=_events(state, moves, arrivals),
        ended=end,
    )
    return state.documents.edit(edit)


def _events(state: State, moves: Sequence[Move], arrivals: Sequence[Arrival]) -> Sequence[Line]:
    if state.lines is None:
        return ()
    at = state.around.clock.now()
    events: list[Line] = []
    for arrival in arrivals:
        events += state.lines.accepted(at, arrival.recipients)
    for move in moves:
        if move.verdict is not None and not isinstance(move.verdict, Purged):
            events.append(state.lines.ended(at, move.old, move.new, move.verdict))
    return events


def _recorded(state: State, moves: Sequence[Move], arrivals: Sequence[Arrival], durable: bool) -> None:
    moves = [move for move in moves if move.old.key in state.ending]
    for move in moves:
        state.ending.discard(move.old.key)
    if not durable:
        state.claimed.update(move.old.key for move in moves)
        for arrival in arrivals:
            state.reserved.add(arrival.spid)
        return
    now, observer = state.around.clock.now(), state.around.observer
    for arrival in arrivals:
        for recipient in arrival.recipients:
            state.replace(None, recipient)
        observer.accepted(now, arrival.recipients)
    for move in moves:
        state.replace(move.old, move.new)
        if move.verdict is not None:
            notify_verdict(observer, now, move.old, move.verdict)
    state.around.notify()

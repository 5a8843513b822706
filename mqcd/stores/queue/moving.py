"""Messages that come from another store or leave for one, as they are: for `queue migrate`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from mqcd.core.errors import ContentUnavailable
from mqcd.core.model import Discarded, Recipient
from mqcd.core.queueing.spid import format_spid
from mqcd.core.queueing.transition import end_of, ended_as
from mqcd.stores.queue.edits import Edit
from mqcd.stores.queue.events import Line
from mqcd.stores.queue.state import State


async def admit(state: State, recipients: Sequence[Recipient], content: AsyncIterator[bytes]) -> None:
    """Take a message with its SPID, attempts and due times; durable on return.

    Raises ValueError where there is one of this SPID, ContentUnavailable for content of another length.
    """
    spid, size = recipients[0].spid, recipients[0].size
    if spid in state.documents.messages:
        raise ValueError(f"there is a message {format_spid(spid)}")
    backend = state.around.backend
    octets = await backend.stage(spid, content)
    if octets != size:
        await backend.unstage(spid)
        text = f"its content has {octets} octets and should have {size}"
        raise ContentUnavailable(f"message {format_spid(spid)}: {text}")
    state.spids.pass_over(spid)

    def end(durable: bool) -> None:
        for recipient in recipients if durable else ():
            state.replace(None, recipient)

    events = _arrival(state, recipients)
    await state.documents.edit(Edit(puts=recipients, events=events, contents={spid: None}, ended=end))


def _arrival(state: State, recipients: Sequence[Recipient]) -> Sequence[Line]:
    if state.lines is None:
        return ()
    at = state.around.clock.now()
    accepted = state.lines.accepted(at, recipients)
    ends = [(each, end_of(each)) for each in recipients]
    return [*accepted, *(state.lines.ended(at, each, each, end) for each, end in ends if end is not None)]


def release(state: State, recipients: Sequence[Recipient], reason: str) -> asyncio.Future[None]:
    """Take recipients that wait out of the queue; their events say that they are discarded."""
    at = state.around.clock.now()
    events: list[Line] = []
    if state.lines is not None:
        events = [
            state.lines.ended(at, each, None, Discarded(reason=reason, undone=ended_as(each) or ""))
            for each in recipients
        ]

    def end(durable: bool) -> None:
        for recipient in recipients if durable else ():
            state.waiting.remove(recipient.key)
            state.figures.replace(recipient, None)

    return state.documents.edit(Edit(drops=[each.key for each in recipients], events=events, ended=end))

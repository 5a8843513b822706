"""What a session does in its task: what takes time between a command and its reply.

| the task | for | reads meanwhile | gives |
|---|---|---|---|
| `finish` | a reply that waits for something, see `conversation` | octets to be skipped | that reply |
| `command` | a line, where the listener has a filter | the same | its reply |
| `content` | a message | content; between chunks (BDAT) commands | all replies up to the message's |

The session begins them, one at a time (`work`), and meanwhile feeds the wire, but answers nothing itself. The
replies are written once the task has ended, or waits for the client's next command.

A message in two chunks, and one that RSET ends: `content` runs all the time, and `dialogue.chunk`, which the
dialogue alone sets, is the last one announced.

| client | dialogue | `content` |
|---|---|---|
| BDAT 5 | CONTENT | begins: `take_message` reads the chunk from its source |
| 5 octets | CHUNKS | the source wants more: `_next_chunk` gives the 250 (`chunk_taken`), waits for a line |
| BDAT 3 LAST | CONTENT | `command` answers nothing; the chunk goes to the source |
| 3 octets | READY | the source is done: commit, `sent`, the 250 |
| or RSET instead of BDAT | READY | `command` answers it; no chunk is announced, so Abandoned ends it |

A task raises ConnectFailed and Interrupted where the wire has failed, CancelledError where the session is
cut; anything else is a fault. What becomes of the session then, and after each reply, `session` decides.

Settings read: bare_newline.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Protocol

from mqcd.config.settings import BareNewline
from mqcd.core.ports import Connection
from mqcd.submit.esmtp import replies
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.esmtp.states import State
from mqcd.submit.message.chunking import Chunk
from mqcd.submit.policy.load import BUSY
from mqcd.submit.session.conversation import Check, Delay, Place, Skip
from mqcd.submit.session.deadlines import Deadlines
from mqcd.submit.session.dialogue import Dialogue
from mqcd.submit.session.intake import Intake, take_message
from mqcd.submit.session.link_states import OVER, Link
from mqcd.submit.session.stream import Abandoned, Chunked, Dotted, Source
from mqcd.submit.session.wire import MAX_LINE, BadLine, Wire
from mqcd.submit.session.work import Work

if TYPE_CHECKING:
    from mqcd.submit.session.filtering import Filter

_CLOSING = b"421"
_COMMAND_MS = 100
"""What a command between two chunks costs of the time that the message has: it brings no octets."""


class Served(Protocol):
    """A session, as its tasks see it; all calls are done at once."""

    intake: Intake
    dialogue: Dialogue
    wire: Wire
    deadlines: Deadlines
    work: Work
    """It runs the task."""
    filter: Filter | None

    @property
    def link(self) -> Link:
        """Whether the client reads its replies, and gets any more."""

    def answer(self, line: bytes) -> bytes:
        """The door's reply to a command."""

    def give(self, reply: bytes) -> None:
        """Take a reply, to be written later, and do what the state of the dialogue asks for: the session may
        end by it, or begin TLS."""

    def write(self) -> None:
        """Write the replies that were given."""

    def end(self) -> None:
        """Write them, as the last ones."""

    def hand_over(self) -> Connection:
        """The connection of a client that has become the server."""


async def command(session: Served, line: bytes) -> None:
    """Answer one command, by the filter if there is one; it sees no responses of a login."""
    dialogue, filtering = session.dialogue, session.filter
    response = dialogue.state is State.LOGIN
    reply = session.answer(line)
    if filtering is None or response:
        await finish(session, reply)
        return
    reply = await filtering.command(line, await session.intake.desk.settle(dialogue, reply))
    await finish(session, reply)
    _end_if_closing(session, reply)


async def finish(session: Served, reply: bytes) -> None:
    """Give the reply to a command, after what it waits for; after that to ATRN send what is collected."""
    dialogue, wire, desk = session.dialogue, session.wire, session.intake.desk
    reply = await desk.settle(dialogue, reply)
    while (wait := dialogue.next_wait()) is not None:
        match wait:
            case Skip():
                session.deadlines.begin_message()
                await wire.skip(wait.octets)
            case Delay():
                # One that begins only now would hold up a session that is to end.
                if wire.error is None:
                    await session.work.delay(wait.ms)
            case Check():
                reply = await desk.check_password(dialogue)
            case Place():
                if not await session.work.for_place(session.intake.load, dialogue):
                    reply = dialogue.retract(Reason.OVERLOAD, BUSY)
            case _:
                raise ValueError(f"{wait} is awaited by the desk alone")
    session.give(reply)
    if dialogue.state is State.REVERSED and session.link not in OVER:
        session.write()
        await desk.collect(dialogue, session.hand_over(), lambda: wire.error is not None)


async def content(session: Served) -> None:
    """Take a message and give its replies, unless a command between chunks has ended it."""
    dialogue, filtering = session.dialogue, session.filter
    session.deadlines.begin_message()
    normalize = dialogue.rules.settings.bare_newline is BareNewline.NORMALIZE
    source: Source = Dotted(session.wire, normalize=normalize)
    if dialogue.chunk is not None:
        source = Chunked(session.wire, dialogue.chunk, partial(_next_chunk, session), normalize=normalize)
    # What LMTP's client waits for (RFC 2033, 4.2): one message has one outcome for all its recipients.
    replies_due = dialogue.begun.accepted if dialogue.rules.lmtp else 1
    try:
        reply = await take_message(session.intake, dialogue, source, filtering)
    except Abandoned:
        return
    dialogue.sent()
    session.give(reply * replies_due)
    if filtering is not None:
        filtering.sent()
        _end_if_closing(session, reply)


async def _next_chunk(session: Served) -> Chunk:
    """Reply to a chunk; answer commands up to the next. Raises Abandoned when one ends the message."""
    dialogue = session.dialogue
    session.give(dialogue.chunk_taken())
    while dialogue.state is State.CHUNKS and session.link not in OVER:
        # Other sessions have a turn.
        await asyncio.sleep(0)
        try:
            line = await _next_line(session)
        except BadLine as error:
            await finish(session, dialogue.bad_line(replies.unreadable(error)))
        else:
            await command(session, line)
    if not dialogue.takes_chunk or dialogue.chunk is None:
        raise Abandoned
    return dialogue.chunk


async def _next_line(session: Served) -> bytes:
    """The next command between two chunks, once the client reads its replies."""
    wire = session.wire
    session.deadlines.spend(_COMMAND_MS)
    wire.check()
    while session.link is Link.UNREAD or (line := wire.next_line(MAX_LINE)) is None:
        session.write()
        await wire.wait()
        wire.check()
    return line


def _end_if_closing(session: Served, reply: bytes) -> None:
    """A 421 of the filter is the last reply."""
    if reply.startswith(_CLOSING):
        session.end()

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
cut; anything else is a fault. What becomes of the session then, and after each reply, `session` decides: a
task knows of it what `Replying` has.

Settings read: bare_newline.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from mqcd.config.settings import BareNewline
from mqcd.core.ports import Connection
from mqcd.submit.esmtp import replies
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.esmtp.states import State
from mqcd.submit.message.chunking import Chunk
from mqcd.submit.policy.load import BUSY
from mqcd.submit.session.conversation import Check, Delay, Place, Skip
from mqcd.submit.session.dialogue import Dialogue
from mqcd.submit.session.filtering import Filter
from mqcd.submit.session.intake import Intake, take_message
from mqcd.submit.session.link_states import OVER, Link
from mqcd.submit.session.sources import Abandoned, source_of
from mqcd.submit.session.wire import BadLine, Wire
from mqcd.submit.session.work import Work

_CLOSING = b"421"
_COMMAND_MS = 100
"""What a command between two chunks costs of the time that the message has: it brings no octets."""


class Replying(Protocol):
    """What a task may ask of its session. All of it is done at once."""

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


class SessionTask:
    """One task: one of the public methods, which gives its replies itself."""

    __slots__ = ("_dialogue", "_filter", "_intake", "_session", "_wire", "_work")

    def __init__(
        self,
        session: Replying,
        dialogue: Dialogue,
        wire: Wire,
        work: Work,
        intake: Intake,
        filtering: Filter | None,
    ) -> None:
        """`work` runs it."""
        self._session = session
        self._dialogue = dialogue
        self._wire = wire
        self._work = work
        self._intake = intake
        self._filter = filtering

    async def command(self, line: bytes) -> None:
        """Answer one command, by the filter if there is one; it sees no responses of a login."""
        response = self._dialogue.state is State.LOGIN
        reply = self._session.answer(line)
        if self._filter is None or response:
            await self.finish(reply)
            return
        reply = await self._filter.command(line, await self._intake.desk.settle(self._dialogue, reply))
        await self.finish(reply)
        self._end_if_closing(reply)

    async def finish(self, reply: bytes) -> None:
        """Give the reply to a command, after what it waits for; after that to ATRN send what is collected."""
        session, dialogue, desk = self._session, self._dialogue, self._intake.desk
        reply = await desk.settle(dialogue, reply)
        while (wait := dialogue.next_wait()) is not None:
            match wait:
                case Skip():
                    await self._wire.skip(wait.octets)
                case Delay():
                    # One that begins only now would hold up a session that is to end.
                    if self._wire.error is None:
                        await self._work.delay(wait.ms)
                case Check():
                    reply = await desk.check_password(dialogue)
                case Place():
                    if not await self._work.for_place(self._intake.load, dialogue):
                        reply = dialogue.retract(Reason.OVERLOAD, BUSY)
                case _:
                    raise ValueError(f"{wait} is awaited by the desk alone")
        session.give(reply)
        if dialogue.state is State.REVERSED and session.link not in OVER:
            session.write()
            await desk.collect(dialogue, session.hand_over(), lambda: self._wire.error is not None)

    async def content(self) -> None:
        """Take a message and give its replies, unless a command between chunks has ended it."""
        dialogue, wire = self._dialogue, self._wire
        wire.begin()
        normalize = dialogue.rules.settings.bare_newline is BareNewline.NORMALIZE
        source = source_of(wire, dialogue.chunk, self._next_chunk, normalize=normalize)
        # What LMTP's client waits for (RFC 2033, 4.2): one message has one outcome for all its recipients.
        replies_due = dialogue.begun.accepted if dialogue.rules.lmtp else 1
        try:
            reply = await take_message(self._intake, dialogue, source, self._filter)
        except Abandoned:
            return
        dialogue.sent()
        self._session.give(reply * replies_due)
        if self._filter is not None:
            self._filter.sent()
            self._end_if_closing(reply)

    async def _next_chunk(self) -> Chunk:
        """Reply to a chunk; answer commands up to the next. Raises Abandoned when one ends the message."""
        session, dialogue = self._session, self._dialogue
        session.give(dialogue.chunk_taken())
        while dialogue.state is State.CHUNKS and session.link not in OVER:
            # Other sessions have a turn.
            await asyncio.sleep(0)
            try:
                line = await self._next_line()
            except BadLine as error:
                await self.finish(dialogue.bad_line(replies.unreadable(error)))
            else:
                await self.command(line)
        if not dialogue.takes_chunk or dialogue.chunk is None:
            raise Abandoned
        return dialogue.chunk

    async def _next_line(self) -> bytes:
        """The next command between two chunks, once the client reads its replies."""
        session, wire = self._session, self._wire
        wire.spend(_COMMAND_MS)
        wire.check()
        while session.link is Link.UNREAD or (line := wire.next_line()) is None:
            session.write()
            await wire.wait()
            wire.check()
        return line

    def _end_if_closing(self, reply: bytes) -> None:
        """A 421 of the filter is the last reply."""
        if reply.startswith(_CLOSING):
            self._session.end()

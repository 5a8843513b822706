"""One connection at the door: octets in, replies out, a task for what takes time.

Octets, end-of-file, a client that reads again, and the end of a task lead to `_pump`: it answers the received
commands, in one write, while there is no task and the client reads its replies.

    _pump -> _step -> _answer -> _goes_on -> _give           the reply is given at once
                                         `-> _finish         the reply waits for something, see `conversation`
             _step -> _obey -> _finish                       the listener has a filter
             _step -> _take_content [ -> _next_chunk -> _obey -> _finish ]

| the task (`_start`; one at a time, see `work`) | begun in | reads |
|---|---|---|
| a delay before the first command | `_greet` | nothing |
| `_finish`: what the reply waits for, then `_give` | `_goes_on` | octets to be skipped |
| `_obey`: a command for the filter | `_step` | the same |
| `_take_content`: a message, to its reply | `_step` | content; between chunks (BDAT) also commands |

The session ends in one of these ways; `_end` and `connection_lost` alone end its link (see `link_states`).

| ends by | replies | a commit under way |
|---|---|---|
| QUIT, a limit on errors (state CLOSED), a 421 of the filter | all | |
| end-of-file, once all that was sent is answered | all | goes on |
| the connection is lost | nobody reads them | goes on |
| `interrupt`, `insecure`, a time limit | one more, after that to a commit | goes on |
| `cut`: the client does not read, the filter hangs, the door stops | no more | is cancelled |
| a fault: an unexpected exception | one more | |

`pause_writing` and `resume_writing` alone change the link besides. The states of the dialogue are in
`esmtp.states`. `Door` checks the deadlines of all sessions at intervals.

Settings read: timeout, bare_newline, delay_greet.

Logging: one line per session as it leaves its door (level debug), faults with their traceback; no contents.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol, cast

from mqcd.config.settings import BareNewline
from mqcd.core.errors import ConnectFailed
from mqcd.core.ports import Refusal
from mqcd.core.smtp.reply import Reply
from mqcd.net.securing.layer import TlsLayer
from mqcd.net.securing.server import ListenerTls
from mqcd.submit.auth.exchange import MAX_LINE as MAX_RESPONSE
from mqcd.submit.esmtp import replies
from mqcd.submit.esmtp.caller import STRANGER, Caller
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.esmtp.states import EARLY, State
from mqcd.submit.filters.handlers import filter_key
from mqcd.submit.message.chunking import Chunk
from mqcd.submit.policy.load import BUSY
from mqcd.submit.session.connections import tls_channel
from mqcd.submit.session.conversation import Check, Delay, Skip
from mqcd.submit.session.dialogue import Dialogue
from mqcd.submit.session.filtering import Filter, Server
from mqcd.submit.session.intake import Intake, take_message
from mqcd.submit.session.link_states import SESSION_MS, Event, Link, Overdue, after, overdue
from mqcd.submit.session.sources import Abandoned, source_of
from mqcd.submit.session.view import SessionView, view_of
from mqcd.submit.session.wire import MAX_LINE, BadLine, Interrupted, Wire
from mqcd.submit.session.work import Work

log = logging.getLogger(__name__)

_CLOSING = b"421"
_TURN = 64
"""Commands answered in a row before other sessions have a turn."""
# As globals: on Python 3.11 an attribute of an Enum takes ten times as long.
_ANSWERING, _CONTENT = Link.ANSWERING, State.CONTENT
_COMMAND_MS = 100
"""What a command between two chunks costs of the time that the message has: it brings no octets."""


class Host(Protocol):
    """What a session needs of its door."""

    tls: ListenerTls
    intake: Intake

    def enter(self, session: Session) -> None:
        """Its connection is there."""

    def leave(self, session: Session) -> None:
        """Its connection is gone, and nothing is being committed for it."""

    def refused(self, refusal: Refusal) -> None:
        """Something was refused."""


class Session(asyncio.Protocol):
    """One client at the door."""

    transport: asyncio.Transport
    wire: Wire
    _dialogue: Dialogue
    _timeout: int
    _began: int

    def __init__(self, host: Host, name: str, client: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._host = host
        self.client = client
        """IP address of the client."""
        self.caller: Caller = STRANGER
        """What is known of it without a login."""
        self._extra = {"session": name}
        """Fields of log lines."""
        self._out: list[bytes] = []
        self._work = Work(host.intake.clock)
        self._filter: Filter | None = None
        self._link = Link.ANSWERING

    # ------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the client."""
        self.transport = cast("asyncio.Transport", transport)
        intake = self._host.intake
        rules = intake.book.of(self.client)
        self._timeout = rules.settings.timeout
        bare_lf = rules.settings.bare_newline is BareNewline.NORMALIZE
        self.wire = Wire(self._loop, self.transport, intake.clock, bare_lf=bare_lf)
        name = self._extra["session"]
        self._dialogue = Dialogue(rules, intake.listener, self.client, self._host.refused, name)
        self._dialogue.caller = self.caller
        handler = intake.handlers.get(filter_key(rules.settings))
        if handler is not None:
            server = Server(rules.host, handler.instance, self.transport, self.client)
            self._filter = Filter(handler, self._dialogue, server, intake.clock, name, intake.desk)
        self._host.enter(self)
        self._began = intake.clock.monotonic()
        if rules.tls_first:
            self._begin_tls()
            self.wire.owe()
        else:
            self._greet()

    def _greet(self) -> None:
        rules = self._dialogue.rules
        self._out.append(rules.greeting)
        if rules.settings.delay_greet:
            self._start(self._work.delay(rules.settings.delay_greet))
            return
        self._write()
        self.wire.owe()

    def secured(self) -> None:
        """TLS has begun: the session begins again; where it has just begun, with a greeting."""
        first = self._dialogue.state is State.START
        self._dialogue.secured(tls_channel(self._host.tls, self.transport))
        if self._filter is not None:
            self._filter.secured(self.transport)
        self.wire.owing_since = 0
        if first:
            self._greet()
        else:
            self.wire.owe()

    def insecure(self, reason: str) -> None:
        """TLS has failed."""
        self._interrupt(Interrupted(Reason.TLS, Reply(code=421, status="4.7.0", text=reason)))

    def _begin_tls(self) -> None:
        self._write()
        self.transport = TlsLayer(self.transport, self, self._host.tls)

    def data_received(self, data: bytes) -> None:
        """Octets came."""
        self.wire.feed_data(data)
        self._pump()

    @property
    def places(self) -> dict[str, int]:
        """The places among the sessions of its parties that it holds."""
        return self._dialogue.places

    def eof_received(self) -> bool:
        """The client sends no more, but may still read: what it sent is answered first."""
        self.wire.feed_eof()
        self._work.hurry()
        self._pump()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone. A commit under way goes on; its reply has no reader."""
        self._link = after(self._link, Event.LOSE)
        self._work.hurry()
        self.wire.fail(ConnectFailed("the client closed the connection"))
        self._leave()

    def pause_writing(self) -> None:
        """The client does not read its replies: reading from it pauses until it does."""
        self._link = after(self._link, Event.FULL)
        self.wire.owe()

    def resume_writing(self) -> None:
        """It reads again."""
        self._link = after(self._link, Event.DRAINED)
        self.wire.owing_since = 0
        self.wire.wake()
        self._pump()

    # ------------------------------------------------------------ for the door

    def view(self, now: int) -> SessionView:
        """What operators see of it; `now` is monotonic."""
        return view_of(self._dialogue, self._host.intake.listener, now - self._began)

    def check_deadline(self, now: int, reply: Reply) -> None:
        """End the session, with `reply`, if the client has taken too long at `now` (monotonic): `overdue`."""
        if self._filter is not None and self._filter.hangs(now):
            self.cut()
            return
        since, timeout = self.wire.owing_since, self._timeout
        silent = 0 < timeout <= now - since if since else False
        slow = self.wire.is_slow(now) if self._work.task is not None else None
        found = overdue(self._link, silent=silent, too_long=self._is_over(now), content_slow=slow)
        if found is Overdue.CUT:
            self.cut()
        elif found is Overdue.INTERRUPT:
            self._interrupt(Interrupted(Reason.TIMEOUT, reply))

    @property
    def _has_ended(self) -> bool:
        return self._link is Link.ENDED or self._link is Link.GONE

    def _is_over(self, now: int) -> bool:
        return now - self._began >= SESSION_MS

    def interrupt(self, reply: Reply) -> None:
        """End the session as soon as it is not committing a message."""
        self._interrupt(Interrupted(Reason.CLOSED, reply))

    def cut(self) -> None:
        """Drop the connection at once, and a commit under way."""
        self.transport.abort()
        self._work.cancel()

    def _interrupt(self, error: Interrupted) -> None:
        self.wire.fail(error)
        self._work.hurry()
        if self._work.task is None:
            self._end(error.reason, error.reply)

    # ------------------------------------------------------------ answers at once

    def _pump(self) -> None:
        """Answer the received commands; start reading content once some has arrived."""
        if self._link is not _ANSWERING or self._work.task is not None:
            return
        try:
            for _ in range(_TURN):
                if not self._step():
                    break
            else:
                self._loop.call_soon(self._pump)
        except Exception:
            log.exception("closed because of a fault", extra=self._extra)
            self._end(Reason.FAULT, replies.FAULT_CLOSING)
        self._write()
        if self._work.task is None:
            self.wire.owe()

    def _step(self) -> bool:
        """Answer one command, if there is one; False when there is nothing left to do before more comes."""
        dialogue = self._dialogue
        wire = self.wire
        if dialogue.state is _CONTENT:
            if wire.held or dialogue.takes_chunk:
                self._start(self._take_content())
            elif wire.at_end:
                self._end()
            return False
        try:
            line = wire.next_line(MAX_RESPONSE if dialogue.state is State.LOGIN else MAX_LINE)
        except BadLine as error:
            return self._goes_on(dialogue.bad_line(replies.unreadable(error)))
        if line is None:
            if wire.at_end:
                self._end()
            return False
        if self._filter is not None:
            self._start(self._obey(line))
            return False
        return self._goes_on(self._answer(line))

    def _goes_on(self, reply: bytes) -> bool:
        """Give the reply to a command, or begin what it waits for; whether there is more to do at once."""
        dialogue, wire = self._dialogue, self.wire
        if dialogue.waits:
            self._start(self._finish(reply))
            return False
        self._give(reply)
        # Most clients wait for each reply: without this check every command would cost a second turn.
        return not self._has_ended and (wire.held > 0 or wire.at_end or dialogue.takes_chunk)

    def _give(self, reply: bytes) -> None:
        """Give the reply to a command, and do what its state asks for; what was sent too early is refused
        instead, and the session ends."""
        state = self._dialogue.state
        if self.wire.held and (early := EARLY.get(state)) and not self._dialogue.takes_chunk:
            self._end(Reason.SEQUENCE, early)
            return
        self._out.append(reply)
        if state is State.CLOSED:
            self._end()
        elif state is State.HANDSHAKE:
            self._begin_tls()

    def _answer(self, line: bytes) -> bytes:
        dialogue = self._dialogue
        try:
            return dialogue.command(line)
        except Exception:
            log.exception("a command failed because of a fault", extra=self._extra)
            dialogue.drop()
            return dialogue.refuse(Reason.FAULT, replies.FAULT)

    # ------------------------------------------------------------ inside a task

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._work.start(work, self._work_ended)

    async def _obey(self, line: bytes) -> None:
        """Answer one command, by the filter if there is one."""
        filtering = self._filter
        reply = self._answer(line) if filtering is None else await filtering.command(line)
        await self._finish(reply)
        if filtering is not None and reply.startswith(_CLOSING):
            self._end()

    async def _finish(self, reply: bytes) -> None:
        """Give a reply, after what it waits for."""
        dialogue, intake = self._dialogue, self._host.intake
        reply = await intake.desk.settle(dialogue, reply)
        while (wait := dialogue.next_wait()) is not None:
            if isinstance(wait, Skip):
                await self.wire.skip(wait.octets)
            elif isinstance(wait, Delay):
                await self._work.delay(wait.ms)
            elif isinstance(wait, Check):
                reply = await intake.desk.check_password(dialogue)
            elif not await self._work.for_place(intake.load, dialogue):
                reply = dialogue.retract(Reason.OVERLOAD, BUSY)
        self._give(reply)
        if dialogue.state is State.REVERSED and not self._has_ended:
            self._write()
            await intake.desk.collect(
                dialogue, self.transport, self.connection_lost, lambda: self.wire.error is not None
            )

    async def _take_content(self) -> None:
        """Take a message and give its replies, unless a command between chunks has ended it."""
        dialogue, wire = self._dialogue, self.wire
        wire.begin()
        intake = self._host.intake
        normalize = dialogue.rules.settings.bare_newline is BareNewline.NORMALIZE
        source = source_of(wire, dialogue.chunk, self._next_chunk, normalize=normalize)
        # What LMTP's client waits for (RFC 2033, 4.2): one message has one outcome for all its recipients.
        replies_due = len(dialogue.begun.recipients) if dialogue.rules.lmtp else 1
        try:
            reply = await take_message(intake, dialogue, source, self._filter)
        except Abandoned:
            return
        self._out.append(reply * replies_due)
        dialogue.sent()
        if self._filter is not None:
            self._filter.sent()
            if reply.startswith(_CLOSING):
                self._end()

    async def _next_chunk(self) -> Chunk:
        """Reply to a chunk; answer commands up to the next. Raises Abandoned when one ends the message."""
        dialogue = self._dialogue
        self._out.append(dialogue.chunk_taken())
        while dialogue.state is State.CHUNKS and not self._has_ended:
            # Other sessions have a turn.
            await asyncio.sleep(0)
            try:
                line = await self._next_line()
            except BadLine as error:
                await self._finish(dialogue.bad_line(replies.unreadable(error)))
            else:
                await self._obey(line)
        if not dialogue.takes_chunk or dialogue.chunk is None:
            raise Abandoned
        return dialogue.chunk

    async def _next_line(self) -> bytes:
        self.wire.spend(_COMMAND_MS)
        self.wire.check()
        while self._link is Link.UNREAD or (line := self.wire.next_line()) is None:
            self._write()
            await self.wire.wait()
            self.wire.check()
        return line

    # ------------------------------------------------------------ the ends

    def _work_ended(self, error: BaseException | None) -> None:
        """Go on after a task, or end the session."""
        if error is None:
            # Answered at once, even if the client has sent more behind it.
            self._write()
            error = self.wire.error
            if error is None and self._is_over(self._host.intake.clock.monotonic()):
                error = Interrupted(Reason.TIMEOUT, replies.SESSION_OVER)
        if isinstance(error, Interrupted):
            self._end(error.reason, error.reply)
        elif isinstance(error, ConnectFailed):
            self._end()
        elif isinstance(error, asyncio.CancelledError):
            self.transport.abort()
        elif isinstance(error, Exception):
            log.error("closed because of a fault", extra=self._extra, exc_info=error)
            self._end(Reason.FAULT, replies.FAULT_CLOSING)
        self._leave()
        if error is None:
            self._pump()

    def _end(self, reason: Reason | None = None, reply: Reply | None = None) -> None:
        """Close once the written replies are sent; with `reason` and `reply`, that reply is the last."""
        if self._has_ended:
            return
        self._link = after(self._link, Event.END)
        if reason is not None and reply is not None:
            self._out.append(self._dialogue.refuse(reason, reply))
        self._write()
        self.transport.close()
        self.wire.owe()

    def _write(self) -> None:
        if self._out:
            if not self.transport.is_closing():
                self.transport.write(b"".join(self._out))
            self._out.clear()

    def _leave(self) -> None:
        """Leave the door once there is neither connection nor task."""
        if self._link is Link.GONE and self._work.task is None:
            log.debug("from %s: %d messages", self.client, self._dialogue.messages, extra=self._extra)
            self._host.leave(self)

"""One connection at the door: octets in, replies out. What takes time is done in a task, see `tasks`.

Octets, end-of-file, a client that reads again, and the end of a task lead to `_pump`: it answers the received
commands, in one write, while there is no task and the client reads its replies. For each of them, `_step`:

| the dialogue | received | then |
|---|---|---|
| takes content | some; or a chunk is announced, which may be empty | the task `content` begins |
| takes a line | one, and the listener has a filter | the task `command` begins |
| | one | `answer` has the reply: `give` takes it; where it has to wait, the task `finish` begins |
| | one that cannot be read | the same, with its refusal |
| takes either | nothing, or part of a line | more has to come; after end-of-file the session ends |

The delay before a greeting is a task, too. `_task_ended` acts on what ends a task.

No session stands still: until its link is over, after each call of the loop one of these is so, and what ends
it leads to `_pump`.

| | ends by |
|---|---|
| a task runs | `_task_ended` |
| more commands are answered in the next turn (`_turn_due`) | `_next_turn` |
| the client does not read its replies (link UNREAD) | `resume_writing`; or its time is over |
| the client owes something (see `wire`) | `data_received`, `eof_received`; or its time is over |

The session ends in one of these ways; `end` and `connection_lost` alone end its link (see `link_states`).

| ends by | replies | a commit under way |
|---|---|---|
| QUIT, a limit on errors (state CLOSED), a 421 of the filter | all | |
| end-of-file, once all that was sent is answered | all | goes on |
| the connection is lost | nobody reads them | goes on |
| `interrupt`, `insecure`, a time limit | one more, after that to a commit | goes on |
| `cut`: the client does not read, the filter hangs, the door stops | no more | is cancelled |
| a fault: an unexpected exception | one more | |

`pause_writing` and `resume_writing` alone change the link besides. The table of `wire` says when the client
owes something, which bounds how long the session waits. The states of the dialogue are in
`esmtp.states`. `Door` checks the deadlines of all sessions at intervals.

Settings read: timeout, bare_newline, delay_greet.

Logging: one line per session as it leaves its door (level debug), faults with their traceback; no contents.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

from mqcd.config.settings import BareNewline
from mqcd.core.errors import ConnectFailed
from mqcd.core.ports import Refusal
from mqcd.core.smtp.reply import Reply
from mqcd.net.securing.layer import TlsLayer
from mqcd.net.securing.server import ListenerTls
from mqcd.net.shared.taken import TakenConnection, take
from mqcd.submit.auth.exchange import MAX_LINE as MAX_RESPONSE
from mqcd.submit.esmtp import replies
from mqcd.submit.esmtp.caller import STRANGER, Caller
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.esmtp.states import EARLY, State
from mqcd.submit.filters.handlers import filter_key
from mqcd.submit.session.connections import tls_channel
from mqcd.submit.session.dialogue import Dialogue
from mqcd.submit.session.filtering import Filter
from mqcd.submit.session.intake import Intake
from mqcd.submit.session.link_states import OVER, Event, Link, Overdue, after, overdue
from mqcd.submit.session.tasks import SessionTask
from mqcd.submit.session.wire import MAX_LINE, BadLine, Interrupted, Wire
from mqcd.submit.session.work import Work

log = logging.getLogger(__name__)

SESSION_MS = 3_600_000
"""Maximum length of a session; a message under way may finish."""
_TURN = 64
"""Commands answered in a row before other sessions have a turn."""
# As globals: on Python 3.11 an attribute of an Enum takes ten times as long.
_ANSWERING, _CONTENT = Link.ANSWERING, State.CONTENT


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionView:
    """A session as operators see it, at one moment."""

    session: str
    """Its name in the log."""
    state: str
    """What it has come to, by the names of `submit.esmtp.states`, small."""
    since_ms: int
    """How long it lasts."""
    tls: str
    """TLS version; "" = none."""
    messages: int
    """Received so far."""
    listener: str
    client: str
    """IP address."""
    user: str
    """Authenticated, or the local user; "" = none."""


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

    _task_type: ClassVar[type[SessionTask]] = SessionTask
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
        self.link = Link.ANSWERING
        """Its changes: `link_states`."""
        self._turn_due = False
        """More commands are answered in the loop's next turn: until then none, whatever comes."""

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
            self._filter = Filter(handler, self._dialogue, self.transport, intake.clock, self._work)
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
        self.write()
        self.wire.owe()

    def secured(self) -> None:
        """TLS has begun: the session begins again; where it has just begun, with a greeting."""
        first = self._dialogue.state is State.START
        self._dialogue.secured(tls_channel(self._host.tls, self.transport))
        if self._filter is not None:
            self._filter.secured(self.transport)
        self.wire.owes_nothing()
        if first:
            self._greet()
        else:
            self.wire.owe()

    def insecure(self, reason: str) -> None:
        """TLS has failed."""
        self._interrupt(Interrupted(Reason.TLS, Reply(code=421, status="4.7.0", text=reason)))

    def _begin_tls(self) -> None:
        self.write()
        self.transport = TlsLayer(self.transport, self, self._host.tls)

    def data_received(self, data: bytes) -> None:
        """Octets came."""
        self.wire.feed_data(data)
        self._pump()

    def eof_received(self) -> bool:
        """The client sends no more, but may still read: what it sent is answered first."""
        self.wire.feed_eof()
        self._work.hurry()
        self._pump()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone. A commit under way goes on; its reply has no reader."""
        self.link = after(self.link, Event.LOSE)
        self._work.hurry()
        self.wire.fail(ConnectFailed("the client closed the connection"))
        self._leave()

    def pause_writing(self) -> None:
        """The client does not read its replies: reading from it pauses until it does."""
        self.link = after(self.link, Event.FULL)
        self.wire.owe()

    def resume_writing(self) -> None:
        """It reads again."""
        self.link = after(self.link, Event.DRAINED)
        if self.link not in OVER:
            self.wire.owes_nothing()
            self.wire.wake()
            self._pump()

    # ------------------------------------------------------------ answers at once

    def _pump(self) -> None:
        """Answer the received commands; start reading content once some has arrived."""
        if self._turn_due or self.link is not _ANSWERING or self._work.task is not None:
            return
        try:
            for _ in range(_TURN):
                if not self._step():
                    break
            else:
                self._turn_due = True
                self._loop.call_soon(self._next_turn)
        except Exception as error:
            self._end_by(error)
        self.write()
        if self._work.task is None:
            self.wire.owe()

    def _next_turn(self) -> None:
        self._turn_due = False
        self._pump()

    def _step(self) -> bool:
        """Answer one command, if there is one; False when there is nothing left to do before more comes."""
        dialogue = self._dialogue
        wire = self.wire
        if dialogue.state is _CONTENT:
            if wire.held or dialogue.takes_chunk:
                self._start(self._task().content())
            elif wire.at_end:
                self.end()
            return False
        try:
            line = wire.next_line(MAX_RESPONSE if dialogue.state is State.LOGIN else MAX_LINE)
        except BadLine as error:
            return self._goes_on(dialogue.bad_line(replies.unreadable(error)))
        if line is None:
            if wire.at_end:
                self.end()
            return False
        if self._filter is not None:
            self._start(self._task().command(line))
            return False
        return self._goes_on(self.answer(line))

    def _goes_on(self, reply: bytes) -> bool:
        """Give the reply to a command, or begin what it waits for; whether there is more to do at once."""
        dialogue, wire = self._dialogue, self.wire
        if dialogue.waits:
            self._start(self._task().finish(reply))
            return False
        self.give(reply)
        # Most clients wait for each reply: without this check every command would cost a second turn.
        return self.link not in OVER and (wire.held > 0 or wire.at_end or dialogue.takes_chunk)

    # ------------------------------------------------------------ for itself and its tasks

    def answer(self, line: bytes) -> bytes:
        """The door's reply to a command. A fault in it is logged, and refuses the command."""
        dialogue = self._dialogue
        try:
            return dialogue.command(line)
        except Exception:
            log.exception("a command failed because of a fault", extra=self._extra)
            dialogue.drop()
            return dialogue.refuse(Reason.FAULT, replies.FAULT)

    def give(self, reply: bytes) -> None:
        """Give the reply to a command, and do what its state asks for; what was sent too early is refused
        instead, and the session ends."""
        state = self._dialogue.state
        if self.wire.held and (early := EARLY.get(state)) and not self._dialogue.takes_chunk:
            self.end(Reason.SEQUENCE, early)
            return
        self._out.append(reply)
        if state is State.CLOSED:
            self.end()
        elif state is State.HANDSHAKE:
            self._begin_tls()

    def write(self) -> None:
        """Write the replies that were given."""
        if self._out:
            if not self.transport.is_closing():
                self.transport.write(b"".join(self._out))
            self._out.clear()

    def end(self, reason: Reason | None = None, reply: Reply | None = None) -> None:
        """Close once the written replies are sent; with `reason` and `reply`, that reply is the last."""
        if self.link in OVER:
            return
        self.link = after(self.link, Event.END)
        if reason is not None and reply is not None:
            self._out.append(self._dialogue.refuse(reason, reply))
        self.write()
        self.transport.close()
        self.wire.owe()

    def hand_over(self) -> TakenConnection:
        """The connection of a client that has become the server: what it sends no longer comes here."""
        connection = take(self.transport, self.connection_lost)
        if self.link is Link.UNREAD:
            # The transport says this once.
            connection.pause_writing()
        return connection

    # ------------------------------------------------------------ the task and the ends

    def _task(self) -> SessionTask:
        """A new one each time: kept, it would keep the session in memory until the garbage collector runs."""
        return self._task_type(self, self._dialogue, self.wire, self._work, self._host.intake, self._filter)

    def _start(self, task: Coroutine[Any, Any, None]) -> None:
        self._work.start(task, self._task_ended)

    def _task_ended(self, error: BaseException | None) -> None:
        """Go on after a task, or end the session."""
        if error is None:
            # Answered at once, even if the client has sent more behind it.
            self.write()
            error = self.wire.error
            if error is None and self._is_over(self._host.intake.clock.monotonic()):
                error = Interrupted(Reason.TIMEOUT, replies.SESSION_OVER)
        if error is not None:
            self._end_by(error)
        self._leave()
        if error is None:
            self._pump()

    def _end_by(self, error: BaseException) -> None:
        """End the session by what a task has raised, what has interrupted it, or a fault."""
        match error:
            case Interrupted():
                self.end(error.reason, error.reply)
            case ConnectFailed():
                self.end()
            case asyncio.CancelledError():
                self.transport.abort()
            case Exception():
                log.error("closed because of a fault", extra=self._extra, exc_info=error)
                self.end(Reason.FAULT, replies.FAULT_CLOSING)

    def _leave(self) -> None:
        """Leave the door once there is neither connection nor task."""
        if self.link is Link.GONE and self._work.task is None:
            log.debug("from %s: %d messages", self.client, self._dialogue.messages, extra=self._extra)
            self._dialogue.free_place()
            self._host.leave(self)

    # ------------------------------------------------------------ for the door

    @property
    def places(self) -> dict[str, int]:
        """The places among the sessions of its parties that it holds."""
        return self._dialogue.places

    def view(self, now: int) -> SessionView:
        """What operators see of it; `now` is monotonic."""
        dialogue = self._dialogue
        return SessionView(
            session=dialogue.session,
            state=dialogue.state.name.lower(),
            since_ms=now - self._began,
            tls=dialogue.channel.tls,
            messages=dialogue.messages,
            listener=self._host.intake.listener,
            client=dialogue.client,
            user=dialogue.user or dialogue.caller.user,
        )

    def check_deadline(self, now: int, reply: Reply) -> None:
        """End the session, with `reply`, if the client has taken too long at `now` (monotonic): `overdue`."""
        if self._filter is not None and self._filter.hangs(now):
            self.cut()
            return
        since, timeout = self.wire.owing_since, self._timeout
        silent = 0 < timeout <= now - since if since else False
        slow = self.wire.is_slow(now) if self._work.task is not None else None
        found = overdue(self.link, silent=silent, too_long=self._is_over(now), content_slow=slow)
        if found is Overdue.CUT:
            self.cut()
        elif found is Overdue.INTERRUPT:
            self._interrupt(Interrupted(Reason.TIMEOUT, reply))

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
            self._end_by(error)

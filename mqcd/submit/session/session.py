"""One connection at the door: octets in, replies out. What takes time is done in a task, see `tasks`.

Each call from outside, what it may begin, and what the client owes after it (`deadlines`):

| call | by | a task begins | the client owes |
|---|---|---|---|
| `connection_made` | the loop | to delay the greeting | once it is greeted; or that TLS begins |
| `secured` | TLS | the same | anew, once it is greeted |
| `data_received`, `eof_received` | the loop, TLS | by `_pump` | once all is answered |
| `resume_writing`, `_next_turn` | the loop | by `_pump` | the same |
| `_task_ended` | the task's last step: `work.task` is None | by `_pump` | the same |
| `pause_writing` | the loop; `transport.write` and `close` | | that it reads |
| `interrupt`, `check_deadline`, `insecure` | the door; TLS | | that it closes |
| `cut`, `connection_lost` | the door; the loop | | |

They come one after the other, but for `pause_writing`: `transport.write` and `close` call it before they
return. `connection_lost` and `_task_ended` alone leave the door: the later of the two.

`_pump` answers the received commands, in one write, while there is no task and the client reads its replies.
For each of them, `_step`:

| the dialogue | received | then |
|---|---|---|
| takes content | some; or a chunk is announced, which may be empty | the task `content` begins |
| takes a line | one, and the listener has a filter | the task `command` begins |
| | one | `answer` has the reply: `give` takes it; where it has to wait, the task `finish` begins |
| | one that cannot be read | the same, with its refusal |
| takes either | nothing, or part of a line | more has to come; after end-of-file the session ends |

No session stands still: until its link is over, after each call one of these is so, and what ends it leads to
`_pump`.

| | ends by |
|---|---|
| a task runs | `_task_ended` |
| more commands are answered in the next turn (`_turn_due`) | `_next_turn` |
| the client does not read its replies (link UNREAD) | `resume_writing`; or its time is over |
| the client owes something | `data_received`, `eof_received`; or its time is over |

The session ends in one of these ways; `end` and `connection_lost` alone end its link (see `link_states`).

| ends by | replies | a commit under way |
|---|---|---|
| QUIT, a limit on errors (state CLOSED), a 421 of the filter | all | |
| end-of-file, once all that was sent is answered | all | goes on |
| the connection is lost | nobody reads them | goes on |
| `interrupt`, `insecure`, a time limit | one more, after that to a commit | goes on |
| `cut`: the client does not read, the filter hangs, the door stops | no more | is cancelled |
| a fault: an unexpected exception | one more | |

The states of the dialogue are in `esmtp.states`. `Door` checks the deadlines of all sessions at intervals.

Settings read: timeout, bare_newline, delay_greet.

Logging: one line per session as it leaves its door (level debug), faults with their traceback; no contents.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol, cast

from mqcd.config.settings import BareNewline
from mqcd.core.errors import ConnectFailed
from mqcd.core.ports import Refusal
from mqcd.core.smtp.reply import Reply
from mqcd.net.securing.layer import TlsLayer
from mqcd.net.securing.server import ListenerTls
from mqcd.net.shared.taken import TakenConnection, take
from mqcd.submit.auth.exchange import MAX_LINE as MAX_RESPONSE
from mqcd.submit.esmtp import replies
from mqcd.submit.esmtp.caller import Caller
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.esmtp.states import EARLY, State
from mqcd.submit.policy.rules import Rules
from mqcd.submit.session import tasks
from mqcd.submit.session.connections import tls_channel
from mqcd.submit.session.deadlines import Deadlines, Overdue
from mqcd.submit.session.dialogue import Dialogue
from mqcd.submit.session.intake import Intake
from mqcd.submit.session.link_states import OVER, Event, Link, after
from mqcd.submit.session.wire import MAX_LINE, BadLine, Interrupted, Wire
from mqcd.submit.session.work import Work

if TYPE_CHECKING:
    from mqcd.submit.session.filtering import Filter

log = logging.getLogger(__name__)

_TURN = 64
"""Commands answered in a row before other sessions have a turn."""
# As globals: on Python 3.11 an attribute of an Enum takes ten times as long.
_ANSWERING, _CONTENT = Link.ANSWERING, State.CONTENT


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

    def __init__(self, host: Host, rules: Rules, name: str, client: str, caller: Caller) -> None:
        """`name` is for the log, `client` its IP address; `caller`: what is known of it without a login."""
        self._loop = asyncio.get_running_loop()
        self._host = host
        self.intake = host.intake
        self.dialogue = Dialogue(rules, self.intake.listener, client, host.refused, name)
        self.dialogue.caller = caller
        self.deadlines = Deadlines(self.intake.clock, rules.settings.timeout)
        self.work = Work(self.intake.clock)
        self.filter: Filter | None = None
        self.link = Link.ANSWERING
        """Its changes: `link_states`."""
        self._out: list[bytes] = []
        self._turn_due = False
        """More commands are answered in the loop's next turn: until then none, whatever comes."""

    # ------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the client."""
        self.transport = cast("asyncio.Transport", transport)
        rules = self.dialogue.rules
        bare_lf = rules.settings.bare_newline is BareNewline.NORMALIZE
        self.wire = Wire(self._loop, self.transport, self.deadlines, bare_lf=bare_lf)
        if rules.handler is not None:
            # `Door` has imported it.
            from mqcd.submit.session.filtering import Filter

            self.filter = Filter(rules.handler, self.dialogue, self.transport, self.intake.clock, self.work)
        self._host.enter(self)
        if rules.tls_first:
            self._begin_tls()
            self.deadlines.owe()
        else:
            self._greet()

    def _greet(self) -> None:
        rules = self.dialogue.rules
        self._out.append(rules.greeting)
        if rules.settings.delay_greet:
            self._start(self.work.delay(rules.settings.delay_greet))
            return
        self.write()
        self.deadlines.owe()

    def _begin_tls(self) -> None:
        self.write()
        # `wire` keeps the socket's transport: what it pauses is the reading of octets, with TLS as without.
        self.transport = TlsLayer(self.transport, self, self._host.tls)

    def secured(self) -> None:
        """TLS has begun: the session begins again; where it has just begun, with a greeting."""
        first = self.dialogue.state is State.START
        self.dialogue.secured(tls_channel(self._host.tls, self.transport))
        if self.filter is not None:
            self.filter.secured(self.transport)
        self.deadlines.owes_nothing()
        if first:
            self._greet()
        else:
            self.deadlines.owe()

    def insecure(self, reason: str) -> None:
        """TLS has failed."""
        self.interrupt(Reply(code=421, status="4.7.0", text=reason), Reason.TLS)

    def data_received(self, data: bytes) -> None:
        """Octets came."""
        self.wire.feed_data(data)
        self._pump()

    def eof_received(self) -> bool:
        """The client sends no more, but may still read: what it sent is answered first."""
        self.wire.feed_eof()
        self.work.hurry()
        self._pump()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone. A commit under way goes on; its reply has no reader."""
        self.link = after(self.link, Event.LOSE)
        self.work.hurry()
        self.wire.fail(ConnectFailed("the client closed the connection"))
        self._leave()

    def pause_writing(self) -> None:
        """The client does not read its replies: reading from it pauses until it does."""
        self.link = after(self.link, Event.FULL)
        self.deadlines.owe()

    def resume_writing(self) -> None:
        """It reads again."""
        self.link = after(self.link, Event.DRAINED)
        if self.link not in OVER:
            self.deadlines.owes_nothing()
            self.wire.wake()
            self._pump()

    # ------------------------------------------------------------ answers at once

    def _pump(self) -> None:
        """Answer the received commands; start reading content once some has arrived."""
        if self._turn_due or self.link is not _ANSWERING or self.work.task is not None:
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
        if self.work.task is None:
            self.deadlines.owe()

    def _next_turn(self) -> None:
        self._turn_due = False
        self._pump()

    def _step(self) -> bool:
        """Answer one command, if there is one; False when there is nothing left to do before more comes."""
        dialogue = self.dialogue
        wire = self.wire
        if dialogue.state is _CONTENT:
            if wire.held or dialogue.takes_chunk:
                self._start(self._content())
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
        if self.filter is not None:
            self._start(tasks.command(self, line))
            return False
        return self._goes_on(self.answer(line))

    def _goes_on(self, reply: bytes) -> bool:
        """Give the reply to a command, or begin what it waits for; whether there is more to do at once."""
        dialogue, wire = self.dialogue, self.wire
        if dialogue.waits:
            self._start(tasks.finish(self, reply))
            return False
        self.give(reply)
        # Most clients wait for each reply: without this check every command would cost a second turn.
        return self.link not in OVER and (wire.held > 0 or wire.at_end or dialogue.takes_chunk)

    # ------------------------------------------------------------ for itself and its tasks

    def answer(self, line: bytes) -> bytes:
        """The door's reply to a command. A fault in it is logged, and refuses the command."""
        dialogue = self.dialogue
        try:
            return dialogue.command(line)
        except Exception:
            log.exception("a command failed because of a fault", extra={"session": dialogue.session})
            dialogue.drop()
            return dialogue.refuse(Reason.FAULT, replies.FAULT)

    def give(self, reply: bytes) -> None:
        """Give the reply to a command, and do what its state asks for; what was sent too early is refused
        instead, and the session ends."""
        state = self.dialogue.state
        if self.wire.held and (early := EARLY.get(state)) and not self.dialogue.takes_chunk:
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
            self._out.append(self.dialogue.refuse(reason, reply))
        # These two may call `pause_writing`: the row FULL of `link_states` keeps ENDED.
        self.write()
        self.transport.close()
        # Anew: the time for the client to close, whatever it owed before (`deadlines`).
        self.deadlines.owes_nothing()
        self.deadlines.owe()

    def hand_over(self) -> TakenConnection:
        """The connection of a client that has become the server: what it sends no longer comes here."""
        connection = take(self.transport, self.connection_lost)
        if self.link is Link.UNREAD:
            # The transport says this once.
            connection.pause_writing()
            self.link = after(self.link, Event.DRAINED)
        self.deadlines.owes_nothing()
        return connection

    # ------------------------------------------------------------ the task and the ends

    def _content(self) -> Coroutine[Any, Any, None]:
        return tasks.content(self)

    def _start(self, task: Coroutine[Any, Any, None]) -> None:
        self.work.start(task, self._task_ended)

    def _task_ended(self, error: BaseException | None) -> None:
        """Go on after a task, or end the session."""
        if error is None:
            # First: it is answered at once, even if the client has sent more behind it; and `_pump` answers
            # that only while the client reads.
            self.write()
            if self.link is Link.UNREAD:
                # What the task has read counted as all that the client owed, but it still owes that it reads.
                # `_pump` does not say so: it returns at once.
                self.deadlines.owe()
            # What fails the wire ends only a task that waits for the client, and SESSION_MS ends none.
            error = self.wire.error
            if error is None and self.deadlines.is_over(self.intake.clock.monotonic()):
                error = Interrupted(Reason.TIMEOUT, replies.SESSION_OVER)
        if error is not None:
            self._end_by(error)
        # Where the connection was lost while the task ran.
        self._leave()
        if error is None:
            # Last: it may begin the next task.
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
                extra = {"session": self.dialogue.session}
                log.error("closed because of a fault", extra=extra, exc_info=error)
                self.end(Reason.FAULT, replies.FAULT_CLOSING)

    def _leave(self) -> None:
        """Leave the door once there is neither connection nor task."""
        if self.link is Link.GONE and self.work.task is None:
            dialogue = self.dialogue
            extra = {"session": dialogue.session}
            log.debug("from %s: %d messages", dialogue.client, dialogue.messages, extra=extra)
            dialogue.free_place()
            self._host.leave(self)

    # ------------------------------------------------------------ for the door

    def check_deadline(self, now: int, reply: Reply) -> None:
        """End the session, with `reply`, if the client has taken too long at `now` (monotonic), or a hook."""
        hangs = self.filter is not None and self.filter.hangs(now)
        overdue = self.deadlines.overdue(now, self.link, busy=self.work.task is not None)
        if hangs or overdue is Overdue.CUT:
            self.cut()
        elif overdue is Overdue.INTERRUPT:
            self.interrupt(reply, Reason.TIMEOUT)

    def interrupt(self, reply: Reply, reason: Reason = Reason.CLOSED) -> None:
        """End the session with `reply`, as soon as it is not committing a message."""
        error = Interrupted(reason, reply)
        self.wire.fail(error)
        self.work.hurry()
        if self.work.task is None:
            self._end_by(error)

    def cut(self) -> None:
        """Drop the connection at once, and a commit under way."""
        self.transport.abort()
        self.work.cancel()

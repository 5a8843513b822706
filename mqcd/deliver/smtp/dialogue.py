"""The client's side of SMTP (RFC 5321, RFC 2920) and LMTP (RFC 2033) as a table: octets in, octets out. Pure.

Guarantees
* Each recipient gets its own outcome (`outcomes`). Delivered is only said after a 2yz reply to the end of the
  content: to the final dot, to BDAT LAST (RFC 3030), in LMTP to that recipient's own.
* A dialogue that breaks before the end of the content was sent leaves the undecided ones deferred; one that
  breaks after it without a reply leaves them deferred and possibly delivered.
* The same octets give the same outcome however they are split. Garbage, endless replies and replies
  nobody asked for end the session (4.5.0); 421 ends it wherever it comes (RFC 5321, 3.8).
* A session that the server refuses (greeting, EHLO, TLS, login) is a failure of that host or a mistake of
  ours, hence temporary whatever its code: another host, or another day, would take the mail.

`prelude` has what comes before mail, `envelope` decides what cannot be sent to this server at all.

The caller sends what `take` gives after each call, hands in what arrives with `receive`, and acts on
`state`. It keeps time: when the peer is too slow it says so with `lost`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from mqcd.core.errors import DecodeError
from mqcd.core.model import Phase
from mqcd.core.reply import Reply
from mqcd.deliver.smtp import commands
from mqcd.deliver.smtp.exchange import Manners, Outcome, State, Step, Transaction
from mqcd.deliver.smtp.handshake import Prelude
from mqcd.deliver.smtp.negotiation import local, temporary
from mqcd.deliver.smtp.outcomes import ALL, Outcomes
from mqcd.deliver.smtp.replies import RawReply
from mqcd.deliver.smtp.stuffing import Chunker, DotStuffer, Wrapping


class _Body(Enum):
    """How far the content of a transaction by BDAT is; after DATA it is the server's 354 that says so."""

    NONE = "none"
    TO_COME = "to come"
    UNDER_WAY = "under way"


class Dialogue(Prelude):
    """One session with one server, from its greeting on."""

    def __init__(self, manners: Manners) -> None:
        super().__init__(manners)
        self.answered = False
        """Whether the running transaction got any reply: if not, a kept connection may just be stale."""
        self.replies = 0
        """How many replies came in all."""
        self._unsent: deque[tuple[bytes, Step, int]] = deque()
        self._outcomes = Outcomes(0)
        self._dirty = False
        self._dot_sent = False
        self._quit_after = False
        self._body = _Body.NONE
        self._wrapping: Wrapping = DotStuffer()

    # ------------------------------------------------------------ what the caller sees

    @property
    def phase(self) -> Phase:
        """What we wait for the answer to, else the last phase entered."""
        return _RULES[self._expected[0][0]].phase if self._expected else self._phase

    @property
    def outcomes(self) -> list[Outcome]:
        """One for each recipient of the last transaction, once the state is READY or ENDED."""
        return self._outcomes.known

    @property
    def decided(self) -> bool:
        """Whether each recipient has its outcome, and no reply but that to QUIT is to come."""
        expected = self._expected
        return self._outcomes.decided and (not expected or expected[0][0] is Step.QUIT)

    @property
    def dot_sent(self) -> bool:
        """Whether the end of the running transaction's content is out and unanswered."""
        return self._dot_sent

    def take(self) -> bytes:
        """What is to be sent now, b"" when nothing is."""
        if not self._out:
            return b""
        out = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        return out

    # ------------------------------------------------------------ what the caller says

    def receive(self, data: bytes) -> State:
        """Octets from the server."""
        reader = self._reader
        reader.feed(data)
        try:
            while self.state is not State.ENDED and (raw := reader.next()) is not None:
                self._take_reply(raw)
                if self._unsent:
                    self._advance()
        except DecodeError as error:
            self._phase = self.phase
            self._finish(local("4.5.0", f"server does not speak SMTP: {error}"))
        self._advance()
        return self.state

    def lost(self, reason: str) -> State:
        """The connection is gone, or its time is up; `reason` is for people."""
        if self.state is not State.ENDED:
            self._phase = self.phase
            where = "after the final dot" if self._dot_sent else f"in phase {self._phase.value}"
            self._finish(local("4.4.2", f"{reason} {where}"))
        return self.state

    def begin(self, transaction: Transaction) -> State:
        """Start a transaction in state READY. It may be over at once, nothing sent."""
        offered = self.extensions
        outcomes = self._outcomes = Outcomes(len(transaction.recipients), self._manners.relay)
        self.answered = False
        self._dot_sent = False
        self._body = _Body.NONE
        self._phase = Phase.MAIL
        refusal = commands.obstacle(transaction, offered)
        for index in range(len(outcomes)):
            if (reply := refusal or commands.unsendable(transaction, index)) is not None:
                outcomes.bounce(index, reply)
        if outcomes.decided:
            return self.state
        chunked = self._manners.chunking and "CHUNKING" in offered
        self._wrapping = Chunker() if chunked else DotStuffer()
        self._quit_after = transaction.quit_after and self._window != 1
        unsent = self._unsent
        if self._dirty:
            unsent.append((b"RSET\r\n", Step.RSET, 0))
            self._dirty = False
        unsent.append((commands.mail(transaction, offered), Step.MAIL, 0))
        for index in outcomes.undecided():
            unsent.append((commands.rcpt(transaction, offered, index), Step.RCPT, index))
        if chunked:
            self._body = _Body.TO_COME
        else:
            unsent.append((b"DATA\r\n", Step.DATA, 0))
        self.state = State.WAITING
        self._advance()
        return self.state

    def content(self, chunk: bytes, last: bool) -> bytes:
        """The next octets of the content as they are to be sent, in state CONTENT.

        With `last` its end goes with them: from there on a lost connection means possibly delivered.
        """
        octets = self._wrapping.wrap(chunk, last)
        if last:
            return octets + self._content_sent()
        if self._body is not _Body.NONE:
            self._body = _Body.UNDER_WAY
            self._expected.append((Step.CHUNK, ALL))
            if self._window and len(self._expected) >= self._window:
                self.state = State.WAITING
        return octets

    def quit(self) -> State:
        """Say goodbye in state READY; ENDED comes with the answer."""
        self._expected.append((Step.QUIT, 0))
        self._out.append(b"QUIT\r\n")
        self.state = State.WAITING
        return self.state

    # ------------------------------------------------------------ the interpreter

    def _take_reply(self, raw: RawReply) -> None:
        if not self._expected:
            if self.state is State.CONTENT and raw.code >= 400:
                # What it was asked is answered: it has had enough of the content before its end.
                self._outcomes.refuse(self._outcomes.accepted, raw, Phase.DATA)
            self._finish(temporary("server spoke out of turn", raw.reply()))
            return
        self.replies += 1
        step, index = self._expected.popleft()
        rule = _RULES[step]
        if step not in _SILENT:
            self.answered = True
            self._phase = rule.phase
        kind = raw.code // 100
        if kind == rule.good:
            rule.accepted(self, raw, index)
        elif kind >= 4:
            rule.refused(self, raw, index)
            if raw.code == 421:
                self._finish(raw.reply())
        elif kind == 3 and rule.asked is not None:
            rule.asked(self, raw, index)
        else:
            self._finish(local("4.5.0", f"reply {raw.code} makes no sense in phase {rule.phase.value}"))

    def _advance(self) -> None:
        """Send as many commands as the window lets, and see what the transaction needs next."""
        if self.state is not State.WAITING:
            return
        expected, unsent = self._expected, self._unsent
        while unsent and (not self._window or len(expected) < self._window):
            line, step, index = unsent.popleft()
            if step is Step.DATA and not expected and not self._outcomes.accepted:
                break
            self._out.append(line)
            expected.append((step, index))
        if self._body is not _Body.NONE and not unsent and self._wants_chunk():
            self.state = State.CONTENT
        elif not expected and not unsent:
            self._dirty = self._dirty or (len(self._outcomes) > 0 and not self._dot_sent)
            self._dot_sent = False
            self.state = State.READY

    def _wants_chunk(self) -> bool:
        """Whether the server is to be sent more of a content that goes by BDAT."""
        if self._body is _Body.TO_COME:
            # Not before each RCPT has its reply: content for nobody is a waste, and so is a sync.
            return not self._expected and bool(self._outcomes.accepted)
        return not self._window or len(self._expected) < self._window

    def _content_sent(self) -> bytes:
        """The end of the content is on its way; gives what goes behind it."""
        self.state = State.WAITING
        self._dot_sent = True
        self._body = _Body.NONE
        self._phase = Phase.DOT
        if self._manners.lmtp:
            # RFC 2033, 4.2: one reply for each accepted recipient, in their order.
            self._expected.extend((Step.END, index) for index in self._outcomes.accepted)
        else:
            self._expected.append((Step.END, ALL))
        if not self._quit_after:
            return b""
        self._expected.append((Step.QUIT, 0))
        return b"QUIT\r\n"

    def _finish(self, reply: Reply) -> None:
        """The session is over; who is undecided is deferred with `reply`."""
        self._outcomes.lost(reply, self._phase, self._dot_sent)
        self._unsent.clear()
        super()._finish(reply)

    # ------------------------------------------------------------ mail: what replies do, see _RULES

    def _go_on(self, raw: RawReply, index: int) -> None:
        """Nothing to do; `_advance` sees what comes next."""

    def _mail_refused(self, raw: RawReply, index: int) -> None:
        self._outcomes.refuse(range(len(self._outcomes)), raw, Phase.MAIL)
        self._unsent.clear()
        self._body = _Body.NONE

    def _rcpt_taken(self, raw: RawReply, index: int) -> None:
        self._outcomes.accept(index)

    def _rcpt_refused(self, raw: RawReply, index: int) -> None:
        self._outcomes.refuse([index], raw, Phase.RCPT)

    def _data_taken(self, raw: RawReply, index: int) -> None:
        if self._outcomes.accepted:
            self.state = State.CONTENT
        elif self._manners.lmtp:
            # RFC 2033, 4.2 has the server refuse DATA here; how many replies a dot would get is open.
            self._finish(local("4.5.0", "server wants content for nobody"))
        else:
            # RFC 2920, 3.1: DATA that was pipelined behind refused recipients is ended with a lone dot.
            self._out.append(b".\r\n")
            self._expected.append((Step.END, ALL))

    def _data_refused(self, raw: RawReply, index: int) -> None:
        self._outcomes.refuse(self._outcomes.accepted, raw, Phase.DATA)

    def _chunk_refused(self, raw: RawReply, index: int) -> None:
        """No more of this content is sent (RFC 3030, 2); chunks that are out will be refused too."""
        self._data_refused(raw, index)
        self._body = _Body.NONE
        self._dirty = True
        self.state = State.WAITING

    def _content_taken(self, raw: RawReply, index: int) -> None:
        if self._dot_sent:
            self._outcomes.delivered(self._outcomes.concerned(index), raw)

    def _content_refused(self, raw: RawReply, index: int) -> None:
        self._outcomes.refuse(self._outcomes.concerned(index), raw, Phase.DOT)
        # RFC 3030, 2: after a BDAT that failed the transaction still stands.
        self._dirty = isinstance(self._wrapping, Chunker)

    def _quit_answered(self, raw: RawReply, index: int) -> None:
        self._finish(raw.reply())


_Handler = Callable[[Dialogue, RawReply, int], None]


@dataclass(frozen=True, slots=True)
class _Rule:
    """What the reply to one command means."""

    phase: Phase
    good: int
    """First digit of the reply that lets the dialogue go on."""
    accepted: _Handler
    refused: _Handler
    """For 4yz and 5yz."""
    asked: _Handler | None = None
    """For 3yz where that is not `good`. Anything else ends the session."""


_RULES: Mapping[Step, _Rule] = {
    Step.GREETING: _Rule(Phase.GREETING, 2, Dialogue._greeted, Dialogue._end_session),
    Step.EHLO: _Rule(Phase.EHLO, 2, Dialogue._hello_taken, Dialogue._ehlo_refused),
    Step.HELO: _Rule(Phase.EHLO, 2, Dialogue._helo_taken, Dialogue._end_session),
    Step.STARTTLS: _Rule(Phase.TLS, 2, Dialogue._tls_granted, Dialogue._tls_refused),
    Step.AUTH: _Rule(Phase.AUTH, 2, Dialogue._go_on, Dialogue._login_refused, Dialogue._challenged),
    Step.RSET: _Rule(Phase.MAIL, 2, Dialogue._go_on, Dialogue._end_session),
    Step.MAIL: _Rule(Phase.MAIL, 2, Dialogue._go_on, Dialogue._mail_refused),
    Step.RCPT: _Rule(Phase.RCPT, 2, Dialogue._rcpt_taken, Dialogue._rcpt_refused),
    Step.DATA: _Rule(Phase.DATA, 3, Dialogue._data_taken, Dialogue._data_refused),
    Step.CHUNK: _Rule(Phase.DATA, 2, Dialogue._go_on, Dialogue._chunk_refused),
    Step.END: _Rule(Phase.DOT, 2, Dialogue._content_taken, Dialogue._content_refused),
    Step.QUIT: _Rule(Phase.DOT, 2, Dialogue._quit_answered, Dialogue._quit_answered),
}
_SILENT = frozenset({Step.RSET, Step.QUIT})
"""Steps whose replies say nothing about the message."""

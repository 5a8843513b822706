"""The client's side of SMTP (RFC 5321, RFC 2920) and LMTP (RFC 2033) as tables: octets in, octets out. Pure.

Guarantees
* Each recipient gets exactly one outcome, the first one that is known (`Outcomes`). Delivered is only said
  after a 2yz reply to the end of the content: to the final dot, to BDAT LAST (RFC 3030), in LMTP to that
  recipient's own.
* A session that breaks before the end of the content was sent leaves undecided recipients deferred; one that
  breaks after it without a reply leaves them deferred and possibly delivered.
* The same octets give the same outcome however they are split. Garbage, endless replies and unexpected
  replies end the session (4.5.0); 421 ends it wherever it comes (RFC 5321, 3.8).
* A session that the server refuses (greeting, EHLO, TLS, login) is a failure of that host or a mistake of
  this server's operator, hence temporary for any code: another host, or a later try, may take the mail.

`states` has the states of a session, `_RULES` here the meaning of each command's reply, `handshake` the part
before mail; `commands` decides what cannot be sent to this server at all.

The caller sends what `take` gives after each call, hands in what arrives with `receive`, and acts on
`state`. The caller keeps time: when the peer is too slow it calls `lost`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from mqcd.core.errors import DecodeError
from mqcd.core.model import Phase
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.deliver.smtp import commands
from mqcd.deliver.smtp.commands import Chunker, DotStuffer, Wrapping
from mqcd.deliver.smtp.exchange import Options, Outcome, Result, Step, Transaction
from mqcd.deliver.smtp.handshake import Handshake, as_temporary, local
from mqcd.deliver.smtp.replies import RawReply
from mqcd.deliver.smtp.states import DECIDED, WAITING, Event, State

WANTS_LOGIN = frozenset({530, 534, 535, 538})
"""Replies that ask for a login or for TLS, or for better ones (RFC 4954, 6; RFC 3207, 4)."""
ALL = -1
"""In place of a recipient's index: the reply is for all that were accepted."""


class Outcomes:
    """Starts with all recipients undecided."""

    __slots__ = ("_list", "_relay", "accepted")

    def __init__(self, count: int, relay: bool = False) -> None:
        self._list: list[Outcome | None] = [None] * count
        self._relay = relay
        self.accepted: list[int] = []
        """Indexes of the recipients whose RCPT was accepted, in order."""

    def __len__(self) -> int:
        return len(self._list)

    @property
    def known(self) -> list[Outcome]:
        """The outcomes that there are, in the recipients' order."""
        return [outcome for outcome in self._list if outcome is not None]

    @property
    def decided(self) -> bool:
        """Whether each recipient has its outcome."""
        return None not in self._list

    def accept(self, index: int) -> None:
        if self._list[index] is None:
            self.accepted.append(index)

    def concerned(self, index: int) -> Iterable[int]:
        """The recipients of a reply to `index`, see ALL."""
        return self.accepted if index == ALL else (index,)

    def decide(self, indexes: Iterable[int], outcome: Outcome) -> None:
        """Set the outcome of recipients without one."""
        for index in indexes:
            if self._list[index] is None:
                self._list[index] = outcome

    def delivered(self, indexes: Iterable[int], raw: RawReply) -> None:
        """The server took responsibility for them."""
        self.decide(indexes, Outcome(result=Result.DELIVERED, reply=raw.reply(), phase=Phase.DOT))

    def refuse(self, indexes: Iterable[int], raw: RawReply, phase: Phase) -> None:
        """The server refused them; a relay that asks for a login or TLS is a mistake of this server's
        operator."""
        reply = raw.reply()
        if self._relay and raw.code in WANTS_LOGIN:
            reply = local("4.7.0", f"the relay requires a login or TLS: {reply}")
        # RFC 5321, 4.5.3.1.10: 552 in answer to RCPT is the old way to say 452, too many recipients.
        temporary = reply.code < 500 or (reply.code == 552 and phase is Phase.RCPT)
        result = Result.DEFERRED if temporary else Result.BOUNCED
        self.decide(indexes, Outcome(result=result, reply=reply, phase=phase))

    def bounce(self, index: int, reply: Reply) -> None:
        """This one cannot be sent the message by this way."""
        self.decide([index], Outcome(result=Result.BOUNCED, reply=reply, phase=Phase.MAIL))

    def undecided(self) -> list[int]:
        """Indexes of the recipients without an outcome."""
        return [index for index, outcome in enumerate(self._list) if outcome is None]

    def lost(self, reply: Reply, phase: Phase, possibly: bool) -> None:
        """The session is over: undecided recipients are deferred, `possibly` delivered."""
        outcome = Outcome(result=Result.DEFERRED, reply=reply, phase=phase, possibly_delivered=possibly)
        self.decide(range(len(self)), outcome)


class SmtpClient(Handshake):
    """One session with one server, from its greeting on."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.answered = False
        """Whether the running transaction got any reply: if not, a kept connection may just be stale."""
        self.replies = 0
        """How many replies came in all."""
        self._unsent: deque[tuple[bytes, Step, int]] = deque()
        self._outcomes = Outcomes(0)
        self._reset_due = False
        """RSET has to precede the next MAIL: the server may still have the last transaction open. Set where
        that ended without its content (`_advance`) or a BDAT was refused (`_chunk_refused`,
        `_content_refused`); cleared by `begin`, which sends RSET."""
        self._quit_after = False
        self._wrapping: Wrapping = DotStuffer()

    # ------------------------------------------------------------ what the caller sees

    @property
    def phase(self) -> Phase:
        """The phase of the awaited reply, else the last phase entered."""
        return self._expected[0][0].phase if self._expected else self._phase

    @property
    def outcomes(self) -> list[Outcome]:
        """One for each recipient of the last transaction, once the state is READY or ENDED."""
        return self._outcomes.known

    @property
    def decided(self) -> bool:
        """Whether each recipient has its outcome, and no reply but that to QUIT is to come."""
        return self.state in DECIDED

    @property
    def dot_sent(self) -> bool:
        """Whether the end of the running transaction's content is out and unanswered."""
        return self.state is State.DOT

    def take(self) -> bytes:
        """Octets to send now, b"" for none."""
        if not self._out:
            return b""
        out = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        return out

    # ------------------------------------------------------------ what the caller says

    def receive(self, data: bytes) -> State:
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
        """The connection was lost or timed out; `reason` goes into the reply."""
        if self.state is not State.ENDED:
            self._phase = self.phase
            where = "after the final dot" if self.dot_sent else f"in phase {self._phase.value}"
            self._finish(local("4.4.2", f"{reason} {where}"))
        return self.state

    def begin(self, transaction: Transaction) -> State:
        """Start a transaction in state READY. It may be over at once, nothing sent."""
        offered = self.extensions
        outcomes = self._outcomes = Outcomes(len(transaction.recipients), self._options.relay)
        self.answered = False
        self._phase = Phase.MAIL
        refusal = commands.obstacle(transaction, offered)
        for index in range(len(outcomes)):
            if (reply := refusal or commands.unsendable(transaction, index)) is not None:
                outcomes.bounce(index, reply)
        if outcomes.decided:
            return self.state
        chunked = self._options.chunking and "CHUNKING" in offered
        self._wrapping = Chunker() if chunked else DotStuffer()
        self._quit_after = transaction.quit_after and self._window != 1
        unsent = self._unsent
        if self._reset_due:
            unsent.append((b"RSET\r\n", Step.RSET, 0))
            self._reset_due = False
        unsent.append((commands.mail(transaction, offered), Step.MAIL, 0))
        for index in outcomes.undecided():
            unsent.append((commands.rcpt(transaction, offered, index), Step.RCPT, index))
        if not chunked:
            unsent.append((b"DATA\r\n", Step.DATA, 0))
        self.on(Event.BEGIN)
        self._advance()
        return self.state

    def content(self, chunk: bytes, last: bool) -> bytes:
        """The next octets of the content as they are to be sent, in state CONTENT.

        With `last` its end goes with them: from there on a lost connection means possibly delivered.
        """
        octets = self._wrapping.wrap(chunk, last)
        if last:
            return octets + self._content_sent()
        if self._chunked:
            self._expected.append((Step.CHUNK, ALL))
            if len(self._expected) >= self._window:
                self.on(Event.FULL)
        return octets

    def quit(self) -> State:
        """Send QUIT in state READY; its reply leads to ENDED."""
        self._expected.append((Step.QUIT, 0))
        self._out.append(b"QUIT\r\n")
        self.on(Event.QUIT)
        return self.state

    # ------------------------------------------------------------ the interpreter

    def _take_reply(self, raw: RawReply) -> None:
        if not self._expected:
            if self.state is State.CONTENT and raw.code >= 400:
                # It refuses the content before its end.
                self._outcomes.refuse(self._outcomes.accepted, raw, Phase.DATA)
            self._finish(as_temporary("unexpected reply", raw.reply()))
            return
        self.replies += 1
        step, index = self._expected.popleft()
        rule = _RULES[step]
        if step not in _SILENT:
            self.answered = True
            self._phase = step.phase
        kind = raw.code // 100
        if kind == rule.good:
            rule.accepted(self, raw, index)
        elif kind >= 4:
            rule.refused(self, raw, index)
            if raw.code == 421 and self.state is not State.ENDED:
                self._finish(raw.reply())
        elif kind == 3 and rule.asked is not None:
            rule.asked(self, raw, index)
        else:
            self._finish(local("4.5.0", f"reply {raw.code} unexpected in phase {step.phase.value}"))

    @property
    def _chunked(self) -> bool:
        """Whether the content goes by BDAT."""
        return isinstance(self._wrapping, Chunker)

    def _advance(self) -> None:
        """Send as many commands as the window allows, and choose the transaction's next step.

        The next step, of these rows the first that applies:

        | state | `_expected` after sending | `accepted` | event |
        |---|---|---|---|
        | FULL | fewer than the window | | ROOM |
        | DOT | first the reply to QUIT | | DONE, QUIT |
        | any of WAITING | some | | none: replies are awaited |
        | ENVELOPE, by BDAT | none | some | GO_AHEAD (by DATA: see `_data_taken`) |
        | ENVELOPE, REFUSED | none | | DONE, and RSET is due |
        | HANDSHAKE, DOT | none | | DONE |

        `_unsent` is empty where no reply is expected: the window is at least 1, and DATA is the last command.
        """
        state = self.state
        if state not in WAITING:
            return
        expected, unsent = self._expected, self._unsent
        while unsent and len(expected) < self._window:
            line, step, index = unsent.popleft()
            if step is Step.DATA and not expected and not self._outcomes.accepted:
                break
            self._out.append(line)
            expected.append((step, index))
        if state is State.FULL and len(expected) < self._window:
            self.on(Event.ROOM)
        elif expected or unsent:
            if state is State.DOT and expected[0][0] is Step.QUIT:
                self.on(Event.DONE)
                self.on(Event.QUIT)
        elif state is State.ENVELOPE and self._chunked and self._outcomes.accepted:
            # Not before each RCPT has its reply: without recipients neither content nor sync is needed.
            self.on(Event.GO_AHEAD)
        else:
            self._reset_due = self._reset_due or state in (State.ENVELOPE, State.REFUSED)
            self.on(Event.DONE)

    def _content_sent(self) -> bytes:
        """The end of the content is on its way; returns what goes behind it."""
        self.on(Event.CONTENT_SENT)
        self._phase = Phase.DOT
        if self._options.lmtp:
            # RFC 2033, 4.2: one reply for each accepted recipient, in their order.
            self._expected.extend((Step.END, index) for index in self._outcomes.accepted)
        else:
            self._expected.append((Step.END, ALL))
        if not self._quit_after:
            return b""
        self._expected.append((Step.QUIT, 0))
        return b"QUIT\r\n"

    def _finish(self, reply: Reply) -> None:
        """The session is over; recipients without an outcome are deferred with `reply`."""
        self._outcomes.lost(reply, self._phase, self.dot_sent)
        self._unsent.clear()
        super()._finish(reply)

    # ------------------------------------------------------------ mail: the effects of replies, see _RULES

    def _go_on(self, raw: RawReply, index: int) -> None:
        """No effect; `_advance` chooses the next step."""

    def _mail_refused(self, raw: RawReply, index: int) -> None:
        self._outcomes.refuse(range(len(self._outcomes)), raw, Phase.MAIL)
        self._unsent.clear()

    def _rcpt_taken(self, raw: RawReply, index: int) -> None:
        self._outcomes.accept(index)

    def _rcpt_refused(self, raw: RawReply, index: int) -> None:
        self._outcomes.refuse([index], raw, Phase.RCPT)

    def _data_taken(self, raw: RawReply, index: int) -> None:
        if self._outcomes.accepted:
            self.on(Event.GO_AHEAD)
        elif self._options.lmtp:
            # RFC 2033, 4.2 has the server refuse DATA here; how many replies a dot would get is open.
            self._finish(local("4.5.0", "server accepted DATA without recipients"))
        else:
            # RFC 2920, 3.1: DATA that was pipelined behind refused recipients is ended with a lone dot. The
            # state stays ENVELOPE, not DOT, so that no reply to it means delivered (`_content_taken`).
            self._out.append(b".\r\n")
            self._expected.append((Step.END, ALL))

    def _data_refused(self, raw: RawReply, index: int) -> None:
        self._outcomes.refuse(self._outcomes.accepted, raw, Phase.DATA)

    def _chunk_refused(self, raw: RawReply, index: int) -> None:
        """No more of this content is sent (RFC 3030, 2); chunks that are out will be refused too."""
        self._data_refused(raw, index)
        self._reset_due = True
        self.on(Event.CONTENT_REFUSED)

    def _content_taken(self, raw: RawReply, index: int) -> None:
        if self.dot_sent:
            self._outcomes.delivered(self._outcomes.concerned(index), raw)

    def _content_refused(self, raw: RawReply, index: int) -> None:
        self._outcomes.refuse(self._outcomes.concerned(index), raw, Phase.DOT)
        # RFC 3030, 2: after a BDAT that failed the transaction still stands.
        self._reset_due = self._chunked

    def _quit_answered(self, raw: RawReply, index: int) -> None:
        self._finish(raw.reply())


_Handler = Callable[[SmtpClient, RawReply, int], None]


@value(kw_only=False)
class _Rule:
    """What the reply to one command means."""

    good: int
    """First digit of the reply that lets the session go on."""
    accepted: _Handler
    refused: _Handler
    """For 4yz and 5yz."""
    asked: _Handler | None = None
    """For 3yz where that is not `good`. Anything else ends the session."""


_RULES: Mapping[Step, _Rule] = {
    Step.GREETING: _Rule(2, SmtpClient._greeted, SmtpClient._end_session),
    Step.EHLO: _Rule(2, SmtpClient._hello_taken, SmtpClient._ehlo_refused),
    Step.HELO: _Rule(2, SmtpClient._helo_taken, SmtpClient._end_session),
    Step.STARTTLS: _Rule(2, SmtpClient._tls_granted, SmtpClient._tls_refused),
    Step.AUTH: _Rule(2, SmtpClient._go_on, SmtpClient._login_refused, SmtpClient._challenged),
    Step.RSET: _Rule(2, SmtpClient._go_on, SmtpClient._end_session),
    Step.MAIL: _Rule(2, SmtpClient._go_on, SmtpClient._mail_refused),
    Step.RCPT: _Rule(2, SmtpClient._rcpt_taken, SmtpClient._rcpt_refused),
    Step.DATA: _Rule(3, SmtpClient._data_taken, SmtpClient._data_refused),
    Step.CHUNK: _Rule(2, SmtpClient._go_on, SmtpClient._chunk_refused),
    Step.END: _Rule(2, SmtpClient._content_taken, SmtpClient._content_refused),
    Step.QUIT: _Rule(2, SmtpClient._quit_answered, SmtpClient._quit_answered),
}
_SILENT = frozenset({Step.RSET, Step.QUIT})
"""Steps whose replies say nothing about the message."""

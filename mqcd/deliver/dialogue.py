"""The client's side of SMTP (RFC 5321, RFC 2920) as a table: octets in, octets and a state out. Pure.

Guarantees
* Each recipient gets its own outcome. What DATA and the final dot are answered holds for those alone
  whose RCPT was accepted. Delivered is only said after a 2yz reply to the final dot.
* A dialogue that breaks before the final dot leaves the undecided ones deferred; one that breaks after
  it without a reply leaves them deferred and possibly delivered.
* The same octets give the same outcome however they are split. Garbage, endless replies and replies
  nobody asked for end the session (4.5.0); 421 ends it wherever it comes (RFC 5321, 3.8).
* A session that the server refuses (greeting, EHLO) is a failure of that host, hence temporary whatever
  its code: a host that refuses everybody must not bounce mail that another host would take.

What the next hop cannot carry is bounced before MAIL: SMTPUTF8 that is needed (5.6.7, RFC 6531 3.5),
content declared 8BITMIME that does have 8-bit octets (5.6.3, RFC 6152 3), more octets than its SIZE (5.3.4,
RFC 1870 6.1). 8-bit content that was never declared so goes out as it came in.

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
from mqcd.deliver.exchange import Manners, Outcome, Result, State, Transaction
from mqcd.deliver.replies import RawReply, ReplyReader
from mqcd.deliver.stuffing import DotStuffer


class _Step(Enum):
    """A reply that is awaited."""

    GREETING = Phase.GREETING
    EHLO = Phase.EHLO
    HELO = "helo"
    STARTTLS = Phase.TLS
    RSET = "rset"
    MAIL = Phase.MAIL
    RCPT = Phase.RCPT
    DATA = Phase.DATA
    DOT = Phase.DOT
    QUIT = "quit"


class Dialogue:
    """One session with one server, from its greeting on."""

    def __init__(self, manners: Manners) -> None:
        self.state = State.WAITING
        self.end: Reply | None = None
        """Why the session ended, as a reply that a recipient can be deferred with."""
        self.extensions: dict[str, str] = {}
        """What EHLO offered: keyword in upper case to its parameters."""
        self.answered = False
        """Whether the running transaction got any reply: if not, a kept connection may just be stale."""
        self.secured = False
        self._manners = manners
        self._reader = ReplyReader()
        self._out: list[bytes] = []
        self._expected: deque[tuple[_Step, int]] = deque([(_Step.GREETING, 0)])
        self._unsent: deque[tuple[bytes, _Step, int]] = deque()
        self._window = 1
        self._outcomes: list[Outcome | None] = []
        self._accepted: list[int] = []
        self._phase = Phase.GREETING
        self._dirty = False
        self._dot_sent = False
        self._quit_after = False
        self._stuffer = DotStuffer()

    # ------------------------------------------------------------ what the caller sees

    @property
    def phase(self) -> Phase:
        """What we wait for the answer to, else the last phase entered."""
        return _RULES[self._expected[0][0]].phase if self._expected else self._phase

    @property
    def outcomes(self) -> list[Outcome]:
        """One for each recipient of the last transaction, once the state is READY or ENDED."""
        return [outcome for outcome in self._outcomes if outcome is not None]

    @property
    def decided(self) -> bool:
        """Whether each recipient has its outcome; the session may still have replies to come."""
        return None not in self._outcomes

    @property
    def dot_sent(self) -> bool:
        """Whether the running transaction's final dot is out and unanswered."""
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
            self._finish(_local("4.5.0", f"server does not speak SMTP: {error}"))
        self._advance()
        return self.state

    def lost(self, reason: str) -> State:
        """The connection is gone, or its time is up; `reason` is for people."""
        if self.state is not State.ENDED:
            self._phase = self.phase
            where = "after the final dot" if self._dot_sent else f"in phase {self._phase.value}"
            self._finish(_local("4.4.2", f"{reason} {where}"))
        return self.state

    def tls_started(self) -> State:
        """The handshake is done: what was said before is forgotten (RFC 3207, 4.2)."""
        self.secured = True
        self.extensions = {}
        self._say_hello()
        return self.state

    def begin(self, transaction: Transaction) -> State:
        """Start a transaction in state READY. It may be over at once, nothing sent."""
        count = len(transaction.recipients)
        self._outcomes = [None] * count
        self._accepted = []
        self.answered = False
        self._dot_sent = False
        self._phase = Phase.MAIL
        refusal = self._cannot(transaction)
        if refusal is not None:
            self._decide(range(count), Outcome(result=Result.BOUNCED, reply=refusal, phase=Phase.MAIL))
            return self.state
        self._stuffer = DotStuffer()
        self._quit_after = transaction.quit_after and self._window != 1
        unsent = self._unsent
        if self._dirty:
            unsent.append((b"RSET\r\n", _Step.RSET, 0))
            self._dirty = False
        unsent.append((self._mail(transaction), _Step.MAIL, 0))
        for index, recipient in enumerate(transaction.recipients):
            unsent.append((b"RCPT TO:<%b>\r\n" % recipient.encode(), _Step.RCPT, index))
        unsent.append((b"DATA\r\n", _Step.DATA, 0))
        self.state = State.WAITING
        self._advance()
        return self.state

    def content(self, chunk: bytes) -> bytes:
        """The next octets of the content as they are to be sent, in state CONTENT."""
        return self._stuffer.stuff(chunk)

    def finish(self) -> bytes:
        """The final dot; from here on a lost connection means possibly delivered."""
        self.state = State.WAITING
        self._dot_sent = True
        self._phase = Phase.DOT
        self._expected.append((_Step.DOT, 0))
        if not self._quit_after:
            return self._stuffer.final()
        self._expected.append((_Step.QUIT, 0))
        return self._stuffer.final() + b"QUIT\r\n"

    def quit(self) -> State:
        """Say goodbye in state READY; ENDED comes with the answer."""
        self._expected.append((_Step.QUIT, 0))
        self._out.append(b"QUIT\r\n")
        self.state = State.WAITING
        return self.state

    # ------------------------------------------------------------ the interpreter

    def _take_reply(self, raw: RawReply) -> None:
        if not self._expected:
            self._finish(_temporary("server spoke out of turn", raw.reply()))
            return
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
        else:
            self._finish(_local("4.5.0", f"reply {raw.code} makes no sense in phase {rule.phase.value}"))

    def _advance(self) -> None:
        """Send as many commands as the window lets, and see whether the transaction is over."""
        if self.state is not State.WAITING:
            return
        expected, unsent = self._expected, self._unsent
        while unsent and (not self._window or len(expected) < self._window):
            line, step, index = unsent.popleft()
            if step is _Step.DATA and not expected and not self._accepted:
                break
            self._out.append(line)
            expected.append((step, index))
        if not expected and not unsent:
            self._dirty = bool(self._outcomes) and not self._dot_sent
            self._dot_sent = False
            self.state = State.READY

    def _finish(self, reply: Reply) -> None:
        """The session is over; who is undecided is deferred with `reply`."""
        lost = Outcome(
            result=Result.DEFERRED, reply=reply, phase=self._phase, possibly_delivered=self._dot_sent
        )
        self._decide(range(len(self._outcomes)), lost)
        self._expected.clear()
        self._unsent.clear()
        self._out.clear()
        self.end = reply
        self.state = State.ENDED

    def _decide(self, indexes: range | list[int], outcome: Outcome) -> None:
        for index in indexes:
            if self._outcomes[index] is None:
                self._outcomes[index] = outcome

    def _refuse(self, indexes: range | list[int], raw: RawReply, phase: Phase) -> None:
        """The server's refusal as the outcome of those that are undecided."""
        # RFC 5321, 4.5.3.1.10: 552 in answer to RCPT is the old way to say 452, too many recipients.
        temporary = raw.code < 500 or (raw.code == 552 and phase is Phase.RCPT)
        result = Result.DEFERRED if temporary else Result.BOUNCED
        self._decide(indexes, Outcome(result=result, reply=raw.reply(), phase=phase))

    # ------------------------------------------------------------ commands

    def _say_hello(self) -> None:
        helo = self._manners.say_helo
        self._command(b"HELO" if helo else b"EHLO", _Step.HELO if helo else _Step.EHLO)

    def _command(self, verb: bytes, step: _Step) -> None:
        name = self._manners.hello.encode()
        line = verb + b"\r\n" if step is _Step.STARTTLS else b"%b %b\r\n" % (verb, name)
        self._out.append(line)
        self._expected.append((step, 0))
        self._phase = _RULES[step].phase
        self.state = State.WAITING

    def _mail(self, transaction: Transaction) -> bytes:
        parameters = b""
        if "SIZE" in self.extensions:
            parameters += b" SIZE=%d" % transaction.size
        if transaction.eight and "8BITMIME" in self.extensions:
            parameters += b" BODY=8BITMIME"
        if transaction.smtputf8:
            parameters += b" SMTPUTF8"
        return b"MAIL FROM:<%b>%b\r\n" % (transaction.sender.encode(), parameters)

    def _cannot(self, transaction: Transaction) -> Reply | None:
        """Why this server cannot be given the message at all; None when it can."""
        offered = self.extensions
        if transaction.smtputf8 and "SMTPUTF8" not in offered:
            return Reply(code=553, status="5.6.7", text="the next hop does not offer SMTPUTF8")
        if transaction.eight and "8BITMIME" not in offered:
            text = "8-bit content, and the next hop does not offer 8BITMIME"
            return Reply(code=554, status="5.6.3", text=text)
        limit = offered.get("SIZE", "")
        if limit.isdecimal() and 0 < int(limit[:18]) < transaction.size:
            text = f"message of {transaction.size} octets, and the next hop takes at most {limit}"
            return Reply(code=552, status="5.3.4", text=text)
        addresses = (transaction.sender, *transaction.recipients)
        if not all(address.isprintable() for address in addresses):
            return Reply(code=553, status="5.1.3", text="an address contains control characters")
        return None

    # ------------------------------------------------------------ what replies do, see _RULES

    def _greeted(self, raw: RawReply, index: int) -> None:
        self._say_hello()

    def _end_session(self, raw: RawReply, index: int) -> None:
        self._finish(_temporary("session refused", raw.reply()))

    def _hello_taken(self, raw: RawReply, index: int) -> None:
        for line in raw.lines[1:]:
            word, _, parameters = line.decode("utf-8", "replace").strip().partition(" ")
            self.extensions[word.upper()] = parameters
        self._window = self._manners.maxpipeline if "PIPELINING" in self.extensions else 1
        if self._manners.starttls and not self.secured and "STARTTLS" in self.extensions:
            self._command(b"STARTTLS", _Step.STARTTLS)

    def _ehlo_refused(self, raw: RawReply, index: int) -> None:
        if raw.code >= 500 and self._manners.fallback_helo:
            self._command(b"HELO", _Step.HELO)
        else:
            self._end_session(raw, index)

    def _tls_granted(self, raw: RawReply, index: int) -> None:
        if self._reader.pending:
            # Replies in clear behind the 220 were put there to be read as if they were protected.
            self._finish(_local("4.7.0", "server spoke on between STARTTLS and the handshake"))
        else:
            self.state = State.TLS

    def _go_on(self, raw: RawReply, index: int) -> None:
        """Nothing to do; `_advance` sees what comes next."""

    def _mail_refused(self, raw: RawReply, index: int) -> None:
        self._refuse(range(len(self._outcomes)), raw, Phase.MAIL)
        self._unsent.clear()

    def _rcpt_taken(self, raw: RawReply, index: int) -> None:
        if self._outcomes[index] is None:
            self._accepted.append(index)

    def _rcpt_refused(self, raw: RawReply, index: int) -> None:
        self._refuse([index], raw, Phase.RCPT)

    def _data_taken(self, raw: RawReply, index: int) -> None:
        if self._accepted:
            self.state = State.CONTENT
        else:
            # RFC 2920, 3.1: DATA that was pipelined behind refused recipients is ended with a lone dot.
            self._out.append(b".\r\n")
            self._expected.append((_Step.DOT, 0))

    def _data_refused(self, raw: RawReply, index: int) -> None:
        self._refuse(self._accepted, raw, Phase.DATA)

    def _dot_taken(self, raw: RawReply, index: int) -> None:
        if self._accepted and self._dot_sent:
            done = Outcome(result=Result.DELIVERED, reply=raw.reply(), phase=Phase.DOT)
            self._decide(self._accepted, done)

    def _dot_refused(self, raw: RawReply, index: int) -> None:
        self._refuse(self._accepted, raw, Phase.DOT)

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
    """For 4yz and 5yz; anything else ends the session."""


_RULES: Mapping[_Step, _Rule] = {
    _Step.GREETING: _Rule(Phase.GREETING, 2, Dialogue._greeted, Dialogue._end_session),
    _Step.EHLO: _Rule(Phase.EHLO, 2, Dialogue._hello_taken, Dialogue._ehlo_refused),
    _Step.HELO: _Rule(Phase.EHLO, 2, Dialogue._go_on, Dialogue._end_session),
    _Step.STARTTLS: _Rule(Phase.TLS, 2, Dialogue._tls_granted, Dialogue._go_on),
    _Step.RSET: _Rule(Phase.MAIL, 2, Dialogue._go_on, Dialogue._end_session),
    _Step.MAIL: _Rule(Phase.MAIL, 2, Dialogue._go_on, Dialogue._mail_refused),
    _Step.RCPT: _Rule(Phase.RCPT, 2, Dialogue._rcpt_taken, Dialogue._rcpt_refused),
    _Step.DATA: _Rule(Phase.DATA, 3, Dialogue._data_taken, Dialogue._data_refused),
    _Step.DOT: _Rule(Phase.DOT, 2, Dialogue._dot_taken, Dialogue._dot_refused),
    _Step.QUIT: _Rule(Phase.DOT, 2, Dialogue._quit_answered, Dialogue._quit_answered),
}
_SILENT = frozenset({_Step.RSET, _Step.QUIT})
"""Steps whose replies say nothing about the message."""


def _local(status: str, text: str) -> Reply:
    """A failure that we noticed ourselves, as a reply."""
    return Reply(code=451, status=status, text=text)


def _temporary(what: str, reply: Reply) -> Reply:
    """`reply` where it is temporary; a permanent one is quoted in a temporary one of our own."""
    return reply if 400 <= reply.code < 500 else _local("4.3.0", f"{what}: {reply}")

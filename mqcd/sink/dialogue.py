"""The receiving side of SMTP (RFC 5321) as a machine without IO: octets in, outputs out.

One Dialogue serves one connection. `connect` and `receive` return what is to be done, in order;
the caller does it. What comes out does not depend on how the octets were cut into chunks, save
that replies to commands that came together are sent together.

* Commands end in CRLF; a bare LF is answered 500, so is a line above MAX_LINE octets.
* A message is handed over just before its 250. A message that is answered otherwise, or never
  (stall:dot, drop:dot), is never handed over.
* A rule acts on each recipient by itself at RCPT. At DATA and at the final dot there is one reply
  for all: what one accepted recipient's rule says for there holds for the whole transaction, the
  first such recipient deciding. The longest wait of the accepted ones counts.
* Until a transaction has an accepted recipient, `slow` follows the rule for everyone.

Pure. Never raises on any input.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from mqcd.sink.command import BadCommand, Mail, parse_mail, parse_rcpt
from mqcd.sink.content import ContentCollector
from mqcd.sink.faults import ending
from mqcd.sink.mail import Received, Refused
from mqcd.sink.outputs import (
    Close,
    Deliver,
    Limits,
    Output,
    Pause,
    Report,
    Send,
    Silence,
    StartTls,
    Trickle,
    ehlo_reply,
)
from mqcd.sink.rules import FAULTS, Accept, Answer, Drip, Fault, Refuse, Rules, Stage, Stall

# RFC 5321, 4.5.3.1.4 asks for 512 octets, and the extensions for more; this leaves room for all.
MAX_LINE = 2048


class State(Enum):
    """Where the dialogue stands."""

    FRESH = "no EHLO or HELO yet"
    READY = "no transaction"
    MAIL = "a transaction without an accepted recipient"
    RCPT = "a transaction with recipients"
    CONTENT = "between DATA and the final dot"
    DEAF = "whatever comes is thrown away"


class Dialogue:
    """One connection's dialogue.

    `peer` is the client's address and port, for the messages handed over. With `tls_offered`,
    STARTTLS (RFC 3207) is announced.
    """

    __slots__ = (
        "_collector",
        "_everyone",
        "_everyone_wait",
        "_faults",
        "_helo",
        "_limits",
        "_lines",
        "_mail",
        "_now",
        "_outputs",
        "_overlong",
        "_peer",
        "_recipients",
        "_replies",
        "_rules",
        "_state",
        "_tls",
        "_tls_offered",
        "_wait",
    )

    def __init__(self, *, limits: Limits, rules: Rules, peer: str = "", tls_offered: bool = False) -> None:
        self._limits = limits
        self._rules = rules
        self._peer = peer
        self._tls_offered = tls_offered
        self._tls = False
        self._state = State.FRESH
        self._helo = ""
        self._lines = bytearray()
        self._overlong = False
        self._mail: Mail
        self._recipients: list[str] = []
        self._collector: ContentCollector
        everyone = rules.for_everyone
        self._everyone = (everyone,) if isinstance(everyone, FAULTS) else ()
        self._everyone_wait = everyone.wait_ms if isinstance(everyone, Accept) else 0
        # Of the accepted recipients' rules only what is out of the ordinary is kept.
        self._faults: list[Fault] = []
        self._wait = self._everyone_wait
        self._now = 0
        self._outputs: list[Output] = []
        self._replies: list[bytes] = []

    def connect(self) -> list[Output]:
        """The connection stands: what to do first."""
        if not self._misbehaves(Stage.CONNECT, self._everyone):
            greeting = b"220 %b ESMTP mqcd sink\r\n" % self._limits.announce.encode()
            self._answer(Stage.CONNECT, self._everyone, greeting)
        return self._take_outputs()

    def receive(self, octets: bytes, *, at_ms: int) -> list[Output]:
        """Octets came from the client, at `at_ms` (Unix time in ms)."""
        self._now = at_ms
        rest: bytes | None = octets
        while rest and self._state is not State.DEAF:
            rest = self._content(rest) if self._state is State.CONTENT else self._commands(rest)
        return self._take_outputs()

    def tls_started(self) -> None:
        """TLS stands: forget all that was said in clear (RFC 3207, section 4.2)."""
        self._tls = True
        self._helo = ""
        self._reset(State.FRESH)

    # Lines

    def _commands(self, octets: bytes) -> bytes | None:
        """Obey the whole lines; returns what follows a command that changes the reading."""
        lines = self._lines
        if not lines and octets.find(b"\n") == len(octets) - 1:
            # Nearly always a chunk is one line; spare it the buffer.
            self._line(octets)
            return None
        lines += octets
        start = 0
        while (end := lines.find(b"\n", start)) >= 0:
            line = bytes(lines[start : end + 1])
            start = end + 1
            self._line(line)
            if self._state is State.CONTENT or self._state is State.DEAF:
                rest = bytes(lines[start:])
                lines.clear()
                return rest
        del lines[:start]
        if len(lines) > MAX_LINE:
            self._overlong = True
            lines.clear()
        return None

    def _line(self, line: bytes) -> None:
        if self._overlong or len(line) > MAX_LINE:
            self._overlong = False
            self._reply(b"500 5.5.6 Line too long\r\n")
            return
        if not line.endswith(b"\r\n"):
            self._reply(b"500 5.5.2 Lines end in CRLF\r\n")
            return
        verb, _, argument = line[:-2].partition(b" ")
        command = _COMMANDS.get(verb.upper())
        if command is None:
            self._reply(b"500 5.5.2 Command not recognised\r\n")
        elif self._state not in command.states:
            self._reply(b"503 5.5.1 Not at this point of the dialogue\r\n")
        elif command.bare and argument.strip():
            self._reply(b"501 5.5.4 This command takes no argument\r\n")
        else:
            try:
                command.obey(self, argument)
            except BadCommand as bad:
                self._reply(bad.reply)

    # Commands, each called only in the states that the table below gives it

    def _on_ehlo(self, argument: bytes) -> None:
        if self._greeted(argument):
            offer = ehlo_reply(self._limits, self._tls_offered and not self._tls)
            self._answer(Stage.EHLO, self._everyone, offer)

    def _on_helo(self, argument: bytes) -> None:
        if self._greeted(argument):
            self._answer(Stage.EHLO, self._everyone, b"250 %b\r\n" % self._limits.announce.encode())

    def _greeted(self, argument: bytes) -> bool:
        if self._misbehaves(Stage.EHLO, self._everyone):
            return False
        name = argument.strip()
        if not name:
            raise BadCommand(b"501 5.5.4 Expected the client's name\r\n")
        self._helo = name.decode("utf-8", "replace")
        self._reset(State.READY)
        return True

    def _on_mail(self, argument: bytes) -> None:
        if self._misbehaves(Stage.MAIL, self._everyone):
            return
        mail = parse_mail(argument)
        if mail.size > self._limits.max_size:
            raise BadCommand(b"552 5.3.4 Message too large\r\n")
        self._mail = mail
        self._state = State.MAIL
        self._answer(Stage.MAIL, self._everyone, b"250 2.1.0 Ok\r\n")

    def _on_rcpt(self, argument: bytes) -> None:
        recipient = parse_rcpt(argument, smtputf8=self._mail.smtputf8)
        action = self._rules.for_recipient(recipient)
        if isinstance(action, Refuse):
            self._refuse(recipient, action)
        elif isinstance(action, FAULTS) and self._misbehaves(Stage.RCPT, (action,)):
            return
        elif len(self._recipients) >= self._limits.max_recipients:
            self._reply(b"452 4.5.3 Too many recipients\r\n")
        else:
            self._accept(recipient, action)

    def _accept(self, recipient: str, action: Accept | Fault) -> None:
        wait_ms = action.wait_ms if isinstance(action, Accept) else 0
        if isinstance(action, FAULTS):
            self._faults.append(action)
        self._wait = max(self._wait, wait_ms) if self._recipients else wait_ms
        self._recipients.append(recipient)
        self._state = State.RCPT
        own = (action,) if isinstance(action, FAULTS) else ()
        self._answer(Stage.RCPT, own, b"250 2.1.5 Ok\r\n", wait_ms)

    def _refuse(self, recipient: str, action: Refuse) -> None:
        self._outputs.append(
            Report(
                Refused(
                    sender=self._mail.sender,
                    recipient=recipient,
                    reply=action.reply,
                    helo=self._helo,
                    peer=self._peer,
                    at_ms=self._now,
                )
            )
        )
        self._reply(action.reply.encode("utf-8", "surrogateescape") + b"\r\n", 0)
        if action.code == 421:
            # RFC 5321, 3.8: a server that says 421 closes.
            self._end(Close())

    def _on_data(self, _argument: bytes) -> None:
        if self._state is State.MAIL:
            # RFC 2920, 3.1: a pipelining client may send DATA though no recipient was accepted.
            raise BadCommand(b"554 5.5.1 No valid recipients\r\n")
        stalls = isinstance(_first(Stage.DATA, self._faults), Stall)
        if not stalls and self._misbehaves(Stage.DATA, self._faults):
            return
        self._collector = ContentCollector(max_size=self._limits.max_size)
        self._state = State.CONTENT
        self._answer(Stage.DATA, self._faults, b"354 End with a dot on a line by itself\r\n")
        if stalls:
            # Reading stops, so the client blocks in mid-content as soon as the buffers are full.
            self._end(Silence(reading=False))

    def _content(self, octets: bytes) -> bytes | None:
        rest = self._collector.take(octets)
        if rest is None:
            return None
        if not self._misbehaves(Stage.DOT, self._faults):
            self._deliver()
        if self._state is not State.DEAF:
            self._reset(State.READY)
        return rest

    def _deliver(self) -> None:
        if self._collector.oversize:
            self._reply(b"552 5.3.4 Message too large\r\n")
            return
        self._pause(self._wait)
        self._flush()
        message = Received(
            sender=self._mail.sender,
            recipients=tuple(self._recipients),
            content=self._collector.content(),
            helo=self._helo,
            peer=self._peer,
            at_ms=self._now,
            body=self._mail.body,
            smtputf8=self._mail.smtputf8,
            tls=self._tls,
        )
        drip = _first(Stage.DOT, self._faults)
        self._outputs.append(Deliver(message, wait_ms=drip.wait_ms if isinstance(drip, Drip) else 0))

    def _on_rset(self, _argument: bytes) -> None:
        self._reset(State.FRESH if self._state is State.FRESH else State.READY)
        self._reply(b"250 2.0.0 Ok\r\n")

    def _on_noop(self, _argument: bytes) -> None:
        self._reply(b"250 2.0.0 Ok\r\n")

    def _on_vrfy(self, _argument: bytes) -> None:
        self._reply(b"252 2.5.2 Send some mail and see\r\n")

    def _on_starttls(self, _argument: bytes) -> None:
        if not self._tls_offered or self._tls:
            raise BadCommand(b"502 5.5.1 TLS is not offered\r\n")
        self._reply(b"220 2.0.0 Go ahead\r\n")
        # What came in clear after the command is thrown away, never obeyed under TLS.
        self._end(StartTls())

    def _on_quit(self, _argument: bytes) -> None:
        self._reply(b"221 2.0.0 Bye\r\n")
        self._end(Close())

    # Outputs

    def _reset(self, state: State) -> None:
        self._state = state
        self._wait = self._everyone_wait
        if self._recipients:
            self._recipients.clear()
            self._faults.clear()

    def _misbehaves(self, stage: Stage, faults: Sequence[Fault]) -> bool:
        """Do what one of these rules says for here in place of what is due, if one does."""
        fault = _first(stage, faults)
        if fault is None or isinstance(fault, Drip):
            return False
        if isinstance(fault, Answer):
            self._reply(fault.reply.encode("utf-8", "surrogateescape") + b"\r\n")
        if not isinstance(fault, Answer) or fault.code == 421:
            self._end(*ending(fault))
        return True

    def _answer(self, stage: Stage, faults: Sequence[Fault], due: bytes, wait_ms: int | None = None) -> None:
        """The reply that is due, drop by drop if one of these rules says so."""
        fault = _first(stage, faults)
        if isinstance(fault, Drip):
            self._flush()
            self._outputs.append(Trickle(due, fault.wait_ms))
        else:
            self._reply(due, wait_ms)

    def _reply(self, reply: bytes, wait_ms: int | None = None) -> None:
        """Reply after `wait_ms`, by default what the transaction or the connection asks for."""
        self._pause(self._wait if wait_ms is None else wait_ms)
        self._replies.append(reply)

    def _pause(self, wait_ms: int) -> None:
        if wait_ms:
            self._flush()
            self._outputs.append(Pause(wait_ms))

    def _end(self, *last: Output) -> None:
        self._flush()
        self._outputs += last
        self._state = State.DEAF

    def _flush(self) -> None:
        if self._replies:
            self._outputs.append(Send(b"".join(self._replies)))
            self._replies.clear()

    def _take_outputs(self) -> list[Output]:
        self._flush()
        outputs, self._outputs = self._outputs, []
        return outputs


def _first(stage: Stage, faults: Sequence[Fault]) -> Fault | None:
    """The first of these rules that acts at this stage."""
    for fault in faults:
        if fault.stage is stage:
            return fault
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    obey: Callable[[Dialogue, bytes], None]
    # A tuple: members are compared by identity, while hashing one is slow.
    states: tuple[State, ...]
    bare: bool = False
    """The command takes no argument."""


_ANY = (State.FRESH, State.READY, State.MAIL, State.RCPT)
_OPEN = (State.MAIL, State.RCPT)

_COMMANDS: Mapping[bytes, _Command] = {
    b"EHLO": _Command(obey=Dialogue._on_ehlo, states=_ANY),
    b"HELO": _Command(obey=Dialogue._on_helo, states=_ANY),
    b"MAIL": _Command(obey=Dialogue._on_mail, states=(State.READY,)),
    b"RCPT": _Command(obey=Dialogue._on_rcpt, states=_OPEN),
    b"DATA": _Command(obey=Dialogue._on_data, states=_OPEN, bare=True),
    b"RSET": _Command(obey=Dialogue._on_rset, states=_ANY, bare=True),
    b"NOOP": _Command(obey=Dialogue._on_noop, states=_ANY),
    b"VRFY": _Command(obey=Dialogue._on_vrfy, states=_ANY),
    b"QUIT": _Command(obey=Dialogue._on_quit, states=_ANY, bare=True),
    b"STARTTLS": _Command(obey=Dialogue._on_starttls, states=_ANY, bare=True),
}

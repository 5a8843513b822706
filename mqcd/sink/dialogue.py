"""The receiving side of SMTP (RFC 5321) or LMTP (RFC 2033) as a machine without IO: octets in, outputs out.

One Dialogue serves one connection. `connect` and `receive` return what is to be done, in order;
the caller does it. What comes out does not depend on how the octets were cut into chunks, save
that replies to commands that came together are sent together.

* Commands end in CRLF; a bare LF is answered 500, so is a line above MAX_LINE octets.
* A message is handed over just before its 250. A message that is answered otherwise, or never
  (stall:dot, drop:dot), is never handed over.
* A rule acts on each recipient by itself at RCPT. At DATA and at the final dot there is one reply
  for all: what one accepted recipient's rule says for there holds for the whole transaction, the
  first such recipient deciding. The longest wait of the accepted ones counts.
* In LMTP each accepted recipient has a reply of its own behind the final dot, by its own rule, and its
  message is handed over by itself. What ends the dialogue ends it when its turn has come.
* BDAT (RFC 3030) where it is offered: the stage data is the first chunk, the final dot is the last one. A
  chunk that is refused is read all the same.
* Until a transaction has an accepted recipient, `slow` follows the rule for everyone.

Pure. Never raises on any input.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial

from mqcd.core.value import value
from mqcd.sink import reading
from mqcd.sink.outputs import (
    Close,
    Deliver,
    Limits,
    Output,
    Received,
    Refused,
    Report,
    Silence,
    StartTls,
    Voice,
    ehlo_reply,
    first,
    line_of,
)
from mqcd.sink.reading import BadCommand, ChunkCollector, ContentCollector, LineReader, Mail
from mqcd.sink.rules import Accept, Answer, AtStage, Drip, Fault, Refuse, Rules, Stage, Stall, at_work

_NO_RECIPIENTS = b"554 5.5.1 No valid recipients\r\n"
_NOT_HERE = b"503 5.5.1 Not at this point of the dialogue\r\n"
_OTHER_PROTOCOL = {
    False: b"500 5.5.1 This is SMTP: say EHLO or HELO\r\n",
    True: b"500 5.5.1 This is LMTP: say LHLO\r\n",
}
"""To the greeting of the other protocol; by whether ours is LMTP."""


class State(Enum):
    """Where the dialogue stands."""

    FRESH = "no EHLO or HELO yet"
    READY = "no transaction"
    MAIL = "a transaction without an accepted recipient"
    RCPT = "a transaction with recipients"
    CONTENT = "between DATA and the final dot, or within a chunk"
    CHUNKS = "between two chunks"


class Dialogue:
    """One connection's dialogue.

    `peer` is the client's address and port, for the messages handed over. With `tls_offered`,
    STARTTLS (RFC 3207) is announced.
    """

    __slots__ = (
        "_chunks",
        "_collector",
        "_everyone",
        "_everyone_wait",
        "_faults",
        "_helo",
        "_limits",
        "_lines",
        "_mail",
        "_now",
        "_peer",
        "_recipient_dsn",
        "_recipients",
        "_rules",
        "_state",
        "_then",
        "_tls",
        "_tls_offered",
        "_voice",
    )

    def __init__(self, *, limits: Limits, rules: Rules, peer: str = "", tls_offered: bool = False) -> None:
        self._limits = limits
        self._rules = rules
        self._peer = peer
        self._tls_offered = tls_offered
        self._tls = False
        self._state = State.FRESH
        self._helo = ""
        self._lines = LineReader()
        self._mail: Mail
        self._recipients: list[str] = []
        self._recipient_dsn: list[str] = []
        self._chunks: ChunkCollector
        self._collector: ContentCollector | ChunkCollector
        # What is done when the collector has found the end.
        self._then: Callable[[], None] = self._conclude
        everyone = rules.for_everyone
        self._everyone = (everyone,) if isinstance(everyone, AtStage) else ()
        self._everyone_wait = everyone.wait_ms if isinstance(everyone, Accept) else 0
        # Of the accepted ones' rules only what is out of the ordinary is kept.
        self._faults: list[Fault] = []
        self._voice = Voice(self._everyone_wait)
        self._now = 0

    def connect(self) -> list[Output]:
        """The connection stands: what to do first."""
        if not self._voice.misbehaves(Stage.CONNECT, self._everyone):
            greeting = b"220 %b ESMTP mqcd sink\r\n" % self._limits.announce.encode()
            self._voice.answer(Stage.CONNECT, self._everyone, greeting)
        return self._voice.take()

    def receive(self, octets: bytes, *, at_ms: int) -> list[Output]:
        """Octets came from the client, at `at_ms` (Unix time in ms)."""
        self._now = at_ms
        rest: bytes | None = octets
        while rest and not self._voice.ended:
            content = self._state is State.CONTENT
            rest = self._content(rest) if content else self._lines.feed(rest, self._line)
        return self._voice.take()

    def tls_started(self) -> None:
        """TLS stands: forget all that was said in clear (RFC 3207, section 4.2)."""
        self._tls = True
        self._helo = ""
        self._voice = Voice(self._everyone_wait)
        self._reset(State.FRESH)

    def _line(self, line: bytes) -> bool:
        """Obey a command; whether commands go on behind it."""
        if not line:
            self._voice.reply(b"500 5.5.6 Line too long\r\n")
            return True
        if not line.endswith(b"\r\n"):
            self._voice.reply(b"500 5.5.2 Lines end in CRLF\r\n")
            return True
        verb, _, argument = line[:-2].partition(b" ")
        command = _COMMANDS.get(verb.upper())
        if command is None:
            self._voice.reply(reading.UNKNOWN)
        elif self._state not in command.states:
            self._voice.reply(_NOT_HERE)
        elif command.bare and argument.strip():
            self._voice.reply(b"501 5.5.4 This command takes no argument\r\n")
        else:
            try:
                command.obey(self, argument)
            except BadCommand as bad:
                self._voice.reply(bad.reply)
        return self._state is not State.CONTENT and not self._voice.ended

    # Commands, each called only in the states that the table below gives it

    def _on_ehlo(self, argument: bytes) -> None:
        self._extended(argument, lmtp=False)

    def _on_lhlo(self, argument: bytes) -> None:
        self._extended(argument, lmtp=True)

    def _extended(self, argument: bytes, *, lmtp: bool) -> None:
        if lmtp is not self._limits.lmtp:
            raise BadCommand(_OTHER_PROTOCOL[self._limits.lmtp])
        if self._greeted(argument):
            offer = ehlo_reply(self._limits, self._tls_offered and not self._tls)
            self._voice.answer(Stage.EHLO, self._everyone, offer)

    def _on_helo(self, argument: bytes) -> None:
        if self._limits.lmtp:
            raise BadCommand(_OTHER_PROTOCOL[True])
        if self._greeted(argument):
            self._voice.answer(Stage.EHLO, self._everyone, b"250 %b\r\n" % self._limits.announce.encode())

    def _greeted(self, argument: bytes) -> bool:
        if self._voice.misbehaves(Stage.EHLO, self._everyone):
            return False
        name = argument.strip()
        if not name:
            raise BadCommand(b"501 5.5.4 Expected the client's name\r\n")
        self._helo = name.decode("utf-8", "replace")
        self._reset(State.READY)
        return True

    def _on_mail(self, argument: bytes) -> None:
        if self._voice.misbehaves(Stage.MAIL, self._everyone):
            return
        mail = reading.parse_mail(argument, dsn="DSN" in self._limits.extensions)
        if mail.size > self._limits.max_size:
            raise BadCommand(b"552 5.3.4 Message too large\r\n")
        self._mail = mail
        self._state = State.MAIL
        self._voice.answer(Stage.MAIL, self._everyone, b"250 2.1.0 Ok\r\n")

    def _on_rcpt(self, argument: bytes) -> None:
        dsn_offered = "DSN" in self._limits.extensions
        recipient, dsn = reading.parse_rcpt(argument, smtputf8=self._mail.smtputf8, dsn=dsn_offered)
        action = self._rules.for_recipient(recipient)
        if isinstance(action, Refuse):
            self._refuse(recipient, action)
        elif isinstance(action, AtStage) and self._voice.misbehaves(Stage.RCPT, (action,)):
            return
        elif len(self._recipients) >= self._limits.max_recipients:
            self._voice.reply(b"452 4.5.3 Too many recipients\r\n")
        else:
            self._accept(recipient, dsn, action)

    def _accept(self, recipient: str, dsn: str, action: Accept | Fault) -> None:
        own, wait_ms = at_work(action)
        self._faults += own
        self._voice.wait = max(self._voice.wait, wait_ms) if self._recipients else wait_ms
        self._recipients.append(recipient)
        self._recipient_dsn.append(dsn)
        self._state = State.RCPT
        self._voice.answer(Stage.RCPT, own, b"250 2.1.5 Ok\r\n", wait_ms)

    def _refuse(self, recipient: str, action: Refuse) -> None:
        self._voice.report(
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
        self._voice.reply(action.reply.encode("utf-8", "surrogateescape") + b"\r\n", 0)
        if action.code == 421:
            # RFC 5321, 3.8: a server that says 421 closes.
            self._voice.end(Close())

    def _on_data(self, _argument: bytes) -> None:
        if self._state is State.MAIL:
            # RFC 2920, 3.1: a pipelining client may send DATA though no recipient was accepted.
            raise BadCommand(_NO_RECIPIENTS)
        stalls = isinstance(first(Stage.DATA, self._faults), Stall)
        if not stalls and self._voice.misbehaves(Stage.DATA, self._faults):
            return
        self._collector, self._then = ContentCollector(max_size=self._limits.max_size), self._conclude
        self._state = State.CONTENT
        self._voice.answer(Stage.DATA, self._faults, b"354 End with a dot on a line by itself\r\n")
        if stalls:
            # Reading stops, so the client blocks in mid-content as soon as the buffers are full.
            self._voice.end(Silence(reading=False))

    def _on_bdat(self, argument: bytes) -> None:
        octets, last = reading.parse_bdat(argument, offered="CHUNKING" in self._limits.extensions)
        refusal = None if self._state is State.CHUNKS else self._begin_chunks()
        if self._voice.ended:
            return
        first_one = self._state is not State.CHUNKS
        if first_one:
            self._chunks = ChunkCollector(max_size=0 if refusal else self._limits.max_size)
        if refusal is not None:
            self._then = partial(self._pass_over, refusal, self._state)
        else:
            self._then = self._conclude if last else partial(self._chunk, first_one=first_one)
        self._chunks.expect(octets)
        self._collector = self._chunks
        self._state = State.CONTENT
        if not octets:
            self._content(b"")

    def _begin_chunks(self) -> bytes | None:
        """The reply that refuses a first chunk, once it has been read; None = it is welcome."""
        if self._state is not State.RCPT:
            return _NO_RECIPIENTS if self._state is State.MAIL else _NOT_HERE
        fault = first(Stage.DATA, self._faults)
        if isinstance(fault, Answer) and fault.code != 421:
            return line_of(fault)
        if isinstance(fault, Stall):
            self._voice.end(Silence(reading=False))
        else:
            self._voice.misbehaves(Stage.DATA, self._faults)
        return None

    def _pass_over(self, refusal: bytes, before: State) -> None:
        self._state = before
        self._voice.reply(refusal)

    def _chunk(self, *, first_one: bool) -> None:
        self._state = State.CHUNKS
        self._voice.answer(Stage.DATA, self._faults if first_one else (), b"250 2.0.0 Chunk taken\r\n")

    # The end of a message

    def _content(self, octets: bytes) -> bytes | None:
        rest = self._collector.take(octets)
        if rest is not None:
            self._then()
        return rest

    def _conclude(self) -> None:
        if not self._limits.lmtp:
            self._finish(self._recipients, self._recipient_dsn, self._faults)
        else:
            for recipient, dsn in zip(self._recipients, self._recipient_dsn, strict=True):
                if self._voice.ended:
                    return
                faults, self._voice.wait = at_work(self._rules.for_recipient(recipient))
                self._finish((recipient,), (dsn,), faults)
        if not self._voice.ended:
            self._reset(State.READY)

    def _finish(self, recipients: Sequence[str], dsn: Sequence[str], faults: Sequence[Fault]) -> None:
        """The reply to a message, for these recipients of it."""
        if self._voice.misbehaves(Stage.DOT, faults):
            return
        if self._collector.oversize:
            self._voice.reply(b"552 5.3.4 Message too large\r\n")
            return
        self._voice.pause(self._voice.wait)
        message = Received(
            sender=self._mail.sender,
            recipients=tuple(recipients),
            content=self._collector.content(),
            helo=self._helo,
            peer=self._peer,
            at_ms=self._now,
            body=self._mail.body,
            smtputf8=self._mail.smtputf8,
            tls=self._tls,
            chunked=isinstance(self._collector, ChunkCollector),
            dsn=self._mail.dsn,
            recipient_dsn=tuple(dsn) if any(dsn) else (),
        )
        drip = first(Stage.DOT, faults)
        self._voice.do(Deliver(message, wait_ms=drip.wait_ms if isinstance(drip, Drip) else 0))

    def _on_rset(self, _argument: bytes) -> None:
        self._reset(State.FRESH if self._state is State.FRESH else State.READY)
        self._voice.reply(b"250 2.0.0 Ok\r\n")

    def _on_noop(self, _argument: bytes) -> None:
        self._voice.reply(b"250 2.0.0 Ok\r\n")

    def _on_vrfy(self, _argument: bytes) -> None:
        self._voice.reply(b"252 2.5.2 Send some mail and see\r\n")

    def _on_starttls(self, _argument: bytes) -> None:
        if not self._tls_offered or self._tls:
            raise BadCommand(b"502 5.5.1 TLS is not offered\r\n")
        self._voice.reply(b"220 2.0.0 Go ahead\r\n")
        # What came in clear after the command is thrown away, never obeyed under TLS.
        self._voice.end(StartTls())

    def _on_quit(self, _argument: bytes) -> None:
        self._voice.reply(b"221 2.0.0 Bye\r\n")
        self._voice.end(Close())

    def _reset(self, state: State) -> None:
        self._state = state
        self._voice.wait = self._everyone_wait
        if self._recipients:
            self._recipients.clear()
            self._recipient_dsn.clear()
            self._faults.clear()


@value
class _Command:
    obey: Callable[[Dialogue, bytes], None]
    # A tuple: members are compared by identity, while hashing one is slow.
    states: tuple[State, ...]
    bare: bool = False
    """The command takes no argument."""


_ANY = (State.FRESH, State.READY, State.MAIL, State.RCPT, State.CHUNKS)
_OPEN = (State.MAIL, State.RCPT)

_COMMANDS: Mapping[bytes, _Command] = {
    b"EHLO": _Command(obey=Dialogue._on_ehlo, states=_ANY),
    b"LHLO": _Command(obey=Dialogue._on_lhlo, states=_ANY),
    b"HELO": _Command(obey=Dialogue._on_helo, states=_ANY),
    b"MAIL": _Command(obey=Dialogue._on_mail, states=(State.READY,)),
    b"RCPT": _Command(obey=Dialogue._on_rcpt, states=_OPEN),
    b"DATA": _Command(obey=Dialogue._on_data, states=_OPEN, bare=True),
    b"BDAT": _Command(obey=Dialogue._on_bdat, states=_ANY),
    b"RSET": _Command(obey=Dialogue._on_rset, states=_ANY, bare=True),
    b"NOOP": _Command(obey=Dialogue._on_noop, states=_ANY),
    b"VRFY": _Command(obey=Dialogue._on_vrfy, states=_ANY),
    b"QUIT": _Command(obey=Dialogue._on_quit, states=_ANY, bare=True),
    b"STARTTLS": _Command(obey=Dialogue._on_starttls, states=_ANY, bare=True),
}

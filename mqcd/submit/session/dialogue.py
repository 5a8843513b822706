"""One SMTP session without its socket: command lines in, replies out (RFC 5321). Pure.

`command` takes one line and returns the reply's octets. It finds the verb's handler in the tables below,
which depend on the listener and on TLS, and asks `states.TABLE` whether the command is in order (for BDAT
the handler asks). The handler checks the arguments; once the command is taken it calls `_move`, where that
changes the state. RCPT, ETRN, ATRN and the commands of Event.OTHER change none: the table only says whether
they are in order. In state CONTENT the caller reads the content, replies to it and calls `sent`; in state
HANDSHAKE it begins TLS and calls `secured`; in state CLOSED it closes the connection.

With BDAT a message comes in chunks (RFC 3030): `chunk` is the one that state CONTENT stands for, and
`chunk_taken` gives the reply to one that is not the last. Before the caller sends a reply it does what the
reply waits for: `waits`. Where the answer to a question, or the filter, refuses the command after all, it
calls `retract`.

One object in two modules: `conversation` has the state, the refusals, the waits, logins and TLS, this one the
commands.

Settings read: maxmsgsize, maxrecips, maxmessages, and those of `conversation` and `rules`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from mqcd.core.display import printable
from mqcd.core.errors import DecodeError, IllegalTransition
from mqcd.core.ports import Refusal
from mqcd.core.queueing import calls
from mqcd.core.smtp.reply import Reply
from mqcd.submit.auth.login import REQUIRED
from mqcd.submit.esmtp import replies
from mqcd.submit.esmtp.caller import Channel
from mqcd.submit.esmtp.calls import ATRN_DENIED, ATRN_SYNTAX, ETRN_SYNTAX, NODE_DENIED, Collect, Start
from mqcd.submit.esmtp.parameters import NO_PARAMETERS, parse_mail, parse_rcpt
from mqcd.submit.esmtp.refusal import DoorRefused, Reason
from mqcd.submit.esmtp.states import TABLE, Event, State
from mqcd.submit.esmtp.transaction import MAX_ENVELOPE, Transaction
from mqcd.submit.esmtp.urgency import lowered
from mqcd.submit.message.chunking import Chunk, parse_bdat
from mqcd.submit.message.received import clean_helo
from mqcd.submit.policy.rules import Rules
from mqcd.submit.session.conversation import Conversation, Place, Skip

_MAX_VERB = 20
"""Characters of a word that is no command, for the log."""

_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# Of ASCII alone: a dotless i is no I, and spaces of other scripts separate nothing (RFC 5321, 2.4).
_FROM = re.compile(r"FROM:[ \t]*(?=[^ \t])", re.IGNORECASE | re.ASCII)
_TO = re.compile(r"TO:[ \t]*(?=[^ \t])", re.IGNORECASE | re.ASCII)


class Dialogue(Conversation):
    """One session with one client. A handler gets the command's argument and returns the reply's octets."""

    __slots__ = ("_commands", "chunk", "collects", "messages")

    def __init__(
        self, rules: Rules, listener: str, client: str, refused: Callable[[Refusal], None], session: str = ""
    ) -> None:
        super().__init__(rules, listener, client, refused, session)
        self._commands = self._known_commands()
        self.chunk: Chunk | None = None
        """What state CONTENT is about: a chunk; None = content up to its final dot."""
        self.collects: Collect | None = None
        """What state REVERSED is about."""
        self.messages = 0
        """Messages whose content was received, accepted or not."""

    def command(self, line: bytes) -> bytes:
        """The reply to one command line (without its CRLF)."""
        if self.state is State.LOGIN:
            return self._respond(line)
        if _CONTROLS.search(line) is not None:
            return self.bad(replies.CONTROL_REPLY)
        verb, _, argument = line.partition(b" ")
        known = self._commands.get(verb.upper())
        if known is None:
            return self._unknown(verb)
        try:
            text = argument.decode()
        except UnicodeDecodeError:
            return self.bad(replies.NOT_UTF8)
        event, act = known
        if event is Event.CHUNK:
            # Not yet by the table, which `_take_chunk` asks: where BDAT is out of order its octets come all
            # the same.
            return self._bdat(text.strip(" \t"))
        then = TABLE[self.state].get(event)
        if isinstance(then, State):
            return act(self, text.strip(" \t"))
        if then is None:
            raise IllegalTransition(event, self.state)
        return self._out_of_order(then)

    def retract(self, reason: Reason, reply: Reply) -> bytes:
        """Undo the last command, accepted but for open questions and the filter; the reply refuses it.

        That is EHLO, MAIL or RCPT: the reply to ETRN and ATRN is the answer itself. No command is read until
        the one before has its reply, so the transaction shows which of them it was: EHLO ended it, MAIL began
        it, RCPT has added its last recipient.
        """
        self._call_off()
        transaction = self.transaction
        if transaction is None:
            self.forget_hello()
            # A name that is wrong is the client's doing, what a filter makes of it is not.
            return self.bad(reply, reason) if reason is Reason.HELO else self.refuse(reason, reply)
        if transaction.recipients:
            return self.turn_down(reason, reply, transaction.take_back())
        octets = self.refuse(reason, reply)
        self.drop()
        return octets

    def secured(self, channel: Channel) -> None:
        """TLS has begun: what the client said before is forgotten (RFC 3207, 4.2)."""
        super().secured(channel)
        self._commands = self._known_commands()

    def _known_commands(self) -> Commands:
        """The commands that the client may use while its channel is as it is."""
        lmtp = self.rules.lmtp
        if self._locked:
            return _LOCKED[lmtp]
        return _OPEN[lmtp, self.login is not None, self.rules.starttls(self.channel)]

    def _unknown(self, verb: bytes) -> bytes:
        """An unknown command word. Only the word is logged, because secrets may follow it."""
        shown = "" if self._secret else verb.decode("utf-8", "replace")
        # A client that does not wait for the answer to AUTH sends passwords as lines of their own.
        self._secret = self._secret or verb.upper() == b"AUTH"
        if len(shown) > _MAX_VERB:
            shown = f"{shown[:_MAX_VERB]}..."
        return self.bad(replies.UNKNOWN, command=printable(shown))

    def forget_hello(self) -> None:
        """Undo an accepted EHLO or HELO; the client has to greet again."""
        self._move(Event.FORGET)
        self.helo = ""

    @property
    def takes_chunk(self) -> bool:
        """Whether the caller has to read a chunk, which may be empty."""
        return self.state is State.CONTENT and self.chunk is not None

    def chunk_taken(self) -> bytes:
        """The reply to a chunk that is not the last."""
        octets = self.chunk.octets if self.chunk is not None else 0
        self._move(Event.MORE)
        return b"250 2.0.0 %d octets\r\n" % octets

    def sent(self) -> None:
        """The content was replied to: the next message may begin; chunks that still follow are refused."""
        self.messages += 1
        self._move(Event.SENT if self.chunk is None or self.chunk.last else Event.DROP)

    def _greet(self, argument: str, *, esmtp: bool) -> bytes:
        if not argument:
            return self.bad(replies.NEED_NAME)
        if (denied := self._depends(self.rules.check_helo(argument, self.client))) is not None:
            return self.bad(denied, Reason.HELO)
        self._move(Event.HELLO)
        self.helo = clean_helo(argument)
        self.esmtp = esmtp
        return self.rules.ehlo(self.channel) if esmtp else self.rules.helo

    def _mail(self, argument: str) -> bytes:
        octets = self._take_mail(argument)
        if self.state is State.ENVELOPE and (load := self.rules.gate.load) is not None:
            self._delay(load.delay)
            if not load.enter(self):
                self._wait(Place())
        if self.state is State.READY:
            # MAIL is refused: what was pipelined behind it does not count as bad. Where the
            # state was REFUSED it has stayed so.
            self._move(Event.DROP)
        return octets

    def _take_mail(self, argument: str) -> bytes:
        denied = self.rules.mail_denied(self.user)
        if denied is not None:
            return self.refuse(*denied)
        if (short := self._over_quota()) is not None:
            return self.refuse(*short)
        limit = self.rules.settings.maxmessages
        if limit and self.messages >= limit:
            return self._close(Reason.MESSAGES, replies.TOO_MANY_MESSAGES)
        syntax = _FROM.match(argument)
        if syntax is None:
            return self.bad(replies.MAIL_SYNTAX)
        return self._begin(argument[syntax.end() :])

    def _begin(self, path: str) -> bytes:
        try:
            sender, rest = self.rules.parse(path)
        except DecodeError:
            return self.refuse(Reason.SENDER, replies.BAD_SENDER)
        urgency = self.rules.urgency
        try:
            parameters = parse_mail(rest, self.rules.parameters) if rest else NO_PARAMETERS
            release = urgency.release(parameters)
        except DoorRefused as error:
            return self.bad(error.reply)
        if not sender.isascii() and not parameters.smtputf8:
            return self.refuse(Reason.SENDER, replies.NEEDS_UTF8)
        priority = urgency.priority(self.user, parameters.priority)
        transaction = Transaction(self.rules.complete(sender), parameters, release=release, priority=priority)
        if (refusal := self.rules.sender_denied(self.user, transaction.sender)) is not None:
            return self.refuse(*refusal)
        if (denied := self._depends(self.rules.check_sender(transaction.sender, self._stranger))) is not None:
            return self.refuse(Reason.SENDER, denied)
        self._move(Event.MAIL)
        self.transaction = transaction
        limit = self.rules.settings.maxmsgsize
        if limit and parameters.size > limit:
            octets = self.refuse(Reason.SIZE, replies.TOO_LARGE)
            self.drop()
            return octets
        return replies.SENDER_OK if priority == parameters.priority else lowered(priority)

    def _over_quota(self, recipients: int = 0) -> tuple[Reason, Reply] | None:
        """Why the client may begin no message now, or why it may not have as many recipients."""
        quotas = self.rules.quotas
        if quotas is None:
            return None
        parties = quotas.parties(self.client, self.user)
        return quotas.add(parties, recipients) if recipients else quotas.begin(parties, self.quota_places)

    def _rcpt(self, argument: str) -> bytes:
        transaction = self.begun
        syntax = _TO.match(argument)
        if syntax is None:
            return self.bad(replies.RCPT_SYNTAX)
        try:
            path, rest = self.rules.parse(argument[syntax.end() :])
        except DecodeError:
            return self.turn_down(Reason.RECIPIENT, replies.BAD_RECIPIENT)
        try:
            dsn = parse_rcpt(rest, self.rules.parameters) if rest else ""
        except DoorRefused as error:
            return self.bad(error.reply)
        return self._add(transaction, path, dsn)

    def _add(self, transaction: Transaction, path: str, dsn: str) -> bytes:
        recipient = self.rules.complete(path)
        utf8 = transaction.parameters.smtputf8
        denied = self.rules.recipient_denied(path, recipient, utf8=utf8, may_relay=self._may_relay())
        if denied is not None:
            return self.turn_down(*denied, recipient)
        octets = len(recipient) + len(dsn)
        limit = self.rules.settings.maxrecips
        if (limit and len(transaction.recipients) >= limit) or transaction.octets + octets > MAX_ENVELOPE:
            return self.refuse(Reason.RECIPIENTS, replies.TOO_MANY_RECIPIENTS, recipient)
        if (short := self._over_quota(len(transaction.recipients) + 1)) is not None:
            return self.turn_down(*short, recipient)
        if (bad := self._depends(self.rules.check_recipient(recipient, self._stranger))) is not None:
            return self.turn_down(Reason.RECIPIENT, bad, recipient)
        if not self._may_relay():
            triplet = self.rules.greylist.triplet(self.client, transaction.sender, recipient)
            if triplet is not None:
                self._wait(triplet)
        transaction.add(recipient, dsn)
        if transaction.gave_place and (load := self.rules.gate.load) is not None:
            transaction.gave_place = False
            load.come_back(self)
        return replies.RECIPIENT_OK

    def _data(self, argument: str) -> bytes:
        if argument:
            return self.bad(replies.NO_ARGUMENT)
        if not self.begun.recipients:
            # The client may have pipelined DATA behind recipients that were all refused.
            return self.refuse(Reason.SEQUENCE, replies.NO_RECIPIENT)
        self._move(Event.DATA)
        self.chunk = None
        return replies.GO_AHEAD

    def _bdat(self, argument: str) -> bytes:
        """b"" where the chunk is to be read."""
        try:
            chunk = parse_bdat(argument)
        except DecodeError:
            # What follows may be a chunk, which must not be read as commands.
            return self._close(Reason.SYNTAX, replies.BDAT_SYNTAX)
        octets = self._take_chunk(chunk)
        if octets and self.state is not State.CLOSED:
            # Ahead of the delay for a bad command.
            self.waits = [Skip(chunk.octets), *self.waits]
        return octets

    def _take_chunk(self, chunk: Chunk) -> bytes:
        if self._locked:
            return self._needs_tls("")
        if not self.rules.chunking:
            return self.bad(replies.UNKNOWN, command="BDAT")
        then = TABLE[self.state].get(Event.CHUNK)
        if isinstance(then, Reply):
            return self._out_of_order(then)
        # Where the table has nothing, `begun` or `_move` raises.
        transaction = self.begun
        if not transaction.recipients:
            return self.refuse(Reason.SEQUENCE, replies.NO_RECIPIENT)
        transaction.announced += chunk.octets
        limit = self.rules.settings.maxmsgsize
        if limit and transaction.announced > limit:
            octets = self.refuse(Reason.SIZE, replies.TOO_LARGE)
            self.drop()
            return octets
        self._move(Event.CHUNK)
        self.chunk = chunk
        return b""

    def _etrn(self, argument: str) -> bytes:
        """b"": the answer to the question is the reply."""
        if not self.rules.etrn:
            return self.bad(replies.UNKNOWN, command="ETRN")
        try:
            node = calls.parse_node(argument)
        except DecodeError:
            return self.bad(ETRN_SYNTAX)
        if calls.started(self.rules.gate.holding, node, self.user) is None:
            return self.bad(NODE_DENIED, Reason.HELD)
        self._wait(Start(node, self.user))
        return b""

    def _atrn(self, argument: str) -> bytes:
        """b"": the answer to the question is the reply."""
        if not self.rules.atrn:
            return self.bad(replies.UNKNOWN, command="ATRN")
        if not self.user:
            return self.refuse(Reason.AUTH, REQUIRED)
        try:
            domains = calls.parse_domains(argument)
        except DecodeError:
            return self.bad(ATRN_SYNTAX)
        if calls.collected(self.rules.gate.holding, domains, self.user) is None:
            return self.bad(ATRN_DENIED, Reason.HELD)
        self._wait(Collect(domains, self.user))
        return b""

    def reverse(self, call: Collect) -> None:
        """There is mail: after the reply to ATRN the caller sends it, see `collects`."""
        self._move(Event.REVERSE)
        self.collects = call

    def _out_of_order(self, reply: Reply) -> bytes:
        if self.state is State.REFUSED:
            return self.refuse(Reason.SEQUENCE, reply)
        return self.bad(reply, Reason.SEQUENCE)

    def _rset(self, argument: str) -> bytes:
        if argument:
            return self.bad(replies.NO_ARGUMENT)
        self._move(Event.RSET)
        return replies.RESET

    def _proxy(self, argument: str) -> bytes:
        """A client that names another address, and is none of the proxies that may."""
        return self._close(Reason.PROXY, replies.NO_PROXY)

    def _quit(self, argument: str) -> bytes:
        if argument:
            return self.bad(replies.NO_ARGUMENT)
        self._move(Event.QUIT)
        return f"221 2.0.0 {self.rules.host} closing\r\n".encode()


Commands = Mapping[bytes, tuple[Event, Callable[[Dialogue, str], bytes]]]

_COMMANDS: Commands = {
    b"MAIL": (Event.MAIL, Dialogue._mail),
    b"RCPT": (Event.RCPT, Dialogue._rcpt),
    b"DATA": (Event.DATA, Dialogue._data),
    b"BDAT": (Event.CHUNK, Dialogue._bdat),
    b"ETRN": (Event.CALL, Dialogue._etrn),
    b"ATRN": (Event.CALL, Dialogue._atrn),
    b"RSET": (Event.RSET, Dialogue._rset),
    b"NOOP": (Event.OTHER, lambda *_: replies.RESET),
    b"VRFY": (Event.OTHER, lambda *_: replies.CANNOT_VERIFY),
    b"HELP": (Event.OTHER, lambda *_: replies.HELP),
    b"QUIT": (Event.QUIT, Dialogue._quit),
    b"PROXY": (Event.OTHER, Dialogue._proxy),
}
_EHLO = Event.HELLO, partial(Dialogue._greet, esmtp=True)
_HELO = Event.HELLO, partial(Dialogue._greet, esmtp=False)
_GREETINGS: Mapping[bool, Commands] = {False: {b"EHLO": _EHLO, b"HELO": _HELO}, True: {b"LHLO": _EHLO}}
"""By whether it is LMTP, which has no EHLO and no HELO (RFC 2033, 4.1)."""
_AUTH: Commands = {b"AUTH": (Event.AUTH, Dialogue._auth)}
_STARTTLS: Commands = {b"STARTTLS": (Event.STARTTLS, Dialogue._starttls)}
_OPEN: Mapping[tuple[bool, bool, bool], Commands] = {
    (lmtp, logins, starttls): {
        **_COMMANDS,
        **greetings,
        **(_AUTH if logins else {}),
        **(_STARTTLS if starttls else {}),
    }
    for lmtp, greetings in _GREETINGS.items()
    for logins in (False, True)
    for starttls in (False, True)
}
"""By whether it is LMTP, whether users may log in, and whether the client may turn to TLS."""
# RFC 3207, 4. BDAT is refused, but its octets have to be skipped; PROXY ends the session.
_BEFORE_TLS = {b"EHLO", b"LHLO", b"BDAT", b"NOOP", b"QUIT", b"PROXY"}
_LOCKED: Mapping[bool, Commands] = {
    lmtp: {
        verb: known if verb in _BEFORE_TLS else (Event.OTHER, Dialogue._needs_tls)
        for verb, known in {**_COMMANDS, **greetings, **_AUTH}.items()
    }
    | dict(_STARTTLS)
    for lmtp, greetings in _GREETINGS.items()
}
"""Where TLS is mandatory, before it; by whether it is LMTP."""

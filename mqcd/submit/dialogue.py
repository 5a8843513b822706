"""One SMTP session without its socket: command lines in, replies out (RFC 5321). Pure.

`states.TABLE` says for each state and event which state follows, or which reply refuses the command there;
`_move` alone changes the state, and raises IllegalTransition for what the table does not have. `command`
takes one line and returns the reply's octets. In state CONTENT the caller reads the content, replies to it
and calls `sent`; in state CLOSED it closes the connection.

`refused` is called with each refusal and its reason. Bad commands (not known, malformed, out of order) count
towards maxbadreqs; refused addresses do not, nor do commands that a pipelining client sent before it could
know that its MAIL was refused (RFC 2920, 3.1): that is state REFUSED. Recipients that are refused for good
count by themselves: more than MAX_REFUSED over one connection end it, since only guessing has so many.

Settings read: maxmsgsize, maxrecips, maxmessages, maxbadreqs, and those of `rules`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from mqcd.core.address import parse_path
from mqcd.core.display import printable
from mqcd.core.errors import DecodeError, IllegalTransition
from mqcd.core.ports import Refusal
from mqcd.core.reply import Reply
from mqcd.submit import replies
from mqcd.submit.auth.login import Login, Turn
from mqcd.submit.channel import PLAIN, Channel
from mqcd.submit.parameters import NO_PARAMETERS, parse_mail, parse_rcpt
from mqcd.submit.policy import DoorRefused, Reason
from mqcd.submit.received import clean_helo
from mqcd.submit.rules import Rules
from mqcd.submit.states import TABLE, Event, State
from mqcd.submit.transaction import MAX_ENVELOPE, Transaction

MAX_REFUSED = 100
"""Permanently refused recipients per connection; a client that may relay gets a hundred times as many."""
_MAX_VERB = 20
"""Characters of a word that is no command, for the log."""

_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# Of ASCII alone: a dotless i is no I, and spaces of other scripts separate nothing (RFC 5321, 2.4).
_FROM = re.compile(r"FROM:[ \t]*(?=[^ \t])", re.IGNORECASE | re.ASCII)
_TO = re.compile(r"TO:[ \t]*(?=[^ \t])", re.IGNORECASE | re.ASCII)


class Dialogue:
    """One session with one client."""

    __slots__ = (
        "_bad",
        "_listener",
        "_refused",
        "_rules",
        "_secret",
        "_trusted",
        "_turned_down",
        "channel",
        "client",
        "esmtp",
        "helo",
        "login",
        "messages",
        "session",
        "state",
        "transaction",
    )

    def __init__(
        self, rules: Rules, listener: str, client: str, refused: Callable[[Refusal], None], session: str = ""
    ) -> None:
        self._rules = rules
        self.session = session
        """The session's name in the log."""
        self._listener = listener
        self.client = client
        """IP address of the client."""
        self._refused = refused
        self._trusted: bool | None = None
        self._bad = 0
        self._turned_down = 0
        self._secret = False
        self.helo = ""
        """The client's name from EHLO or HELO, cleaned; "" before that."""
        self.esmtp = False
        self.channel = PLAIN
        """How the client is connected; see `secured`."""
        access = rules.access
        self.login = None if access is None else Login(access, client, trusted=rules.policy.trusts(client))
        """The session's logins; None where nobody can log in."""
        self.messages = 0
        """Messages whose content was received, accepted or not."""
        self.state = State.START
        self.transaction: Transaction | None = None
        """The message being announced."""

    def command(self, line: bytes) -> bytes:
        """The reply to one command line (without its CRLF)."""
        if self.state is State.LOGIN:
            return self._respond(line)
        if _CONTROLS.search(line) is not None:
            return self.bad(replies.CONTROL_REPLY)
        verb, _, argument = line.partition(b" ")
        known = _COMMANDS.get(verb.upper())
        if known is None or (known is _AUTH and self.login is None):
            return self._unknown(verb)
        try:
            text = argument.decode()
        except UnicodeDecodeError:
            return self.bad(replies.NOT_UTF8)
        event, act = known
        then = TABLE[self.state].get(event)
        if isinstance(then, State):
            return act(self, text.strip(" \t"))
        if then is None:
            raise IllegalTransition(event, self.state)
        return self._out_of_order(then)

    @property
    def user(self) -> str:
        """Who has logged in; "" = nobody."""
        return "" if self.login is None else self.login.user

    @property
    def waits_for_check(self) -> bool:
        """Whether the caller has to compare the password of `login`, and to call `checked`."""
        return self.state is State.CHECKING

    def secured(self, channel: Channel) -> None:
        """TLS has begun."""
        self.channel = channel
        if self.login is not None:
            self.login.channel = channel

    def _move(self, event: Event) -> None:
        """Change the state. Raises IllegalTransition."""
        then = TABLE[self.state].get(event)
        if not isinstance(then, State):
            raise IllegalTransition(event, self.state)
        self.state = then
        if then is not State.ENVELOPE and then is not State.CONTENT:
            self.transaction = None

    def drop(self) -> None:
        """Abandon the current message; pipelined commands for it are refused."""
        self._move(Event.DROP)

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
    def begun(self) -> Transaction:
        """The current message. Raises IllegalTransition where there is none."""
        if self.transaction is None:
            raise IllegalTransition(Event.RCPT, self.state)
        return self.transaction

    def sent(self) -> None:
        """The content was replied to: the next message may begin."""
        self.messages += 1
        self._move(Event.SENT)

    def refuse(
        self, reason: Reason, reply: Reply, recipient: str = "", command: str = "", claimed: str = ""
    ) -> bytes:
        """Report a refusal; gives the reply's octets. `command` is what was not recognised, `claimed` the
        user that a login failed for."""
        sender = self.transaction.sender if self.transaction is not None else ""
        self._refused(
            Refusal(
                reason=reason,
                reply=reply,
                listener=self._listener,
                client=self.client,
                sender=sender,
                recipient=recipient,
                session=self.session,
                command=command,
                user=self.user or claimed,
            )
        )
        return reply.encode()

    def turn_down(self, reason: Reason, reply: Reply, recipient: str = "") -> bytes:
        """Refuse a recipient and count it; the connection ends above the limit."""
        self._turned_down += reply.permanent
        if self._turned_down > MAX_REFUSED * (100 if self._may_relay() else 1):
            return self._close(Reason.REFUSALS, replies.TOO_MANY_REFUSED, recipient)
        return self.refuse(reason, reply, recipient)

    def _may_relay(self) -> bool:
        if self.login is not None and self.login.user:
            return True
        if self._trusted is None:
            self._trusted = self._rules.policy.trusts(self.client)
        return self._trusted

    def bad(self, reply: Reply, reason: Reason = Reason.SYNTAX, command: str = "") -> bytes:
        """Refuse a bad command and count it; the connection ends above the limit."""
        self._bad += 1
        limit = self._rules.settings.maxbadreqs
        if limit and self._bad > limit:
            return self._close(Reason.BAD_COMMANDS, replies.TOO_MANY_BAD, command=command)
        return self.refuse(reason, reply, command=command)

    def _close(self, reason: Reason, reply: Reply, recipient: str = "", command: str = "") -> bytes:
        octets = self.refuse(reason, reply, recipient, command)
        self._move(Event.CLOSE)
        return octets

    def _ehlo(self, argument: str) -> bytes:
        return self._greet(argument, True)

    def _helo(self, argument: str) -> bytes:
        return self._greet(argument, False)

    def _greet(self, argument: str, esmtp: bool) -> bytes:
        if not argument:
            return self.bad(replies.NEED_NAME)
        self._move(Event.HELLO)
        self.helo = clean_helo(argument)
        self.esmtp = esmtp
        return self._rules.ehlo(self.channel) if esmtp else self._rules.helo

    def _mail(self, argument: str) -> bytes:
        octets = self._take_mail(argument)
        if self.state is State.READY:
            self._move(Event.DROP)
        return octets

    def _take_mail(self, argument: str) -> bytes:
        denied = self._rules.mail_denied(self.user)
        if denied is not None:
            return self.refuse(*denied)
        limit = self._rules.settings.maxmessages
        if limit and self.messages >= limit:
            return self._close(Reason.MESSAGES, replies.TOO_MANY_MESSAGES)
        syntax = _FROM.match(argument)
        if syntax is None:
            return self.bad(replies.MAIL_SYNTAX)
        return self._begin(argument[syntax.end() :])

    def _begin(self, path: str) -> bytes:
        try:
            sender, rest = parse_path(path)
        except DecodeError:
            return self.refuse(Reason.SENDER, replies.BAD_SENDER)
        try:
            parameters = parse_mail(rest, self._rules.parameters) if rest else NO_PARAMETERS
        except DoorRefused as error:
            return self.bad(error.reply)
        if not sender.isascii() and not parameters.smtputf8:
            return self.refuse(Reason.SENDER, replies.NEEDS_UTF8)
        transaction = Transaction(self._rules.policy.complete(sender), parameters)
        if self._rules.sender_denied(self.user, transaction.sender):
            return self.refuse(Reason.SENDER, replies.NOT_YOURS)
        self._move(Event.MAIL)
        self.transaction = transaction
        limit = self._rules.settings.maxmsgsize
        if limit and parameters.size > limit:
            octets = self.refuse(Reason.SIZE, replies.TOO_LARGE)
            self.drop()
            return octets
        return replies.SENDER_OK

    def _rcpt(self, argument: str) -> bytes:
        transaction = self.begun
        syntax = _TO.match(argument)
        if syntax is None:
            return self.bad(replies.RCPT_SYNTAX)
        try:
            path, rest = parse_path(argument[syntax.end() :])
        except DecodeError:
            return self.turn_down(Reason.RECIPIENT, replies.BAD_RECIPIENT)
        try:
            dsn = parse_rcpt(rest, self._rules.parameters) if rest else ""
        except DoorRefused as error:
            return self.bad(error.reply)
        return self._add(transaction, path, dsn)

    def _add(self, transaction: Transaction, path: str, dsn: str) -> bytes:
        recipient = self._rules.policy.complete(path)
        utf8 = transaction.parameters.smtputf8
        denied = self._rules.recipient_denied(path, recipient, utf8=utf8, may_relay=self._may_relay())
        if denied is not None:
            return self.turn_down(*denied, recipient)
        octets = len(recipient) + len(dsn)
        limit = self._rules.settings.maxrecips
        if (limit and len(transaction.recipients) >= limit) or transaction.octets + octets > MAX_ENVELOPE:
            return self.refuse(Reason.RECIPIENTS, replies.TOO_MANY_RECIPIENTS, recipient)
        transaction.octets += octets
        transaction.recipients.append(recipient)
        transaction.recipient_dsn.append(dsn)
        return replies.RECIPIENT_OK

    def _data(self, argument: str) -> bytes:
        if argument:
            return self.bad(replies.NO_ARGUMENT)
        if not self.begun.recipients:
            # The client may have pipelined DATA behind recipients that were all refused.
            return self.refuse(Reason.SEQUENCE, replies.NO_RECIPIENT)
        self._move(Event.DATA)
        return replies.GO_AHEAD

    def _out_of_order(self, reply: Reply) -> bytes:
        if self.state is State.REFUSED:
            return self.refuse(Reason.SEQUENCE, reply)
        return self.bad(reply, Reason.SEQUENCE)

    def _rset(self, argument: str) -> bytes:
        if argument:
            return self.bad(replies.NO_ARGUMENT)
        self._move(Event.RSET)
        return replies.RESET

    def _auth(self, argument: str) -> bytes:
        if self.login is None:
            raise IllegalTransition(Event.AUTH, self.state)
        turn = self.login.begin(argument)
        if isinstance(turn, Reply):
            # A client that does not wait for this reply sends its password as a command.
            self._secret = True
            return self.bad(turn, Reason.AUTH)
        self._move(Event.AUTH)
        return self._take_turn(turn)

    def _respond(self, line: bytes) -> bytes:
        if self.login is None:
            raise IllegalTransition(Event.CHALLENGE, self.state)
        return self._take_turn(self.login.take(line))

    def bad_line(self, reply: Reply) -> bytes:
        """A line that cannot be read."""
        if self.state is State.LOGIN and self.login is not None:
            return self._take_turn(self.login.take_bad_line())
        return self.bad(reply)

    def checked(self, good: bool | None) -> bytes:
        """The reply once the password that state CHECKING waits for is compared; None = it could not be."""
        if self.login is None:
            raise IllegalTransition(Event.CHECK, self.state)
        return self._take_turn(self.login.checked(good))

    def _take_turn(self, turn: Turn) -> bytes:
        self._move(turn.event)
        if turn.reply is None:
            return turn.octets
        if turn.event is Event.IDENTIFIED:
            return turn.reply.encode()
        self._secret = True
        if turn.bad:
            return self.bad(turn.reply, Reason.AUTH)
        return self.refuse(Reason.AUTH, turn.reply, claimed=turn.claimed)

    def _noop(self, argument: str) -> bytes:
        return replies.RESET

    def _vrfy(self, argument: str) -> bytes:
        return replies.CANNOT_VERIFY

    def _help(self, argument: str) -> bytes:
        return replies.HELP

    def _quit(self, argument: str) -> bytes:
        if argument:
            return self.bad(replies.NO_ARGUMENT)
        self._move(Event.QUIT)
        return f"221 2.0.0 {self._rules.host} closing\r\n".encode()


_AUTH = Event.AUTH, Dialogue._auth
_COMMANDS: dict[bytes, tuple[Event, Callable[[Dialogue, str], bytes]]] = {
    b"EHLO": (Event.HELLO, Dialogue._ehlo),
    b"HELO": (Event.HELLO, Dialogue._helo),
    b"MAIL": (Event.MAIL, Dialogue._mail),
    b"RCPT": (Event.RCPT, Dialogue._rcpt),
    b"DATA": (Event.DATA, Dialogue._data),
    b"RSET": (Event.RSET, Dialogue._rset),
    b"AUTH": _AUTH,
    b"NOOP": (Event.OTHER, Dialogue._noop),
    b"VRFY": (Event.OTHER, Dialogue._vrfy),
    b"HELP": (Event.OTHER, Dialogue._help),
    b"QUIT": (Event.QUIT, Dialogue._quit),
}

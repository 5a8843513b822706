"""How a session turns to TLS, and how its client logs in: between `conversation` and `dialogue`. Pure.

AUTH moves the state to LOGIN, where each line is a response (`_respond`), and with the password to CHECKING;
`auth.login` decides how it goes on, `_take_turn` acts on that. STARTTLS moves it to HANDSHAKE, `secured` on.

With `secured` the session begins again: name, login and message of the client are forgotten (RFC 3207, 4.2).
Where TLS is mandatory, commands are refused before it, except the commands that lead to it.
"""

from __future__ import annotations

from collections.abc import Callable

from mqcd.core.errors import IllegalTransition
from mqcd.core.ports import Refusal
from mqcd.core.smtp.reply import Reply
from mqcd.submit.auth.login import Turn
from mqcd.submit.esmtp import replies
from mqcd.submit.esmtp.caller import PLAIN, Channel
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.esmtp.states import Event, State
from mqcd.submit.policy.rules import Rules
from mqcd.submit.session.conversation import Check, Conversation


class Securing(Conversation):
    """The client's identity, and the state of its connection."""

    __slots__ = ("_secret", "channel", "esmtp", "helo")

    def __init__(
        self, rules: Rules, listener: str, client: str, refused: Callable[[Refusal], None], session: str = ""
    ) -> None:
        super().__init__(rules, listener, client, refused, session)
        self._secret = False
        """Whether a line that is no command may be a password: it is not logged then."""
        self.helo = ""
        """The client's name from EHLO or HELO, cleaned; "" before that."""
        self.esmtp = False
        """Whether it said EHLO, not HELO."""
        self.channel = PLAIN
        """How the client is connected; see `secured`."""

    def secured(self, channel: Channel) -> None:
        """TLS has begun: what the client said before is forgotten."""
        self._move(Event.SECURED)
        self.channel = channel
        self.helo = ""
        self.esmtp = False
        self._secret = False
        self.login = self._new_login()
        if self.login is not None:
            self.login.channel = channel

    @property
    def _locked(self) -> bool:
        """Whether TLS is mandatory and has not begun."""
        return self.rules.locked(self.channel)

    def _starttls(self, argument: str) -> bytes:
        if argument:
            return self.bad(replies.NO_ARGUMENT)
        self._move(Event.STARTTLS)
        return replies.TLS_READY

    def _needs_tls(self, argument: str) -> bytes:
        return self.refuse(Reason.TLS, replies.NEEDS_TLS)

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
        """The reply once the password of `login` is compared (`Check`); None = it could not be."""
        if self.login is None:
            raise IllegalTransition(Event.CHECK, self.state)
        return self._take_turn(self.login.checked(good))

    def _take_turn(self, turn: Turn) -> bytes:
        """Do what the login has come to; gives the reply's octets."""
        self._move(turn.event)
        if turn.event is Event.CHECK:
            self._wait(Check())
        if turn.reply is None:
            return turn.octets
        if turn.event is Event.IDENTIFIED:
            return turn.reply.encode()
        self._secret = True
        if turn.bad:
            return self.bad(turn.reply, Reason.AUTH)
        return self.refuse(Reason.AUTH, turn.reply, claimed=turn.claimed)

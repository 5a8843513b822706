"""The base of `dialogue`: a session's state, its refusals, what its replies wait for, logins and TLS. Pure.

`states.TABLE` says which event changes which state; `_move` alone changes it, and raises IllegalTransition
for what the table does not have. A refusal is reported to `refused`, with its reason. Bad commands (not
known, malformed, out of order) count towards maxbadreqs; refused addresses do not, nor do commands that a
pipelining client sent before it could know that its MAIL was refused (RFC 2920, 3.1): that is state REFUSED.
Recipients that are refused for good count by themselves, since only guessing has many.

| a refusal by | counts towards | delay |
|---|---|---|
| `refuse` | | |
| `bad`: the command | maxbadreqs | delay_badreq |
| `turn_down`: a recipient, for good | MAX_REFUSED | delay_badrecip |
| `turn_down`: a recipient, for now | | delay_badrecip |
| `_close` | ends the connection | |

Before the reply to a command is given the session does what it waits for, one after the other (`waits`), in
the order of this table:

| wait | after | then |
|---|---|---|
| `Skip` | BDAT that is refused: its octets come all the same (RFC 3030, 2) | |
| `Check` | a login that has come to its password | the result is the reply |
| a question | a name, a triplet for the greylist | a refusal is the reply (`retract`); only a delay is left |
| `Start`, `Collect` | ETRN, ATRN | the answer is the reply |
| `Delay` | what a bad client does; MAIL while memory is short | |
| `Place` | MAIL while as many messages are on their way as can be committed | without one MAIL is refused |

AUTH moves the state to LOGIN, where each line is a response (`_respond`), and with the password to CHECKING;
`auth.login` decides how it goes on, `_take_turn` acts on that. STARTTLS moves it to HANDSHAKE, `secured` on:
the session begins again then, name, login and message of the client are forgotten (RFC 3207, 4.2). Where TLS
is mandatory, commands are refused before it, except the commands that lead to it.

Settings read: maxbadreqs, delay_badreq, delay_badrecip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mqcd.core.errors import IllegalTransition
from mqcd.core.ports import Refusal
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.submit.auth.login import Login, Turn
from mqcd.submit.checks.greylist import Triplet
from mqcd.submit.checks.names import Lookup, Verdict
from mqcd.submit.esmtp import replies
from mqcd.submit.esmtp.caller import PLAIN, STRANGER, Caller, Channel
from mqcd.submit.esmtp.calls import Collect, Start
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.esmtp.states import TABLE, Event, State
from mqcd.submit.esmtp.transaction import Transaction
from mqcd.submit.policy.rules import Rules

MAX_REFUSED = 100
"""Permanently refused recipients per connection; a client that may relay gets a hundred times as many."""
_IN_TRANSACTION = (State.ENVELOPE, State.CONTENT, State.CHUNKS)


@value(kw_only=False)
class Skip:
    """Octets that are read and dropped."""

    octets: int


@value(kw_only=False)
class Check:
    """The comparison of a password with its hash."""


@value(kw_only=False)
class Delay:
    """So many ms."""

    ms: int


@value(kw_only=False)
class Place:
    """A place in the load."""


Question = Lookup | Triplet | Start | Collect
Wait = Skip | Check | Delay | Place | Question


class Conversation:
    """State and counts of one session; `dialogue` has its commands."""

    __slots__ = (
        "_bad",
        "_refused",
        "_secret",
        "_trusted",
        "_turned_down",
        "caller",
        "channel",
        "client",
        "esmtp",
        "helo",
        "listener",
        "login",
        "quota_places",
        "rules",
        "session",
        "state",
        "transaction",
        "waits",
    )

    def __init__(
        self, rules: Rules, listener: str, client: str, refused: Callable[[Refusal], None], session: str = ""
    ) -> None:
        self.rules = rules
        """Those of its beginning, whatever is reloaded meanwhile."""
        self.session = session
        """The session's name in the log."""
        self.caller: Caller = STRANGER
        """What is known of the client without a login."""
        self.listener = listener
        self.client = client
        """IP address of the client."""
        self._refused = refused
        self._trusted: bool | None = None
        """Whether `relay_clients` lists the client; None = not looked up yet."""
        self._bad = 0
        """Bad commands so far."""
        self._turned_down = 0
        """Recipients refused for good so far."""
        self.waits: Sequence[Wait] = ()
        """What the reply to the last command waits for."""
        self.quota_places: dict[str, int] = {}
        """The places that it holds among the sessions of its parties: see `policy.quotas`. A `Place` is one
        in the load."""
        self.login = self._new_login()
        """The session's logins; None where nobody can log in."""
        self.state = State.START
        self.transaction: Transaction | None = None
        """The message being announced."""
        self._secret = False
        """Whether a line that is no command may be a password: it is not logged then."""
        self.helo = ""
        """The client's name from EHLO or HELO, cleaned; "" before that."""
        self.esmtp = False
        """Whether it said EHLO, not HELO."""
        self.channel = PLAIN
        """How the client is connected; see `secured`."""

    @property
    def _begun_login(self) -> Login:
        """The login of a session whose users may log in. Raises IllegalTransition."""
        if self.login is None:
            raise IllegalTransition(Event.AUTH, self.state)
        return self.login

    def _new_login(self) -> Login | None:
        access = self.rules.access
        if access is None:
            return None
        return Login(access, self.client, trusted=self.rules.policy.trusts(self.client))

    @property
    def user(self) -> str:
        """Who has logged in, or is known without; "" = nobody."""
        return self.caller.user if self.login is None else self.login.user

    def _move(self, event: Event) -> None:
        """Change the state. Raises IllegalTransition."""
        then = TABLE[self.state].get(event)
        if not isinstance(then, State):
            raise IllegalTransition(event, self.state)
        self.state = then
        if then not in _IN_TRANSACTION:
            self.transaction = None
            self.free_place()

    def free_place(self) -> bool:
        """Let another message have the place that this session has in the load for one that is to come;
        whether it had one."""
        load = self.rules.gate.load
        return load is not None and load.give_up(self)

    def drop(self) -> None:
        """Abandon the current message; pipelined commands for it are refused."""
        self._move(Event.DROP)
        self._call_off()

    def _call_off(self) -> None:
        """The command is refused: of what it waits for a delay alone has a purpose."""
        self.waits = [each for each in self.waits if isinstance(each, Delay)]

    @property
    def begun(self) -> Transaction:
        """The current message. Raises IllegalTransition where there is none."""
        if self.transaction is None:
            raise IllegalTransition(Event.RCPT, self.state)
        return self.transaction

    def next_wait(self) -> Wait | None:
        """What the reply waits for first; None = for nothing. It counts as done: the caller calls `retract`
        with a refusal that comes of it, and `checked` with the result of a check."""
        first = self.waits[0] if self.waits else None
        self.waits = self.waits[1:]
        return first

    def next_question(self) -> Question | None:
        """The same where it is a question, else None."""
        first = self.waits[0] if self.waits else None
        if not isinstance(first, Question):
            return None
        self.next_wait()
        return first

    def _wait(self, *waits: Wait) -> None:
        self.waits = [*self.waits, *waits]

    def _delay(self, ms: int) -> None:
        if ms:
            self._wait(Delay(ms))

    def _depends(self, verdict: Verdict) -> Reply | None:
        """The reply of a check that refuses, else None: then its questions are what the command's reply waits
        for first. Called before any other wait of the command."""
        if isinstance(verdict, Reply):
            return verdict
        self.waits = verdict
        return None

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
                listener=self.listener,
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
        self._delay(self.rules.settings.delay_badrecip)
        if self._turned_down > MAX_REFUSED * (100 if self._may_relay() else 1):
            return self._close(Reason.REFUSALS, replies.TOO_MANY_REFUSED, recipient)
        if self.transaction is not None and not self.transaction.recipients:
            # Clients that try addresses must not keep mail out. The first that is accepted takes it back.
            self.transaction.gave_place |= self.free_place()
        return self.refuse(reason, reply, recipient)

    def _may_relay(self) -> bool:
        if self.user:
            return True
        if self._trusted is None:
            self._trusted = self.rules.policy.trusts(self.client)
        return self._trusted

    @property
    def _stranger(self) -> str:
        """IP address of a client that may not relay; "" of one that may."""
        return "" if self._may_relay() else self.client

    def bad(self, reply: Reply, reason: Reason = Reason.SYNTAX, command: str = "") -> bytes:
        """Refuse a bad command and count it; the connection ends above the limit."""
        self._bad += 1
        self._delay(self.rules.settings.delay_badreq)
        limit = self.rules.settings.maxbadreqs
        if limit and self._bad > limit:
            return self._close(Reason.BAD_COMMANDS, replies.TOO_MANY_BAD, command=command)
        return self.refuse(reason, reply, command=command)

    def _close(self, reason: Reason, reply: Reply, recipient: str = "", command: str = "") -> bytes:
        octets = self.refuse(reason, reply, recipient, command)
        self._move(Event.CLOSE)
        return octets

    # ------------------------------------------------------------ TLS and logins

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
        turn = self._begun_login.begin(argument)
        if isinstance(turn, Reply):
            # A client that does not wait for this reply sends its password as a command.
            self._secret = True
            return self.bad(turn, Reason.AUTH)
        self._move(Event.AUTH)
        return self._take_turn(turn)

    def _respond(self, line: bytes) -> bytes:
        return self._take_turn(self._begun_login.take(line))

    def bad_line(self, reply: Reply) -> bytes:
        """A line that cannot be read."""
        if self.state is State.LOGIN:
            return self._take_turn(self._begun_login.take_bad_line())
        return self.bad(reply)

    def checked(self, good: bool | None) -> bytes:
        """The reply once the password of `login` is compared (`Check`); None = it could not be."""
        return self._take_turn(self._begun_login.checked(good))

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

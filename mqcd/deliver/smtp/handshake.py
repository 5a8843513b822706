"""The part of a session that comes before mail: greeting, hello, TLS, login. Pure.

The functions decide which command follows, or that none may; `Handshake` has the effects of replies, by the
names that the table in `client` calls them.

Guarantees: under TLS policy encrypt or verify nothing goes out in clear but EHLO and STARTTLS (4.7.4 where
the server will not), and no login goes over a way that it is not meant for (4.7.8, see `auth`). A failure
here is one of that host, or a mistake of this server's operator: temporary, for any code of the server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from mqcd.config.settings import TlsPolicy
from mqcd.core.model import Phase
from mqcd.core.smtp.reply import Reply
from mqcd.core.states import following
from mqcd.core.value import value
from mqcd.deliver.smtp import auth
from mqcd.deliver.smtp.exchange import Options, Step
from mqcd.deliver.smtp.replies import RawReply, ReplyReader
from mqcd.deliver.smtp.states import STATES, Event, State


@value(kw_only=False)
class Say:
    """A command, and the reply to it that is awaited."""

    line: bytes
    step: Step


@value(kw_only=False)
class Stop:
    """Go no further with this server."""

    reply: Reply
    phase: Phase


Next = Say | Stop | auth.Exchange | None
"""The next step: send a command, stop, log in, or None to start with mail."""


def hello(options: Options, *, again: bool = False) -> Say:
    """The hello command; `again` after an EHLO that was refused."""
    verb, step = b"EHLO", Step.EHLO
    if options.lmtp:
        verb = b"LHLO"
    elif options.say_helo or again:
        verb, step = b"HELO", Step.HELO
    return Say(b"%b %b\r\n" % (verb, options.hello.encode()), step)


def offered(lines: Sequence[bytes]) -> dict[str, str]:
    """The extensions that the lines of an answer to EHLO offer: keyword in upper case to its parameters."""
    # As octets: only ASCII letters have a case here.
    words = (line.strip().partition(b" ") for line in lines[1:])
    return {
        keyword.upper().decode("utf-8", "replace"): parameters.decode("utf-8", "replace")
        for keyword, _, parameters in words
    }


def secure(options: Options, extensions: Mapping[str, str], secured: bool) -> Next:
    """What comes after hello: TLS, where it is wanted and there is none yet, else `log_in`."""
    if secured or options.tls is TlsPolicy.NONE:
        return log_in(options, extensions, secured)
    if "STARTTLS" in extensions:
        return Say(b"STARTTLS\r\n", Step.STARTTLS)
    return unsecured(options, extensions, "the next hop does not offer it")


def unsecured(options: Options, extensions: Mapping[str, str], why: str) -> Next:
    """There will be no TLS, and `why`."""
    if options.tls is TlsPolicy.MAY:
        return log_in(options, extensions, secured=False)
    return Stop(local("4.7.4", f"TLS is required, and {why}"), Phase.TLS)


def log_in(options: Options, extensions: Mapping[str, str], secured: bool) -> Next:
    """TLS is settled: how to log in; None where no login is configured."""
    login = options.login
    if login is None:
        return None
    mechanism = auth.choose(login, extensions, secured)
    if mechanism is None:
        return Stop(local("4.7.8", auth.why_not(login, extensions, secured)), Phase.AUTH)
    return auth.Exchange(login, mechanism)


def login_refused(options: Options, reply: Reply) -> Stop:
    """The server refused the login: that is for this server's operator to mend, and must not bounce mail."""
    if options.login is not None:
        reply = auth.hide(options.login, reply)
    return Stop(as_temporary("login refused", reply, "4.7.8"), Phase.AUTH)


def local(status: str, text: str) -> Reply:
    """A failure found on this side, as a reply."""
    return Reply(code=451, status=status, text=text, own=True)


def as_temporary(what: str, reply: Reply, status: str = "4.3.0") -> Reply:
    """`reply` where it is temporary; a permanent one is quoted in a temporary one."""
    return reply if 400 <= reply.code < 500 else local(status, f"{what}: {reply}")


class Handshake:
    """One session with one server, from its greeting until it is ready for mail."""

    def __init__(self, options: Options) -> None:
        self.state = State.HANDSHAKE
        self.end: Reply | None = None
        """Why the session ended, as a reply that a recipient can be deferred with."""
        self.extensions: dict[str, str] = {}
        """What EHLO offered: keyword in upper case to its parameters."""
        self.secured = options.implicit_tls
        self._options = options
        self._reader = ReplyReader()
        self._out: list[bytes] = []
        self._expected: deque[tuple[Step, int]] = deque([(Step.GREETING, 0)])
        self._window = 1
        """Commands that may wait for their replies, at least 1."""
        self._phase = Phase.GREETING
        self._login: auth.Exchange | None = None

    def on(self, event: Event) -> None:
        """Change the state. Raises IllegalTransition."""
        self.state = following(STATES, self.state, event, "SMTP session")

    def tls_started(self) -> State:
        """TLS stands: what the server offered before does not count (RFC 3207, 4.2)."""
        self.on(Event.TLS_STARTED)
        self.secured = True
        self.extensions = {}
        self._window = 1
        self._say(hello(self._options))
        return self.state

    def _finish(self, reply: Reply) -> None:
        """The session is over."""
        self._expected.clear()
        self._out.clear()
        self.end = reply
        self.on(Event.END)

    def _follow(self, said: Next) -> None:
        """Do what was decided; None: the handshake is done."""
        if isinstance(said, Stop):
            self._phase = said.phase
            self._finish(said.reply)
        elif isinstance(said, auth.Exchange):
            self._login = said
            self._say(Say(said.command(), Step.AUTH))
        elif said is not None:
            self._say(said)

    def _say(self, said: Say) -> None:
        self._out.append(said.line)
        self._expected.append((said.step, 0))
        self._phase = said.step.phase

    # ------------------------------------------------------------ what replies do

    def _greeted(self, raw: RawReply, index: int) -> None:
        self._say(hello(self._options))

    def _end_session(self, raw: RawReply, index: int) -> None:
        self._finish(as_temporary("session refused", raw.reply()))

    def _hello_taken(self, raw: RawReply, index: int) -> None:
        self.extensions = offered(raw.lines)
        self._window = max(self._options.maxpipeline, 1) if "PIPELINING" in self.extensions else 1
        self._follow(secure(self._options, self.extensions, self.secured))

    def _ehlo_refused(self, raw: RawReply, index: int) -> None:
        if raw.code >= 500 and self._options.fallback_helo and not self._options.lmtp:
            self._say(hello(self._options, again=True))
        else:
            self._end_session(raw, index)

    def _helo_taken(self, raw: RawReply, index: int) -> None:
        self._follow(secure(self._options, {}, self.secured))

    def _tls_granted(self, raw: RawReply, index: int) -> None:
        if self._reader.pending:
            # Replies in clear behind the 220 were put there to be read as if they were protected.
            self._finish(local("4.7.0", "octets in clear between STARTTLS and TLS handshake"))
        else:
            self.on(Event.TLS_GRANTED)

    def _tls_refused(self, raw: RawReply, index: int) -> None:
        why = f"the next hop refused it: {raw.reply()}"
        self._follow(unsecured(self._options, self.extensions, why))

    def _challenged(self, raw: RawReply, index: int) -> None:
        answer = self._login.answer(raw.lines[-1]) if self._login is not None else None
        if answer is None:
            self._finish(local("4.5.0", "server continues AUTH after its cancellation"))
        else:
            self._say(Say(answer, Step.AUTH))

    def _login_refused(self, raw: RawReply, index: int) -> None:
        self._follow(login_refused(self._options, raw.reply()))

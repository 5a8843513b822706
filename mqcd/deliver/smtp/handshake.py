"""The part of a session that comes before mail: greeting, hello, TLS, login. Pure.

The effects of replies are here, by the names that the table in `client` calls them; `negotiation` decides
which command follows. A session that the server refuses is a failure of that host or a mistake of this
server's operator, hence temporary.
"""

from __future__ import annotations

from collections import deque

from mqcd.core.errors import IllegalTransition
from mqcd.core.model import Phase
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.smtp import auth, negotiation
from mqcd.deliver.smtp.exchange import Options, Step
from mqcd.deliver.smtp.negotiation import Next, Say, Stop, as_temporary, local
from mqcd.deliver.smtp.replies import RawReply, ReplyReader
from mqcd.deliver.smtp.states import STATES, Event, State


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
        """Commands that may wait for their replies; 0 = no limit."""
        self._phase = Phase.GREETING
        self._login: auth.Exchange | None = None

    def on(self, event: Event) -> None:
        """Change the state. Raises IllegalTransition."""
        following = STATES[self.state].get(event)
        if following is None:
            raise IllegalTransition(f"{event.name} in state {self.state.name}")
        self.state = following

    def tls_started(self) -> State:
        """TLS stands: what the server offered before does not count (RFC 3207, 4.2)."""
        self.on(Event.TLS_STARTED)
        self.secured = True
        self.extensions = {}
        self._window = 1
        self._say(negotiation.hello(self._options))
        return self.state

    def _finish(self, reply: Reply) -> None:
        """The session is over."""
        self._expected.clear()
        self._out.clear()
        self.end = reply
        self.on(Event.END)

    def _follow(self, said: Next) -> None:
        """Do what `negotiation` says; None: the handshake is done."""
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
        self._phase = said.phase

    # ------------------------------------------------------------ what replies do

    def _greeted(self, raw: RawReply, index: int) -> None:
        self._say(negotiation.hello(self._options))

    def _end_session(self, raw: RawReply, index: int) -> None:
        self._finish(as_temporary("session refused", raw.reply()))

    def _hello_taken(self, raw: RawReply, index: int) -> None:
        self.extensions = negotiation.offered(raw.lines)
        self._window = self._options.maxpipeline if "PIPELINING" in self.extensions else 1
        self._follow(negotiation.secure(self._options, self.extensions, self.secured))

    def _ehlo_refused(self, raw: RawReply, index: int) -> None:
        if raw.code >= 500 and self._options.fallback_helo and not self._options.lmtp:
            self._say(negotiation.hello(self._options, again=True))
        else:
            self._end_session(raw, index)

    def _helo_taken(self, raw: RawReply, index: int) -> None:
        self._follow(negotiation.secure(self._options, {}, self.secured))

    def _tls_granted(self, raw: RawReply, index: int) -> None:
        if self._reader.pending:
            # Replies in clear behind the 220 were put there to be read as if they were protected.
            self._finish(local("4.7.0", "octets in clear between STARTTLS and TLS handshake"))
        else:
            self.on(Event.TLS_GRANTED)

    def _tls_refused(self, raw: RawReply, index: int) -> None:
        why = f"the next hop refused it: {raw.reply()}"
        self._follow(negotiation.unsecured(self._options, self.extensions, why))

    def _challenged(self, raw: RawReply, index: int) -> None:
        answer = self._login.answer(raw.lines[-1]) if self._login is not None else None
        if answer is None:
            self._finish(local("4.5.0", "server continues AUTH after its cancellation"))
        else:
            self._say(Say(answer, Step.AUTH))

    def _login_refused(self, raw: RawReply, index: int) -> None:
        self._follow(negotiation.login_refused(self._options, raw.reply()))

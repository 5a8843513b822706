"""Which command follows before mail: hello, TLS, login, or none because policy forbids it. Pure.

Guarantees: under TLS policy encrypt or verify nothing goes out in clear but EHLO and STARTTLS (4.7.4 where
the server will not), and no login goes over a way that it is not meant for (4.7.8, see `auth`). A failure
here is one of that host, or a mistake of this server's operator: temporary, for any code of the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mqcd.config.settings import TlsPolicy
from mqcd.core.model import Phase
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.smtp import auth
from mqcd.deliver.smtp.exchange import Options, Step

_PHASES = {Step.EHLO: Phase.EHLO, Step.HELO: Phase.EHLO, Step.STARTTLS: Phase.TLS, Step.AUTH: Phase.AUTH}


@dataclass(frozen=True, slots=True)
class Say:
    """A command, and the reply to it that is awaited."""

    line: bytes
    step: Step

    @property
    def phase(self) -> Phase:
        """The phase that it belongs to."""
        return _PHASES[self.step]


@dataclass(frozen=True, slots=True)
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
    return Reply(code=451, status=status, text=text)


def as_temporary(what: str, reply: Reply, status: str = "4.3.0") -> Reply:
    """`reply` where it is temporary; a permanent one is quoted in a temporary one."""
    return reply if 400 <= reply.code < 500 else local(status, f"{what}: {reply}")

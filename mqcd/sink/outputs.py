"""A dialogue's capabilities, and its outputs for the caller: replies, waits, messages, refusals. Pure.

`Voice` gathers the outputs of one connection, slowed and spoiled as rules have it.
"""

from collections.abc import Sequence
from functools import lru_cache

from mqcd.core.value import value
from mqcd.sink.rules import Answer, Drip, Drop, Endless, Fault, Garbage, Stage, Stall

OPTIONAL_EXTENSIONS = ("CHUNKING", "DSN")
"""Commands that work only where they are offered."""
DEFAULT_EXTENSIONS = ("PIPELINING", "8BITMIME", "SMTPUTF8", "SIZE", "ENHANCEDSTATUSCODES")
GARBAGE = b"\x00\xff<html>\x1b[2J 250 is no reply\r\nnor is this\r\n"
"""Neither digits nor UTF-8 at its start, a control sequence, and digits where none belong."""
# One write's worth: the fewer, the sooner a client's limit on lines or octets is met.
_LINES = b"250-one line more\r\n" * 256


@value
class Received:
    """A message that the sink took, as it came."""

    sender: str
    """The reverse-path; "" = the null sender."""
    recipients: tuple[str, ...]
    """The forward-paths that were accepted, in the order of their RCPT commands."""
    content: bytes
    """The message, dot-stuffing undone, otherwise octet for octet as received."""
    helo: str
    """The client's name from EHLO or HELO."""
    peer: str
    """The client's address and port, `192.0.2.1:4711` or `[2001:db8::1]:4711`."""
    at_ms: int
    """When the final dot was read: Unix time in ms, by the clock given to the sink."""
    body: str = ""
    """The BODY parameter (RFC 6152) in upper case; "" = none given."""
    smtputf8: bool = False
    """The SMTPUTF8 parameter (RFC 6531) was given."""
    tls: bool = False
    """It came after STARTTLS."""
    chunked: bool = False
    """It came by BDAT (RFC 3030)."""
    dsn: str = ""
    """RET and ENVID (RFC 3461) as given with MAIL."""
    recipient_dsn: tuple[str, ...] = ()
    """NOTIFY and ORCPT as given with each RCPT; empty = with none."""


@value
class Refused:
    """A recipient that a rule refused at RCPT."""

    sender: str
    recipient: str
    reply: str
    """The reply line, code first, without CRLF."""
    helo: str
    peer: str
    at_ms: int
    """When RCPT was read: Unix time in ms."""


@value
class Limits:
    """The receiver's capabilities and limits."""

    announce: str = "sink.localdomain"
    """The host name in the greeting and in the reply to EHLO."""
    max_size: int = 128 * 1024 * 1024
    """Octets of content; more is answered 552."""
    max_recipients: int = 1000
    """Per transaction; more are answered 452 (RFC 5321, 4.5.3.1.10)."""
    extensions: tuple[str, ...] = DEFAULT_EXTENSIONS
    """The keywords of the EHLO reply; SIZE is given its number."""
    lmtp: bool = False
    """Speak LMTP (RFC 2033) instead of SMTP."""


@lru_cache(maxsize=16)
def ehlo_reply(limits: Limits, starttls: bool) -> bytes:
    """The whole reply to EHLO."""
    size = f"SIZE {limits.max_size}"
    words = [limits.announce, *(size if name == "SIZE" else name for name in limits.extensions)]
    if starttls:
        words.append("STARTTLS")
    text = "".join(f"250-{word}\r\n" for word in words[:-1]) + f"250 {words[-1]}\r\n"
    return text.encode()


@value(kw_only=False)
class Send:
    """Send these octets."""

    octets: bytes


@value(kw_only=False)
class Trickle:
    """Send these octets one by one, `wait_ms` before each."""

    octets: bytes
    wait_ms: int


@value(kw_only=False)
class Flood:
    """Send these octets again and again until the client leaves; what it sends is thrown away."""

    octets: bytes


@value(kw_only=False)
class Deliver:
    """Hand over the message; then send `taken`, or `failed` if it could not be kept."""

    message: Received
    taken: bytes = b"250 2.0.0 Taken\r\n"
    failed: bytes = b"451 4.3.0 The sink could not keep the message\r\n"
    wait_ms: int = 0
    """Above 0 the answer goes out octet by octet, so far apart."""


@value(kw_only=False)
class Report:
    """Show a refused recipient."""

    refused: Refused


@value(kw_only=False)
class Pause:
    """Wait this many milliseconds before the next output."""

    wait_ms: int


@value(kw_only=False)
class Silence:
    """Send nothing more; with `reading` the client's octets are still read and discarded."""

    reading: bool


@value(kw_only=False)
class StartTls:
    """Begin TLS as the server; then call `tls_started`."""


@value(kw_only=False)
class Close:
    """Close the connection once everything before is sent."""


Output = Send | Trickle | Flood | Deliver | Report | Pause | Silence | StartTls | Close


class Voice:
    """Replies to commands that came together are sent together, unless a wait comes between."""

    __slots__ = ("_outputs", "_replies", "ended", "wait")

    def __init__(self, wait_ms: int) -> None:
        self.wait = wait_ms
        """Before each reply, ms, unless it says otherwise."""
        self.ended = False
        """Nothing more is sent."""
        self._outputs: list[Output] = []
        self._replies: list[bytes] = []

    def reply(self, reply: bytes, wait_ms: int | None = None) -> None:
        """Reply after `wait_ms`, by default what the transaction or the connection asks for."""
        self.pause(self.wait if wait_ms is None else wait_ms)
        self._replies.append(reply)

    def answer(self, stage: Stage, faults: Sequence[Fault], due: bytes, wait_ms: int | None = None) -> None:
        """The reply that is due, drop by drop if one of these rules says so."""
        fault = first(stage, faults)
        if isinstance(fault, Drip):
            self._flush()
            self._outputs.append(Trickle(due, fault.wait_ms))
        else:
            self.reply(due, wait_ms)

    def misbehaves(self, stage: Stage, faults: Sequence[Fault]) -> bool:
        """Do what one of these rules says for here in place of what is due, if one does."""
        fault = first(stage, faults)
        if fault is None or isinstance(fault, Drip):
            return False
        if isinstance(fault, Answer):
            self.reply(line_of(fault))
        if not isinstance(fault, Answer) or fault.code == 421:
            self.end(*ending(fault))
        return True

    def pause(self, wait_ms: int) -> None:
        if wait_ms:
            self._flush()
            self._outputs.append(Pause(wait_ms))

    def do(self, output: Output) -> None:
        """Add an output other than a reply, in order."""
        self._flush()
        self._outputs.append(output)

    def report(self, output: Output) -> None:
        """Something that sends nothing: it may come before replies that are gathered."""
        self._outputs.append(output)

    def end(self, *last: Output) -> None:
        self._flush()
        self._outputs += last
        self.ended = True

    def take(self) -> list[Output]:
        """All that is to be done, in order."""
        self._flush()
        outputs, self._outputs = self._outputs, []
        return outputs

    def _flush(self) -> None:
        if self._replies:
            self._outputs.append(Send(b"".join(self._replies)))
            self._replies.clear()


def first(stage: Stage, faults: Sequence[Fault]) -> Fault | None:
    """The first of these rules that acts at this stage."""
    for fault in faults:
        if fault.stage is stage:
            return fault
    return None


def line_of(answer: Answer) -> bytes:
    """The reply that a rule gives, as it is sent."""
    return answer.reply.encode("utf-8", "surrogateescape") + b"\r\n"


def ending(fault: Stall | Drop | Garbage | Endless | Answer) -> tuple[Output, ...]:
    """What is done at the fault's stage."""
    match fault:
        case Drop() | Answer():
            return (Close(),)
        case Stall():
            return (Silence(reading=True),)
        case Garbage():
            return (Send(GARBAGE), Silence(reading=True))
        case Endless():
            return (Flood(_LINES),)

"""What the dialogue is told to allow, and what it tells its caller to do. Pure values."""

from dataclasses import dataclass
from functools import lru_cache

from mqcd.sink.mail import Received, Refused

OPTIONAL_EXTENSIONS = ("CHUNKING", "DSN")
"""What is obeyed only where it is offered, for clients act otherwise then."""
DEFAULT_EXTENSIONS = ("PIPELINING", "8BITMIME", "SMTPUTF8", "SIZE", "ENHANCEDSTATUSCODES")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the receiver announces and allows."""

    announce: str = "sink.localdomain"
    """The host name in the greeting and in the reply to EHLO."""
    max_size: int = 128 * 1024 * 1024
    """Octets of content; more is answered 552."""
    max_recipients: int = 1000
    """Per transaction; more are answered 452 (RFC 5321, 4.5.3.1.10)."""
    extensions: tuple[str, ...] = DEFAULT_EXTENSIONS
    """The keywords of the EHLO reply; SIZE is given its number."""
    lmtp: bool = False
    """Speak LMTP (RFC 2033) in the stead of SMTP."""


@lru_cache(maxsize=16)
def ehlo_reply(limits: Limits, starttls: bool) -> bytes:
    """The whole reply to EHLO."""
    size = f"SIZE {limits.max_size}"
    words = [limits.announce, *(size if name == "SIZE" else name for name in limits.extensions)]
    if starttls:
        words.append("STARTTLS")
    text = "".join(f"250-{word}\r\n" for word in words[:-1]) + f"250 {words[-1]}\r\n"
    return text.encode()


@dataclass(frozen=True, slots=True)
class Send:
    """Send these octets."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class Trickle:
    """Send these octets one by one, `wait_ms` before each."""

    octets: bytes
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Flood:
    """Send these octets again and again until the client leaves; what it sends is thrown away."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand over the message; then send `taken`, or `failed` if it could not be kept."""

    message: Received
    taken: bytes = b"250 2.0.0 Taken\r\n"
    failed: bytes = b"451 4.3.0 The sink could not keep the message\r\n"
    wait_ms: int = 0
    """Above 0 the answer goes out octet by octet, so far apart."""


@dataclass(frozen=True, slots=True)
class Report:
    """Tell of a refused recipient."""

    refused: Refused


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait this many milliseconds before the next output."""

    wait_ms: int


@dataclass(frozen=True, slots=True)
class Silence:
    """Say nothing more; with `reading` the client's octets are still read, and thrown away."""

    reading: bool


@dataclass(frozen=True, slots=True)
class StartTls:
    """Begin TLS as the server; then call `tls_started`."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection once everything before is sent."""


Output = Send | Trickle | Flood | Deliver | Report | Pause | Silence | StartTls | Close

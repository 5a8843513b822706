"""The types of the values that settings have, where Python has none of its own."""

import dataclasses
import enum
import ipaddress

from mqcd.core.value import value

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@value
class HostPort:
    """A place to connect to: a host name or an IP address (no brackets), and a TCP or UDP port."""

    host: str
    port: int


HostPattern = Network | str
"""Which peers: a network (one address is a network of one), or a host name in lower case, to be looked up at
start; `name/24` means the network of that size that the host's address lies in."""


@value
class Rate:
    """So many in so many milliseconds: recipients, or what else the setting says, such as octets."""

    count: int
    per: int


@value
class Source:
    """An address of our own that connections go out from."""

    address: str
    weight: int = 1
    """Its share of the zone's connections, against those of the zone's other addresses."""


@value(kw_only=False)
class Secret:
    """A text that is never shown: not in a log, a listing, or a shown configuration."""

    text: str = dataclasses.field(default="", repr=False)
    from_file: bool = False
    """It stands in a file of its own, not in the configuration."""


class Mechanism(enum.Enum):
    """How to log in to a next hop."""

    PLAIN = "plain"
    LOGIN = "login"
    CRAM_MD5 = "cram_md5"
    EXTERNAL = "external"


class AuthType(enum.Enum):
    """How a client may log in at a listener (RFC 4954); the values are the words of `authtypes`."""

    PLAIN = "plain"
    LOGIN = "login"
    CRAM_MD5 = "cram_md5"
    SCRAM_SHA_256 = "scram_sha_256"
    SCRAM_SHA_256_PLUS = "scram_sha_256_plus"
    EXTERNAL = "external"


class Suppressing(enum.Enum):
    """What becomes of mail for a recipient that advice suppresses."""

    REFUSE = "refuse"
    """The door refuses the recipient, with the reason."""
    BOUNCE = "bounce"
    """The mail is taken, and its sender gets a report at once; nothing is tried."""
    OFF = "off"
    """It goes like any other."""


class BareNewline(enum.Enum):
    """What a line end without CR is in what a client sends."""

    NORMALIZE = "normalize"
    """A line end like any other: it becomes CRLF. It never ends the data."""
    REJECT = "reject"
    """An error, in commands and in content."""


class QuotaBy(enum.Enum):
    """Whose mail a quota counts together."""

    CLIENT = "client"
    """An IPv4 address, or an IPv6 /64."""
    NETWORK = "network"
    """An IPv4 /24, or an IPv6 /48."""
    USER = "user"
    TENANT = "tenant"


class ListenerProtocol(enum.Enum):
    """What a listener speaks."""

    SMTP = "smtp"
    LMTP = "lmtp"
    ODMR = "odmr"


class TenantBy(enum.Enum):
    """What names the tenant of a message."""

    USER = "user"
    HEADER = "header"
    LISTENER = "listener"


class Direction(enum.Enum):
    """Which way a client's name in HELO is looked up."""

    FORWARD = "forward"
    """The name must have an address."""
    REVERSE = "reverse"
    """The client's address must have a name of which it is an address."""
    BOTH = "both"


class ReplyAction(enum.Enum):
    """What a reply of a next hop leads to besides what it says."""

    DEFER = "defer"
    """It counts as temporary."""
    BOUNCE = "bounce"
    """It counts as permanent."""
    SUSPEND = "suspend"
    """Its destination is suspended for a time."""
    SLOW = "slow"
    """Its destination gets fewer connections, or a lower rate, for a time."""


class TlsPolicy(enum.Enum):
    """What a next hop's TLS has to be."""

    NONE = "none"
    """Never used."""
    MAY = "may"
    """Used where it is offered, certificates not looked at (RFC 7435)."""
    ENCRYPT = "encrypt"
    """Nothing is sent without it; certificates not looked at."""
    VERIFY = "verify"
    """Nothing is sent without it, and the certificate must be good and name the host (RFC 6125)."""


class LogFormat(enum.Enum):
    """How a log line is written."""

    LOGFMT = "logfmt"
    JSON = "json"


class LogLevel(enum.Enum):
    """The least grave kind of line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Rotation(enum.Enum):
    """How often an audit log goes on in another file."""

    NEVER = "never"
    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    YEARLY = "yearly"

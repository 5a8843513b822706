"""The kinds of value that name machines, networks and people, and what they log in by.

The same promise as `fields`: what a kind shows it can read (but for secrets), and `BadValue` is its only
error. Names are checked for their form, never looked up.
"""

import ipaddress
import re
from typing import TypeVar
from urllib.parse import urlsplit

from mqcd.config.kinds.fields import BadValue, Kind, Listed
from mqcd.config.kinds.values import HostPattern, HostPort, Network, Secret, Source
from mqcd.core.address import normal_domain
from mqcd.core.value import value

Value = TypeVar("Value")


def _as(kind: Kind[Value], asked: Kind[Value] | Kind[HostPort] | Kind[HostPattern], text: str) -> Value:
    """Parse a part of a text; the error, if any, speaks of the kind that was asked for."""
    try:
        return kind.parse(text)
    except BadValue:
        raise asked.refuse(text) from None


def _ip(text: str) -> str:
    """The usual form of an IP address, which may stand in brackets. Raises ValueError."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    return str(ipaddress.ip_address(bare))


@value(kw_only=False)
class Pattern(Kind[str]):
    """Text that a regular expression describes."""

    called: str
    form: str
    expecting: str

    @property
    def word(self) -> str:
        return self.called

    @property
    def expected(self) -> str:
        return self.expecting

    def parse(self, text: str) -> str:
        # They go into headers and commands; \s and its kind match ASCII controls only.
        if re.fullmatch(self.form, text) is None or not text.isprintable():
            raise self.refuse(text)
        return text


# `slots=False` as it calls `super()`, see `core.value`.
@value(kw_only=False, slots=False)
class Url(Pattern):
    """One whose host and port can be asked."""

    def parse(self, text: str) -> str:
        super().parse(text)
        try:
            sound = bool((parts := urlsplit(text)).hostname) and parts.port != 0
        except ValueError:
            sound = False
        if not sound:
            raise self.refuse(text)
        return text


# Underscores are no part of a host name (RFC 952), yet machines are named with them.
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = rf"{_LABEL}(?:\.{_LABEL})*"

HOST_NAME = Pattern(
    "host name",
    rf"(?=.{{1,253}}$){_NAME}|\[[0-9A-Za-z:.]+\]",
    "a host name such as mail.example.com, or an address in brackets",
)
NAME = Pattern("name", r"[A-Za-z0-9_.-]{1,64}", "a name of letters, digits, dots, dashes and underscores")
USER = Pattern("user", r"[A-Za-z_][A-Za-z0-9_.-]{0,31}", "the name of a system user")
GROUP = Pattern("group", r"[A-Za-z_][A-Za-z0-9_.-]{0,31}", "the name of a system group")
MAIL_ADDRESS = Pattern(
    "mail address",
    r"[^\s<>@,;:\x00-\x1f\x7f]{1,64}@[^\s<>@,;:\x00-\x1f\x7f]{1,253}",
    "a mail address such as postmaster@example.com",
)
SENDER = Pattern(
    "sender",
    rf"<>|(?:[^\s<>@,;:|\x00-\x1f\x7f]{{1,64}}@)?{_NAME}",
    "a mail address, a domain, or <> for the null sender",
)
SENDER_RIGHT = Pattern(
    "sender",
    rf"\*|{SENDER.form}",
    "a mail address, a domain, <> for the null sender, or * for any",
)
SENDER_LIST = Pattern(
    "sender",
    rf"<>|(?:[^\s<>@,;:|\x00-\x1f\x7f]{{1,64}}@|\.)?{_NAME}",
    "a mail address, a domain, .domain for all below it, or <> for the null sender",
)
DOMAIN_PATTERN = Pattern("domain pattern", rf"\*|(?:\*\.)?{_NAME}", "a domain, or *.domain for all below it")
HEADER = Pattern(
    "header",
    r"[!-9;-~]{1,76}(?:: ?[^\x00-\x1f\x7f|]{1,200})?",
    "a header name, or name and value such as X-Mailer: newsletter",
)
FILTER_OPTION = Pattern("option", r"[a-z_]+ ?= ?[^|]{0,900}", "an option such as timeout=5s")
HEADER_NAME = Pattern("header", r"[!-9;-~]{0,76}", "the name of a header field such as X-Tenant")
QUOTA_MATCH = Pattern(
    "text", r"[^\s|\x00-\x1f\x7f]{1,255}", "an address, a network, or a name of a user or tenant"
)
LOGIN = Pattern("user", r"[^\s|\x00-\x1f\x7f]{1,128}", "the name of a user")
PYTHON_CLASS = Pattern(
    "Python class",
    r"(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)?",
    "module:Class, a class as Python imports it",
)
URL = Url(
    "URL",
    r"https?://[^\s|<>\"@]+",
    "a URL such as https://host.example/path, without a user or password in it",
)
REDIRECT = Pattern("mail address", rf"\.|{MAIL_ADDRESS.form}", "a mail address, or a dot for none")


# `slots=False` as it calls `super()`, see `core.value`.
@value(kw_only=False, slots=False)
class SenderList(Listed[str]):
    """Senders to compare with; "." is none, as Mailismus writes it."""

    kind: Kind[str] = SENDER_LIST

    def parse(self, text: str) -> tuple[str, ...]:
        return () if text == "." else super().parse(text)


@value(kw_only=False)
class Domain(Kind[str]):
    """A mail domain in lower case, international ones as A-labels (RFC 5890), or a literal."""

    word = "domain"
    expected = "a domain such as example.com"

    def parse(self, text: str) -> str:
        # Of what cannot be written in ASCII the pattern below says no.
        return _as(HOST_NAME, self, normal_domain(text))


@value(kw_only=False)
class Host(Kind[str]):
    """A host to bind to or connect to: an IP address without brackets, or a name in lower case."""

    word = "host"
    expected = "an IP address or a host name"

    def parse(self, text: str) -> str:
        try:
            return _ip(text)
        except ValueError:
            if re.fullmatch(r"[0-9.]+", text) or ":" in text or text.startswith("["):
                raise self.refuse(text) from None
        return _as(HOST_NAME, self, text).lower()


@value(kw_only=False)
class Address(Kind[str]):
    """An IP address to bind to, without brackets."""

    word = "IP address"
    expected = "an IP address such as 127.0.0.1 or ::1"

    def parse(self, text: str) -> str:
        try:
            return _ip(text)
        except ValueError:
            raise self.refuse(text) from None


@value(kw_only=False)
class Endpoint(Kind[HostPort]):
    """A host and a port: `host`, `host:port`, `[v6]:port`, or a bare IPv6 address."""

    default_port: int

    word = "host and port"

    @property
    def expected(self) -> str:
        return f"host or host:port (port {self.default_port} when left out), IPv6 as [::1]:port"

    def parse(self, text: str) -> HostPort:
        bracketed = re.fullmatch(r"\[([^\]]*)\](?::([0-9]{1,5}))?", text)
        plain = re.fullmatch(r"([^:\[\]]+)(?::([0-9]{1,5}))?", text)
        form = bracketed or plain
        host, port = (form[1], form[2]) if form else (text, None)
        number = self.default_port if port is None else int(port)
        if not 0 < number <= 65535:
            raise self.refuse(text)
        return HostPort(host=_as(Host(), self, host), port=number)

    def show(self, value: HostPort) -> str:
        host = f"[{value.host}]" if ":" in value.host else value.host
        return f"{host}:{value.port}"


@value(kw_only=False)
class Peers(Kind[HostPattern]):
    """Which peers are meant: a network, or a host name that may carry a prefix length."""

    word = "address, network or host"
    expected = "an address, a network such as 192.0.2.0/24, or a host name"

    def parse(self, text: str) -> HostPattern:
        address, slash, prefix = text.partition("/")
        short = re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,3}){0,2}", address)
        # Mailismus takes 192.168.200/24: the octets left out are zero.
        padded = address + ".0" * (3 - address.count(".")) if short and slash else address
        try:
            return ipaddress.ip_network(padded + slash + prefix, strict=False)
        except ValueError:
            name = _as(Host(), self, address)
        sized = re.fullmatch("[0-9]{1,3}", prefix) and 0 < int(prefix) <= 128
        if slash and (not sized or re.fullmatch(_NAME, name) is None or not re.search("[a-z]", name)):
            raise self.refuse(text)
        return name + slash + prefix

    def show(self, value: HostPattern) -> str:
        if isinstance(value, str):
            return value
        single = value.prefixlen == value.max_prefixlen
        return str(value.network_address) if single else str(value)


@value(kw_only=False)
class SourceKind(Kind[Source]):
    """An IP address to send from, with its weight: `192.0.2.1` or `192.0.2.1*3`."""

    word = "address"
    expected = "an IP address of this machine, with *N behind it for a weight of N"

    def parse(self, text: str) -> Source:
        address, star, weight = (part.strip() for part in text.partition("*"))
        if star and not re.fullmatch("[1-9][0-9]{0,3}", weight):
            raise self.refuse(text)
        try:
            return Source(address=_ip(address), weight=int(weight or 1))
        except ValueError:
            raise self.refuse(text) from None

    def show(self, value: Source) -> str:
        return value.address if value.weight == 1 else f"{value.address}*{value.weight}"


@value(kw_only=False)
class NetworkKind(Kind[Network]):
    """A network; one address is a network of one."""

    word = "address or network"
    expected = "an address, or a network such as 192.0.2.0/24"

    def parse(self, text: str) -> Network:
        value = Peers().parse(text) if re.fullmatch("[0-9A-Fa-f.:/]+", text) else text
        if isinstance(value, str):
            raise self.refuse(text)
        return value

    def show(self, value: Network) -> str:
        return Peers().show(value)


HIDDEN = "(hidden)"


@value(kw_only=False)
class SecretKind(Kind[Secret]):
    """A text that is not shown: `show` returns a mask that only says there is one."""

    word = "secret"
    expected = "a text, which is never shown"

    def parse(self, text: str) -> Secret:
        if text == HIDDEN:
            raise BadValue("this is the mask that is shown instead: give the secret itself, or its file")
        return Secret(text)

    def show(self, value: Secret) -> str:
        return HIDDEN if value.text and not value.from_file else ""

"""The settings of mail in: the listeners."""

# `setting`, `block` and `many` are field specifiers: they are meant to be called in the class body.
# ruff: noqa: RUF009
import dataclasses
import pathlib

from mqcd.config.blocks import block, many, setting
from mqcd.config.fields import PORT, YES_NO, Choice, Count, Duration, FilePath, Line, Listed, Optional, Size
from mqcd.config.names import HOST_NAME, LOGIN, NAME, PYTHON_CLASS, SENDER_RIGHT, Domain, Host, Peers
from mqcd.config.values import AuthType, BareNewline, HostPattern, Suppressing
from mqcd.core.units import MIB, MINUTE


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SenderRightSettings:
    """Which senders some users may send with."""

    user: tuple[str, ...] = setting(
        (),
        "users that have logged in, * = each; must be given",
        Listed(LOGIN, least=1),
        at="@user",
        required=True,
    )
    addresses: tuple[str, ...] = setting(
        (),
        "senders that they may use, each user@domain or a domain, * = any; must be given",
        Listed(SENDER_RIGHT, least=1),
        at="@addresses",
        required=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ServerSettings:
    """How one listener speaks SMTP, and what it accepts."""

    relay_clients: tuple[HostPattern, ...] = setting(
        (),
        "clients that may send to any domain: host names, addresses, networks; none = no client",
        Listed(Peers()),
    )
    relay_domains: tuple[str, ...] = setting(
        (), "recipient domains that any client may send to, lower case; none = no domain", Listed(Domain())
    )
    announcehost: str = setting(
        "", "host name in greeting and Received header; empty = the application's", HOST_NAME
    )
    smtpgreet: str = setting(
        "", "text of the 220 greeting after the host name; empty = the server's own", Line()
    )
    maxhops: int = setting(50, "Received headers from which a message counts as looping", Count(least=1))
    maxpeerconnections: int = setting(
        50, "connections at once from one address (IPv6: /64) outside relay_clients; 0 = no limit", Count()
    )
    maxmsgsize: int = setting(50 * MIB, "octets of a message, announced as SIZE; 0 = no limit", Size())
    maxrecips: int = setting(1000, "recipients of one message; 0 = no limit", Count())
    maxmessages: int = setting(0, "messages over one connection; 0 = no limit", Count())
    maxbadreqs: int = setting(
        2, "bad commands allowed in a connection; the next one ends it; 0 = no limit", Count()
    )
    timeout: int = setting(
        2 * MINUTE, "time without input after which a connection is closed", Duration(least=1)
    )
    bare_newline: BareNewline = setting(
        BareNewline.NORMALIZE,
        "LF without CR from a client: normalize (it becomes CRLF) or reject",
        Choice(BareNewline),
    )
    filter: str = setting(
        "",
        "aiosmtpd handler (module:Class) that accepts, refuses or rewrites mail before it is queued",
        PYTHON_CLASS,
        at="filter@class",
    )
    users: pathlib.Path | None = setting(
        None,
        "file of the users that may log in (mqcd user); none = nobody logs in by password",
        Optional(FilePath()),
        at="users@file",
    )
    authtypes: tuple[AuthType, ...] = setting(
        (AuthType.PLAIN, AuthType.LOGIN, AuthType.SCRAM_SHA_256, AuthType.SCRAM_SHA_256_PLUS),
        "mechanisms by which users may log in, where there is a file of users",
        Listed(Choice(AuthType)),
    )
    authtypes_mandatory: bool = setting(
        False, "accept mail only from clients that have logged in", YES_NO, at="authtypes@mandatory"
    )
    authtypes_compat: bool = setting(
        False, "list the mechanisms in the old form AUTH= too", YES_NO, at="authtypes@compat"
    )
    authtypes_ssl: tuple[AuthType, ...] = setting(
        tuple(AuthType),
        "mechanisms that are offered over TLS alone; none = all without TLS too",
        Listed(Choice(AuthType)),
    )
    senders: tuple[SenderRightSettings, ...] = many(SenderRightSettings, "sender")
    submission: bool = setting(
        False, "mail of users' programs: add Date and Message-ID where they are missing (RFC 6409)", YES_NO
    )
    omitreceivedheader: bool = setting(False, "add no Received header", YES_NO)
    ext_pipelining: bool = setting(True, "offer PIPELINING (RFC 2920)", YES_NO, at="extPIPELINING")
    ext_size: bool = setting(True, "offer SIZE (RFC 1870)", YES_NO, at="extSIZE")
    ext_8bitmime: bool = setting(True, "offer 8BITMIME (RFC 6152)", YES_NO, at="ext8BITMIME")
    ext_smtputf8: bool = setting(
        True, "offer SMTPUTF8 (RFC 6531), where 8BITMIME is offered too", YES_NO, at="extSMTPUTF8"
    )
    ext_dsn: bool = setting(True, "offer DSN (RFC 3461)", YES_NO, at="extDSN")
    ext_chunking: bool = setting(
        True, "offer CHUNKING, contents by BDAT (RFC 3030)", YES_NO, at="extCHUNKING"
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ListenerSettings:
    """One listener: its address, and how its server behaves."""

    name: str = setting("SMTP", "name of the listener in logs, metrics and events", NAME, at="@name")
    interface: str = setting(
        "127.0.0.1",
        "IP address to bind, 0.0.0.0 = all of IPv4, :: = all of both; missing = loopback, with a warning",
        Host(),
        at="@interface",
    )
    port: int = setting(25, "TCP port; 0 = any free one", PORT, at="@port")
    server: ServerSettings = block(ServerSettings())


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SubmitSettings:
    """Mail in."""

    suppression: Suppressing = setting(
        Suppressing.REFUSE,
        "mail for recipients that advice suppresses: refuse, bounce or off (no effect)",
        Choice(Suppressing),
    )
    listeners: tuple[ListenerSettings, ...] = many(
        ListenerSettings, "listener", default=(ListenerSettings(),)
    )

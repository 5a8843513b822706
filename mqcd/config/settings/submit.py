"""The settings of mail in: the listeners."""

import pathlib

from mqcd.config.blocks import attribute, block, many, setting
from mqcd.config.kinds.fields import (
    PORT,
    YES_NO,
    Choice,
    Count,
    Duration,
    FilePath,
    Line,
    Listed,
    RateKind,
    Size,
)
from mqcd.config.kinds.names import (
    FILTER_OPTION,
    HEADER_NAME,
    HOST_NAME,
    LOGIN,
    NAME,
    PYTHON_CLASS,
    QUOTA_MATCH,
    SENDER_RIGHT,
    Domain,
    Host,
    NetworkKind,
    Peers,
    SenderList,
)
from mqcd.config.kinds.overriding import overriding
from mqcd.config.kinds.values import (
    AuthType,
    BareNewline,
    Direction,
    HostPattern,
    ListenerProtocol,
    Network,
    QuotaBy,
    Rate,
    Suppressing,
    TenantBy,
)
from mqcd.config.settings.listenertls import ListenerSslSettings
from mqcd.core.units import DAY, MIB, MINUTE, SECOND, YEAR
from mqcd.core.value import value

_REVERSE = "the client's address has a name that leads back to it"
_FORM_ALONE = "check the form alone, without DNS"
_DOTTED = "it must have a dot in it, or be an address literal"
_FQDN = "it must be a name with a dot in it, not an address literal"
_ALLOW = "let pass what DNS gives no answer for; N = 4xx"
_MAIL_DIRECTION = f"forward: it has a mail exchanger or an address; reverse: {_REVERSE}; both"
_FILTER = "aiosmtpd handler (module:Class) that accepts, refuses or rewrites mail before it is queued"
_FILTER_OPTIONS = "options of that filter, each name=value; none = its defaults"
_MOST_DELAY = MINUTE
"""A delay must end well before clients give up: they wait five minutes for a greeting (RFC 5321, 4.5.3.2)."""


@value
class SenderRightSettings:
    """Which senders some users may send with."""

    user: tuple[str, ...] = attribute(
        (), "users that have logged in, * = each; must be given", Listed(LOGIN, least=1), required=True
    )
    addresses: tuple[str, ...] = attribute(
        (),
        "senders that they may use, each user@domain or a domain, * = any; must be given",
        Listed(SENDER_RIGHT, least=1),
        required=True,
    )


@value
class QuotaSettings:
    """How much mail one client, network, user or tenant may send."""

    by: QuotaBy = attribute(
        QuotaBy.CLIENT,
        "who is counted: client, network, user or tenant; must be given",
        Choice(QuotaBy),
        required=True,
    )
    match: tuple[str, ...] = attribute(
        (),
        "which of them: addresses and networks, or names (shell patterns) of users or tenants; none = each",
        Listed(QUOTA_MATCH),
    )
    messages: Rate | None = attribute(None, "messages in a time; none = no limit", RateKind())
    recipients: Rate | None = attribute(None, "recipients in a time; none = no limit", RateKind())
    octets: Rate | None = attribute(None, "octets in a time, such as 1G/d; none = no limit", RateKind())
    sessions: int = attribute(0, "sessions at once that have begun a message; 0 = no limit", Count())


@value
class PrioritySettings:
    """Which priority some users may give to their mail."""

    user: tuple[str, ...] = attribute(
        (), "users that have logged in; must be given", Listed(LOGIN, least=1), required=True
    )
    most: int = setting(
        0, "their highest priority, 0 to 9; must be given", Count(most=9), at="@max", required=True
    )


@value
class PeerSettings:
    """How a listener serves a client: what may differ by the client's network."""

    announcehost: str = setting(
        "", "host name in greeting and Received header; empty = the application's", HOST_NAME
    )
    smtpgreet: str = setting(
        "", "text of the 220 greeting after the host name; empty = the server's own", Line()
    )
    validate_helo: bool = setting(False, "check names in HELO and EHLO by their form and by DNS", YES_NO)
    validate_helo_syntaxonly: bool = setting(False, _FORM_ALONE, YES_NO, at="validate_helo@syntaxonly")
    validate_helo_dotted: bool = setting(False, _DOTTED, YES_NO, at="validate_helo@dotted")
    validate_helo_fqdn: bool = setting(False, _FQDN, YES_NO, at="validate_helo@fqdn")
    validate_helo_direction: Direction = setting(
        Direction.FORWARD,
        f"forward: it has an address; reverse: {_REVERSE}; both",
        Choice(Direction),
        at="validate_helo@direction",
    )
    validate_helo_allowtimeout: bool = setting(True, _ALLOW, YES_NO, at="validate_helo@allowtimeout")
    validate_sender: bool = setting(False, "check domains of senders by their form and by DNS", YES_NO)
    validate_sender_syntaxonly: bool = setting(False, _FORM_ALONE, YES_NO, at="validate_sender@syntaxonly")
    validate_sender_dotted: bool = setting(False, _DOTTED, YES_NO, at="validate_sender@dotted")
    validate_sender_fqdn: bool = setting(False, _FQDN, YES_NO, at="validate_sender@fqdn")
    validate_sender_direction: Direction = setting(
        Direction.FORWARD, _MAIL_DIRECTION, Choice(Direction), at="validate_sender@direction"
    )
    validate_sender_allowtimeout: bool = setting(True, _ALLOW, YES_NO, at="validate_sender@allowtimeout")
    validate_recip: bool = setting(False, "check domains of recipients by their form and by DNS", YES_NO)
    validate_recip_syntaxonly: bool = setting(False, _FORM_ALONE, YES_NO, at="validate_recip@syntaxonly")
    validate_recip_dotted: bool = setting(False, _DOTTED, YES_NO, at="validate_recip@dotted")
    validate_recip_fqdn: bool = setting(False, _FQDN, YES_NO, at="validate_recip@fqdn")
    validate_recip_direction: Direction = setting(
        Direction.FORWARD, _MAIL_DIRECTION, Choice(Direction), at="validate_recip@direction"
    )
    validate_recip_allowtimeout: bool = setting(True, _ALLOW, YES_NO, at="validate_recip@allowtimeout")
    sender_deny: tuple[str, ...] = setting(
        (),
        "senders that are refused: each user@domain, a domain, .domain (all below it), or <> (null sender)",
        SenderList(),
    )
    sender_permit: tuple[str, ...] = setting(
        (), "the only senders that are taken, besides the null sender; none = any", SenderList()
    )
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
    delay_greet: int = setting(0, "time before the greeting", Duration(most=_MOST_DELAY))
    delay_badrecip: int = setting(
        0, "time before the reply that refuses a recipient", Duration(most=_MOST_DELAY)
    )
    delay_badreq: int = setting(0, "time before the reply to a bad command", Duration(most=_MOST_DELAY))
    blacklist: pathlib.Path | None = setting(
        None,
        "file of clients and senders that are refused; none = no such file",
        FilePath(),
        at="blacklist@file",
    )
    blacklist_enabled: bool = setting(True, "go by that file", YES_NO, at="blacklist@enabled")
    greylist: bool = setting(
        False, "refuse a client's first delivery from one sender to one recipient for a while", YES_NO
    )
    greylist_delay: int = setting(
        5 * MINUTE, "time after which it passes", Duration(least=1), at="greylist@delay"
    )
    greylist_window: int = setting(
        2 * DAY, "time within which it must come again", Duration(least=1), at="greylist@window"
    )
    greylist_lifetime: int = setting(
        36 * DAY, "time for which one that has passed is known", Duration(least=1), at="greylist@lifetime"
    )
    greylist_allow: tuple[Network, ...] = setting(
        (), "clients that need not wait: addresses, networks", Listed(NetworkKind()), at="greylist@allow"
    )
    filter: str = setting("", _FILTER, PYTHON_CLASS, at="filter@class")
    filter_options: tuple[str, ...] = setting((), _FILTER_OPTIONS, Listed(FILTER_OPTION), at="filter")
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
    ext_etrn: bool = setting(
        False,
        "offer ETRN, by which clients start the mail held for a domain (RFC 1985)",
        YES_NO,
        at="extETRN",
    )


@value
class NetworkSettings:
    """How a listener serves the clients of some networks; what is left out is as for all clients."""

    ip: tuple[HostPattern, ...] = attribute(
        (), "the clients: addresses, networks, host names; must be given", Listed(Peers()), required=True
    )


ServerNetworkSettings = overriding(NetworkSettings, PeerSettings, "ServerNetworkSettings")
"""With every field of PeerSettings, None where it is not given."""


@value
class ServerSettings(PeerSettings):
    """How one listener speaks SMTP, and what it accepts."""

    relay_clients: tuple[HostPattern, ...] = setting(
        (),
        "clients that may send to any domain: host names, addresses, networks; none = no client",
        Listed(Peers()),
    )
    relay_domains: tuple[str, ...] = setting(
        (), "recipient domains that any client may send to, lower case; none = no domain", Listed(Domain())
    )
    maxhops: int = setting(50, "Received headers from which a message counts as looping", Count(least=1))
    maxline: int = setting(
        998, "octets of a message's longest line, without CRLF (RFC 5322, 2.1.1); 0 = no limit", Count()
    )
    bare_newline: BareNewline = setting(
        BareNewline.NORMALIZE,
        "LF without CR from a client: normalize (it becomes CRLF) or reject",
        Choice(BareNewline),
    )
    users: pathlib.Path | None = setting(
        None,
        "file of the users that may log in (mqcd user); none = nobody logs in by password",
        FilePath(),
        at="users@file",
    )
    senders: tuple[SenderRightSettings, ...] = many(SenderRightSettings, "sender")
    remotenets: tuple[NetworkSettings, ...] = many(ServerNetworkSettings, "remotenet")
    tenant: TenantBy = setting(
        TenantBy.LISTENER,
        "what names the tenant that a message is counted with and takes turns for: user, header or listener",
        Choice(TenantBy),
    )
    tenant_header: str = setting(
        "",
        "the header field that names the tenant; must be given where a header does",
        HEADER_NAME,
        at="tenant@header",
    )
    quotas: tuple[QuotaSettings, ...] = many(QuotaSettings, "quota")
    submission: bool = setting(
        False, "mail of users' programs: add Date and Message-ID where they are missing (RFC 6409)", YES_NO
    )
    ext_futurerelease: bool | None = setting(
        None,
        "offer FUTURERELEASE, mail that is sent later (RFC 4865); none = as submission",
        YES_NO,
        at="extFUTURERELEASE",
    )
    hold_max: int = setting(
        7 * DAY,
        "longest time for which a client may have mail held; 1s to 365d",
        Duration(least=SECOND, most=YEAR),
        at="extFUTURERELEASE@max",
    )
    ext_mt_priority: bool | None = setting(
        None,
        "offer MT-PRIORITY, mail that goes before other mail (RFC 6710); none = as submission",
        YES_NO,
        at="extMT-PRIORITY",
    )
    priority_max: int = setting(
        4, "highest priority that a client gets, 0 to 9", Count(most=9), at="extMT-PRIORITY@max"
    )
    priorities: tuple[PrioritySettings, ...] = many(PrioritySettings, "priority")

    @property
    def offers_hold(self) -> bool:
        """Whether clients may have mail held."""
        return self.submission if self.ext_futurerelease is None else self.ext_futurerelease

    @property
    def offers_priority(self) -> bool:
        """Whether clients may give mail a priority."""
        return self.submission if self.ext_mt_priority is None else self.ext_mt_priority


@value
class ListenerSettings:
    """One listener: its address, and how its server behaves."""

    name: str = attribute("SMTP", "name of the listener in logs, metrics and events", NAME)
    interface: str = attribute(
        "127.0.0.1",
        "IP address to bind, 0.0.0.0 = all of IPv4, :: = all of both; missing = loopback, with a warning",
        Host(),
    )
    port: int = attribute(25, "TCP port; 0 = any free one", PORT)
    protocol: ListenerProtocol = attribute(
        ListenerProtocol.SMTP,
        "smtp; lmtp: a reply for each recipient (RFC 2033); odmr: users collect mail by ATRN (RFC 2645)",
        Choice(ListenerProtocol),
    )
    proxies: tuple[Network, ...] = setting(
        (),
        "networks of proxies, whose connections begin with a PROXY header; none = there is none",
        Listed(NetworkKind()),
    )
    ssl: ListenerSslSettings = block(ListenerSslSettings())
    server: ServerSettings = block(ServerSettings())


LOCAL = "sendmail"
"""Name of the way in of programs on this machine, where listeners are named."""


@value
class LocalSettings:
    """Mail of programs on this machine, by `mqcd sendmail`."""

    rootpath: pathlib.Path = setting(
        pathlib.Path("%DIRVAR%"),
        "directory of submit.sock and maildrop, where `mqcd sendmail` finds them as its %DIRVAR%",
        FilePath(),
    )
    maxmsgsize: int = setting(50 * MIB, "octets of a message; 0 = no limit", Size())
    filter: str = setting("", _FILTER, PYTHON_CLASS, at="filter@class")
    filter_options: tuple[str, ...] = setting((), _FILTER_OPTIONS, Listed(FILTER_OPTION), at="filter")
    senders: tuple[SenderRightSettings, ...] = many(SenderRightSettings, "sender")


@value
class SubmitSettings:
    """Mail in."""

    suppression: Suppressing = setting(
        Suppressing.REFUSE,
        "mail for recipients that advice suppresses: refuse, bounce or off (no effect)",
        Choice(Suppressing),
    )
    greylist: pathlib.Path = setting(
        pathlib.Path("%DIRVAR%/greylist.sqlite"), "database of greylisting", FilePath(), at="greylist@file"
    )
    listeners: tuple[ListenerSettings, ...] = many(
        ListenerSettings, "listener", default=(ListenerSettings(),)
    )
    local: LocalSettings = block(LocalSettings())

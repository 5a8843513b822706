"""The settings of mail out: routes, zones, limits."""

# `setting`, `block` and `many` are field specifiers: they are meant to be called in the class body.
# ruff: noqa: RUF009
import dataclasses

from mqcd.config.blocks import block, many, setting
from mqcd.config.kinds.fields import DELAY, YES_NO, Choice, Count, Duration, Line, Listed, Optional, RateKind
from mqcd.config.kinds.names import (
    DOMAIN_PATTERN,
    HEADER,
    HOST_NAME,
    LOGIN,
    NAME,
    SENDER,
    Domain,
    Endpoint,
    NetworkKind,
    SourceKind,
)
from mqcd.config.kinds.values import HostPort, Network, Rate, ReplyAction, Source, TlsPolicy
from mqcd.config.settings.client import AuthSettings, ClientSettings, SslSettings
from mqcd.config.settings.logs import AuditSettings
from mqcd.core.smtp.classes import OutcomeClass
from mqcd.core.units import HOUR, SECOND


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RelaySettings:
    """A next hop that takes mail for some domains, or for all."""

    address: HostPort = setting(
        HostPort(host="", port=25),
        "next hop, host[:port]; must be given",
        Endpoint(25),
        at="@address",
        required=True,
    )
    destdomains: tuple[str, ...] = setting(
        (),
        "recipient domains sent here, lower case; none, and no senders = the default relay (one only)",
        Listed(Domain(), separator=","),
        at="@destdomains",
    )
    senders: tuple[str, ...] = setting(
        (),
        "senders whose mail is sent here, each user@domain or a domain; <> = the null sender",
        Listed(SENDER, separator=","),
        at="@senders",
    )
    sendernets: tuple[Network, ...] = setting(
        (),
        "client networks whose mail is sent here; with senders, both must match",
        Listed(NetworkKind(), separator=","),
        at="@sendernets",
    )
    lmtp: bool = setting(False, "speak LMTP with it (RFC 2033), not SMTP", YES_NO, at="@lmtp")
    auth: AuthSettings = block(AuthSettings())
    ssl: SslSettings = block(SslSettings())


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DnsSettings:
    """Which name servers are asked."""

    servers: tuple[HostPort, ...] = setting(
        (), "name servers, ip[:53]; none = those of the operating system", Listed(Endpoint(53)), at="@servers"
    )
    timeout: int = setting(
        5 * SECOND, "time limit for one query, all servers together", Duration(least=1), at="@timeout"
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ZoneMatchSettings:
    """Which mail a zone takes: what fits all that is given here, and one value of each."""

    sender: tuple[str, ...] = setting(
        (), "senders, each user@domain or a domain; <> = the null sender", Listed(SENDER), at="@sender"
    )
    domain: tuple[str, ...] = setting(
        (), "recipient domains; *.domain = those below it", Listed(DOMAIN_PATTERN), at="@domain"
    )
    listener: tuple[str, ...] = setting((), "names of the accepting listeners", Listed(NAME), at="@listener")
    header: tuple[str, ...] = setting(
        (), "header fields of the message, each Name or Name: value", Listed(HEADER), at="@header"
    )
    user: tuple[str, ...] = setting((), "authenticated users", Listed(LOGIN), at="@user")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ZoneSettings:
    """An egress zone: where its mail is sent from, and how fast."""

    name: str = setting(
        "", "name of the zone in logs, metrics and events; must be given", NAME, at="@name", required=True
    )
    sources: tuple[Source, ...] = setting(
        (),
        "source addresses, each ip or ip*weight; none = the system's choice",
        Listed(SourceKind()),
        at="@sources",
    )
    helo: str = setting("", "host name in EHLO; empty = the client's announcehost", HOST_NAME, at="@helo")
    rate: Rate | None = setting(
        None,
        "most recipients tried in a time, all destinations together; none = no limit",
        Optional(RateKind()),
        at="@rate",
    )
    maxserverconnections: int | None = setting(
        None,
        "connections at once to one destination; none = as for all mail",
        Optional(Count(least=1)),
        at="@maxserverconnections",
    )
    retry_delays: tuple[int, ...] = setting(
        (), "delays after failed attempts; none = as in the queue", Listed(DELAY), at="@retry_delays"
    )
    tls: TlsPolicy | None = setting(
        None,
        "TLS with next hops: none, may, encrypt or verify; missing = anonssl",
        Optional(Choice(TlsPolicy)),
        at="@tls",
    )
    matches: tuple[ZoneMatchSettings, ...] = many(ZoneMatchSettings, "match", at="")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DestinationSettings:
    """How some next hops are to be treated."""

    match: str = setting(
        "",
        "recipient domain, or pattern of the names of MX hosts; must be given",
        DOMAIN_PATTERN,
        at="@match",
        required=True,
    )
    rate: Rate | None = setting(
        None,
        "most recipients tried there in a time, from one zone; none = no limit",
        Optional(RateKind()),
        at="@rate",
    )
    maxserverconnections: int | None = setting(
        None,
        "connections at once, from one zone; none = as in the zone",
        Optional(Count(least=1)),
        at="@maxserverconnections",
    )
    retry_delays: tuple[int, ...] = setting(
        (), "delays after failed attempts; none = as in the zone", Listed(DELAY), at="@retry_delays"
    )
    tls: TlsPolicy | None = setting(
        None,
        "TLS: none, may, encrypt or verify; missing = as in the zone",
        Optional(Choice(TlsPolicy)),
        at="@tls",
    )
    probe_interval: int | None = setting(
        None,
        "time until the first probe of a dead destination, at most the first retry delay; none = 1m",
        Optional(Duration(least=1)),
        at="@probe_interval",
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SenderSettings:
    """How fast mail of some senders goes out."""

    match: str = setting(
        "",
        "sender, user@domain or a domain; <> = the null sender; must be given",
        SENDER,
        at="@match",
        required=True,
    )
    rate: Rate = setting(
        Rate(count=1, per=SECOND),
        "most recipients tried in a time; must be given",
        RateKind(),
        at="@rate",
        required=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ReplyRuleSettings:
    """What replies of next hops lead to; of several that fit, the first counts."""

    match: str = setting(
        "*",
        "reply, code first, as a shell pattern such as 4?? *too many*; * = any that refuses",
        Line(),
        at="@match",
    )
    kind: OutcomeClass | None = setting(
        None, "class of the reply, such as policy; none = any", Optional(Choice(OutcomeClass)), at="@class"
    )
    destination: str = setting(
        "*", "recipient domain, or pattern of the names of MX hosts", DOMAIN_PATTERN, at="@destination"
    )
    action: ReplyAction = setting(
        ReplyAction.DEFER,
        "defer, bounce, suspend or slow; must be given",
        Choice(ReplyAction),
        at="@action",
        required=True,
    )
    span: int | None = setting(
        None,
        "how long a destination is suspended or slowed down; must be given for these",
        Optional(Duration(least=1)),
        at="@for",
    )
    rate: Rate | None = setting(
        None, "slow: most recipients tried there in a time; none = no limit", Optional(RateKind()), at="@rate"
    )
    maxserverconnections: int | None = setting(
        None,
        "slow: connections at once; none = 1, with a rate as many as before",
        Optional(Count(least=1)),
        at="@maxserverconnections",
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DeliverSettings(AuditSettings):
    """Mail out."""

    queuecache: int = setting(
        2500,
        "recipients held in the active set at once, and an eighth more where tenants share",
        Count(least=1),
    )
    maxconnections: int = setting(
        2500,
        "connections at once, fewer if descriptors do not suffice; "
        "500 if only a default relay is set and this is missing",
        Count(least=1),
    )
    maxserverconnections: int = setting(20, "connections at once to one destination", Count(least=1))
    maxmessages: int = setting(100, "messages over one connection; 0 = no limit", Count())
    maxconntime: int = setting(
        0, "age at which a connection takes no further message; 0 = no limit", Duration()
    )
    maxidletime: int = setting(
        2 * SECOND,
        "time that an idle connection is kept for the next message; 0 = closed at once",
        Duration(),
    )
    maxrecips: int = setting(50, "recipients in one transaction; 0 = no limit", Count())
    smtpport: int = setting(25, "TCP port of hosts found by DNS", Count(least=1, most=65535))
    local_mx: bool = setting(
        False,
        "deliver to addresses of this machine, and to loopback and link-local ones, that DNS names",
        YES_NO,
    )
    watchdog: int = setting(
        6 * HOUR, "time without progress after which mail counts as stuck; 0 = never", Duration()
    )
    client: ClientSettings = block(ClientSettings())
    relays: tuple[RelaySettings, ...] = many(RelaySettings, "relay")
    zones: tuple[ZoneSettings, ...] = many(ZoneSettings, "zone")
    destinations: tuple[DestinationSettings, ...] = many(DestinationSettings, "destination")
    senders: tuple[SenderSettings, ...] = many(SenderSettings, "sender")
    rules: tuple[ReplyRuleSettings, ...] = many(ReplyRuleSettings, "rule")
    dns: DnsSettings = block(DnsSettings())

"""The settings of mail out: routes, zones, limits."""

from mqcd.config.blocks import attribute, block, many, setting
from mqcd.config.kinds.fields import DELAY, YES_NO, Choice, Count, Duration, Line, Listed, RateKind
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
from mqcd.core.value import value


@value
class RelaySettings:
    """A next hop that takes mail for some domains, or for all."""

    address: HostPort = attribute(
        HostPort(host="", port=25), "next hop, host[:port]; must be given", Endpoint(25), required=True
    )
    destdomains: tuple[str, ...] = attribute(
        (),
        "recipient domains sent here, lower case; none, and no senders = the default relay (one only)",
        Listed(Domain(), separator=","),
    )
    senders: tuple[str, ...] = attribute(
        (),
        "senders whose mail is sent here, each user@domain or a domain; <> = the null sender",
        Listed(SENDER, separator=","),
    )
    sendernets: tuple[Network, ...] = attribute(
        (),
        "client networks whose mail is sent here; with senders, both must match",
        Listed(NetworkKind(), separator=","),
    )
    lmtp: bool = attribute(False, "speak LMTP with it (RFC 2033), not SMTP", YES_NO)
    auth: AuthSettings = block(AuthSettings())
    ssl: SslSettings = block(SslSettings())


@value
class DnsSettings:
    """Which name servers are asked."""

    servers: tuple[HostPort, ...] = attribute(
        (), "name servers, ip[:53]; none = those of the operating system", Listed(Endpoint(53))
    )
    timeout: int = attribute(5 * SECOND, "time limit for one query, all servers together", Duration(least=1))


@value
class ZoneMatchSettings:
    """Which mail a zone takes: what fits all that is given here, and one value of each."""

    sender: tuple[str, ...] = attribute(
        (), "senders, each user@domain or a domain; <> = the null sender", Listed(SENDER)
    )
    domain: tuple[str, ...] = attribute(
        (), "recipient domains; *.domain = those below it", Listed(DOMAIN_PATTERN)
    )
    listener: tuple[str, ...] = attribute((), "names of the accepting listeners", Listed(NAME))
    header: tuple[str, ...] = attribute(
        (), "header fields of the message, each Name or Name: value", Listed(HEADER)
    )
    user: tuple[str, ...] = attribute((), "authenticated users", Listed(LOGIN))


@value
class ZoneSettings:
    """An egress zone: where its mail is sent from, and how fast."""

    name: str = attribute(
        "", "name of the zone in logs, metrics and events; must be given", NAME, required=True
    )
    sources: tuple[Source, ...] = attribute(
        (), "source addresses, each ip or ip*weight; none = the system's choice", Listed(SourceKind())
    )
    helo: str = attribute("", "host name in EHLO; empty = the client's announcehost", HOST_NAME)
    rate: Rate | None = attribute(
        None, "most recipients tried in a time, all destinations together; none = no limit", RateKind()
    )
    maxserverconnections: int | None = attribute(
        None, "connections at once to one destination; none = as for all mail", Count(least=1)
    )
    retry_delays: tuple[int, ...] = attribute(
        (), "delays after failed attempts; none = as in the queue", Listed(DELAY)
    )
    tls: TlsPolicy | None = attribute(
        None, "TLS with next hops: none, may, encrypt or verify; missing = anonssl", Choice(TlsPolicy)
    )
    matches: tuple[ZoneMatchSettings, ...] = many(ZoneMatchSettings, "match", at="")


@value
class DestinationSettings:
    """How some next hops are to be treated."""

    match: str = attribute(
        "",
        "recipient domain, or pattern of the names of MX hosts; must be given",
        DOMAIN_PATTERN,
        required=True,
    )
    rate: Rate | None = attribute(
        None, "most recipients tried there in a time, from one zone; none = no limit", RateKind()
    )
    maxserverconnections: int | None = attribute(
        None, "connections at once, from one zone; none = as in the zone", Count(least=1)
    )
    retry_delays: tuple[int, ...] = attribute(
        (), "delays after failed attempts; none = as in the zone", Listed(DELAY)
    )
    tls: TlsPolicy | None = attribute(
        None, "TLS: none, may, encrypt or verify; missing = as in the zone", Choice(TlsPolicy)
    )
    probe_interval: int | None = attribute(
        None,
        "time until the first probe of a dead destination, at most the first retry delay; none = 1m",
        Duration(least=1),
    )


@value
class SenderSettings:
    """How fast mail of some senders goes out."""

    match: str = attribute(
        "", "sender, user@domain or a domain; <> = the null sender; must be given", SENDER, required=True
    )
    rate: Rate = attribute(
        Rate(count=1, per=SECOND), "most recipients tried in a time; must be given", RateKind(), required=True
    )


@value
class ReplyRuleSettings:
    """What replies of next hops lead to; of several that fit, the first counts."""

    match: str = attribute(
        "*", "reply, code first, as a shell pattern such as 4?? *too many*; * = any that refuses", Line()
    )
    kind: OutcomeClass | None = setting(
        None, "class of the reply, such as policy; none = any", Choice(OutcomeClass), at="@class"
    )
    destination: str = attribute("*", "recipient domain, or pattern of the names of MX hosts", DOMAIN_PATTERN)
    action: ReplyAction = attribute(
        ReplyAction.DEFER, "defer, bounce, suspend or slow; must be given", Choice(ReplyAction), required=True
    )
    span: int | None = setting(
        None,
        "how long a destination is suspended or slowed down; must be given for these",
        Duration(least=1),
        at="@for",
    )
    rate: Rate | None = attribute(
        None, "slow: most recipients tried there in a time; none = no limit", RateKind()
    )
    maxserverconnections: int | None = attribute(
        None, "slow: connections at once; none = 1, with a rate as many as before", Count(least=1)
    )


@value
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

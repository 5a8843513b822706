"""The shape of a configuration file: one table per block, from which all else is derived.

A block says which class of `settings` it fills and lists its entries: rows (one value each), blocks, and
lists of blocks. Loading, showing, the shipped file and the documents read these tables; defaults and
glosses come from the settings classes. What is not listed here is unknown, unless `pending` names it.
"""

from mqcd.config import login, settings
from mqcd.config.blocks import Block, Many, row
from mqcd.config.fields import (
    DELAY,
    Boolean,
    Choice,
    Count,
    Duration,
    FilePath,
    Line,
    Listed,
    Optional,
    Percent,
    RateKind,
    Size,
    Text,
)
from mqcd.config.logs import LogFormat, LogLevel, LogSettings, Rotation
from mqcd.config.names import (
    DOMAIN_PATTERN,
    GROUP,
    HEADER,
    HOST_NAME,
    LOGIN,
    MAIL_ADDRESS,
    NAME,
    PYTHON_CLASS,
    REDIRECT,
    SENDER,
    USER,
    Address,
    Domain,
    Endpoint,
    Host,
    NetworkKind,
    Peers,
    SecretKind,
    SourceKind,
)
from mqcd.config.ops_settings import (
    AdviceSettings,
    ControlSettings,
    EventsSettings,
    MetricsSettings,
    OpsSettings,
)
from mqcd.config.remotenets import RemoteNetSettings
from mqcd.config.units import GIB, KIB, MIB, YEAR

PORT = Count(most=65535)
YES_NO = Boolean()

AUDIT = (
    row("audit", Optional(FilePath())),
    row("audit@rot", Choice(Rotation), "audit_rot"),
    row("audit@maxfile", Size(), "audit_maxfile"),
)

APPLICATION = Block(
    name="application",
    fills=settings.ApplicationSettings,
    attribute="application",
    entries=(row("announcehost", HOST_NAME), row("user", Optional(USER))),
)

SPOOL = Block(
    name="spool",
    fills=settings.SpoolSettings,
    attribute="spool",
    entries=(
        row("rootpath", FilePath()),
        row("bufsize", Size(least=512, most=16 * MIB)),
        row("maxspidcache", Count()),
        row("hardlinks", YES_NO),
        row("silofactor", Count(most=8)),
    ),
)

JOURNAL = Block(
    name="journal",
    fills=settings.JournalSettings,
    attribute="journal",
    entries=(
        # Places in a segment are told in 32 bits.
        row("segmentsize", Size(least=64 * KIB, most=GIB)),
        row("segments", Count(least=4, most=1024)),
        row("inline_max", Size()),
        row("seal_age", Duration(least=1)),
        row("evacuate_age", Duration(least=1)),
    ),
)

QUEUE = Block(
    name="queue",
    fills=settings.QueueSettings,
    attribute="queue",
    entries=(
        row("rootpath", FilePath()),
        row("maxclustersize", Size(least=4096, most=256 * MIB)),
        row("maxmemoryqueue", Count()),
        # Senders are told of the date, and years have four digits there.
        row("retry_maxtime", Duration(most=YEAR)),
        row("retry_maxtime_reports", Duration(most=YEAR)),
        row("retry_delays", Listed(DELAY, least=1)),
        row("retry_granularity", Duration(most=YEAR)),
        row("retry_jitter", Percent()),
        row("deferred_maxignore", Duration()),
        row("prune_graceperiod", Duration()),
        row("read_only", YES_NO),
        row("minfree", Size()),
        row("mininodes", Count()),
        row("memorybudget", Size(least=MIB)),
        SPOOL,
        JOURNAL,
    ),
)

SERVER = Block(
    name="server",
    fills=settings.ServerSettings,
    attribute="server",
    entries=(
        row("relay_clients", Listed(Peers())),
        row("relay_domains", Listed(Domain())),
        row("announcehost", HOST_NAME),
        row("smtpgreet", Line()),
        row("maxhops", Count(least=1)),
        row("maxpeerconnections", Count()),
        row("maxmsgsize", Size()),
        row("maxrecips", Count()),
        row("maxmessages", Count()),
        row("maxbadreqs", Count()),
        row("timeout", Duration(least=1)),
        row("bare_newline", Choice(settings.BareNewline)),
        row("filter@class", PYTHON_CLASS, "filter"),
        row("omitreceivedheader", YES_NO),
        row("extPIPELINING", YES_NO, "ext_pipelining"),
        row("extSIZE", YES_NO, "ext_size"),
        row("ext8BITMIME", YES_NO, "ext_8bitmime"),
    ),
)

SUBMIT = Block(
    name="submit",
    fills=settings.SubmitSettings,
    attribute="submit",
    entries=(
        row("suppression", Choice(settings.Suppressing)),
        Many(
            name="listeners",
            attribute="listeners",
            item=Block(
                name="listener",
                fills=settings.ListenerSettings,
                entries=(
                    row("@name", NAME),
                    row("@interface", Host()),
                    row("@port", PORT),
                    SERVER,
                ),
            ),
        ),
    ),
)

AUTH = Block(
    name="auth",
    fills=login.AuthSettings,
    attribute="auth",
    entries=(
        row("@enabled", YES_NO),
        row("@override", Optional(Choice(login.Mechanism))),
        row("@initrsp", YES_NO),
        row("@cleartext", YES_NO),
        row("username", Line()),
        row("password", SecretKind()),
        row("password@file", Optional(FilePath()), "passwordfile"),
    ),
)

SSL = Block(
    name="ssl",
    fills=login.SslSettings,
    attribute="ssl",
    entries=(
        row("@latent", Optional(YES_NO)),
        row("@mandatory", YES_NO),
        row("@verify", Optional(YES_NO)),
        row("@certfile", Optional(FilePath())),
        row("@keyfile", Optional(FilePath())),
    ),
)

CLIENT = Block(
    name="client",
    fills=settings.ClientSettings,
    attribute="client",
    entries=(
        row("announcehost", HOST_NAME),
        row("maxpipeline", Count()),
        row("timeout", Duration(least=1)),
        row("mindatarate", Count()),
        row("extCHUNKING", YES_NO, "ext_chunking"),
        row("sayHELO", YES_NO, "say_helo"),
        row("fallbackHELO", YES_NO, "fallback_helo"),
        row("sendQUIT", YES_NO, "send_quit"),
        row("waitQUIT", YES_NO, "wait_quit"),
        row("fallbackMX_A", YES_NO, "fallback_mx_a"),
        row("anonssl", YES_NO),
        row("anonssl@mandatory", YES_NO, "tls_mandatory"),
        row("trust@file", Optional(FilePath()), "trust"),
        Many(
            name="remotenets",
            attribute="remotenets",
            item=Block(
                name="remotenet",
                fills=RemoteNetSettings,
                entries=(
                    row("@ip", Listed(NetworkKind()), required=True),
                    row("announcehost", HOST_NAME),
                    row("maxpipeline", Optional(Count())),
                    row("timeout", Optional(Duration(least=1))),
                    row("mindatarate", Optional(Count())),
                    row("extCHUNKING", Optional(YES_NO), "ext_chunking"),
                    row("sayHELO", Optional(YES_NO), "say_helo"),
                    row("fallbackHELO", Optional(YES_NO), "fallback_helo"),
                    row("sendQUIT", Optional(YES_NO), "send_quit"),
                    row("waitQUIT", Optional(YES_NO), "wait_quit"),
                    row("anonssl", Optional(YES_NO)),
                    row("anonssl@mandatory", Optional(YES_NO), "tls_mandatory"),
                ),
            ),
        ),
    ),
)

DELIVER = Block(
    name="deliver",
    fills=settings.DeliverSettings,
    attribute="deliver",
    entries=(
        row("queuecache", Count(least=1)),
        row("maxconnections", Count(least=1)),
        row("maxserverconnections", Count(least=1)),
        row("maxmessages", Count()),
        row("maxconntime", Duration()),
        row("maxidletime", Duration()),
        row("maxrecips", Count()),
        row("smtpport", Count(least=1, most=65535)),
        row("local_mx", YES_NO),
        row("watchdog", Duration()),
        *AUDIT,
        CLIENT,
        Many(
            name="relays",
            attribute="relays",
            item=Block(
                name="relay",
                fills=settings.RelaySettings,
                entries=(
                    row("@address", Endpoint(25), required=True),
                    row("@destdomains", Listed(Domain(), separator=",")),
                    row("@senders", Listed(SENDER, separator=",")),
                    row("@sendernets", Listed(NetworkKind(), separator=",")),
                    row("@lmtp", YES_NO),
                    AUTH,
                    SSL,
                ),
            ),
        ),
        Many(
            name="zones",
            attribute="zones",
            item=Block(
                name="zone",
                fills=settings.ZoneSettings,
                entries=(
                    row("@name", NAME, required=True),
                    row("@sources", Listed(SourceKind())),
                    row("@helo", HOST_NAME),
                    row("@rate", Optional(RateKind())),
                    row("@maxserverconnections", Optional(Count(least=1))),
                    row("@retry_delays", Listed(DELAY)),
                    row("@tls", Optional(Choice(settings.TlsPolicy))),
                    Many(
                        name="",
                        attribute="matches",
                        item=Block(
                            name="match",
                            fills=settings.ZoneMatchSettings,
                            entries=(
                                row("@sender", Listed(SENDER)),
                                row("@domain", Listed(DOMAIN_PATTERN)),
                                row("@listener", Listed(NAME)),
                                row("@header", Listed(HEADER)),
                                row("@user", Listed(LOGIN)),
                            ),
                        ),
                    ),
                ),
            ),
        ),
        Many(
            name="destinations",
            attribute="destinations",
            item=Block(
                name="destination",
                fills=settings.DestinationSettings,
                entries=(
                    row("@match", DOMAIN_PATTERN, required=True),
                    row("@rate", Optional(RateKind())),
                    row("@maxserverconnections", Optional(Count(least=1))),
                    row("@retry_delays", Listed(DELAY)),
                    row("@tls", Optional(Choice(settings.TlsPolicy))),
                    row("@probe_interval", Optional(Duration(least=1))),
                ),
            ),
        ),
        Many(
            name="senders",
            attribute="senders",
            item=Block(
                name="sender",
                fills=settings.SenderSettings,
                entries=(
                    row("@match", SENDER, required=True),
                    row("@rate", RateKind(), required=True),
                ),
            ),
        ),
        Block(
            name="dns",
            fills=settings.DnsSettings,
            attribute="dns",
            entries=(
                row("@servers", Listed(Endpoint(53))),
                row("@timeout", Duration(least=1)),
            ),
        ),
    ),
)

REPORT = Block(
    name="report",
    fills=settings.ReportSettings,
    attribute="report",
    entries=(
        row("generate_ndr", YES_NO),
        row("ndr_recip_redirect", Optional(REDIRECT)),
        row("ndr_recips_additional", Listed(MAIL_ADDRESS)),
        row("announcemta", HOST_NAME),
        row("ndr_from", MAIL_ADDRESS),
        row("ndr_subject", Line()),
        row("ndr_textpart", Text()),
        row("delay_warning", Duration()),
        row("delay_warning@all", YES_NO, "warn_all"),
        row("attachmsg", Size()),
        row("attachmsg@full", Size(), "attachmsg_full"),
        row("queuecache", Count(least=1)),
        *AUDIT,
    ),
)

OPS = Block(
    name="ops",
    fills=OpsSettings,
    attribute="ops",
    entries=(
        row("@interface", Address()),
        row("@port", PORT),
        row("hosts", Listed(HOST_NAME)),
        row("node", NAME),
        Block(
            name="log",
            fills=LogSettings,
            attribute="log",
            entries=(
                row("@format", Choice(LogFormat)),
                row("@level", Choice(LogLevel)),
            ),
        ),
        Block(
            name="metrics",
            fills=MetricsSettings,
            attribute="metrics",
            entries=(row("@sites", Count(most=1000)),),
        ),
        Block(
            name="events",
            fills=EventsSettings,
            attribute="events",
            entries=(
                row("rootpath", FilePath()),
                row("maxage", Duration()),
                row("maxsize", Size()),
                row("hashkey@file", Optional(FilePath()), "hashkey"),
            ),
        ),
        Block(
            name="advice",
            fills=AdviceSettings,
            attribute="advice",
            entries=(row("rootpath", FilePath()),),
        ),
        Block(
            name="control",
            fills=ControlSettings,
            attribute="control",
            entries=(row("@path", FilePath()), row("@group", Optional(GROUP))),
        ),
    ),
)

ROOT = Block(
    name="mailserver",
    fills=settings.Settings,
    entries=(
        APPLICATION,
        Block(name="mta", fills=None, entries=(QUEUE, SUBMIT, DELIVER, REPORT)),
        OPS,
    ),
)

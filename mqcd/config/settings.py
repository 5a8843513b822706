"""The settings of one server: frozen values, and nothing that knows where they came from.

Every field has a default and a gloss; the schema, the shipped file and the documents take both from
here (see `glossed`), so that a default stands in one place only.

Units throughout: durations in integer milliseconds, sizes in integer octets, shares in integer percent,
paths absolute; 0 means "no limit" where the gloss says so. `%TOKEN%` stands only in defaults that depend
on the machine (paths, host names): the loader replaces each before anybody else sees it, and fills in
what one block takes from another (announced names, the reports' sender, the number of connections).
"""

# `setting` is a field specifier: it is meant to be called in the class body.
# ruff: noqa: RUF009
import dataclasses
import enum
import pathlib

from mqcd.config.glossed import setting
from mqcd.config.login import AuthSettings, SslSettings
from mqcd.config.logs import AuditSettings
from mqcd.config.ops_settings import OpsSettings
from mqcd.config.remotenets import Network, RemoteNetSettings
from mqcd.config.units import DAY, HOUR, KIB, MIB, MINUTE, SECOND

HostPattern = Network | str
"""Which peers: a network (one address is a network of one), or a host name in lower case, to be looked
up at start; `name/24` means the network of that size that the host's address lies in."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class HostPort:
    """A place to connect to: a host name or an IP address (no brackets), and a TCP or UDP port."""

    host: str
    port: int


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


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """So many recipients in so many milliseconds."""

    count: int
    per: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """An address of our own that connections go out from."""

    address: str
    weight: int = 1
    """Its share of the zone's connections, against those of the zone's other addresses."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ApplicationSettings:
    """What the whole server goes by."""

    announcehost: str = setting("%SYSNAME%", "host name that the server announces itself by")
    user: str | None = setting(
        None, "system user that root becomes once the ports are bound; none = no change"
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SpoolSettings:
    """Where and how the contents of messages rest."""

    rootpath: pathlib.Path = setting(
        pathlib.Path("%DIRVAR%/spool"), "directory of the spool's silos", "absolute path"
    )
    bufsize: int = setting(16 * KIB, "write buffer of a spool file, octets; 512 to 16M")
    maxspidcache: int = setting(250_000, "messages whose recipients are counted in memory; 0 = no limit")
    hardlinks: bool = setting(False, "one hard link per recipient instead of counting a message's recipients")
    silofactor: int = setting(
        5,
        "a new spool has 2 to this power of directories; an existing one keeps its number; 0 to 8",
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class JournalSettings:
    """The log that makes every change of the queue durable."""

    segmentsize: int = setting(64 * MIB, "octets of one segment; 64K to 1G")
    segments: int = setting(8, "segments in the ring; at least 4")
    inline_max: int = setting(
        64 * KIB, "octets of content up to which a message is stored in the journal, not in the spool"
    )
    seal_age: int = setting(
        5 * SECOND, "time after its first entry at which a segment is closed", "milliseconds"
    )
    evacuate_age: int = setting(
        60 * SECOND, "age at which a closed segment moves to clusters and spool", "milliseconds"
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class QueueSettings:
    """The queue on disk: where it lies, how long it tries, what it may take of the machine."""

    rootpath: pathlib.Path = setting(
        pathlib.Path("%DIRVAR%/queue"),
        "directory of journal, manifest and clusters",
        "absolute path",
    )
    maxclustersize: int = setting(256 * KIB, "octets that a cluster file may hold; 4K to 256M")
    maxmemoryqueue: int = setting(0, "most recipients that one claim loads; 0 = no limit")
    retry_maxtime: int = setting(
        72 * HOUR,
        "age limit of a failing recipient; then it expires and is reported; at most 365d",
        "milliseconds",
    )
    retry_maxtime_reports: int = setting(
        24 * HOUR, "the same for reports; never more than retry_maxtime", "milliseconds"
    )
    retry_delays: tuple[int, ...] = setting(
        (15 * MINUTE, 30 * MINUTE, 2 * HOUR, 4 * HOUR),
        "delays after the first, second, ... failed attempt; the last repeats; each at most 365d",
        "milliseconds",
    )
    retry_granularity: int = setting(
        MINUTE, "deferred recipients due within this span share files; 1s to 365d", "milliseconds"
    )
    retry_jitter: int = setting(10, "largest random addition to a retry delay, as a share of it", "percent")
    deferred_maxignore: int = setting(
        5 * MINUTE,
        "no effect: new and due mail always take turns",
        "milliseconds",
    )
    prune_graceperiod: int = setting(
        7 * DAY, "age at which foreign files are removed from the spool", "milliseconds"
    )
    read_only: bool = setting(False, "show the queue only: no mail is accepted, tried or changed")
    minfree: int = setting(256 * MIB, "free octets on each file system below which listeners reply 4xx")
    mininodes: int = setting(10_000, "free inodes on each file system below which listeners reply 4xx")
    memorybudget: int = setting(64 * MIB, "most octets of memory for recipients in the journal")
    spool: SpoolSettings = SpoolSettings()
    journal: JournalSettings = JournalSettings()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ServerSettings:
    """How one listener speaks SMTP, and what it lets in."""

    relay_clients: tuple[HostPattern, ...] = setting(
        (), "clients that may send to any domain: host names, addresses, networks; none = no client"
    )
    relay_domains: tuple[str, ...] = setting(
        (), "recipient domains that any client may send to, lower case; none = no domain"
    )
    announcehost: str = setting("", "host name in greeting and Received header; empty = the application's")
    smtpgreet: str = setting("", "text of the 220 greeting after the host name; empty = the server's own")
    maxhops: int = setting(50, "Received headers from which a message counts as looping")
    maxpeerconnections: int = setting(
        50, "connections at once from one address (IPv6: /64) outside relay_clients; 0 = no limit"
    )
    maxmsgsize: int = setting(50 * MIB, "octets of a message, announced as SIZE; 0 = no limit")
    maxrecips: int = setting(1000, "recipients of one message; 0 = no limit")
    maxmessages: int = setting(0, "messages over one connection; 0 = no limit")
    maxbadreqs: int = setting(2, "bad commands allowed in a connection; the next one ends it; 0 = no limit")
    timeout: int = setting(
        2 * MINUTE, "time without input after which a connection is closed", "milliseconds"
    )
    bare_newline: BareNewline = setting(
        BareNewline.NORMALIZE, "LF without CR from a client: normalize (it becomes CRLF) or reject"
    )
    filter: str = setting(
        "", "aiosmtpd handler (module:Class) that accepts, refuses or rewrites mail before it is queued"
    )
    omitreceivedheader: bool = setting(False, "add no Received header")
    ext_pipelining: bool = setting(True, "offer PIPELINING (RFC 2920)")
    ext_size: bool = setting(True, "offer SIZE (RFC 1870)")
    ext_8bitmime: bool = setting(True, "offer 8BITMIME (RFC 6152)")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ListenerSettings:
    """One door: where it listens, and how the server behind it behaves."""

    name: str = setting("SMTP", "name of the listener in logs, metrics and events")
    interface: str = setting(
        "127.0.0.1",
        "IP address to bind, 0.0.0.0 = all of IPv4, :: = all of both; missing = loopback, with a warning",
    )
    port: int = setting(25, "TCP port; 0 = any free one")
    server: ServerSettings = ServerSettings()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SubmitSettings:
    """Mail in."""

    suppression: Suppressing = setting(
        Suppressing.REFUSE, "mail for recipients that advice suppresses: refuse, bounce or off (no effect)"
    )
    listeners: tuple[ListenerSettings, ...] = (ListenerSettings(),)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ClientSettings:
    """How mqcd speaks SMTP to the next hop."""

    announcehost: str = setting("", "host name in EHLO; empty = the application's")
    maxpipeline: int = setting(25, "commands sent ahead of their replies; 0 or 1 = no pipelining")
    timeout: int = setting(
        MINUTE,
        "time limit for a connection; replies have 2 to 10 times as long (RFC 5321, 4.5.3.2)",
        "milliseconds",
    )
    mindatarate: int = setting(
        1_000_000,
        "assumed rate, bits a second, that extends the timeout for large messages; 0 = no extension",
    )
    ext_chunking: bool = setting(True, "send contents by BDAT where the next hop offers it (RFC 3030)")
    say_helo: bool = setting(False, "greet with HELO and never with EHLO")
    fallback_helo: bool = setting(False, "try HELO when EHLO is refused")
    send_quit: bool = setting(True, "end a connection with QUIT")
    wait_quit: bool = setting(True, "wait for the reply to QUIT")
    fallback_mx_a: bool = setting(False, "when no MX host can be reached, try the domain's own address")
    anonssl: bool = setting(True, "use TLS if the next hop offers STARTTLS, without checking certificates")
    tls_mandatory: bool = setting(False, "with anonssl: send nothing without TLS")
    trust: pathlib.Path | None = setting(
        None, "trusted certificates (PEM); none = those of the system", "absolute path"
    )
    remotenets: tuple[RemoteNetSettings, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RelaySettings:
    """A next hop that takes mail for some domains, or for all."""

    address: HostPort = setting(HostPort(host="", port=25), "next hop, host[:port]; must be given")
    destdomains: tuple[str, ...] = setting(
        (), "recipient domains sent here, lower case; none, and no senders = the default relay (one only)"
    )
    senders: tuple[str, ...] = setting(
        (), "senders whose mail is sent here, each user@domain or a domain; <> = the null sender"
    )
    sendernets: tuple[Network, ...] = setting(
        (), "client networks whose mail is sent here; with senders, both must match"
    )
    lmtp: bool = setting(False, "speak LMTP with it (RFC 2033), not SMTP")
    auth: AuthSettings = AuthSettings()
    ssl: SslSettings = SslSettings()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DnsSettings:
    """Which name servers are asked."""

    servers: tuple[HostPort, ...] = setting((), "name servers, ip[:53]; none = those of the operating system")
    timeout: int = setting(5 * SECOND, "time limit for one query, all servers together", "milliseconds")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ZoneMatchSettings:
    """Which mail a zone takes: what fits all that is given here, and one value of each."""

    sender: tuple[str, ...] = setting((), "senders, each user@domain or a domain; <> = the null sender")
    domain: tuple[str, ...] = setting((), "recipient domains; *.domain = those below it")
    listener: tuple[str, ...] = setting((), "names of the accepting listeners")
    header: tuple[str, ...] = setting((), "header fields of the message, each Name or Name: value")
    user: tuple[str, ...] = setting((), "authenticated users")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ZoneSettings:
    """A way out: where its mail is sent from, and how fast."""

    name: str = setting("", "name of the zone in logs, metrics and events; must be given")
    sources: tuple[Source, ...] = setting(
        (), "source addresses, each ip or ip*weight; none = the system's choice"
    )
    helo: str = setting("", "host name in EHLO; empty = the client's announcehost")
    rate: Rate | None = setting(
        None, "most recipients tried in a time, all destinations together; none = no limit"
    )
    maxserverconnections: int | None = setting(
        None, "connections at once to one destination; none = as for all mail"
    )
    retry_delays: tuple[int, ...] = setting(
        (), "delays after failed attempts; none = as in the queue", "milliseconds"
    )
    tls: TlsPolicy | None = setting(
        None, "TLS with next hops: none, may, encrypt or verify; missing = anonssl"
    )
    matches: tuple[ZoneMatchSettings, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DestinationSettings:
    """How some next hops are to be treated."""

    match: str = setting("", "recipient domain, or pattern of the names of MX hosts; must be given")
    rate: Rate | None = setting(None, "most recipients tried there in a time, from one zone; none = no limit")
    maxserverconnections: int | None = setting(
        None, "connections at once, from one zone; none = as in the zone"
    )
    retry_delays: tuple[int, ...] = setting(
        (), "delays after failed attempts; none = as in the zone", "milliseconds"
    )
    tls: TlsPolicy | None = setting(None, "TLS: none, may, encrypt or verify; missing = as in the zone")
    probe_interval: int | None = setting(
        None, "time until the first probe of a dead destination; none = 1m", "milliseconds"
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SenderSettings:
    """How fast mail of some senders goes out."""

    match: str = setting("", "sender, user@domain or a domain; <> = the null sender; must be given")
    rate: Rate = setting(Rate(count=1, per=SECOND), "most recipients tried in a time; must be given")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DeliverSettings(AuditSettings):
    """Mail out."""

    queuecache: int = setting(2500, "recipients held in the active set at once")
    maxconnections: int = setting(
        2500,
        "connections at once, fewer if descriptors do not suffice; "
        "500 if only a default relay is set and this is missing",
    )
    maxserverconnections: int = setting(20, "connections at once to one destination")
    maxmessages: int = setting(100, "messages over one connection; 0 = no limit")
    maxconntime: int = setting(
        0, "age at which a connection takes no further message; 0 = no limit", "milliseconds"
    )
    maxidletime: int = setting(
        2 * SECOND,
        "time that an idle connection is kept for the next message; 0 = closed at once",
        "milliseconds",
    )
    maxrecips: int = setting(50, "recipients in one transaction; 0 = no limit")
    smtpport: int = setting(25, "TCP port of hosts found by DNS")
    local_mx: bool = setting(
        False, "deliver to addresses of this machine, and to loopback and link-local ones, that DNS names"
    )
    watchdog: int = setting(
        6 * HOUR, "time without progress after which mail counts as stuck; 0 = never", "milliseconds"
    )
    client: ClientSettings = ClientSettings()
    relays: tuple[RelaySettings, ...] = ()
    zones: tuple[ZoneSettings, ...] = ()
    destinations: tuple[DestinationSettings, ...] = ()
    senders: tuple[SenderSettings, ...] = ()
    dns: DnsSettings = DnsSettings()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ReportSettings(AuditSettings):
    """Mail back: delivery status notifications."""

    generate_ndr: bool = setting(
        True, "send reports on bounces, and on success and delay if asked for; N = no reports"
    )
    ndr_recip_redirect: str | None = setting(
        None, "address that gets the reports instead of the sender; . = no address; none = the sender"
    )
    ndr_recips_additional: tuple[str, ...] = setting((), "addresses that get each report as well")
    announcemta: str = setting("", "host name in the report; empty = the application's")
    ndr_from: str = setting(
        "",
        "From of the report; empty = postmaster@ and the application's name without its first label",
    )
    ndr_subject: str = setting("Delivery Failure Report", "Subject of the report")
    ndr_textpart: str = setting(
        "", "text for people, tokens %PRODNAME% and %REPMTA%; empty = the server's own"
    )
    delay_warning: int = setting(
        4 * HOUR,
        "age at which senders get a delay report if they asked for it; 0 = never",
        "milliseconds",
    )
    warn_all: bool = setting(False, "also send it to senders that did not say which reports they want")
    attachmsg: int = setting(4 * KIB, "octets of the failed message that the report includes; 0 = none")
    attachmsg_full: int = setting(
        256 * KIB, "the same for senders that asked for the whole message (RET=FULL); 0 = as for others"
    )
    queuecache: int = setting(100, "bounces read at a time, and reports made at a time")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that a configuration file says, defaults filled in."""

    application: ApplicationSettings = ApplicationSettings()
    queue: QueueSettings = QueueSettings()
    submit: SubmitSettings = SubmitSettings()
    deliver: DeliverSettings = DeliverSettings()
    report: ReportSettings = ReportSettings()
    ops: OpsSettings = OpsSettings()

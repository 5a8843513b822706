"""The settings of one server: frozen values, each declared in one place.

A field declares everything about a setting: default, meaning, kind with its bounds, and place in the file. A
bound beyond which a value is corrected, not refused, stands beside it; `config.checks.complete` applies it.
Loading and showing follow from that (`config.schema`); conf/mqcd.xml and the tables of docs/configuration.md
are only compared with it by tests. For a new setting see docs/changing.md.

Units throughout: durations in integer milliseconds, sizes in integer octets, shares in integer percent,
paths absolute; 0 means "no limit" where the field says so. `%TOKEN%` stands only in defaults that depend
on the machine (paths, host names): the loader replaces each, and fills in what one block takes from
another (announced names, the reports' sender, the number of connections).
"""

# `setting`, `block` and `many` are field specifiers: they are meant to be called in the class body.
# ruff: noqa: RUF009
import dataclasses

from mqcd.config.blocks import block, setting
from mqcd.config.kinds.names import HOST_NAME, USER
from mqcd.config.kinds.values import (
    AuthType,
    BareNewline,
    Direction,
    HostPattern,
    HostPort,
    ListenerProtocol,
    LogFormat,
    LogLevel,
    Mechanism,
    Network,
    QuotaBy,
    Rate,
    ReplyAction,
    Rotation,
    Secret,
    Source,
    Suppressing,
    TenantBy,
    TlsPolicy,
)
from mqcd.config.settings.client import AuthSettings, ClientSettings, RemoteNetSettings, SslSettings
from mqcd.config.settings.deliver import (
    DeliverSettings,
    DestinationSettings,
    DnsSettings,
    RelaySettings,
    ReplyRuleSettings,
    SenderSettings,
    ZoneMatchSettings,
    ZoneSettings,
)
from mqcd.config.settings.listenertls import ListenerSslSettings
from mqcd.config.settings.logs import AuditSettings, LogSettings
from mqcd.config.settings.ops import (
    AdviceSettings,
    ControlSettings,
    EventsSettings,
    FeedsSettings,
    MetricsSettings,
    OpsSettings,
    PageSettings,
    TracesSettings,
    WebhookSettings,
)
from mqcd.config.settings.queue import (
    CLUSTER,
    HeldDomainSettings,
    JournalSettings,
    QueueSettings,
    ShardSettings,
    SpoolSettings,
    StoreSettings,
)
from mqcd.config.settings.report import ReportSettings
from mqcd.config.settings.submit import (
    LOCAL,
    ListenerSettings,
    LocalSettings,
    NetworkSettings,
    PeerSettings,
    PrioritySettings,
    QuotaSettings,
    SenderRightSettings,
    ServerNetworkSettings,
    ServerSettings,
    SubmitSettings,
)

__all__ = [
    "CLUSTER",
    "LOCAL",
    "AdviceSettings",
    "ApplicationSettings",
    "AuditSettings",
    "AuthSettings",
    "AuthType",
    "BareNewline",
    "ClientSettings",
    "ControlSettings",
    "DeliverSettings",
    "DestinationSettings",
    "Direction",
    "DnsSettings",
    "EventsSettings",
    "FeedsSettings",
    "HeldDomainSettings",
    "HostPattern",
    "HostPort",
    "JournalSettings",
    "ListenerProtocol",
    "ListenerSettings",
    "ListenerSslSettings",
    "LocalSettings",
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "Mechanism",
    "MetricsSettings",
    "Network",
    "NetworkSettings",
    "OpsSettings",
    "PageSettings",
    "PeerSettings",
    "PrioritySettings",
    "QueueSettings",
    "QuotaBy",
    "QuotaSettings",
    "Rate",
    "RelaySettings",
    "RemoteNetSettings",
    "ReplyAction",
    "ReplyRuleSettings",
    "ReportSettings",
    "Rotation",
    "Secret",
    "SenderRightSettings",
    "SenderSettings",
    "ServerNetworkSettings",
    "ServerSettings",
    "Settings",
    "ShardSettings",
    "Source",
    "SpoolSettings",
    "SslSettings",
    "StoreSettings",
    "SubmitSettings",
    "Suppressing",
    "TenantBy",
    "TlsPolicy",
    "TracesSettings",
    "WebhookSettings",
    "ZoneMatchSettings",
    "ZoneSettings",
]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ApplicationSettings:
    """Settings of the whole server."""

    announcehost: str = setting("%SYSNAME%", "host name that the server announces itself by", HOST_NAME)
    user: str | None = setting(
        None, "system user that root becomes once the ports are bound; none = no change", USER
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that a configuration file says, defaults filled in."""

    application: ApplicationSettings = block(ApplicationSettings())
    queue: QueueSettings = block(QueueSettings(), within="mta")
    submit: SubmitSettings = block(SubmitSettings(), within="mta")
    deliver: DeliverSettings = block(DeliverSettings(), within="mta")
    report: ReportSettings = block(ReportSettings(), within="mta")
    ops: OpsSettings = block(OpsSettings())

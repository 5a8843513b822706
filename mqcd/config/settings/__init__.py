"""The settings of one server: frozen values, each declared in one place.

A field declares everything about a setting: default, meaning, kind with its bounds, and place in the file. A
bound beyond which a value is corrected, not refused, stands beside it; `config.checks.complete` applies it.
Loading and showing follow from that (`config.schema`); conf/mqcd.xml and the tables of docs/configuration.md
are only compared with it by tests. For a new setting see docs/changing.md.

Units throughout: durations in integer milliseconds, sizes in integer octets, shares in integer percent,
paths absolute; 0 means "no limit" where the field says so. `%TOKEN%` stands only in defaults that depend
on the machine (paths, host names): the loader replaces each, and fills in what one block takes from
another (announced names, the reports' sender, the number of connections).

`X as X` makes a name one that others import from here.
"""

from mqcd.config.blocks import block, setting
from mqcd.config.kinds.names import HOST_NAME, USER
from mqcd.config.kinds.values import AuthType as AuthType
from mqcd.config.kinds.values import BareNewline as BareNewline
from mqcd.config.kinds.values import Direction as Direction
from mqcd.config.kinds.values import HostPattern as HostPattern
from mqcd.config.kinds.values import HostPort as HostPort
from mqcd.config.kinds.values import ListenerProtocol as ListenerProtocol
from mqcd.config.kinds.values import LogFormat as LogFormat
from mqcd.config.kinds.values import LogLevel as LogLevel
from mqcd.config.kinds.values import Mechanism as Mechanism
from mqcd.config.kinds.values import Network as Network
from mqcd.config.kinds.values import QuotaBy as QuotaBy
from mqcd.config.kinds.values import Rate as Rate
from mqcd.config.kinds.values import ReplyAction as ReplyAction
from mqcd.config.kinds.values import Rotation as Rotation
from mqcd.config.kinds.values import Secret as Secret
from mqcd.config.kinds.values import Source as Source
from mqcd.config.kinds.values import Suppressing as Suppressing
from mqcd.config.kinds.values import TenantBy as TenantBy
from mqcd.config.kinds.values import TlsPolicy as TlsPolicy
from mqcd.config.settings.client import AuthSettings as AuthSettings
from mqcd.config.settings.client import ClientSettings as ClientSettings
from mqcd.config.settings.client import RemoteNetSettings as RemoteNetSettings
from mqcd.config.settings.client import SslSettings as SslSettings
from mqcd.config.settings.deliver import DeliverSettings as DeliverSettings
from mqcd.config.settings.deliver import DestinationSettings as DestinationSettings
from mqcd.config.settings.deliver import DnsSettings as DnsSettings
from mqcd.config.settings.deliver import RelaySettings as RelaySettings
from mqcd.config.settings.deliver import ReplyRuleSettings as ReplyRuleSettings
from mqcd.config.settings.deliver import SenderSettings as SenderSettings
from mqcd.config.settings.deliver import ZoneMatchSettings as ZoneMatchSettings
from mqcd.config.settings.deliver import ZoneSettings as ZoneSettings
from mqcd.config.settings.listenertls import ListenerSslSettings as ListenerSslSettings
from mqcd.config.settings.logs import AuditSettings as AuditSettings
from mqcd.config.settings.logs import LogSettings as LogSettings
from mqcd.config.settings.ops import AdviceSettings as AdviceSettings
from mqcd.config.settings.ops import ControlSettings as ControlSettings
from mqcd.config.settings.ops import EventsSettings as EventsSettings
from mqcd.config.settings.ops import FeedsSettings as FeedsSettings
from mqcd.config.settings.ops import MetricsSettings as MetricsSettings
from mqcd.config.settings.ops import OpsSettings as OpsSettings
from mqcd.config.settings.ops import PageSettings as PageSettings
from mqcd.config.settings.ops import TracesSettings as TracesSettings
from mqcd.config.settings.ops import WebhookSettings as WebhookSettings
from mqcd.config.settings.queue import CLUSTER as CLUSTER
from mqcd.config.settings.queue import HeldDomainSettings as HeldDomainSettings
from mqcd.config.settings.queue import JournalSettings as JournalSettings
from mqcd.config.settings.queue import QueueSettings as QueueSettings
from mqcd.config.settings.queue import ShardSettings as ShardSettings
from mqcd.config.settings.queue import SpoolSettings as SpoolSettings
from mqcd.config.settings.queue import StoreSettings as StoreSettings
from mqcd.config.settings.report import ReportSettings as ReportSettings
from mqcd.config.settings.submit import LOCAL as LOCAL
from mqcd.config.settings.submit import ListenerSettings as ListenerSettings
from mqcd.config.settings.submit import LocalSettings as LocalSettings
from mqcd.config.settings.submit import NetworkSettings as NetworkSettings
from mqcd.config.settings.submit import PeerSettings as PeerSettings
from mqcd.config.settings.submit import PrioritySettings as PrioritySettings
from mqcd.config.settings.submit import QuotaSettings as QuotaSettings
from mqcd.config.settings.submit import SenderRightSettings as SenderRightSettings
from mqcd.config.settings.submit import ServerNetworkSettings as ServerNetworkSettings
from mqcd.config.settings.submit import ServerSettings as ServerSettings
from mqcd.config.settings.submit import SubmitSettings as SubmitSettings
from mqcd.core.value import value


@value
class ApplicationSettings:
    """Settings of the whole server."""

    announcehost: str = setting("%SYSNAME%", "host name that the server announces itself by", HOST_NAME)
    user: str | None = setting(
        None, "system user that root becomes once the ports are bound; none = no change", USER
    )


@value
class Settings:
    """Everything that a configuration file says, defaults filled in."""

    application: ApplicationSettings = block(ApplicationSettings())
    queue: QueueSettings = block(QueueSettings(), within="mta")
    submit: SubmitSettings = block(SubmitSettings(), within="mta")
    deliver: DeliverSettings = block(DeliverSettings(), within="mta")
    report: ReportSettings = block(ReportSettings(), within="mta")
    ops: OpsSettings = block(OpsSettings())

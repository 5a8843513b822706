"""The settings of operation: metrics, health, log, events."""

import pathlib

from mqcd.config.blocks import attribute, block, many, setting
from mqcd.config.kinds.fields import PORT, YES_NO, Choice, Count, Duration, FilePath, Listed, Size
from mqcd.config.kinds.names import GROUP, HOST_NAME, NAME, QUOTA_MATCH, URL, Address
from mqcd.config.settings.logs import LogSettings
from mqcd.core.events import Verb
from mqcd.core.units import DAY, GIB, MINUTE, SECOND
from mqcd.core.value import value


@value
class EventsSettings:
    """The event files that the analytics read."""

    rootpath: pathlib.Path = setting(
        pathlib.Path("%DIRVAR%/events"), "directory of the event files", FilePath()
    )
    maxage: int = setting(30 * DAY, "age at which an event file is removed; 0 = never", Duration())
    maxsize: int = setting(
        10 * GIB, "octets of all event files above which the oldest are removed; 0 = no limit", Size()
    )
    hashkey: pathlib.Path | None = setting(
        None,
        "file with the key that hashes addresses; none = addresses in clear",
        FilePath(),
        at="hashkey@file",
    )


@value
class MetricsSettings:
    """How detailed /metrics is."""

    sites: int = attribute(
        50,
        "how many of the busiest destinations have their own figures, at most 1000; others count together",
        Count(most=1000),
    )


@value
class AdviceSettings:
    """Advice of the analytics that the server applies."""

    rootpath: pathlib.Path = setting(
        pathlib.Path("%DIRVAR%/advice"), "directory of the advice files", FilePath()
    )


@value
class ControlSettings:
    """The socket over which commands reach the running server."""

    path: pathlib.Path = attribute(pathlib.Path("%DIRVAR%/control.sock"), "path of the socket", FilePath())
    batches: pathlib.Path = attribute(
        pathlib.Path("%DIRVAR%/batches"), "directory of the operators' actions that are under way", FilePath()
    )
    rules: pathlib.Path | None = attribute(
        None, "file of the standing rules; none = rules/rules.json in the queue's", FilePath()
    )
    group: str | None = attribute(None, "group that may use it besides the server's user", GROUP)


@value
class PageSettings:
    """The page for people and the HTTP API, served by a process of their own."""

    enabled: bool = attribute(
        False, "Y: the server runs it; not given: where anything else of the block is", YES_NO
    )
    interface: str = attribute("127.0.0.1", "IP address of the page", Address())
    port: int = attribute(9126, "TCP port of the page; 0 = any free one", PORT)
    certfile: pathlib.Path | None = attribute(
        None, "certificate with its chain (PEM); none = no TLS", FilePath()
    )
    keyfile: pathlib.Path | None = attribute(None, "its key (PEM); none = in certfile", FilePath())
    tokens: pathlib.Path = attribute(
        pathlib.Path("%DIRVAR%/tokens"), "file of the tokens (`mqcd token`)", FilePath()
    )
    open: bool = attribute(
        False, "Y: on a loopback address anybody may do everything, without a token", YES_NO
    )


@value
class WebhookSettings:
    """A URL that events of the log are sent to."""

    name: str = attribute("", "name of the webhook in requests and log; must be given", NAME, required=True)
    url: str = attribute("", "where its requests go; must be given", URL, required=True)
    secretfile: pathlib.Path | None = attribute(
        None, "file with the secrets that requests are signed with, one a line; none = not signed", FilePath()
    )
    events: tuple[Verb, ...] = attribute(
        (), "verbs of the events that are sent; none = all", Listed(Choice(Verb))
    )
    tenants: tuple[str, ...] = attribute((), "tenants whose events are sent; none = all", Listed(QUOTA_MATCH))
    most: int = attribute(500, "events of one request; 1 to 10000", Count(least=1, most=10_000))
    timeout: int = attribute(
        10 * SECOND, "how long a reply is waited for; 1s to 10m", Duration(least=SECOND, most=10 * MINUTE)
    )
    from_start: bool = attribute(
        False, "Y: a new webhook begins with the oldest event there is, not with the next one", YES_NO
    )


@value
class TracesSettings:
    """Traces of messages for OpenTelemetry, made of the event log."""

    endpoint: str | None = attribute(
        None,
        "URL of a collector of OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces; none = no traces",
        URL,
    )
    most: int = attribute(500, "events of one request; 1 to 10000", Count(least=1, most=10_000))


@value
class FeedsSettings:
    """The event log, sent on by a process of its own."""

    rootpath: pathlib.Path = setting(
        pathlib.Path("%DIRVAR%/feeds"), "directory of the feeds' positions in the event log", FilePath()
    )
    webhooks: tuple[WebhookSettings, ...] = many(WebhookSettings, "webhook")
    traces: TracesSettings = block(TracesSettings())


@value
class OpsSettings:
    """Operation: metrics, health, log, events."""

    interface: str = attribute("127.0.0.1", "IP address of the HTTP listener", Address())
    port: int = attribute(9125, "TCP port of the HTTP listener; 0 = any free one", PORT)
    hosts: tuple[str, ...] = setting(
        (), "accepted names in Host, besides addresses, localhost and this server's own", Listed(HOST_NAME)
    )
    node: str = setting("%SYSNAME%", "name of this machine in event files and event ids", NAME)
    log: LogSettings = block(LogSettings())
    metrics: MetricsSettings = block(MetricsSettings())
    events: EventsSettings = block(EventsSettings())
    advice: AdviceSettings = block(AdviceSettings())
    control: ControlSettings = block(ControlSettings())
    page: PageSettings = block(PageSettings())
    feeds: FeedsSettings = block(FeedsSettings())

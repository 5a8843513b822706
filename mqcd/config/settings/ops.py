"""The settings of operation: metrics, health, log, events."""

# `setting`, `block` and `many` are field specifiers: they are meant to be called in the class body.
# ruff: noqa: RUF009
import dataclasses
import pathlib

from mqcd.config.blocks import block, setting
from mqcd.config.kinds.fields import PORT, YES_NO, Count, Duration, FilePath, Listed, Optional, Size
from mqcd.config.kinds.names import GROUP, HOST_NAME, NAME, Address
from mqcd.config.settings.logs import LogSettings
from mqcd.core.units import DAY, GIB


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
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
        Optional(FilePath()),
        at="hashkey@file",
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MetricsSettings:
    """How detailed /metrics is."""

    sites: int = setting(
        50,
        "how many of the busiest destinations have their own figures; others count together",
        Count(most=1000),
        at="@sites",
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AdviceSettings:
    """Advice of the analytics that the server applies."""

    rootpath: pathlib.Path = setting(
        pathlib.Path("%DIRVAR%/advice"), "directory of the advice files", FilePath()
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ControlSettings:
    """The socket over which commands reach the running server."""

    path: pathlib.Path = setting(
        pathlib.Path("%DIRVAR%/control.sock"), "path of the socket", FilePath(), at="@path"
    )
    batches: pathlib.Path = setting(
        pathlib.Path("%DIRVAR%/batches"),
        "directory of the operators' actions that are under way",
        FilePath(),
        at="@batches",
    )
    rules: pathlib.Path | None = setting(
        None,
        "file of the standing rules; none = rules/rules.json in the queue's",
        Optional(FilePath()),
        at="@rules",
    )
    group: str | None = setting(
        None, "group that may use it besides the server's user", Optional(GROUP), at="@group"
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PageSettings:
    """The page for people and the HTTP API, served by a process of their own."""

    enabled: bool = setting(
        False,
        "Y: the server runs it; not given: where anything else of the block is",
        YES_NO,
        at="@enabled",
    )
    interface: str = setting("127.0.0.1", "IP address of the page", Address(), at="@interface")
    port: int = setting(9126, "TCP port of the page; 0 = any free one", PORT, at="@port")
    certfile: pathlib.Path | None = setting(
        None, "certificate with its chain (PEM); none = no TLS", Optional(FilePath()), at="@certfile"
    )
    keyfile: pathlib.Path | None = setting(
        None, "its key (PEM); none = in certfile", Optional(FilePath()), at="@keyfile"
    )
    tokens: pathlib.Path = setting(
        pathlib.Path("%DIRVAR%/tokens"), "file of the tokens (`mqcd token`)", FilePath(), at="@tokens"
    )
    open: bool = setting(
        False, "Y: on a loopback address anybody may do everything, without a token", YES_NO, at="@open"
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class OpsSettings:
    """Operation: metrics, health, log, events."""

    interface: str = setting("127.0.0.1", "IP address of the HTTP listener", Address(), at="@interface")
    port: int = setting(9125, "TCP port of the HTTP listener; 0 = any free one", PORT, at="@port")
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

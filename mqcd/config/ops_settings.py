"""The settings of what operators look at: frozen values, as in `settings`, whose units they have."""

# `setting` is a field specifier: it is meant to be called in the class body.
# ruff: noqa: RUF009
import dataclasses
import pathlib

from mqcd.config.glossed import setting
from mqcd.config.logs import LogSettings
from mqcd.config.units import DAY, GIB


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class EventsSettings:
    """The event files that the analytics read."""

    rootpath: pathlib.Path = setting(
        pathlib.Path("%DIRVAR%/events"), "directory of the event files", "absolute path"
    )
    maxage: int = setting(30 * DAY, "age at which an event file is removed; 0 = never", "milliseconds")
    maxsize: int = setting(
        10 * GIB, "octets of all event files above which the oldest are removed; 0 = no limit"
    )
    hashkey: pathlib.Path | None = setting(
        None, "file with the key that hashes addresses; none = addresses in clear", "absolute path"
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MetricsSettings:
    """How much /metrics tells apart."""

    sites: int = setting(
        50, "how many of the busiest destinations have their own figures; others count together"
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AdviceSettings:
    """What the analytics advise, and the server goes by."""

    rootpath: pathlib.Path = setting(
        pathlib.Path("%DIRVAR%/advice"), "directory of the advice files", "absolute path"
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ControlSettings:
    """The socket over which commands reach the running server."""

    path: pathlib.Path = setting(pathlib.Path("%DIRVAR%/control.sock"), "path of the socket", "absolute path")
    group: str | None = setting(None, "group that may use it besides the server's user")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class OpsSettings:
    """What operators look at: metrics, health, log, events."""

    interface: str = setting("127.0.0.1", "IP address of the HTTP listener")
    port: int = setting(9125, "TCP port of the HTTP listener; 0 = any free one")
    hosts: tuple[str, ...] = setting(
        (), "accepted names in Host, besides addresses, localhost and this server's own"
    )
    node: str = setting("%SYSNAME%", "name of this machine in event files and event ids")
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    events: EventsSettings = EventsSettings()
    advice: AdviceSettings = AdviceSettings()
    control: ControlSettings = ControlSettings()

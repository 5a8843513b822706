"""The settings of what is written as lines: the log, and the audit logs of mail out and mail back."""

# `setting` is a field specifier: it is meant to be called in the class body.
# ruff: noqa: RUF009
import dataclasses
import enum
import pathlib

from mqcd.config.glossed import setting


class LogFormat(enum.Enum):
    """How a log line is written."""

    LOGFMT = "logfmt"
    JSON = "json"


class LogLevel(enum.Enum):
    """The least grave kind of line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Rotation(enum.Enum):
    """How often an audit log goes on in another file."""

    NEVER = "never"
    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    YEARLY = "yearly"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AuditSettings:
    """What the blocks of mail out and mail back say of their audit logs."""

    audit: pathlib.Path | None = setting(
        None,
        "audit log: a line for each delivered (deliver) or failed (report) recipient; none = no log",
        "absolute path",
    )
    audit_rot: Rotation = setting(
        Rotation.NEVER, "how often a new file begins: never, hourly, daily, weekly, monthly or yearly"
    )
    audit_maxfile: int = setting(0, "octets at which a new file begins as well; 0 = no limit")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LogSettings:
    """The log on standard error."""

    format: LogFormat = setting(LogFormat.LOGFMT, "format of a line: logfmt or json")
    level: LogLevel = setting(LogLevel.INFO, "lowest level that is logged: debug, info, warning or error")

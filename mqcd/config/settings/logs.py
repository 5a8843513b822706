"""The settings of what is written as lines: the log, and the audit logs of mail out and reports."""

import pathlib

from mqcd.config.blocks import attribute, setting
from mqcd.config.kinds.fields import Choice, FilePath, Size
from mqcd.config.kinds.values import LogFormat, LogLevel, Rotation
from mqcd.core.value import value


@value
class AuditSettings:
    """What the blocks of mail out and mail back say of their audit logs."""

    audit: pathlib.Path | None = setting(
        None,
        "audit log: a line for each delivered (deliver) or failed (report) recipient; none = no log",
        FilePath(),
    )
    audit_rot: Rotation = setting(
        Rotation.NEVER,
        "how often a new file begins: never, hourly, daily, weekly, monthly or yearly",
        Choice(Rotation),
        at="audit@rot",
    )
    audit_maxfile: int = setting(
        0, "octets at which a new file begins as well; 0 = no limit", Size(), at="audit@maxfile"
    )


@value
class LogSettings:
    """The log on standard error."""

    format: LogFormat = attribute(LogFormat.LOGFMT, "format of a line: logfmt or json", Choice(LogFormat))
    level: LogLevel = attribute(
        LogLevel.INFO, "lowest level that is logged: debug, info, warning or error", Choice(LogLevel)
    )

"""What differs between two configurations, and which of it a running server can take over. Pure.

A change is named by the path of settings that a reader of the file knows. What is not in RELOADABLE
needs a restart: it is what the server has bound, opened or divided its memory by.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from mqcd.config.settings import Settings

RELOADABLE = (
    "ops.log",
    "report",
    "queue.retry_delays",
    "queue.retry_maxtime",
    "queue.retry_maxtime_reports",
    "queue.retry_jitter",
    "submit.listeners.*.server",
    "deliver.relays",
    "deliver.client",
    "deliver.smtpport",
)
"""Settings that take effect on SIGHUP; `*` stands for one listener's name."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """What has changed."""

    applied: tuple[str, ...]
    """Can take effect at once."""
    needs_restart: tuple[str, ...]
    """Stays as it was until the server is started again."""


def compare(old: Settings, new: Settings) -> Changes:
    """The difference, setting by setting."""
    paths = list(_differences("", old, new))
    return Changes(
        applied=tuple(path for path in paths if _reloadable(path)),
        needs_restart=tuple(path for path in paths if not _reloadable(path)),
    )


def _differences(path: str, old: Any, new: Any) -> Iterator[str]:
    if old == new:
        return
    if path == "submit.listeners" and [each.name for each in old] == [each.name for each in new]:
        for before, after in zip(old, new, strict=True):
            yield from _differences(f"{path}.{before.name}", before, after)
    elif dataclasses.is_dataclass(old) and type(old) is type(new):
        for field in dataclasses.fields(old):
            inner = f"{path}.{field.name}" if path else field.name
            yield from _differences(inner, getattr(old, field.name), getattr(new, field.name))
    else:
        yield path


def _reloadable(path: str) -> bool:
    words = path.split(".")
    return any(_covers(pattern.split("."), words) for pattern in RELOADABLE)


def _covers(pattern: list[str], words: list[str]) -> bool:
    # A listener's name may itself hold a dot; the setting's own name follows the last `server`.
    if "*" in pattern:
        head = pattern[: pattern.index("*")]
        return words[: len(head)] == head and pattern[-1] in words[len(head) + 1 :]
    return words[: len(pattern)] == pattern

"""What the process of the feeds is given, and what must be there for it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from mqcd.config.settings import FeedsSettings, LogSettings, Settings
from mqcd.core.errors import ConfigError
from mqcd.core.value import value

TRACES = "traces"
"""The name of the feed of traces."""


@value
class Terms:
    """Plain data: it travels between processes."""

    feeds: FeedsSettings
    events: Path
    """Directory of the event files."""
    node: str
    log: LogSettings


def wanted(settings: Settings) -> bool:
    """Whether there is a feed. A read-only server has no events of its own."""
    feeds = settings.ops.feeds
    return bool(feeds.webhooks or feeds.traces.endpoint) and not settings.queue.read_only


def terms_of(settings: Settings) -> Terms:
    """What the process needs of the settings."""
    ops = settings.ops
    return Terms(feeds=ops.feeds, events=ops.events.rootpath, node=ops.node, log=ops.log)


def check_feeds(settings: Settings) -> None:
    """Raises ConfigError where an extra is missing, with the command that installs it."""
    feeds = settings.ops.feeds
    if feeds.webhooks:
        _check("ops/feeds/webhooks", "webhooks", ["httpx"])
    if feeds.traces.endpoint:
        _check("ops/feeds/traces", "otel", ["opentelemetry"])


def _check(place: str, extra: str, packages: Iterable[str]) -> None:
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{place}: {', '.join(missing)} is missing: pip install 'mqcd[{extra}]'")


def names_of(settings: Settings) -> list[str]:
    """All feeds of a configuration."""
    feeds = settings.ops.feeds
    return [*(each.name for each in feeds.webhooks), *([TRACES] if feeds.traces.endpoint else [])]

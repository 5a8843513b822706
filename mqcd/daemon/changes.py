"""What of a new configuration a running server takes over, and what has to wait for a restart. Pure.

A change is named by the path of settings that a reader of the file knows. What waits is what the server
has bound, opened, or divided its memory by.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from mqcd.config.settings import ListenerSettings, Settings


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """What a new configuration changes."""

    settings: Settings
    """The old ones with everything that takes effect at once."""
    applied: tuple[str, ...]
    """Takes effect at once."""
    needs_restart: tuple[str, ...]
    """Stays as it was until the server is started again."""


def compare(old: Settings, new: Settings) -> Changes:
    """The difference, setting by setting."""
    adopted = _adopt(old, new)
    return Changes(
        settings=adopted,
        applied=tuple(_differences("", old, adopted)),
        needs_restart=tuple(_differences("", adopted, new)),
    )


def _adopt(old: Settings, new: Settings) -> Settings:
    """The old settings, with those new ones that a running server can go by."""
    servers = {listener.name: listener.server for listener in new.submit.listeners}
    listeners = tuple(_with_server(each, servers) for each in old.submit.listeners)
    queue = dataclasses.replace(
        old.queue,
        retry_delays=new.queue.retry_delays,
        retry_maxtime=new.queue.retry_maxtime,
        retry_maxtime_reports=new.queue.retry_maxtime_reports,
        retry_jitter=new.queue.retry_jitter,
    )
    return dataclasses.replace(
        old,
        queue=queue,
        deliver=dataclasses.replace(new.deliver, dns=old.deliver.dns),
        submit=dataclasses.replace(old.submit, listeners=listeners),
        report=new.report,
        ops=dataclasses.replace(old.ops, log=new.ops.log),
    )


def _with_server(listener: ListenerSettings, servers: dict[str, Any]) -> ListenerSettings:
    return dataclasses.replace(listener, server=servers.get(listener.name, listener.server))


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

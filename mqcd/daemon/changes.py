"""What of a new configuration a running server takes over, and what has to wait for a restart. Pure.

A change is named by its path in the file, such as `mta/queue/minfree`. What waits is what the server
has bound, opened, or divided its memory by.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from mqcd.config.blocks import Block, Many, join
from mqcd.config.schema import ROOT
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
        applied=tuple(_differences(ROOT, "", old, adopted)),
        needs_restart=tuple(_differences(ROOT, "", adopted, new)),
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
    kept = new.ops.events
    events = dataclasses.replace(old.ops.events, maxage=kept.maxage, maxsize=kept.maxsize)
    return dataclasses.replace(
        old,
        queue=queue,
        deliver=dataclasses.replace(new.deliver, dns=old.deliver.dns),
        submit=dataclasses.replace(new.submit, listeners=listeners),
        report=new.report,
        ops=dataclasses.replace(old.ops, log=new.ops.log, hosts=new.ops.hosts, events=events),
    )


def _with_server(listener: ListenerSettings, servers: dict[str, Any]) -> ListenerSettings:
    return dataclasses.replace(listener, server=servers.get(listener.name, listener.server))


def _differences(block: Block, path: str, old: Any, new: Any) -> Iterator[str]:
    """Paths of what differs in the settings of the block at `path`."""
    for entry in block.entries:
        if isinstance(entry, Block) and entry.fills is None:
            yield from _differences(entry, join(path, entry.name), old, new)
            continue
        before, after = getattr(old, entry.attribute), getattr(new, entry.attribute)
        if before == after:
            continue
        here = join(path, entry.name)
        if isinstance(entry, Block):
            yield from _differences(entry, here, before, after)
        elif isinstance(entry, Many) and _names(before) == _names(after) != []:
            for name, one, other in zip(_names(before), before, after, strict=True):
                yield from _differences(entry.item, f"{here}/{entry.item.name}[{name}]", one, other)
        else:
            yield here


def _names(items: Sequence[Any]) -> list[str]:
    """What tells the items of a list apart; none where they have no names."""
    return [item.name for item in items if isinstance(item, ListenerSettings)]

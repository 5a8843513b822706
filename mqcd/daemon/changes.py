"""Which changes of a configuration take effect in a running server, and which need a restart. Pure.

A change is named by its path in the file, such as `mta/queue/minfree`. What waits is what the server
has bound, opened, or divided its memory by.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from mqcd.config.blocks import Block, Many, join
from mqcd.config.schema import ROOT
from mqcd.config.settings import (
    DestinationSettings,
    ListenerSettings,
    RelaySettings,
    SenderSettings,
    Settings,
    SubmitSettings,
    ZoneSettings,
)
from mqcd.core.value import value


@value
class Changes:
    """What a new configuration changes."""

    settings: Settings
    """The old ones with everything that takes effect at once."""
    applied: tuple[str, ...]
    """Takes effect at once."""
    needs_restart: tuple[str, ...]
    """Stays as it was until the server is started again."""
    refused: tuple[str, ...] = ()
    """Stays as it was because a filter, a list or users cannot be had; the next reload tries again."""


def compare(old: Settings, new: Settings) -> Changes:
    """The difference, setting by setting."""
    adopted = _adopt(old, new)
    return Changes(
        settings=adopted,
        applied=tuple(_differences(ROOT, "", old, adopted)),
        needs_restart=tuple(_differences(ROOT, "", adopted, new)),
    )


def refuse(old: Settings, changes: Changes, submit: SubmitSettings) -> Changes:
    """The changes of the old settings where the doors go by these ones now."""
    settings = dataclasses.replace(changes.settings, submit=submit)
    return Changes(
        settings=settings,
        applied=tuple(_differences(ROOT, "", old, settings)),
        needs_restart=changes.needs_restart,
        refused=tuple(_differences(ROOT, "", settings, changes.settings)),
    )


def _adopt(old: Settings, new: Settings) -> Settings:
    """The old settings, with those new ones that a running server can go by."""
    named = {listener.name: listener for listener in new.submit.listeners}
    listeners = tuple(_reloaded(each, named.get(each.name, each)) for each in old.submit.listeners)
    queue = dataclasses.replace(
        old.queue,
        retry_delays=new.queue.retry_delays,
        retry_maxtime=new.queue.retry_maxtime,
        retry_maxtime_reports=new.queue.retry_maxtime_reports,
        retry_jitter=new.queue.retry_jitter,
        grace=new.queue.grace,
        held=new.queue.held,
        held_maxtime=new.queue.held_maxtime,
        held_probe_interval=new.queue.held_probe_interval,
    )
    kept = new.ops.events
    events = dataclasses.replace(old.ops.events, maxage=kept.maxage, maxsize=kept.maxsize)
    local = dataclasses.replace(new.submit.local, rootpath=old.submit.local.rootpath)
    submit = dataclasses.replace(new.submit, listeners=listeners, local=local, greylist=old.submit.greylist)
    return dataclasses.replace(
        old,
        queue=queue,
        deliver=dataclasses.replace(new.deliver, dns=old.deliver.dns),
        submit=submit,
        report=new.report,
        ops=dataclasses.replace(old.ops, log=new.ops.log, hosts=new.ops.hosts, events=events),
    )


def _reloaded(old: ListenerSettings, new: ListenerSettings) -> ListenerSettings:
    return dataclasses.replace(old, server=new.server, ssl=new.ssl)


def _differences(block: Block, path: str, old: Any, new: Any) -> Iterator[str]:
    """Paths of what differs in the settings of the block at `path`."""
    if block.free:
        given = [{each.name: each for each in getattr(values, block.free)} for values in (old, new)]
        names = dict.fromkeys([*given[0], *given[1]])
        yield from (join(path, name) for name in names if given[0].get(name) != given[1].get(name))
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
        elif isinstance(entry, Many):
            yield from _in_list(entry, here, before, after)
        else:
            yield here


def _in_list(many: Many, path: str, before: Sequence[Any], after: Sequence[Any]) -> Iterator[str]:
    """Paths of what differs in a list: the values of items in both, the items that are in one alone."""
    old, new = _by_name(before), _by_name(after)
    if old is None or new is None or [name for name in old if name in new] != [n for n in new if n in old]:
        # What comes first may matter.
        yield path
        return
    for name in dict.fromkeys([*old, *new]):
        here = join(path, f"{many.item.name}[{name}]")
        if name in old and name in new:
            yield from _differences(many.item, here, old[name], new[name])
        else:
            yield here


def _by_name(items: Sequence[Any]) -> dict[str, Any] | None:
    """The items of a list by name; None where names are missing or repeated."""
    named = {_name(item): item for item in items}
    return named if len(named) == len(items) and "" not in named else None


def _name(item: Any) -> str:
    match item:
        case ListenerSettings() | ZoneSettings():
            return item.name
        case DestinationSettings() | SenderSettings():
            return item.match
        case RelaySettings():
            return f"{item.address.host}:{item.address.port}"
        case _:
            return ""

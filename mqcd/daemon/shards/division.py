"""How one configuration is divided among shards. Pure but for the look at which shards exist.

Each shard is a queue with roots of its own and a server process of its own. What bounds the whole server is
divided: memory, caches, connections. A shard that exists beyond the configured number is opened without
listeners until it is empty.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mqcd.config.settings import CLUSTER, AuditSettings, Settings
from mqcd.core.units import MIB
from mqcd.daemon.rules.book import rules_path
from mqcd.queue.memory.shard_state import Options
from mqcd.queue.roots import Roots, existing, roots_of

MOST_BY_ITSELF = 4
"""Shards that `auto` makes at most."""
_LEAST_MEMORY = MIB


def count(settings: Settings) -> int:
    """How many shards take mail."""
    if settings.queue.store.kind != CLUSTER:
        return 1
    return settings.queue.shards or min(len(os.sched_getaffinity(0)), MOST_BY_ITSELF)


def numbers(settings: Settings) -> Sequence[int]:
    """The shards to run: shards that take mail, then other existing ones. Raises OSError."""
    wanted = count(settings)
    if settings.queue.store.kind != CLUSTER:
        return [0]
    there = existing(settings.queue.rootpath, settings.queue.spool.rootpath)
    return [*range(wanted), *(each.shard for each in there if each.shard >= wanted)]


def own_roots(settings: Settings, shard: int) -> Roots:
    """Where the settings say that a shard lies."""
    queue = settings.queue
    below = roots_of(shard, queue.rootpath, queue.spool.rootpath)
    if not 0 < shard < len(queue.places):
        return below
    place = queue.places[shard]
    return replace(below, queue=place.rootpath or below.queue, spool=place.spool or below.spool)


def shards_of(options: Options) -> list[Options]:
    """The options of each shard that is there, by those of a server. Raises OSError."""
    settings = options.settings
    return [
        replace(
            options,
            settings=replace(
                settings, rootpath=each.queue, spool=replace(settings.spool, rootpath=each.spool)
            ),
            source=replace(options.source, shard=each.shard),
        )
        for each in existing(settings.rootpath, settings.spool.rootpath)
    ]


def control_path(path: Path, shard: int) -> Path:
    """Where the server process of a shard answers: for the front process alone."""
    return path.with_name(f"{path.name}.{shard}")


def settings_of(settings: Settings, shard: int, of: int) -> Settings:
    """The settings of the server process of one shard, `of` so many that run, also without listeners."""
    queue, deliver = settings.queue, settings.deliver
    roots = own_roots(settings, shard)
    return replace(
        settings,
        queue=replace(
            queue,
            rootpath=roots.queue,
            memorybudget=max(queue.memorybudget // of, _LEAST_MEMORY),
            spool=replace(
                queue.spool, rootpath=roots.spool, maxspidcache=_share(queue.spool.maxspidcache, of)
            ),
        ),
        deliver=replace(
            deliver,
            queuecache=_share(deliver.queuecache, of),
            maxconnections=_share(deliver.maxconnections, of),
            # Connections to a destination are divided where policies are made (`deliver.routing.policy`).
            audit=_audit(deliver, shard),
        ),
        report=replace(settings.report, audit=_audit(settings.report, shard)),
        ops=replace(
            settings.ops,
            control=replace(
                settings.ops.control,
                path=control_path(settings.ops.control.path, shard),
                rules=rules_path(settings),
                group=None,
            ),
        ),
    )


def _share(most: int, of: int) -> int:
    """0 stays "no limit"; a process that had none could do nothing."""
    return max(most // of, 1) if most else 0


def _audit(settings: AuditSettings, shard: int) -> Path | None:
    """Two processes cannot rotate one file."""
    path = settings.audit
    if path is None or not shard:
        return path
    return path.with_name(f"{path.stem}-{shard}{path.suffix}")

"""The engine's figures as metrics want them, put together from where they are counted."""

from __future__ import annotations

from collections.abc import Mapping

from mqcd.core.figures import Distribution, EngineFigures
from mqcd.queue.memory.shard_state import Shard


def engine_figures(shard: Shard, free: Mapping[str, tuple[int, int]]) -> EngineFigures:
    """`free`: octets and inodes that are free, by root."""
    figures = shard.figures
    return EngineFigures(
        commit_seconds=figures.commit_us.scaled(1_000_000),
        commit_group_size=figures.group_size.scaled(1),
        syncs=figures.syncs,
        journal_fill_ratio=shard.ring.fill,
        evacuation_seconds=Distribution(counts=(figures.evacuations,), total=figures.evacuation_ms / 1000),
        spid_cache_entries=len(shard.references),
        spid_cache_misses=shard.references.misses,
        reference_batch=len(shard.references.batch),
        reference_scan_seconds=Distribution(
            counts=(figures.reference_scans,), total=figures.reference_scan_ms / 1000
        ),
        recovery_seconds=figures.recovery_ms / 1000,
        quarantined_lines=figures.quarantined,
        unreadable_frames=figures.unreadable,
        removed_event_files=figures.removed_event_files,
        dropped_edits=figures.dropped_edits,
        hung_helpers=shard.helper.hung,
        idempotency_keys=shard.keys.count,
        idempotent_repeats=shard.keys.repeats,
        clock_leap_seconds=shard.time.off_by() / 1000,
        disk_free_bytes={name: octets for name, (octets, _) in free.items()},
        disk_free_inodes={name: inodes for name, (_, inodes) in free.items()},
    )

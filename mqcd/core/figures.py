"""Figures that a durable store shows besides its areas. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mqcd.core.value import value


@value
class Distribution:
    """How observed values spread, counted since the start."""

    bounds: Sequence[float] = ()
    """Upper bounds, growing, in the unit of what is observed."""
    counts: Sequence[int] = (0,)
    """How many values lie at or below each bound and above the one before; last, those above all."""
    total: float = 0.0
    """Sum of all values."""


@value
class EngineFigures:
    """Figures of a durable store, besides its areas. Counted since the start."""

    commit_seconds: Distribution
    """From the beginning of a group to its sync."""
    commit_group_size: Distribution
    """Frames made durable by one sync."""
    syncs: int
    journal_fill_ratio: float
    """Used share of the journal's ring, 0 to 1."""
    evacuation_seconds: Distribution
    spid_cache_entries: int
    spid_cache_misses: int
    reference_batch: int
    """Messages whose remaining recipients only a scan of the clusters can show."""
    reference_scan_seconds: Distribution
    recovery_seconds: float
    """How long the last start took until mail was accepted."""
    quarantined_lines: int
    unreadable_frames: int
    """Frames of the journal of which events are missing in the event files."""
    removed_event_files: int
    """Event files that were too old or too many."""
    dropped_edits: int
    """Edits at the end of the MANIFEST that the last start took for cut off."""
    hung_helpers: int
    """Helper processes that were killed because they made no progress."""
    clock_leap_seconds: float
    """How far the wall clock has leapt, below 0 backwards; 0 while it is believed."""
    idempotency_keys: int
    """Keys that are remembered, with some that are too old."""
    idempotent_repeats: int
    """Submissions that were repeats."""
    disk_free_bytes: Mapping[str, int]
    """Per root ("queue", "spool", "events")."""
    disk_free_inodes: Mapping[str, int]

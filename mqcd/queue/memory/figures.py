"""What the engine counts about itself, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from mqcd.core.figures import Distribution

BUCKETS_US = (100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000)
GROUP_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Histogram:
    """Counts by upper bound; the last count is of what is above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def add(self, value: int) -> None:
        """Count one value."""
        self.total += value
        for index, bound in enumerate(self.bounds):
            if value <= bound:
                self.counts[index] += 1
                return
        self.counts[-1] += 1

    def scaled(self, per: int) -> Distribution:
        """The counts so far, in units of which each holds `per` of ours."""
        bounds = [bound / per for bound in self.bounds]
        return Distribution(bounds=bounds, counts=list(self.counts), total=self.total / per)


@dataclass(slots=True)
class Figures:
    """One shard's."""

    commit_us: Histogram = field(default_factory=lambda: Histogram(BUCKETS_US))
    """Microseconds from the beginning of a group to its sync."""
    group_size: Histogram = field(default_factory=lambda: Histogram(GROUP_BUCKETS))
    """Frames in a group."""
    syncs: int = 0
    evacuations: int = 0
    evacuation_ms: int = 0
    reference_scans: int = 0
    reference_scan_ms: int = 0
    recovery_ms: int = 0
    quarantined: int = 0
    """Lines and stretches quarantined since the start."""
    unreadable: int = 0
    """Frames of which events are missing in the event files."""
    removed_event_files: int = 0
    """For their age, or for the size of all together."""
    hidden: int = 0
    """Outcomes that crashes have hidden (OUTCOME_UNKNOWN), in this start and in all before it: no recipient
    has seen more of them, unless it was imported (`requests.look`)."""
    dropped_edits: int = 0
    """Edits at the end of the MANIFEST that this start dropped."""

    def committed(self, frames: int, micros: int) -> None:
        """A group is durable."""
        self.commit_us.add(micros)
        self.group_size.add(frames)
        self.syncs += 1

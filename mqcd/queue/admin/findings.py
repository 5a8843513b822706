"""What a look at files finds: problems, and what is worth knowing without being one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from mqcd.core.errors import StoreDamaged
from mqcd.core.value import value


def plain(error: StoreDamaged) -> str:
    """What an error says, without its advice to run the command that reports it."""
    return str(error).removesuffix(" Run `mqcd fsck`.")


class Kind(StrEnum):
    """What is wrong, or worth knowing."""

    ROOTS = "roots"
    """The roots do not belong together."""
    MANIFEST = "manifest"
    JOURNAL = "journal"
    """A segment that must be there is not."""
    FRAME = "frame"
    """A stretch of a segment does not check."""
    CLUSTER = "cluster"
    """A cluster is missing, short, or cannot be read."""
    LINE = "line"
    """A record line does not check."""
    BLANK = "blank"
    """A blank line, which holds nothing."""
    COUNT = "count"
    """A cluster holds another number of records than the MANIFEST says."""
    HOME = "home"
    """A recipient is recorded twice: it has two record locations, its homes."""
    CONTENT = "content"
    """The content of an unfinished recipient is missing or has another length."""
    EVENTS = "events"
    """The event file of an import has not got its name."""
    KEYS = "keys"
    """A file of idempotency keys is missing, or does not check."""

    ORPHAN = "orphan"
    STRAY = "stray"
    QUARANTINE = "quarantine"


_UNREAD = frozenset((Kind.JOURNAL, Kind.FRAME, Kind.CLUSTER, Kind.LINE, Kind.COUNT))
"""Problems that hide records of unknown messages. Without a MANIFEST no orphans are looked for at all."""


@value(kw_only=False)
class Problem:
    """One finding and its place."""

    kind: Kind
    path: Path
    line: int | None
    """Number of the line, from 1; None where there are no lines."""
    text: str


@dataclass(slots=True)
class Findings:
    """All that a look at a queue found."""

    running: bool = False
    """A server had the queue meanwhile."""
    records: int = 0
    """Unfinished recipients."""
    contents: int = 0
    """Messages that they need, and that are there."""
    quarantined: int = 0
    """Lines and stretches in quarantine."""
    bereft: dict[Path, int] = field(default_factory=dict)
    """Contents that are nowhere, by where they should be, and how many unfinished recipients need each."""
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    """Legal, but worth knowing: orphans, strays, what is in quarantine."""
    damaged: list[str] = field(default_factory=list)
    """Clusters with lines that do not check, of which nothing is missing."""

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def withheld(self) -> str:
        """Why what seems to be an orphan may have an owner after all; empty when it has none."""
        if any(problem.kind in _UNREAD for problem in self.problems):
            return "records that cannot be read may need them; once those are put back, repair again"
        if self.quarantined:
            return "what lies in quarantine may need them; look at it, remove it, and repair again"
        return ""

    @property
    def missing(self) -> int:
        """Unfinished recipients whose content is nowhere."""
        return sum(self.bereft.values())

    @property
    def orphans(self) -> list[Path]:
        """Files of the queue's own making that nothing refers to."""
        return [note.path for note in self.notes if note.kind is Kind.ORPHAN]


def together(found: Sequence[Findings]) -> Findings:
    """Of several shards, as one."""
    whole = Findings(running=any(each.running for each in found))
    for each in found:
        whole.records += each.records
        whole.contents += each.contents
        whole.quarantined += each.quarantined
        whole.bereft |= each.bereft
        whole.problems += each.problems
        whole.notes += each.notes
        whole.damaged += each.damaged
    return whole

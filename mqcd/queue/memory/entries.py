"""The entries of a shard, the moves that one can make, and what areas hold: what requests change in memory.

Everything here happens on the event loop. `place`, `move`, `rest` and `end` come after the frame that records
the move is durable, `evacuated` after the MANIFEST edit: so entries and counts are the memory's image of the
disk. What is only under way (`active`, `arriving`, `reserved`, `moving_held`) is marked before, and a crash
forgets it. The frames are written by `queue.requests` and `queue.checkpoint`.

Counts and octets of areas are exact, so that no gauge needs a scan. The oldest time of acceptance is exact
for entries and for untouched clusters; for one that has been taken from or divided it may be too old until
that ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from mqcd.core.model import Area, AreaStats, Recipient
from mqcd.core.queueing.spid import Reserved
from mqcd.queue.manifest.state import ClusterState
from mqcd.queue.memory.ready import Waiting
from mqcd.queue.spool.deleter import Deleter
from mqcd.queue.spool.refcounts import References
from mqcd.queue.spool.silos import Silos
from mqcd.queue.wal.entry_states import Event
from mqcd.queue.wal.segments import JournalEntry, Ring, Segment

_SLACK = 1000


class AreaCounter:
    """What one area holds."""

    __slots__ = ("_counts", "_heap", "octets", "recipients")

    def __init__(self) -> None:
        self.recipients = 0
        self.octets = 0
        # Entries by time of acceptance, and those times; an entry that has gone is held by neither.
        self._counts: dict[int, int] = {}
        self._heap: list[int] = []

    def add(self, entry: JournalEntry) -> None:
        """Count an entry in."""
        self.recipients += 1
        self.octets += entry.size
        received, counts = entry.received, self._counts
        count = counts.get(received, 0)
        counts[received] = count + 1
        if not count:
            heappush(self._heap, received)
            if len(self._heap) > 2 * len(counts) + _SLACK:
                self._heap = sorted(counts)

    def remove(self, entry: JournalEntry) -> None:
        """Count an entry out."""
        self.recipients -= 1
        self.octets -= entry.size
        self.forget(entry)

    def forget(self, entry: JournalEntry) -> None:
        """An entry that is counted elsewhere is not the oldest here."""
        received, counts = entry.received, self._counts
        count = counts[received] - 1
        if count:
            counts[received] = count
        else:
            del counts[received]

    def received(self) -> int | None:
        """When the oldest of the entries was accepted, ms."""
        heap = self._heap
        while heap and heap[0] not in self._counts:
            heappop(heap)
        return heap[0] if heap else None


class Accounts:
    """Recipients and octets by area."""

    def __init__(self) -> None:
        self._areas = {area: AreaCounter() for area in Area}

    def add_entry(self, entry: JournalEntry) -> None:
        """An entry is new in its area."""
        self._areas[entry.area].add(entry)

    def remove_entry(self, area: Area, entry: JournalEntry) -> None:
        """An entry has left `area`."""
        self._areas[area].remove(entry)

    def forget(self, entry: JournalEntry) -> None:
        """An entry has gone that `take` has counted out."""
        self._areas[entry.area].forget(entry)

    def add_cluster(self, cluster: ClusterState) -> None:
        """Records lie in a cluster."""
        tally = self._areas[cluster.area]
        tally.recipients += cluster.left
        tally.octets += cluster.octets

    def take(self, area: Area, records: int, octets: int) -> None:
        """So many records have left a cluster, or the journal all at once."""
        tally = self._areas[area]
        tally.recipients -= records
        tally.octets -= octets

    def stats(self, clusters: Iterable[ClusterState]) -> dict[Area, AreaStats]:
        """All areas."""
        oldest = {area: tally.received() for area, tally in self._areas.items()}
        for cluster in clusters:
            known = oldest[cluster.area]
            if cluster.left and (known is None or cluster.received < known):
                oldest[cluster.area] = cluster.received
        return {
            area: AreaStats(recipients=tally.recipients, octets=tally.octets, oldest=oldest[area])
            for area, tally in self._areas.items()
        }


Key = tuple[int, int]


class Entries:
    """Of one shard."""

    __slots__ = (
        "_deleter",
        "_references",
        "_ring",
        "_silos",
        "accounts",
        "active",
        "arriving",
        "moving_held",
        "reserved",
        "waiting",
    )

    def __init__(self, ring: Ring, references: References, silos: Silos, deleter: Deleter) -> None:
        self._ring = ring
        self._references = references
        self._silos = silos
        self._deleter = deleter
        self.waiting = Waiting()
        """Those that may be claimed."""
        self.active: dict[Key, JournalEntry] = {}
        """Claimed recipients."""
        self.accounts = Accounts()
        """What areas hold, in entries and in clusters."""
        self.reserved = Reserved()
        """SPIDs that a message may still take."""
        self.arriving: set[int] = set()
        """SPIDs of messages whose spool files may be written, or may still find an owner."""
        self.moving_held: set[str] = set()
        """Domains some of whose mail at rest an evacuation moves at this moment: it cannot be claimed."""

    def place(self, entry: JournalEntry, segment: Segment, ordinal: int, at: int, length: int) -> None:
        """A new entry has its first record location. Its content lies there too, or in the spool."""
        segment.place(entry, ordinal, at, length)
        self._ring.entries += 1
        self.accounts.add_entry(entry)

    def move(self, entry: JournalEntry, segment: Segment, ordinal: int, at: int, length: int) -> None:
        """An entry has a new record location. It does not rest: where it waits depends on its segment."""
        del entry.segment.entries[entry.ordinal]
        segment.place(entry, ordinal, at, length)
        self._borrow(entry, segment)

    def _borrow(self, entry: JournalEntry, segment: Segment) -> None:
        lender = self._ring.live(entry.content.segment)
        if lender is not None:
            if lender is segment:
                lender.borrowers.discard(entry)
            else:
                lender.borrowers.add(entry)

    def rest(self, entry: JournalEntry, following: Recipient) -> None:
        """An entry that was in flight waits, in the state of `following`."""
        area = entry.area
        self.active.pop((entry.spid, entry.qid), None)
        entry.begun = False
        entry.due = following.due
        entry.recipient = None
        entry.raw = b""
        entry.on(Event.REST)
        if following.area is not area:
            self.accounts.remove_entry(area, entry)
            entry.area = following.area
            self.accounts.add_entry(entry)
        self.waiting.add(entry)

    def release(self, entry: JournalEntry) -> None:
        """A claim gives an entry up unrecorded. It waits for its due time; while it is carried it has no
        segment to wait under, and waits from `carried` on."""
        entry.on(Event.RELEASE)
        self._wait(entry)

    def carried(self, entry: JournalEntry) -> None:
        """The CARRY frame of an entry has moved it, or has failed: it may be settled, or waits if it was
        given up meanwhile."""
        entry.on(Event.CARRIED)
        self._wait(entry)

    def _wait(self, entry: JournalEntry) -> None:
        if entry.resting:
            self.waiting.add(entry)

    def end(self, entry: JournalEntry) -> None:
        """A recipient has left the queue."""
        self.active.pop((entry.spid, entry.qid), None)
        segment = entry.segment
        entry.on(Event.END)
        del segment.entries[entry.ordinal]
        self._ring.entries -= 1
        self.accounts.remove_entry(entry.area, entry)
        lender = self._ring.live(entry.content.segment)
        if lender is not None and lender is not segment:
            lender.borrowers.discard(entry)
        # A link always ends with its recipient.
        in_spool = lender is None
        if in_spool if entry.linked else self._references.finished(entry.spid, in_spool):
            self._deleter.remove(self._silos.file(entry.file))

    def evacuated(self, entry: JournalEntry) -> None:
        """An entry's record is in a cluster now; the caller has reduced the count."""
        entry.on(Event.EVACUATE)
        self.accounts.forget(entry)
        lender = self._ring.live(entry.content.segment)
        if lender is not None:
            lender.borrowers.discard(entry)

    def entry_of(self, recipient: Recipient) -> JournalEntry | None:
        """Its entry. Unless it is claimed, a walk through all of them, which only people's requests cause."""
        entry = self.active.get(recipient.key)
        if entry is None:
            entries = (each for segment in self._ring for each in segment.entries.values())
            entry = next((each for each in entries if (each.spid, each.qid) == recipient.key), None)
        return entry

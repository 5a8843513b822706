"""What the queue's tests share: sample records, strategies for them, and a store that a test drives."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from mqcd.config.settings import JournalSettings, QueueSettings, SpoolSettings
from mqcd.core.model import (
    Area,
    AreaStats,
    Attempt,
    Body,
    Bounced,
    Deferred,
    Delivered,
    Envelope,
    Expired,
    Origin,
    Phase,
    Recipient,
)
from mqcd.core.queueing.spid import SILOS
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp.reply import Reply
from mqcd.disk.durable import Disk
from mqcd.eventlog.files import Source
from mqcd.eventlog.retention import Retention
from mqcd.queue.memory.shard_state import Options, Shard
from mqcd.queue.reading.snapshot import Snapshot
from mqcd.queue.spool.silos import Silos
from mqcd.queue.store import ClusterStore
from mqcd.queue.wal.segments import TO_EVACUATE, Segment
from tests.contract import schema
from tests.contract.harness import SCHEDULE
from tests.contract.mail import Post
from tests.fakes.clock import START_MS, FakeClock, turns
from tests.fakes.disk import FaultyDisk
from tests.fakes.killed import copy_as_killed
from tests.fakes.observer import RecordingObserver
from tests.fakes.workers import LocalWorkers

SPID = 0x0123456789ABCDE0
SEGMENT_SIZE = 1 << 18


def recipient(**changes: Any) -> Recipient:
    """A deferred recipient with every field filled; `changes` replace some, of the envelope too."""
    shared = {each.name for each in dataclasses.fields(Envelope)} - {"dsn"}
    of_envelope = {key: changes.pop(key) for key in list(changes) if key in shared}
    envelope: dict[str, Any] = {
        "spid": SPID,
        "sender": "sender@example.com",
        "received": START_MS - 5000,
        "origin": Origin.SMTP,
        "body": Body.EIGHT,
        "zone": "bulk",
        "listener": "mx",
        "client": "2001:db8::1",
        "user": "joe",
        "tls": "TLSv1.3",
        "dsn": "RET=HDRS",
    }
    fields: dict[str, Any] = {
        "size": 4096,
        "qid": 1,
        "address": "someone@example.org",
        "area": Area.DEFERRED,
        "due": START_MS,
        "attempts": 2,
        "unknowns": 1,
        "code": 450,
        "status": "4.2.1",
        "reply": "busy | try 100% later",
        "remote": "mx.example.org",
        "dsn": "NOTIFY=NEVER",
    }
    return Recipient(envelope=Envelope(**{**envelope, **of_envelope}), **{**fields, **changes})


_CHARS = st.characters(exclude_categories=["Cs"])
texts = st.text(_CHARS, max_size=40)
"""Any text that UTF-8 can write: controls, bars and per cent signs too."""

_atext = st.sampled_from("abzAZ09!#$%&'*+/=?^_`{|}~-äß雪😀")
_dot_atoms = st.lists(st.text(_atext, min_size=1, max_size=8), min_size=1, max_size=3).map(".".join)
_quoted = st.text(st.sampled_from(' !#$%|@<>,;:()[]azé雪"\\'), max_size=12).map(
    lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
)
_domains = st.one_of(
    st.lists(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?", fullmatch=True), min_size=1, max_size=3).map(
        ".".join
    ),
    st.sampled_from(["bücher.example", "例え.テスト", "Example.ORG.", "xn--bcher-kva.example"]),
    st.ip_addresses(v=4).map(lambda ip: f"[{ip}]"),
    st.ip_addresses(v=6).map(lambda ip: f"[IPv6:{ip}]"),
)
addresses = st.builds("{}@{}".format, st.one_of(_dot_atoms, _quoted), _domains)
"""Legal addresses: UTF-8 and quoted local parts, IDN and address literals."""

_times = st.integers(0, 1 << 42)
_small = st.integers(0, 1 << 16)


def recipients_with(words: st.SearchStrategy[str]) -> st.SearchStrategy[Recipient]:
    """Records that have had a reply; one without carries no status, reply nor host. `words` are all texts."""
    envelopes = st.builds(
        Envelope,
        spid=st.integers(0, (1 << 64) - 1),
        sender=st.one_of(st.just(""), addresses),
        received=_times,
        origin=st.sampled_from(Origin),
        body=st.sampled_from(Body),
        smtputf8=st.booleans(),
        zone=words,
        listener=words,
        client=st.ip_addresses().map(str),
        user=words,
        tls=st.sampled_from(["", "TLSv1.2", "TLSv1.3"]),
        dsn=words,
        release=_times,
        priority=st.integers(-9, 9),
        labels=words,
    )
    return st.builds(
        Recipient,
        envelope=envelopes,
        size=st.integers(0, 1 << 40),
        qid=st.integers(1, (1 << 31) - 1),
        address=addresses,
        area=st.sampled_from(Area),
        due=_times,
        attempts=_small,
        unknowns=_small,
        code=st.integers(200, 599),
        status=st.sampled_from(["", "4.2.1", "5.1.1"]),
        reply=words,
        remote=words,
        dsn=words,
        linked=st.booleans(),
        warned=st.booleans(),
        route=st.sampled_from(["", "relay.example:25"]),
        amended=words,
    )


recipients = recipients_with(texts)

_attempts = st.builds(
    Attempt,
    destination=texts,
    zone=texts,
    phase=st.sampled_from(Phase),
    remote_host=texts,
    remote_addr=texts,
    source_addr=texts,
    tls=texts,
    connect_ms=_times,
    attempt_ms=_times,
)
_replies = st.builds(Reply, code=st.integers(200, 599), status=texts, text=texts)
tried = st.one_of(
    st.builds(Delivered, reply=_replies, attempt=_attempts),
    st.builds(Deferred, reply=_replies, attempt=_attempts, due=_times, possibly_delivered=st.booleans()),
    st.builds(Bounced, reply=_replies, attempt=_attempts),
    st.builds(Expired, reply=_replies, attempt=_attempts),
)
"""Verdicts on what was tried."""


def options(root: Path, **changes: Any) -> Options:
    """A small queue below `root`; `changes` are queue settings, and `retention` of its event files."""
    retention = changes.pop("retention", Retention())
    settings: dict[str, Any] = {
        "rootpath": root / "queue",
        "spool": SpoolSettings(rootpath=root / "spool"),
        "journal": JournalSettings(segmentsize=SEGMENT_SIZE, segments=8, inline_max=16 << 10),
    }
    return Options(
        settings=QueueSettings(**{**settings, **changes}),
        schedule=SCHEDULE,
        source=Source("node", 3),
        events=root / "events",
        retention=retention,
    )


class OneFile(Disk):
    """A disk whose only file is in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, fd: int, octets: int, offset: int) -> bytes:
        assert octets >= 0
        return self._data[offset : offset + octets]


def spool_path(root: Path, spid: int, qid: int = 0) -> Path:
    """Where a content lies in a spool with the usual number of silos."""
    return Silos(root, SILOS).path(spid, qid)


def file_path(root: Path, file: int) -> Path:
    """The same for a file number."""
    return Silos(root, SILOS).file(file)


class Rig:
    """A store whose seals and evacuations happen when the test says so."""

    def __init__(
        self,
        root: Path,
        clock: FakeClock | None = None,
        *,
        disk: FaultyDisk | None = None,
        **changes: Any,
    ) -> None:
        self.root = root
        self.clock = clock or FakeClock()
        self.observer = RecordingObserver()
        self.disk = disk or FaultyDisk()
        self.changes = changes
        self.options = options(root, **changes)
        self.store = ClusterStore(self.options, self.clock, self.observer, self.disk, LocalWorkers(self.disk))
        self.post = Post(self.store, self.clock)
        self._later: list[Rig] = []
        self._open = False

    async def open(self) -> Rig:
        """Open the store."""
        await self.store.open()
        self._open = True
        await self.store.recovered()
        return self

    async def close(self) -> None:
        """Close the store and those that were made of it."""
        self.disk.mend()
        if self._open:
            self._open = False
            await self.store.close()
        for rig in self._later:
            await rig.close()

    async def reopened(self) -> Rig:
        """The same files after an orderly stop."""
        self._open = False
        await self.store.close()
        return await self._next(self.root)

    async def killed(self) -> Rig:
        """A copy of the files as this moment leaves them, open again."""
        root = self.root.with_name(f"{self.root.name}k")
        copy_as_killed(self.root, root)
        return await self._next(root)

    async def _next(self, root: Path) -> Rig:
        rig = Rig(root, self.clock, **self.changes)
        self._later.append(rig)
        return await rig.open()

    async def enrolled(self) -> None:
        """Wait until the MANIFEST knows the newest segment."""
        newest = self.shard.ring.last
        assert newest is not None
        while self.shard.manifest.state.last_segment < newest.number:
            await asyncio.sleep(0)

    @property
    def shard(self) -> Shard:
        """The parts."""
        return self.store._live.shard

    @property
    def queue(self) -> Path:
        """The queue root."""
        return self.root / "queue"

    @property
    def spool(self) -> Path:
        """The spool root."""
        return self.root / "spool"

    async def seal(self) -> Segment:
        """Close the current segment; returns it."""
        segment = self.shard.ring.current
        assert segment is not None
        self.shard.journal.seal()
        await self.shard.journal.quiet()
        self.shard.journal.seal()
        assert segment.state in TO_EVACUATE
        return segment

    async def evacuate(self) -> None:
        """Seal, and evacuate every sealed segment."""
        # What a start does comes before any evacuation, as it does when the checkpointer decides.
        await turns()
        if self.shard.ring.current is not None:
            await self.seal()
        last = max(self.shard.ring.segments)
        while (oldest := self.shard.ring.oldest_sealed) is not None and oldest.number <= last:
            await self.store._live.checkpointer.evacuate(oldest)
        await self.shard.deleter.settled()

    async def sweep(self) -> None:
        """Sweep the spool, and wait for what it removes."""
        await self.store._live.checkpointer.spool_gc.sweep()
        await self.shard.deleter.settled()

    def clusters(self) -> list[str]:
        """Cluster files, by name below the queue root."""
        return sorted(str(path.relative_to(self.queue)) for path in self.queue.rglob("*.mqc"))

    def spooled(self) -> list[str]:
        """Names in the silos."""
        return sorted(path.name for path in self.spool.glob("s??/*"))

    def temporary(self) -> list[str]:
        """Names of files that are being written, or were left half-way, for an evacuation."""
        roots = [*(self.queue / area for area in Area), self.spool]
        return sorted(path.name for root in roots for path in root.rglob("*.tmp"))

    def snapshot(self) -> Snapshot:
        """A snapshot as another process takes it."""
        return Snapshot(FaultyDisk(), self.queue, self.spool)

    def listed(self, **selection: Any) -> list[Recipient]:
        """What `queue ls` would give."""
        snapshot = self.snapshot()
        try:
            return [item.recipient for item in snapshot.items(Selection(**selection))]
        finally:
            snapshot.close()

    def events(self) -> list[dict[str, Any]]:
        """All exported events, in the order of files and lines."""
        files = sorted((self.root / "events").glob("*.jsonl.gz"))
        lines = [line for path in files for line in gzip.decompress(path.read_bytes()).splitlines()]
        events = [json.loads(line) for line in lines]
        schema.check(events)
        return events


def tally(records: Sequence[Recipient]) -> Counter[tuple[int, int]]:
    """How often each recipient is there: more than once is a recipient with two record locations."""
    return Counter(record.key for record in records)


def held(stats: dict[Area, AreaStats]) -> dict[str, tuple[int, int]]:
    """Recipients and octets of the areas that hold something."""
    return {str(area): (each.recipients, each.octets) for area, each in stats.items() if each.recipients}

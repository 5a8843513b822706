"""What the engine's benches share: a directory on a real disk, a load, and what the kernel counted.

Every bench prints the filesystem it ran on and refuses tmpfs, where a sync costs nothing. Rounds of what
is compared are interleaved and medians printed, for the machine may be busy with other things.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from mqcd.config.settings import JournalSettings, QueueSettings, SpoolSettings
from mqcd.core.events import Verb
from mqcd.core.model import (
    Attempt,
    Deferred,
    Delivered,
    Envelope,
    Phase,
    Recipient,
    Settlement,
    Submission,
    Verdict,
)
from mqcd.core.ports import QueueStore
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp.reply import Reply
from mqcd.daemon.process import tune_interpreter
from mqcd.disk.durable import Disk
from mqcd.eventlog.files import Source
from mqcd.net.clock import SystemClock
from mqcd.queue.manifest import log as manifest
from mqcd.queue.memory.shard_state import Options
from mqcd.queue.reading.snapshot import Snapshot
from mqcd.queue.store import ClusterStore

ROOT = Path(__file__).resolve().parents[2]
MINUTE, HOUR = 60_000, 3_600_000
DELAYS = (15 * MINUTE, 30 * MINUTE, 2 * HOUR, 4 * HOUR)
SCHEDULE = RetrySchedule(delays=DELAYS, maxtime=72 * HOUR, maxtime_reports=24 * HOUR, jitter=0.1)
Result = TypeVar("Result")

_ATTEMPT = Attempt(
    destination="mx.example.net",
    phase=Phase.DOT,
    remote_host="mx1.example.net",
    remote_addr="192.0.2.25",
    source_addr="198.51.100.7",
    tls="TLSv1.3",
    connect_ms=12,
    attempt_ms=48,
)
_DELIVERED = Delivered(
    reply=Reply(code=250, status="2.0.0", text="Ok: queued as 4ZkQ1x2Yz3"), attempt=_ATTEMPT
)
_BUSY = Reply(code=451, status="4.3.2", text="Too many connections from your host, try again later")


class NobodyHears:
    """`mqcd.core.ports.Observer` at no cost: the engine alone is measured."""

    def _hear(self, *_what: object) -> None:
        return None

    accepted: Any = _hear
    amended: Any = _hear
    purged: Any = _hear
    attempted: Any = _hear
    delivered: Any = _hear
    deferred: Any = _hear
    bounced: Any = _hear
    expired: Any = _hear
    reported: Any = _hear
    discarded: Any = _hear
    outcome_unknown: Any = _hear
    refused: Any = _hear
    connected: Any = _hear
    connect_failed: Any = _hear


class CountingDisk(Disk):
    """The real disk; counts syncs, and can make each one longer, as a slower disk would."""

    def __init__(self, added_ms: float = 0.0, *, one_at_a_time: bool = False) -> None:
        self.syncs = 0
        self._added = added_ms / 1000
        self._turn = threading.Lock() if one_at_a_time else contextlib.nullcontext()

    def datasync(self, fd: int) -> None:
        """Sync, and take the added time."""
        self.syncs += 1
        super().datasync(fd)
        if self._added:
            with self._turn:
                time.sleep(self._added)

    def sync_dir(self, path: Path) -> None:
        """Sync a directory."""
        self.syncs += 1
        super().sync_dir(path)

    def sync_filesystem(self, path: Path, watch: int | None = None) -> None:
        """Sync a whole file system."""
        self.syncs += 1
        super().sync_filesystem(path, watch)


def options(root: Path, *, memory: int = 64 << 20, **journal: int) -> Options:
    """A shard below `root` with default settings but for the journal's."""
    settings = QueueSettings(
        rootpath=root / "queue",
        memorybudget=memory,
        spool=SpoolSettings(rootpath=root / "spool"),
        journal=JournalSettings(**journal),
    )
    return Options(settings=settings, schedule=SCHEDULE, source=Source("bench", 0), events=root / "events")


def store(opts: Options, disk: Disk | None = None) -> ClusterStore:
    """A store with the machine's clock."""
    return ClusterStore(opts, SystemClock(), NobodyHears(), disk)


def envelope_of(spid: int, now: int) -> Envelope:
    """As of a newsletter that a user submits."""
    return Envelope(
        spid=spid,
        sender=f"newsletter-{spid & 0xFFFF:x}@lists.example.org",
        received=now,
        listener="submission",
        client="203.0.113.45",
        user="lists@example.org",
        tls="TLSv1.3",
    )


def message(made: QueueStore, octets: int, recipients: int = 1) -> Submission:
    """A message as the door would hand it on: each record takes about 250 octets once deferred."""
    now = time.time_ns() // 1_000_000
    spid = made.reserve(recipients > 1)
    envelope = envelope_of(spid, now)
    names = [f"customer{spid >> 1 & 0xFFFFF}.{number}@example.net" for number in range(recipients)]
    return Submission(envelope=envelope, recipients=names, content=content_of(spid, octets))


def content_of(spid: int, octets: int) -> bytes:
    """Content that can be told from its message's name."""
    return (b"%016X\r\n" % spid * (octets // 18 + 1))[:octets]


def delivered(recipient: Recipient) -> Settlement:
    """The next hop took it."""
    return Settlement(recipient=recipient, verdict=_DELIVERED)


def deferred(recipient: Recipient, due: int) -> Settlement:
    """The next hop did not."""
    verdict: Verdict = Deferred(reply=_BUSY, attempt=_ATTEMPT, due=due)
    return Settlement(recipient=recipient, verdict=verdict)


def retry_time(chance: random.Random, now: int) -> int:
    """A due time as a queue holds them that has been failing for hours: one in twelve is due already."""
    delay = chance.choice(DELAYS)
    return now + int(delay * (1 + chance.random() / 10)) - 15 * MINUTE - MINUTE // 2


class Change:
    """Waits until the store says that something may have become claimable."""

    def __init__(self, made: QueueStore) -> None:
        self._event = asyncio.Event()
        made.watch(self._event.set)

    async def wait(self) -> None:
        """Return at the next change."""
        await self._event.wait()
        self._event.clear()


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """As the server runs: with uvloop, and with its settings of the interpreter."""
    tune_interpreter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


@contextlib.contextmanager
def workplace(keep: Path | None = None) -> Iterator[Path]:
    """A directory below TMPDIR (or /var/tmp) that goes afterwards, or `keep`, which stays. Refuses tmpfs."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    base = keep or Path(tempfile.mkdtemp(prefix="mqcd-bench-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    try:
        kind = filesystem(base)
        load = " ".join(f"{number:.1f}" for number in os.getloadavg())
        print(f"filesystem {kind}, {os.cpu_count()} processors, load {load}", flush=True)
        yield base
    finally:
        if keep is None:
            shutil.rmtree(base, ignore_errors=True)


def filesystem(path: Path) -> str:
    """The kind of filesystem. Ends the bench on tmpfs."""
    told = subprocess.run(["stat", "-f", "-c", "%T", str(path)], check=True, capture_output=True, text=True)
    kind = told.stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        raise SystemExit(f"{path} is on {kind}, where a sync costs nothing; set TMPDIR to a disk")
    return kind


def child(script: str, **given: object) -> dict[str, Any]:
    """What one run of a bench's own script, in a process of its own, printed last: a line of JSON.

    Such a run ends by killing itself: what it held in memory is gone. The page cache is not, so this shows
    what a killed process loses, not what a power cut does.
    """
    command = [sys.executable, script, "--child", json.dumps(given)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    if not lines:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode} and said nothing")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def say_and_die(answer: dict[str, Any]) -> None:
    """The end of a child: no orderly stop, the helper dies with it."""
    print(json.dumps(answer), flush=True)
    for pid in processes()[1:]:
        # One that was stopped before it could ask to die with its parent would hold our output open.
        os.kill(pid, 9)
    os.kill(os.getpid(), 9)


def age() -> float:
    """Seconds since this process was started."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


def processes(pid: int = 0) -> list[int]:
    """A process (0 = this one) and all below it, the nearest first: a server and its helper."""
    found = [pid or os.getpid()]
    for each in found:
        for path in Path(f"/proc/{each}/task").glob("*/children"):
            found += map(int, path.read_text().split())
    return found


def peak_memory(pid: int = 0) -> list[int]:
    """The largest entry size so far of a process (0 = this one) and each of its children, octets."""
    return [_status(each, "VmHWM") * 1024 for each in processes(pid)]


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0


def written() -> list[int]:
    """Octets that this process and each of its children have sent to the disk."""
    lines = [line for pid in processes() for line in Path(f"/proc/{pid}/io").read_text().splitlines()]
    return [int(line.split()[1]) for line in lines if line.startswith("write_bytes:")]


def device_written(root: Path) -> int:
    """Octets that the device below `root` was given by anybody, once all that waited for that is; 0 where no
    device tells."""
    os.sync()
    number = root.stat().st_dev
    try:
        told = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat").read_text()
    except FileNotFoundError:
        return 0
    return int(told.split()[6]) * 512


def processor_seconds(pid: int = 0) -> list[float]:
    """Processor time of a process (0 = this one) and each of its children."""
    spent = []
    for each in processes(pid):
        # A child may have ended meanwhile.
        with contextlib.suppress(OSError):
            # As clock_getcpuclockid(3) names the clock of a process on Linux.
            spent.append(time.clock_gettime(~each << 3 | 2))
    return spent


def ended_children_seconds(pid: int) -> float:
    """Processor time of the children of a process that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def medians(rounds: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Per figure the median of all rounds."""
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def events(root: Path) -> Counter[tuple[str, str]]:
    """How often each message is named with each verb in the event files."""
    found: Counter[tuple[str, str]] = Counter()
    for path in sorted((root / "events").glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            for line in lines:
                event = json.loads(line)
                found[event["event"], event["spid"]] += 1
    return found


def reopen(root: Path, segment: int) -> None:
    """A start after a kill, and an orderly stop, which exports all events."""

    async def once() -> None:
        made = store(options(root, segmentsize=segment))
        await made.open()
        await made.recovered()
        await made.close()

    run(once())


def lost(root: Path, promised: Sequence[int], octets: int) -> int:
    """Promised messages that were neither delivered nor are in the queue, whole; after `reopen`."""
    told = events(root)
    still = kept(root)
    missing = 0
    for spid in promised:
        name = format_spid(spid)
        whole = told["delivered", name] == 1 or still.get(spid) == content_of(spid, octets)
        missing += not (whole and told["accepted", name] == 1)
    return missing


def waiting(root: Path) -> int:
    """How many recipients a queue holds that nobody has open."""
    snapshot = Snapshot(Disk(), root / "queue", root / "spool")
    try:
        return sum(map(len, snapshot.batches(Selection())))
    finally:
        snapshot.close()


def delivered_so_far(root: Path) -> int:
    """How many recipients of a queue were ever delivered, as its MANIFEST tells after an orderly stop."""
    state = manifest.read(Disk(), root / "queue/MANIFEST")
    return state.totals[Verb.DELIVERED] if state is not None else 0


def kept(root: Path) -> dict[int, bytes]:
    """The content of every message in a queue that nobody has open."""
    snapshot = Snapshot(Disk(), root / "queue", root / "spool")
    try:
        spids = {item.recipient.spid for item in snapshot.items(Selection())}
        return {spid: b"".join(snapshot.content(spid)) for spid in spids}
    finally:
        snapshot.close()


def show(name: str, figures: dict[str, Any]) -> None:
    """One line of figures."""
    shown = (f"{key} {_short(value)}" for key, value in figures.items())
    print(f"{name or ' '} {', '.join(shown)}", flush=True)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

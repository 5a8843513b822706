"""An ext4 that aborts its journal under a queue: what was acknowledged is there when it is mounted again.

    python -m tests.crash.aborts ROOT SEED

is the process that accepts mail until the disk refuses it; each acceptance is a line on its standard output,
as of `tests.crash.worker`. A round aborts the file system under it (`mount -o remount,abort`), mounts it
again, starts the queue and looks for each acknowledged message. Needs root and loop devices.

A sync that ext4 acknowledges while its journal aborts may have lost what lay in space that was never written.
The loss is rare: without the filling of slots ahead one round in 11 shows it (4 of 45).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mqcd.config.settings import JournalSettings, QueueSettings, SpoolSettings
from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Envelope, Submission
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.eventlog.files import Source
from mqcd.net.clock import SystemClock
from mqcd.queue.memory.shard_state import Options
from mqcd.queue.store import ClusterStore
from tests.crash.ledger import World, check_between_lives
from tests.crash.worker import body_of, tell
from tests.e2e.kit.smallfs import own_namespace
from tests.fakes.observer import RecordingObserver

_PROJECT = Path(__file__).parents[2]
_MEGABYTES = 256
_SENDERS = 24
_LARGE = 48 << 10
"""Octets from which a message goes to the spool."""


class Aborting:
    """An ext4 in a file, mounted below `place`."""

    def __init__(self, place: Path) -> None:
        self._image = place / "image"
        self.root = place / "mounted"
        self.root.mkdir(parents=True)

    def make(self) -> None:
        """A new, empty one, mounted. Raises CalledProcessError where that is not allowed."""
        self._image.unlink(missing_ok=True)
        with self._image.open("wb") as file:
            file.truncate(_MEGABYTES << 20)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount()

    def mount(self) -> None:
        """With a loop device that goes when it is unmounted."""
        _run("mount", "-t", "ext4", "-o", "loop", str(self._image), str(self.root))

    def abort(self) -> None:
        """From now on it is read-only, and what its journal has not committed never comes."""
        # What mount says of it depends on the kernel; that no more can be written is what counts.
        subprocess.run(["mount", "-o", "remount,abort", str(self.root)], capture_output=True, check=False)

    def unmount(self) -> None:
        _run("umount", str(self.root))


def _run(*command: str) -> None:
    # mkfs lies in sbin, which not every user's PATH has.
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PATH": path})


@contextmanager
def aborting(place: Path) -> Iterator[Aborting | None]:
    """One that is unmounted at the end, and with it goes its loop device; None where nothing can be mounted.

    It is mounted for this process and its children alone, so it goes with them however they end.
    """
    if not own_namespace():
        yield None
        return
    made = Aborting(place)
    try:
        made.make()
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    try:
        yield made
    finally:
        subprocess.run(["umount", str(made.root)], capture_output=True, check=False)


async def rounds(disk: Aborting, many: int, seed: int) -> int:
    """So many rounds, each on a new file system; returns the recipients that were acknowledged in all.

    Raises AssertionError when one of them is gone.
    """
    acknowledged = 0
    for number in range(seed, seed + many):
        disk.unmount()
        disk.make()
        try:
            acknowledged += await one_round(disk, number)
        except AssertionError as error:
            raise AssertionError(f"abort {number}: {error}") from error
    return acknowledged


def options(root: Path, seed: int) -> Options:
    """A shard whose first segment is large, or, by the seed, one that soon begins others and evacuates."""
    settings = QueueSettings(
        rootpath=root / "queue",
        spool=SpoolSettings(rootpath=root / "spool"),
        minfree=0,
        mininodes=0,
        journal=JournalSettings(
            segmentsize=(1 if seed % 4 == 3 else 32) << 20,
            segments=6,
            inline_max=_LARGE,
            seal_age=200,
            evacuate_age=400,
        ),
    )
    schedule = RetrySchedule(delays=(60_000,), maxtime=3_600_000, maxtime_reports=3_600_000)
    return Options(settings=settings, schedule=schedule, source=Source("crash", 0), events=root / "events")


async def send(root: Path, seed: int) -> None:
    """Accept mail until nothing can be written any more."""
    chance = random.Random(seed)
    clock = SystemClock()
    store = ClusterStore(options(root, seed), clock, RecordingObserver())
    await store.open()
    tell("O", 0, os.getpid())

    async def one() -> None:
        while True:
            many = chance.choice((1, 1, 2))
            spid = store.reserve(many > 1)
            size = (
                chance.randint(200, 20_000) if chance.random() < 0.95 else _LARGE + chance.randint(1, 20_000)
            )
            submission = Submission(
                envelope=Envelope(spid=spid, sender="", received=clock.now()),
                recipients=[f"u{n}@example.org" for n in range(many)],
                content=body_of(spid, size),
            )
            await store.enqueue(submission)
            tell("A", spid, many)

    try:
        await asyncio.gather(*(one() for _ in range(_SENDERS)))
    except StoreUnavailable:
        # Others may be told of an acceptance yet; the end is the parent's, by SIGKILL.
        tell("Z", 0, 0)
        await asyncio.Event().wait()


async def one_round(disk: Aborting, seed: int) -> int:
    """Abort a file system under a queue; returns the recipients that were acknowledged by then.

    Fails when one of them is gone. `disk` is mounted, and is so afterwards.
    """
    world, chance = World(), random.Random(seed)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, str(disk.root), str(seed), cwd=_PROJECT, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        while world.hear((await child.stdout.readline()).decode()) != "A":
            pass
        listening = asyncio.ensure_future(_listen(child.stdout, world))
        await asyncio.sleep(chance.uniform(0, 0.4))
        await asyncio.to_thread(disk.abort)
        await listening
    finally:
        child.kill()
        # Its helper has the pipe, too, and ends after it.
        await child.stdout.read()
        await child.wait()
    disk.unmount()
    disk.mount()
    store = ClusterStore(options(disk.root, seed), SystemClock(), RecordingObserver())
    await store.open()
    try:
        await store.recovered()
        check_between_lives(disk.root, world)
    finally:
        await store.close()
    check_between_lives(disk.root, world)
    return len(world.accepted)


async def _listen(pipe: asyncio.StreamReader, world: World) -> None:
    """Until the disk has refused something, and what was acknowledged beside that has been said."""
    while world.hear((await pipe.readline()).decode()) != "Z":
        pass


def main() -> None:
    """The process that sends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(send(Path(sys.argv[1]), int(sys.argv[2])))


if __name__ == "__main__":
    main()

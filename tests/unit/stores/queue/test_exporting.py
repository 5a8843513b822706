"""Events of a queue over documents: each change's lines, once, whatever is cut off in between."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import Reported, Settlement
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.disk.durable import Buffer, Disk
from mqcd.eventlog.files import Source
from mqcd.eventlog.retention import Retention
from mqcd.stores.backend import Stored
from mqcd.stores.mapping import MappingStore
from mqcd.stores.queue.exporting import EXPORT_MS, EventFiles
from mqcd.stores.queue.moment import unpack
from mqcd.stores.queue.stored_queue import StoredQueue
from tests.contract.harness import HOUR, SCHEDULE
from tests.contract.mail import Post, bounced, deferred, delivered
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.disk import FaultyDisk
from tests.fakes.observer import RecordingObserver

A, B, C = "a@example.org", "b@example.org", "c@example.org"


class Kit:
    """A queue in memory whose events go to files."""

    def __init__(self, path: Path, retention: Retention | None = None) -> None:
        self.path = path
        self.clock = FakeClock()
        self.mapping: dict[str, bytes] = {}
        self.files = EventFiles(directory=path, source=Source("node", 0), retention=retention or Retention())
        self.queue = self._made()

    def _made(self, disk: Disk | None = None, schedule: RetrySchedule = SCHEDULE) -> StoredQueue:
        backend = MappingStore(self.mapping)
        return StoredQueue(backend, self.clock, RecordingObserver(), schedule, self.files, disk)

    async def start(self, disk: Disk | None = None) -> Post:
        self.queue = self._made(disk)
        await self.queue.open()
        await self.queue.recovered()
        return Post(self.queue, self.clock)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let time go on; files are written by a thread."""
        async with asyncio.timeout(30):
            while not condition():
                await self.clock.run_for(EXPORT_MS)

    def kill(self) -> None:
        """The process is gone; what it had written stays."""
        self.mapping = dict(self.mapping)

    def events(self) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self.path.glob("*.jsonl.gz")):
            found += [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        return found

    def verbs(self) -> list[str]:
        return [each["event"] for each in self.events()]


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path / "events")


async def one_of_each(kit: Kit, post: Post) -> None:
    """All transitions but the one that takes a crash."""
    await post.send(A, B, C)
    first, second, third = await post.claim_all()
    await post.store.begin([first, second, third], "mx.example.org")
    await post.settle(delivered(), first)
    await post.settle(deferred(kit.clock.now() + HOUR), second)
    await post.settle(bounced(), third)
    [bounce] = await post.claim_bounces()
    report = post.submission("sender@example.com", sender="")
    verdict = Reported(report_spid=report.envelope.spid)
    await post.store.settle([Settlement(recipient=bounce, verdict=verdict)], [report])


EACH = [*3 * ["accepted"], *3 * ["attempted"], "delivered", "deferred", "bounced", "accepted", "reported"]


async def test_each_transition_is_exported_once(kit: Kit) -> None:
    post = await kit.start()
    await one_of_each(kit, post)
    assert kit.verbs() == []
    await kit.until(lambda: bool(kit.verbs()))
    await kit.queue.close()
    events = kit.events()
    assert [each["event"] for each in events] == EACH
    first = START_MS * 1000 + 1
    assert [each["id"] for each in events] == [f"node/0/{first + number}" for number in range(len(EACH))]
    assert events[0].items() >= {"recipient": A, "recipients": 3, "sender": "sender@example.com"}.items()
    assert events[6].items() >= {"code": 250, "attempt": 1, "destination": "example.org"}.items()
    assert {each["qid"] for each in events} == {1, 2, 3}


async def test_events_of_a_killed_server_are_exported_by_the_next(kit: Kit) -> None:
    await one_of_each(kit, await kit.start())
    kit.kill()
    await kit.start()
    await kit.queue.close()
    assert kit.verbs() == EACH


async def test_events_in_a_file_and_in_the_queue_are_not_repeated(kit: Kit) -> None:
    await one_of_each(kit, await kit.start())
    kit.kill()
    before = dict(kit.mapping)
    await kit.start()
    await kit.queue.close()
    # As if it had been killed after the file was there.
    kit.mapping = before
    await kit.start()
    await kit.queue.close()
    assert kit.verbs() == EACH


class Unread(MappingStore):
    """It does not give its messages."""

    async def take(self, most: int) -> Sequence[Stored]:
        raise StoreUnavailable("the disk fails")


async def test_events_of_mail_that_was_not_read_are_not_repeated(kit: Kit) -> None:
    await one_of_each(kit, await kit.start())
    kit.kill()
    before = dict(kit.mapping)
    await kit.start()
    await kit.queue.close()
    # As if it had been killed after the file was there; then a start fails, which has taken new mail.
    kit.mapping = before
    kit.queue = StoredQueue(Unread(before), kit.clock, RecordingObserver(), SCHEDULE, kit.files)
    await kit.queue.open()
    await Post(kit.queue, kit.clock).send(A)
    await kit.queue.close()
    await kit.start()
    await kit.queue.close()
    assert kit.verbs() == [*EACH, "accepted"]


class Watching(Disk):
    """Keeps what the queue held when an event file appeared: what a kill in that moment would leave."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self.left: dict[str, bytes] = {}

    def replace_file(self, path: Path, chunks: Iterable[Buffer]) -> int:
        size = super().replace_file(path, chunks)
        self.left = dict(self._kit.mapping)
        return size


async def test_kills_behind_two_event_files_repeat_nothing(kit: Kit) -> None:
    verbs = []
    post = await kit.start()
    for _ in range(3):
        await post.send(A)
        verbs.append("accepted")
        disk = Watching(kit)
        kit.kill()
        await kit.start(disk)
        await kit.queue.close()
        kit.mapping = disk.left
        post = await kit.start()
    await kit.queue.close()
    assert kit.verbs() == verbs


async def test_numbers_are_never_used_again(kit: Kit) -> None:
    for _ in range(3):
        post = await kit.start()
        await post.send(A)
        await kit.queue.close()
        kit.clock.leap(-HOUR)
    ids = [each["id"] for each in kit.events()]
    assert len(ids) == len(set(ids)) == 3


async def test_an_unknown_outcome_is_an_event(kit: Kit) -> None:
    post = await kit.start()
    await post.send(A)
    await post.store.begin(await post.claim_all(), "mx.example.org")
    kit.kill()
    await kit.start()
    await kit.queue.close()
    assert kit.verbs() == ["accepted", "attempted", "outcome-unknown"]


async def test_a_message_stays_until_its_events_are_exported(kit: Kit) -> None:
    post = await kit.start()
    await post.send(A)
    await post.settle(delivered(), *await post.claim_all())
    assert await post.scan() == {}
    assert kit.queue.next_due() is None
    assert len(kit.mapping) == 3
    await kit.queue.close()
    assert list(kit.mapping) == ["marks"]


async def test_a_disk_that_fails_keeps_the_events(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    post = await kit.start(disk)
    await post.send(A)
    disk.fail("rename", times=None)
    await kit.until(lambda: "cannot be exported" in caplog.text)
    await kit.queue.close()
    assert kit.verbs() == []
    await kit.start()
    await kit.queue.close()
    assert kit.verbs() == ["accepted"]


@pytest.mark.parametrize("left", [0, -9], ids=["nothing", "all events"])
async def test_events_are_exported_behind_a_damaged_file(
    kit: Kit, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    await one_of_each(kit, await kit.start())
    kit.kill()
    before = dict(kit.mapping)
    await kit.start()
    await kit.queue.close()
    [path] = kit.path.iterdir()
    path.write_bytes(path.read_bytes()[:left] or b"no gzip")
    # As if it had been killed after the file was there.
    kit.mapping = before
    post = await kit.start()
    await post.send(A)
    await kit.queue.close()
    assert str(path) in caplog.text
    path.unlink()
    assert kit.verbs() == [*(EACH if not left else []), "accepted"]


async def test_an_event_file_that_cannot_be_read_stops_the_start(kit: Kit) -> None:
    (kit.path / "node-0-0000000001.jsonl.gz").mkdir(parents=True)
    # What is raised holds what it came through.
    with pytest.raises(StoreUnavailable) as raised:
        await kit.start()
    assert not [each for each in threading.enumerate() if each.name.startswith("mqcd-events")], raised


async def test_old_event_files_are_removed(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "events", Retention(maxsize=1))
    post = await kit.start()
    for _ in range(3):
        await post.send(A)
        await kit.until(lambda: not any(b"accepted" in value for value in kit.mapping.values()))
        kit.clock.advance(2 * HOUR)
    await kit.until(lambda: len(list(kit.path.iterdir())) == 1)
    await kit.queue.close()


async def test_a_leap_of_the_clock_makes_no_event_file_old(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "events", Retention(maxage=24 * HOUR))

    post = await kit.start()
    for leap in (0, 3650 * 24 * HOUR):
        kit.clock.leap(leap)
        await post.send(A)
        await kit.until(lambda: not any(b"accepted" in value for value in kit.mapping.values()))
        # Files are as old as the clock of the tests says.
        for path in kit.path.iterdir():
            os.utime(path, (START_MS // 1000, START_MS // 1000))
        kit.clock.advance(2 * HOUR)
        await kit.clock.run_for(2 * EXPORT_MS)
    assert kit.verbs() == ["accepted", "accepted"]
    kit.clock.leap(-leap)
    kit.clock.advance(23 * HOUR)
    await kit.until(lambda: len(list(kit.path.iterdir())) == 1)
    assert len(kit.verbs()) == 1
    await kit.queue.close()


async def test_a_moment_has_the_events_that_no_file_has(kit: Kit) -> None:
    post = await kit.start()
    await post.send(A)
    # The file's name is there a little before the exporter counts it.
    await kit.until(lambda: kit.queue.moment().newest > 0)
    [recipient] = await post.claim_all()
    await post.store.begin([recipient], "mx.example.org")
    moment = kit.queue.moment()
    [file] = kit.path.glob("*.jsonl.gz")
    assert file.name == f"node-0-{moment.newest:010d}.jsonl.gz"
    assert [json.loads(line)["event"] for line in moment.events] == ["attempted"]
    assert [line[:1] for line in moment.records] == [b"+"]
    assert unpack(moment.pack()) == moment
    await kit.queue.close()


@pytest.mark.parametrize("octets", [b"", b"no\n", b"#x alone\n", b"#1 both\n"])
def test_other_octets_are_no_moment(octets: bytes) -> None:
    with pytest.raises(DecodeError):
        unpack(octets)

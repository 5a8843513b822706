"""The history of a message: what every source says of it, once, in order, and no more than is needed."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mqcd.core.events import format_time
from mqcd.core.queueing.spid import format_spid, spid_at
from mqcd.disk.durable import Disk
from mqcd.eventlog.files import Source, events_path
from mqcd.eventlog.history import History, history
from mqcd.queue.events.lines import EventText
from mqcd.queue.reading.happened import lines_of
from tests.contract.harness import MINUTE
from tests.contract.mail import deferred, delivered
from tests.fakes.clock import START_MS
from tests.unit.queue.support import Rig

SPID = spid_at(START_MS)
HOUR = 60 * MINUTE


class ReadingDisk(Disk):
    """A disk that says which files were read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def open(self, path: Path, flags: int) -> int:
        self.read.append(path.name)
        return super().open(path, flags)


def event(number: int, verb: str, *, spid: int = SPID, at: int = START_MS, **fields: Any) -> dict[str, Any]:
    shard = fields.pop("shard", 0)
    fields = {"qid": 1, "sender": "s@example.com", **fields}
    head = {"v": 1, "id": f"n/{shard}/{number}", "event": verb, "at": format_time(at)}
    return {**head, "spid": format_spid(spid), **fields}


def line(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":")) + "\n"


def put(directory: Path, number: int, *events: dict[str, Any], shard: int = 0) -> Path:
    path = events_path(directory, Source("n", shard), number)
    path.write_bytes(gzip.compress("".join(map(line, events)).encode()))
    return path


def verbs(found: History) -> list[str]:
    return [each["event"] for each in found.events]


def never() -> Iterator[str]:
    yield pytest.fail("the journal was read")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = await Rig(tmp_path / "q").open()
    yield rig
    await rig.close()


def of(rig: Rig, spid: int) -> History:
    with closing(rig.snapshot()) as snapshot:
        journal = lines_of(snapshot, EventText(rig.options.source), spid)
        return history(Disk(), rig.options.events, spid, journal)


async def test_files_and_journal_make_one_history(rig: Rig) -> None:
    post = rig.post
    one, two = await post.send("a@example.org", "b@example.org")
    await post.send("other@example.org")
    claimed = await post.claim_all()
    await rig.store.begin(claimed, "mx.example.org")
    await post.settle(deferred(rig.clock.now() + MINUTE), *claimed)
    await rig.evacuate()
    rig.clock.advance(MINUTE)
    claimed = [each for each in await post.claim_all() if each.spid == one.spid]
    await rig.store.begin(claimed, "mx.example.org")
    await post.settle(delivered(), claimed[0])
    found = of(rig, one.spid)
    assert not found.unread
    assert verbs(found) == [
        "accepted", "accepted", "attempted", "attempted", "deferred", "deferred",
        "attempted", "attempted", "delivered",
    ]  # fmt: skip
    assert {each["qid"] for each in found.events} == {one.qid, two.qid}
    await post.settle(delivered(), claimed[1])
    await rig.evacuate()
    assert [each for each in rig.events() if each["spid"] == format_spid(one.spid)] == of(
        rig, one.spid
    ).events


async def test_a_message_that_never_was_has_none(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    assert of(rig, SPID) == History(events=[])


def test_no_directory_is_no_events(tmp_path: Path) -> None:
    assert history(Disk(), tmp_path / "none", SPID) == History(events=[])


def test_an_event_of_two_sources_comes_once(tmp_path: Path) -> None:
    put(tmp_path, 1, event(9, "accepted", recipients=1))
    found = history(Disk(), tmp_path, SPID, [line(event(9, "accepted", recipients=1))])
    assert verbs(found) == ["accepted"]


def test_events_follow_their_sequence(tmp_path: Path) -> None:
    put(tmp_path, 1, event(9, "accepted", recipients=1))
    # The clock was put back between them.
    put(tmp_path, 2, event(10, "deferred", at=START_MS - MINUTE), event(11, "attempted"))
    journal = [line(event(100, "delivered"))]
    assert verbs(history(Disk(), tmp_path, SPID, journal)) == [
        "accepted", "deferred", "attempted", "delivered",
    ]  # fmt: skip


def test_shards_are_in_the_order_of_time(tmp_path: Path) -> None:
    put(tmp_path, 1, event(9, "accepted", recipients=1))
    put(tmp_path, 1, event(2, "delivered", at=START_MS + MINUTE, shard=5), shard=5)
    assert verbs(history(Disk(), tmp_path, SPID)) == ["accepted", "delivered"]


def test_files_of_an_earlier_time_are_not_read(tmp_path: Path) -> None:
    for number in range(1, 200):
        at = START_MS + (number - 100) * HOUR
        put(tmp_path, number, event(number, "accepted", spid=spid_at(at), at=at, recipients=1))
    put(tmp_path, 200, event(300, "delivered", at=START_MS + 100 * HOUR))
    disk = ReadingDisk()
    found = history(disk, tmp_path, SPID)
    assert verbs(found) == ["accepted", "delivered"]
    # 8 for the search, then those from the time of acceptance on.
    assert len(disk.read) <= 8 + 102
    assert len([name for name in disk.read if name < "n-0-0000000099"]) <= 8


@pytest.mark.parametrize("ends", ["delivered", "reported", "discarded"])
def test_reading_ends_with_the_message(tmp_path: Path, ends: str) -> None:
    put(tmp_path, 1, event(1, "accepted", recipients=2), event(2, "accepted", qid=2, recipients=2))
    put(tmp_path, 2, event(3, ends), event(4, ends, qid=2))
    put(tmp_path, 3, event(5, "accepted", spid=SPID + 2, recipients=1))
    disk = ReadingDisk()
    found = history(disk, tmp_path, SPID, never())
    assert verbs(found) == ["accepted", "accepted", ends, ends]
    assert disk.read[-1].startswith("n-0-0000000002")


def test_a_bounce_is_not_the_end_of_a_message(tmp_path: Path) -> None:
    put(tmp_path, 1, event(1, "accepted", recipients=1), event(2, "bounced"))
    assert verbs(history(Disk(), tmp_path, SPID, [line(event(3, "reported"))]))[-1] == "reported"


def test_a_report_ends_with_its_bounce(tmp_path: Path) -> None:
    put(tmp_path, 1, event(1, "accepted", sender="", recipients=1), event(2, "bounced", sender=""))
    assert verbs(history(Disk(), tmp_path, SPID, never())) == ["accepted", "bounced"]


def test_unreadable_files_do_not_stop_the_search(tmp_path: Path) -> None:
    for number in range(1, 9):
        at = START_MS + (number - 4) * HOUR
        put(tmp_path, number, event(number, "accepted", spid=spid_at(at), at=at, recipients=1))
    for number in (3, 5, 6):
        events_path(tmp_path, Source("n", 0), number).write_bytes(b"no gzip")
    put(tmp_path, 9, event(20, "deferred", at=START_MS + 5 * HOUR))
    found = history(Disk(), tmp_path, SPID)
    assert verbs(found) == ["accepted", "deferred"]
    assert len(found.unread) == 3


def test_a_cut_off_file_gives_what_it_has(tmp_path: Path) -> None:
    others: Iterable[dict[str, Any]] = (
        event(n, "accepted", spid=SPID + 2 * n, recipients=1) for n in range(2, 5000)
    )
    path = put(tmp_path, 1, event(1, "accepted", recipients=1), *others)
    path.write_bytes(path.read_bytes()[:-1000])
    found = history(Disk(), tmp_path, SPID)
    assert verbs(found) == ["accepted"]
    assert [str(path) in each for each in found.unread] == [True]

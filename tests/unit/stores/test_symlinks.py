"""The store of symbolic links: its names, its directories, what it finds left over, and a disk that fails."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from mqcd.core.errors import ContentUnavailable, StoreBusy, StoreDamaged, StoreUnavailable
from mqcd.disk.durable import Disk
from mqcd.stores.files import uuid_of
from mqcd.stores.queue.stored_queue import StoredQueue
from mqcd.stores.symlinks import CHANGE, CONTENTS, METADATA, SCHEDULE, Dest, SymlinksStore, dest_of
from tests.contract.harness import SCHEDULE as RETRIES
from tests.contract.mail import BODY, Post, bounced, chunks, deferred, delivered
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FaultyDisk
from tests.fakes.killed import copy_as_killed
from tests.fakes.observer import RecordingObserver

STATES = ("queue", "inflight", "cleanup")


async def opened(path: Path, disk: Disk | None = None) -> tuple[StoredQueue, Post]:
    clock = FakeClock()
    queue = StoredQueue(SymlinksStore(path, disk=disk), clock, RecordingObserver(), RETRIES)
    await queue.open()
    await queue.recovered()
    return queue, Post(queue, clock)


def links(path: Path) -> dict[str, set[str]]:
    """The names in each directory of links."""
    return {state: {each.name for each in (path / state).iterdir()} for state in STATES}


def in_state(state: str, *names: str) -> dict[str, set[str]]:
    return {each: set(names) if each == state else set() for each in STATES}


@pytest.mark.parametrize("dest", [Dest(0, 1), Dest(0x0123456789ABCDEF, 10_000), Dest((1 << 64) - 1, 1 << 30)])
def test_a_name_leads_from_and_to_the_recipient(dest: Dest) -> None:
    assert dest_of(dest.name) == dest


@pytest.mark.parametrize("name", ["", CONTENTS, uuid_of(1), "x" * 32, Dest(1, 1).name[:-1]])
def test_other_names_are_no_recipients(name: str) -> None:
    assert dest_of(name) is None


async def test_a_recipient_goes_from_queue_to_inflight_and_back(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path)
    [recipient] = await post.send("a@example.org")
    name = Dest(recipient.spid, 1).name
    link = tmp_path / "queue" / name
    mail = tmp_path / "data" / uuid_of(recipient.spid)
    assert links(tmp_path) == in_state("queue", name)
    assert link.readlink() == Path("../data") / uuid_of(recipient.spid) / name
    assert {each.name for each in link.iterdir()} == {METADATA}
    assert (mail / CONTENTS).read_bytes() == BODY
    claimed = await post.claim_all()
    await queue.begin(claimed, "mx.example.org")
    assert links(tmp_path) == in_state("inflight", name)
    await post.settle(deferred(post.clock.now() + 1000), *claimed)
    assert links(tmp_path) == in_state("queue", name)
    assert {each.name for each in link.iterdir()} == {METADATA, SCHEDULE}
    claimed = await post.claim_all(post.clock.now() + 2000)
    await queue.begin(claimed, "mx.example.org")
    await post.settle(delivered(), *claimed)
    assert links(tmp_path) == in_state("queue")
    assert not list((tmp_path / "data").iterdir())
    await queue.close()


@pytest.mark.parametrize("recipients", [1, 2])
async def test_a_message_removed_by_hand_holds_up_no_other(tmp_path: Path, recipients: int) -> None:
    queue, post = await opened(tmp_path)
    gone = await post.send(*[f"r{n}@example.org" for n in range(recipients)])
    [other] = await post.send("other@example.org")
    claimed = await post.claim_all()
    shutil.rmtree(tmp_path / "data" / uuid_of(gone[0].spid))
    with pytest.raises(ContentUnavailable):
        await queue.content(gone[0])
    await asyncio.gather(queue.park(gone, post.clock.now() + 1000), queue.begin([other], "mx.example.org"))
    await post.settle(delivered(), *await post.claim_all(post.clock.now() + 2000), other)
    assert len(claimed) == recipients + 1
    assert links(tmp_path) == in_state("queue")
    await queue.close()


async def test_a_recipient_that_ends_leaves_the_others(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path)
    first, second = await post.send("a@example.org", "b@example.org")
    await post.settle(delivered(), *[each for each in await post.claim_all() if each.qid == 1])
    mail = tmp_path / "data" / uuid_of(first.spid)
    assert {each.name for each in mail.iterdir()} == {CONTENTS, Dest(second.spid, 2).name}
    await queue.close()


async def test_one_process_has_the_directory(tmp_path: Path) -> None:
    queue, _ = await opened(tmp_path)
    with pytest.raises(StoreBusy):
        await SymlinksStore(tmp_path).open()
    await queue.close()
    queue, _ = await opened(tmp_path)
    await queue.close()


async def test_a_message_without_contents_is_removed(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path)
    [recipient] = await post.send("a@example.org")
    await queue.close()
    half = tmp_path / "data" / uuid_of(7) / Dest(7, 1).name
    half.mkdir(parents=True)
    (half / METADATA).write_bytes(b"half")
    queue, post = await opened(tmp_path)
    assert set(await post.scan()) == {recipient.key}
    assert [each.name for each in (tmp_path / "data").iterdir()] == [uuid_of(recipient.spid)]
    await queue.close()


async def test_a_lost_link_is_made_again(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path)
    [recipient] = await post.send("a@example.org")
    await queue.close()
    name = Dest(recipient.spid, 1).name
    (tmp_path / "queue" / name).unlink()
    queue, post = await opened(tmp_path)
    assert set(await post.scan()) == {recipient.key}
    assert links(tmp_path) == in_state("queue", name)
    await queue.close()


async def test_mail_inflight_has_an_unknown_outcome(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path / "a")
    [recipient] = await post.send("a@example.org")
    await queue.begin(await post.claim_all(), "mx.example.org")
    copy_as_killed(tmp_path / "a", tmp_path / "b")
    await queue.close()
    name = Dest(recipient.spid, 1).name
    assert links(tmp_path / "b") == in_state("inflight", name)
    queue, post = await opened(tmp_path / "b")
    assert (await post.scan())[recipient.key].unknowns == 1
    assert links(tmp_path / "b") == in_state("queue", name)
    await queue.close()


async def test_a_cleanup_is_ended_by_the_next_start(tmp_path: Path) -> None:
    disk = FaultyDisk()
    queue, post = await opened(tmp_path, disk)
    [recipient] = await post.send("a@example.org")
    claimed = await post.claim_all()
    disk.fail("sync_dir", "*/data")
    with pytest.raises(StoreUnavailable):
        await post.settle(delivered(), *claimed)
    await queue.close()
    assert links(tmp_path) == in_state("cleanup", Dest(recipient.spid, 1).name)
    queue, post = await opened(tmp_path)
    assert await post.scan() == {}
    assert links(tmp_path) == in_state("queue")
    await queue.close()


async def test_a_change_of_several_is_ended_by_the_next_start(tmp_path: Path) -> None:
    disk = FaultyDisk()
    queue, post = await opened(tmp_path, disk)
    recipients = await post.send("a@example.org", "b@example.org", "c@example.org")
    claimed = await post.claim_all()
    disk.fail("rename", f"*/{SCHEDULE}", passes=1)
    with pytest.raises(StoreUnavailable):
        await post.settle(bounced(), *claimed)
    await queue.close()
    mail = tmp_path / "data" / uuid_of(recipients[0].spid)
    assert (mail / CHANGE).exists()
    queue, post = await opened(tmp_path)
    assert len(await post.claim_bounces()) == 3
    assert not (mail / CHANGE).exists()
    await queue.close()


async def test_a_link_to_nothing_is_damage(tmp_path: Path) -> None:
    queue, _ = await opened(tmp_path)
    await queue.close()
    name = Dest(9, 1).name
    (tmp_path / "inflight" / name).symlink_to(f"../data/{uuid_of(9)}/{name}")
    with pytest.raises(StoreDamaged, match=name):
        await opened(tmp_path)


@pytest.mark.parametrize("file", [METADATA, CHANGE])
async def test_a_damaged_file_is_named(tmp_path: Path, file: str) -> None:
    queue, post = await opened(tmp_path)
    [recipient] = await post.send("a@example.org")
    await queue.close()
    mail = tmp_path / "data" / uuid_of(recipient.spid)
    path = mail / CHANGE if file == CHANGE else mail / Dest(recipient.spid, 1).name / METADATA
    path.write_bytes(b"-half a line")
    with pytest.raises(StoreDamaged, match=file):
        await opened(tmp_path)


async def test_a_message_with_many_recipients_has_one_sync(tmp_path: Path) -> None:
    disk = FaultyDisk()
    queue, post = await opened(tmp_path, disk)
    disk.calls.clear()
    await post.send(*(f"r{number}@example.org" for number in range(101)))
    assert disk.count("sync_filesystem") == 1
    assert disk.count("datasync", "*/data/*") == 1
    await queue.close()


OPERATIONS = ["make_dir", "open", "pwritev", "datasync", "rename", "sync_dir", "make_symlink"]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("passes", range(3))
async def test_a_disk_that_fails_refuses_mail(tmp_path: Path, operation: str, passes: int) -> None:
    disk = FaultyDisk()
    queue, post = await opened(tmp_path, disk)
    refused = 0
    for content in (BODY, chunks(BODY)):
        disk.fail(operation, passes=passes)
        try:
            await queue.enqueue(post.submission("a@example.org", content=content))
        except StoreUnavailable:
            refused += 1
        disk.mend()
    assert refused or passes
    taken = await post.send("b@example.org", "c@example.org")
    await queue.close()
    queue, post = await opened(tmp_path)
    there = await post.scan()
    assert {each.key for each in taken} <= set(there)
    for each in there.values():
        assert await post.read(each) == BODY
    await queue.close()


@pytest.mark.parametrize("operation", ["open", "pwritev", "datasync", "rename", "unlink", "sync_dir"])
@pytest.mark.parametrize("passes", range(6))
async def test_a_change_that_fails_may_come_again(tmp_path: Path, operation: str, passes: int) -> None:
    disk = FaultyDisk()
    queue, post = await opened(tmp_path, disk)
    await post.send("a@example.org", "b@example.org", "c@example.org")
    claimed = await post.claim_all()
    kept = [each for each in claimed if each.qid == 1]
    others = [each for each in claimed if each.qid > 1]
    for verdict, some in ((deferred(post.clock.now() + 1000), kept), (delivered(), others)):
        disk.fail(operation, passes=passes)
        try:
            await post.settle(verdict, *some)
        except StoreUnavailable:
            disk.mend()
            await post.settle(verdict, *some)
        disk.mend()
    await queue.close()
    queue, post = await opened(tmp_path)
    assert set(await post.scan()) == {each.key for each in kept}
    await queue.close()

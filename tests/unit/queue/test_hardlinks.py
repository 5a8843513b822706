"""With `hardlinks` each recipient of several has its own name for the content, and no count is needed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from mqcd.config.settings import JournalSettings, SpoolSettings
from mqcd.core.errors import ConfigError, StoreUnavailable
from mqcd.core.model import Recipient
from mqcd.disk.durable import Disk
from mqcd.queue.admin.fsck.survey import survey
from mqcd.queue.format import filenames
from mqcd.queue.spool.files import place
from tests.contract.harness import MINUTE
from tests.contract.mail import BODY, chunks, deferred, delivered
from tests.fakes.clock import turns
from tests.fakes.disk import FaultyDisk
from tests.unit.queue.support import SEGMENT_SIZE, Rig, file_path, spool_path

LARGE = b"0123456789abcdef" * 3000
NO_LINKS = [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK]


async def opened(root: Path, *, hardlinks: bool = True, **changes: Any) -> Rig:
    spool = SpoolSettings(rootpath=root / "spool", hardlinks=hardlinks)
    return await Rig(root, spool=spool, **changes).open()


async def switched(rig: Rig, *, hardlinks: bool) -> Rig:
    """The same queue after a stop, with the setting changed."""
    rig.changes["spool"] = SpoolSettings(rootpath=rig.root / "spool", hardlinks=hardlinks)
    return await rig.reopened()


async def killed(rig: Rig) -> Rig:
    """A copy of the files as this moment leaves them, open again."""
    root = rig.root.with_name(f"{rig.root.name}k")
    rig.changes["spool"] = SpoolSettings(rootpath=root / "spool", hardlinks=True)
    return await rig.killed()


async def later(rig: Rig, *minutes: int) -> list[Recipient]:
    """A message whose recipients become due after so many minutes each, at rest in a cluster."""
    now = rig.clock.now()
    accepted = await rig.post.send(*(f"u{n}@example.org" for n in minutes))
    for n, each in zip(minutes, await rig.post.claim_all(), strict=True):
        await rig.post.settle(deferred(now + n * MINUTE), each)
    await rig.evacuate()
    return list(accepted)


async def deliver_due(rig: Rig) -> None:
    rig.clock.advance(MINUTE)
    [claimed] = await rig.post.claim_all()
    assert await rig.post.read(claimed) == BODY
    await rig.post.settle(delivered(), claimed)
    await rig.sweep()


def links_of(spid: int, *qids: int) -> list[str]:
    return [f"{spid:016X}-{qid}.msg" for qid in qids]


async def test_each_recipient_has_its_own_link_to_one_file(tmp_path: Path) -> None:
    rig = await opened(tmp_path / "q")
    spid = (await later(rig, 1, 2, 3))[0].spid
    assert rig.spooled() == links_of(spid, 1, 2, 3)
    assert {path.stat().st_nlink for path in rig.spool.glob("s??/*")} == {3}
    for left in ((2, 3), (3,), ()):
        await deliver_due(rig)
        assert rig.spooled() == links_of(spid, *left)
    assert (len(rig.shard.references), rig.shard.references.misses) == (0, 0)
    await rig.close()


async def test_a_single_recipient_has_the_messages_file(tmp_path: Path) -> None:
    rig = await opened(tmp_path / "q")
    [recipient] = await later(rig, 1)
    assert not recipient.linked
    assert rig.spooled() == [f"{recipient.spid:016X}.msg"]
    await deliver_due(rig)
    assert rig.spooled() == []
    await rig.close()


async def test_only_who_waits_gets_a_link_at_evacuation(tmp_path: Path) -> None:
    rig = await opened(tmp_path / "q")
    [first, *_] = await rig.post.send("a@example.org", "b@example.org", "c@example.org")
    claimed = await rig.post.claim_all()
    await rig.post.settle(delivered(), claimed[0])
    await rig.post.settle(deferred(rig.clock.now() + MINUTE), claimed[1])
    await rig.evacuate()
    assert rig.spooled() == links_of(first.spid, 2, 3)
    assert await rig.post.read(claimed[2]) == BODY
    await rig.post.settle(delivered(), claimed[2])
    await rig.shard.deleter.settled()
    assert rig.spooled() == links_of(first.spid, 2)
    await rig.close()


async def test_a_large_message_is_linked_before_it_is_accepted(tmp_path: Path) -> None:
    rig = await opened(tmp_path / "q")
    rig.disk.calls.clear()
    large = rig.post.submission("a@example.org", "b@example.org", "c@example.org", content=chunks(LARGE))
    recipients = await rig.store.enqueue(large)
    name = f"{large.envelope.spid:016X}"
    silo = spool_path(rig.spool, large.envelope.spid).parent.name
    calls = rig.disk.order("datasync", "link", "rename", "sync_dir")
    calls = calls[calls.index(("datasync", f"{name}.tmp")) :]
    assert [call for call in calls if call[1].startswith((name, silo))] == [
        ("datasync", f"{name}.tmp"),
        ("link", f"{name}-1.msg"),
        ("link", f"{name}-2.msg"),
        ("rename", f"{name}-3.msg"),
        ("sync_dir", silo),
    ]
    assert "datasync" in {operation for operation, _ in calls[calls.index(("sync_dir", silo)) + 1 :]}
    assert rig.spooled() == links_of(large.envelope.spid, 1, 2, 3)
    for each in await rig.post.claim_all():
        assert await rig.post.read(each) == LARGE
    await rig.post.settle(delivered(), *recipients[:2])
    await rig.shard.deleter.settled()
    assert rig.spooled() == links_of(large.envelope.spid, 3)
    await rig.close()


@pytest.mark.parametrize("operation", ["link", "rename", "sync_dir"])
async def test_a_large_message_that_cannot_be_named_leaves_nothing(tmp_path: Path, operation: str) -> None:
    rig = await opened(tmp_path / "q")
    large = rig.post.submission("a@example.org", "b@example.org", content=chunks(LARGE))
    rig.disk.fail(operation, f"*/{'s??' if operation == 'sync_dir' else '*.msg'}")
    with pytest.raises(StoreUnavailable):
        await rig.store.enqueue(large)
    assert rig.spooled() == []
    await rig.close()


@pytest.mark.parametrize("code", NO_LINKS)
async def test_where_links_are_gone_mail_in_the_queue_is_copied(tmp_path: Path, code: int) -> None:
    rig = await opened(tmp_path / "q")
    rig.disk.fail("link", "*.msg", times=None, code=code)
    spid = (await later(rig, 1, 2, 3))[0].spid
    assert rig.spooled() == links_of(spid, 1, 2, 3)
    assert {path.read_bytes() for path in rig.spool.glob("s??/*")} == {BODY}
    for left in ((2, 3), (3,), ()):
        await deliver_due(rig)
        assert rig.spooled() == links_of(spid, *left)
    await rig.close()


@pytest.mark.parametrize("operation", ["pwritev", "datasync", "rename"])
async def test_a_copy_that_fails_leaves_nothing_half_written(tmp_path: Path, operation: str) -> None:
    rig = await opened(tmp_path / "q")
    await rig.post.send("a@example.org", "b@example.org")
    await rig.seal()
    await turns()
    rig.disk.fail("link", "*.msg", times=None, code=errno.EMLINK)
    rig.disk.fail(operation, "*-1.*")
    with pytest.raises(OSError, match="Input/output"):
        await rig.evacuate()
    assert rig.temporary() == []
    await rig.close()


def test_a_file_with_no_more_links_is_copied_once(tmp_path: Path) -> None:
    disk = FaultyDisk()
    temp = tmp_path / "A.tmp"
    temp.write_bytes(LARGE)
    paths = [tmp_path / f"A-{qid}.msg" for qid in range(1, 7)]
    disk.fail("link", passes=2, code=errno.EMLINK)
    place(disk, temp, paths)
    assert [path.stat().st_nlink for path in paths] == [3, 3, 3, 3, 3, 3]
    assert len({path.stat().st_ino for path in paths}) == 2
    assert {path.read_bytes() for path in paths} == {LARGE}
    assert sorted(tmp_path.iterdir()) == paths
    assert disk.count("datasync", "*-3.tmp") == 1


async def test_an_evacuation_with_failed_links_is_repeated(tmp_path: Path) -> None:
    rig = await opened(tmp_path / "q")
    spid = (await rig.post.send("a@example.org", "b@example.org", "c@example.org"))[0].spid
    rig.disk.fail("link", "*.msg", passes=1)
    with pytest.raises(OSError, match="Input/output"):
        await rig.evacuate()
    assert [name for name in rig.spooled() if name.endswith(".msg")] == links_of(spid, 1)
    await rig.post.settle(delivered(), (await rig.post.claim_all())[0])
    await rig.evacuate()
    assert rig.spooled() == links_of(spid, 2, 3)
    await rig.close()


@pytest.mark.parametrize("before", [False, True])
async def test_the_setting_can_be_switched_with_mail_in_the_queue(tmp_path: Path, before: bool) -> None:
    rig = await opened(tmp_path / "q", hardlinks=before)
    first = (await later(rig, 1, 2, 3))[0]
    waiting = (await rig.post.send("a@example.org", "b@example.org"))[0]
    old = rig
    rig = await switched(rig, hardlinks=not before)
    new = (await later_than(rig, 10, 11))[0]
    assert (first.linked, waiting.linked, new.linked) == (before, before, not before)
    linked, shared = ([first, waiting], [new]) if before else ([new], [first, waiting])
    for each in linked:
        assert links_of(each.spid, 1)[0] in rig.spooled()
    for each in shared:
        assert f"{each.spid:016X}.msg" in rig.spooled()
    rig.clock.advance(20 * MINUTE)
    for each in await rig.post.claim_all():
        assert await rig.post.read(each) == BODY
        await rig.post.settle(delivered(), each)
    await rig.sweep()
    assert rig.spooled() == []
    await old.close()


async def later_than(rig: Rig, *minutes: int) -> list[Recipient]:
    """As `later`, beside other mail that waits to be tried."""
    now = rig.clock.now()
    accepted = await rig.post.send(*(f"u{n}@example.org" for n in minutes))
    for each in await rig.post.claim_all():
        await rig.post.settle(deferred(now + minutes[0] * MINUTE), each)
    await rig.evacuate()
    return list(accepted)


async def test_a_start_removes_links_without_owner_only(tmp_path: Path) -> None:
    rig = await opened(tmp_path / "q")
    spid = (await later(rig, 1, 2, 3))[0].spid
    large = rig.post.submission("d@example.org", "e@example.org", content=chunks(LARGE))
    await rig.store.enqueue(large)
    gone = await rig.post.claim_all()
    await rig.post.settle(delivered(), gone[0])
    await deliver_due(rig)
    kept = rig.spooled()
    assert kept == sorted([*links_of(spid, 2, 3), *links_of(large.envelope.spid, 2)])
    never = rig.store.reserve(True)
    await rig.shard.editing.reserve(never, never)
    back = [(spid, 1), (large.envelope.spid, 1), (never, 1), (never, 2)]
    for key in back:
        spool_path(rig.spool, *key).write_bytes(b"x")
    rig.clock.advance(1000)
    again = await killed(rig)
    await turns()
    await again.shard.deleter.settled()
    assert again.spooled() == kept
    assert not again.shard.references.batch
    await rig.close()


async def test_half_an_evacuations_links_go_with_their_recipients(tmp_path: Path) -> None:
    rig = await opened(tmp_path / "q")
    first, second = await rig.post.send("a@example.org", "b@example.org")
    for each in (first, second):
        file_path(rig.spool, filenames.number_of(each)).write_bytes(b"half an evacuation")
    again = await killed(rig)
    assert await again.post.read(first) == BODY
    await again.post.settle(delivered(), (await again.post.claim_all())[0])
    await again.sweep()
    assert again.spooled() == links_of(first.spid, 2)
    await rig.close()


@pytest.mark.parametrize("code", NO_LINKS[:2])
async def test_a_file_system_without_links_is_refused_at_the_start(tmp_path: Path, code: int) -> None:
    rig = Rig(tmp_path / "q", spool=SpoolSettings(rootpath=tmp_path / "q" / "spool", hardlinks=True))
    rig.disk.fail("link", "*/links-2.tmp", code=code)
    with pytest.raises(ConfigError) as caught:
        await rig.open()
    assert str(caught.value).startswith(f"{rig.spool}: ")
    assert f"({os.strerror(code)})" in str(caught.value)
    assert "mta/queue/spool/hardlinks" in str(caught.value)
    assert not list(rig.spool.glob("links*"))
    await rig.open()
    await rig.close()


async def test_another_fault_of_the_check_is_reported_as_it_is(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "q", spool=SpoolSettings(rootpath=tmp_path / "q" / "spool", hardlinks=True))
    rig.disk.fail("link", "*/links-2.tmp")
    with pytest.raises(StoreUnavailable, match=f"{rig.spool}/links-2.tmp: Input/output"):
        await rig.open()
    assert not list(rig.spool.glob("links*"))


async def test_without_the_setting_nothing_is_tried(tmp_path: Path) -> None:
    rig = await opened(tmp_path / "q", hardlinks=False)
    assert not rig.disk.count("link", "*/links*")
    await rig.close()


async def test_readers_find_the_content_by_any_link(tmp_path: Path) -> None:
    rig = await opened(tmp_path / "q")
    spid = (await later(rig, 1, 2))[0].spid
    await deliver_due(rig)
    snapshot = rig.snapshot()
    assert b"".join(snapshot.content(spid)) == BODY
    [left] = rig.listed()
    assert b"".join(snapshot.content(spid, left)) == BODY
    snapshot.close()
    await rig.close()


async def test_fsck_knows_links(tmp_path: Path) -> None:
    journal = JournalSettings(segmentsize=SEGMENT_SIZE, segments=8, inline_max=16 << 10)
    rig = await opened(tmp_path / "q", journal=journal)
    spid = (await later(rig, 1, 2, 3))[0].spid
    await rig.close()
    found = survey(Disk(), rig.options)
    assert (found.ok, found.records, found.contents, found.orphans) == (True, 3, 1, [])
    spool_path(rig.spool, spid, 2).unlink()
    stray = spool_path(rig.spool, spid, 7)
    stray.write_bytes(BODY)
    found = survey(Disk(), rig.options)
    assert found.bereft == {spool_path(rig.spool, spid, 2): 1}
    assert found.orphans == [stray]


@pytest.mark.parametrize("name", ["{}-0.msg", "{}-01.msg", "{}-1.eml", "{}-.msg", "{}-1-2.msg", "{}-1"])
def test_other_names_are_strays(name: str) -> None:
    assert filenames.parse(name.format("0123456789ABCDE1")) is None


@pytest.mark.parametrize("qid", [0, 1, 60_000])
def test_file_numbers_and_names_stand_for_each_other(qid: int) -> None:
    file = filenames.number(0x0123456789ABCDE1, qid)
    path = filenames.path_of(file, 32)
    assert path == f"s17/0123456789ABCDE1{f'-{qid}' if qid else ''}.msg"
    assert filenames.parse(path.rpartition("/")[2]) == file
    assert filenames.spid_of(file) == 0x0123456789ABCDE1
    assert filenames.qid_of(file) == qid

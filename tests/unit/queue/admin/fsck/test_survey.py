"""What a look at the files finds: nothing in a whole queue, and each kind of damage with its place."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from mqcd.core.errors import StoreBusy, StoreUnavailable
from mqcd.core.queueing.spid import EPOCH_MS
from mqcd.disk.durable import Disk
from mqcd.queue.admin.findings import Kind
from mqcd.queue.admin.fsck.survey import survey
from tests.fakes.disk import FaultyDisk
from tests.unit.queue.admin.kit import cluster_of, damage, fill, filled, look
from tests.unit.queue.support import Rig, options


async def test_a_whole_queue_is_whole(rig: Rig) -> None:
    await filled(rig)
    found = look(rig)
    assert found.ok
    assert (found.records, found.contents, found.missing, found.quarantined) == (5, 4, 0, 0)
    assert found.orphans == []
    assert not found.running


async def test_it_is_whole_beside_a_server_too(rig: Rig) -> None:
    await fill(rig)
    found = look(rig)
    assert found.ok
    assert found.running
    assert (found.records, found.contents) == (5, 4)


async def test_what_a_crash_leaves_is_no_problem(rig: Rig) -> None:
    await fill(rig)
    await rig.evacuate()
    await rig.post.send("after@c.example")
    (rig.spool / "s01" / "00000000000000F0.tmp").write_bytes(b"half")
    (rig.queue / "incoming" / "M999-0.mqc").write_bytes(b"nobody lists it")
    found = look(rig)
    assert found.ok
    assert found.records == 6
    assert sorted(path.name for path in found.orphans) == ["00000000000000F0.tmp", "M999-0.mqc"]


async def test_a_damaged_line_is_reported_with_its_number(rig: Rig) -> None:
    path = cluster_of(await filled(rig), "deferred")
    damage(path, 3)
    found = look(rig)
    (problem,) = found.problems
    assert (problem.kind, problem.path, problem.line) == (Kind.LINE, path, 3)
    assert "checksum" in problem.text
    assert found.records == 4


async def test_lines_before_the_cursor_are_nobodys(rig: Rig) -> None:
    await filled(rig)
    again = Rig(rig.root, rig.clock)
    await again.open()
    rig.clock.advance(4_000_000)
    [_] = await again.store.claim(1, rig.clock.now())
    await again.close()
    path = cluster_of(rig, "deferred")
    damage(path, 2)
    assert look(rig).ok


async def test_a_missing_content_counts_each_recipient(rig: Rig) -> None:
    await filled(rig)
    recipients = rig.listed(area=None)
    spid = next(each.spid for each in recipients if each.address == "waits@a.example")
    (file,) = rig.spool.rglob(f"{spid:016X}.msg")
    file.unlink()
    found = look(rig)
    assert found.missing == 2
    assert found.contents == 3
    assert [(each.kind, each.path) for each in found.problems] == [(Kind.CONTENT, file)]


async def test_a_content_in_the_wrong_silo_is_reported_with_its_place(rig: Rig) -> None:
    await filled(rig)
    (file, *_) = sorted(rig.spool.rglob("*.msg"))
    silo = "s08" if file.parent.name == "s09" else "s09"
    moved = file.rename(rig.spool / silo / file.name)
    found = look(rig)
    assert [(each.kind, each.path) for each in found.problems] == [(Kind.CONTENT, file)]
    assert [(each.kind, each.path) for each in found.notes] == [(Kind.STRAY, moved)]
    assert str(file) in found.notes[0].text


async def test_a_content_of_another_length_is_reported(rig: Rig) -> None:
    await filled(rig)
    (file, *_) = sorted(rig.spool.rglob("*.msg"))
    file.write_bytes(file.read_bytes()[:-3])
    (problem,) = look(rig).problems
    assert (problem.kind, problem.path) == (Kind.CONTENT, file)


async def test_clusters_that_are_gone_or_short_or_strange(rig: Rig) -> None:
    await filled(rig)
    gone, short, strange = (cluster_of(rig, area) for area in ("incoming", "bounces", "deferred"))
    gone.unlink()
    short.write_bytes(short.read_bytes()[:-10])
    strange.write_bytes(b"X" + strange.read_bytes()[1:])
    found = look(rig)
    assert {(each.kind, each.path, each.line) for each in found.problems} == {
        (Kind.CLUSTER, gone, None),
        (Kind.CLUSTER, short, None),
        (Kind.LINE, short, 2),
        (Kind.CLUSTER, strange, 1),
    }
    # The new message's file is there, but nothing says any more whose it is.
    assert len(found.orphans) == 1


async def test_what_is_there_and_cannot_be_read_is_not_told_as_lost(rig: Rig) -> None:
    await filled(rig)
    path = cluster_of(rig, "incoming")
    [content, *_] = sorted(rig.spool.rglob("*.msg"))
    text = {}
    for file in (path, content, rig.queue / "MANIFEST"):
        disk = FaultyDisk()
        disk.fail("open", str(file), code=errno.EACCES, times=None)
        text[file] = "".join(each.text for each in survey(disk, rig.options).problems if each.path == file)
        assert text[file].startswith("cannot be read: Permission denied: ")
        assert text[file].endswith(" from a copy")
        assert str(file) not in text[file]
        assert "lost" not in text[file]
    assert "1 records" in text[path]
    assert "unfinished recipients" in text[content]


async def test_a_record_too_many_is_reported(rig: Rig) -> None:
    path = cluster_of(await filled(rig), "deferred")
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1], lines[1], *lines[3:]]))
    [twice] = [each for each in look(rig).problems if each.kind is Kind.HOME]
    assert (twice.path, twice.line) == (path, 3)
    assert f"also in {path}" in twice.text
    assert "may come twice" in twice.text


async def test_damage_in_the_middle_of_the_manifest(rig: Rig) -> None:
    await fill(rig)
    await rig.evacuate()
    await rig.close()
    path = rig.queue / "MANIFEST"
    assert path.read_bytes().count(b"\n") >= 2
    damage(path, 1)
    found = look(rig)
    assert not found.ok
    assert [(each.kind, each.line) for each in found.problems] == [(Kind.MANIFEST, 1)]
    assert "from a copy" in found.problems[0].text


async def test_damage_at_the_end_of_the_manifest(rig: Rig) -> None:
    await fill(rig)
    await rig.evacuate()
    await rig.close()
    path = rig.queue / "MANIFEST"
    data = path.read_bytes()
    number = data.count(b"\n")
    damage(path, number)
    assert [(each.kind, each.line) for each in look(rig).problems] == [(Kind.MANIFEST, number)]
    path.write_bytes(data[:-1] + b"X")
    (problem,) = look(rig).problems
    assert problem.kind is Kind.MANIFEST
    assert f"line {number}: " in problem.text


async def test_an_edit_that_a_crash_cut_off_is_worth_a_note(rig: Rig) -> None:
    await filled(rig)
    path = rig.queue / "MANIFEST"
    path.write_bytes(path.read_bytes() + b"01234567 {half")
    found = look(rig)
    assert found.ok
    assert ["its last 14 octets" in each.text for each in found.notes if each.kind is Kind.MANIFEST] == [True]


async def test_a_missing_manifest_is_not_an_empty_queue(rig: Rig) -> None:
    await filled(rig)
    (rig.queue / "MANIFEST").unlink()
    (problem,) = look(rig).problems
    assert problem.kind is Kind.MANIFEST
    assert problem.text.startswith("is missing")
    assert "mqcd queue export --without-manifest" in problem.text


async def test_a_missing_segment_and_a_damaged_frame(rig: Rig) -> None:
    await fill(rig)
    await rig.seal()
    await rig.post.send("later@c.example")
    copy = rig.root.with_name("copy")
    shutil.copytree(rig.root, copy)
    path = copy / "queue" / "journal" / next(iter(rig.shard.ring)).path.name
    data = bytearray(path.read_bytes())
    data[4096 + 60] ^= 1
    path.write_bytes(data)
    assert {each.kind for each in survey(Disk(), options(copy)).problems} == {Kind.FRAME}
    path.write_bytes(bytes(len(data)))
    [text] = [each.text for each in survey(Disk(), options(copy)).problems if each.kind is Kind.JOURNAL]
    assert " from a copy" in text
    assert text.startswith("journal segment")
    assert "mqcd fsck" not in text


async def test_roots_that_do_not_belong_together(rig: Rig) -> None:
    await filled(rig)
    (rig.spool / "uuid").write_text("another\n")
    assert [each.kind for each in look(rig).problems] == [Kind.ROOTS]


async def test_strays_and_quarantine_are_worth_a_note(rig: Rig) -> None:
    await filled(rig)
    (rig.spool / "s07" / "notes.txt").write_text("mine")
    (rig.queue / "deferred" / "readme").write_text("mine")
    (rig.queue / "quarantine").mkdir()
    (rig.queue / "quarantine" / "bounces-M1-0.mqc.bad").write_bytes(b"one\ntwo\n")
    (rig.queue / "quarantine" / "segment-3-4096.bad").write_bytes(b"a\nb\nc\n")
    orphan = rig.spool / "s02" / f"{EPOCH_MS:016X}.msg"
    orphan.write_bytes(b"whose?")
    found = look(rig)
    assert found.ok
    assert found.quarantined == 3
    aside = [each for each in found.notes if each.kind is Kind.QUARANTINE]
    assert [(each.path.name, each.line) for each in aside] == [
        ("bounces-M1-0.mqc.bad", 1),
        ("bounces-M1-0.mqc.bad", 2),
        ("segment-3-4096.bad", None),
    ]
    assert "'two" in aside[1].text
    assert found.orphans == [orphan]
    assert {each.path.name for each in found.notes if each.kind is Kind.STRAY} == {"notes.txt", "readme"}


async def test_a_find_that_is_empty_or_cannot_be_read_counts(rig: Rig) -> None:
    await filled(rig)
    (rig.queue / "quarantine").mkdir()
    (rig.queue / "quarantine" / "bounces-M1-0.mqc-15.bad").write_bytes(b"")
    (rig.queue / "quarantine" / "segment-3-4096.bad").mkdir()
    (rig.queue / "quarantine" / "segment-3-8192+7.bad").mkdir()
    found = look(rig)
    assert found.ok
    assert found.quarantined == 9
    assert [each.kind for each in found.notes] == 3 * [Kind.QUARANTINE]


async def test_a_queue_that_is_being_tidied_is_tried_again(rig: Rig) -> None:
    await filled(rig)
    disk = Disk()
    fd = disk.open(rig.queue / "pin", 0)
    assert disk.lock(fd, exclusive=True)
    with pytest.raises(StoreBusy, match="try again"):
        look(rig)
    disk.close(fd)


def test_where_there_is_no_queue_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="holds no queue"):
        survey(Disk(), options(tmp_path))


async def test_beside_a_server_only_what_is_found_twice_counts(rig: Rig) -> None:
    await fill(rig)
    await rig.evacuate()
    first, second = sorted(rig.spool.rglob("*.msg"))[:2]
    first.unlink()
    octets = second.read_bytes()
    second.unlink()

    looks = 0

    def put_back(what: str, done: int, _total: int) -> None:
        nonlocal looks
        if what == "clusters" and done == 0:
            looks += 1
            if looks == 2:
                second.write_bytes(octets)

    found = survey(Disk(), rig.options, put_back)
    assert [each.path for each in found.problems] == [first]
    assert found.missing == sum(each.spid == int(first.stem, 16) for each in rig.listed())

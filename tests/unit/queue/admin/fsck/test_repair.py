"""What --repair mends, and what it leaves alone."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from mqcd.core.errors import StoreBusy, StoreDamaged
from mqcd.queue.admin.findings import Kind
from mqcd.queue.admin.fsck.repair import mend_roots, repair
from mqcd.queue.admin.ownership import Owned, owned
from mqcd.queue.format import frame, segment_header
from tests.contract.mail import delivered
from tests.fakes.killed import copy_as_killed
from tests.fakes.workers import LocalWorkers
from tests.unit.queue.admin.kit import (
    DUE,
    LARGE,
    addresses,
    cluster_of,
    damage,
    filled,
    look,
    mend,
    state_of,
)
from tests.unit.queue.support import Rig


def owned_by(rig: Rig) -> AbstractAsyncContextManager[Owned]:
    """The stopped queue, for one whose disk is the rig's."""
    return owned(rig.options, rig.clock, rig.observer, rig.disk, LocalWorkers(rig.disk))


async def test_damaged_lines_go_to_quarantine_and_the_others_on(rig: Rig) -> None:
    path = cluster_of(await filled(rig), "deferred")
    raw = damage(path, 3)
    kept = rig.listed()
    found = await mend(rig)
    assert found.ok
    assert (found.records, found.quarantined, found.running) == (4, 1, False)
    assert not path.exists()
    (aside,) = (rig.queue / "quarantine").iterdir()
    assert aside.read_bytes() == raw
    assert addresses(rig.listed()) == addresses(kept)
    again = await Rig(rig.root, rig.clock).open()
    assert {each.due for each in rig.listed(area=None) if each.area == "deferred"} == {DUE}
    rig.clock.advance(4_000_000)
    assert len(await again.post.claim_all()) == 3
    await again.close()


async def test_a_line_that_the_journal_cannot_hold_goes_to_quarantine(rig: Rig) -> None:
    too_long = rig.post.submission("long@d.example")
    await rig.store.enqueue(replace(too_long, envelope=replace(too_long.envelope, user="x" * 20_000)))
    await filled(rig)
    found = look(rig)
    assert (found.ok, found.records, found.quarantined) == (True, 5, 1)


async def test_a_damaged_first_line_costs_no_record(rig: Rig) -> None:
    path = cluster_of(await filled(rig), "deferred")
    path.write_bytes(b"X" + path.read_bytes()[1:])
    found = await mend(rig)
    assert found.ok
    assert found.records == 5


async def test_a_queue_of_a_newer_version_is_left_alone(rig: Rig) -> None:
    path = cluster_of(await filled(rig), "deferred")
    path.write_bytes(path.read_bytes().replace(b"mqcd-cluster 1", b"mqcd-cluster 2", 1))
    with pytest.raises(StoreDamaged, match="cluster format 2"):
        await mend(rig)
    assert path.exists()


async def test_orphans_go(rig: Rig) -> None:
    await filled(rig)
    orphan = rig.spool / "s02" / f"{1 << 30:016X}.msg"
    orphan.write_bytes(b"whose?")
    stray = rig.spool / "s02" / "mine.txt"
    stray.write_text("mine")
    found = await mend(rig)
    assert found.orphans == []
    assert not orphan.exists()
    assert stray.exists()


async def test_no_message_goes_while_its_owner_may_lie_in_quarantine(rig: Rig) -> None:
    path = cluster_of(await filled(rig), "incoming")
    damage(path, 2)
    messages = sorted(rig.spool.rglob("*.msg"))
    assert (await mend(rig)).ok
    again = await mend(rig)
    assert again.quarantined == 1
    assert "quarantine" in again.withheld
    assert sorted(rig.spool.rglob("*.msg")) == messages


@pytest.mark.parametrize("harm", ["gone", "cut off between lines", "cut off within a line", "damaged, too"])
async def test_a_lost_cluster_can_be_restored_after_a_repair(rig: Rig, harm: str) -> None:
    path = cluster_of(await filled(rig), "deferred")
    whole = path.read_bytes()
    kept, messages = rig.listed(), sorted(rig.spool.rglob("*.msg"))
    lines = whole.splitlines(keepends=True)
    if harm == "gone":
        path.unlink()
    elif harm == "cut off between lines":
        path.write_bytes(b"".join(lines[:-1]))
    elif harm == "cut off within a line":
        path.write_bytes(whole[:-20])
    else:
        path.write_bytes(b"".join([lines[0], lines[1].replace(b"|d|", b"|X|"), *lines[2:-1]]))
    found = await mend(rig)
    assert Kind.CLUSTER in {each.kind for each in found.problems}
    assert sorted(rig.spool.rglob("*.msg")) == messages
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(whole)
    assert (await mend(rig)).ok
    assert addresses(rig.listed()) == addresses(kept)


@pytest.mark.parametrize(
    ("harm", "quarantined", "files"), [("zeroed", 3, 2), ("one octet a line feed", 1, 1), ("all lines", 3, 1)]
)
async def test_what_is_put_aside_counts_as_the_records_that_it_was(
    rig: Rig, harm: str, quarantined: int, files: int
) -> None:
    path = cluster_of(await filled(rig), "deferred")
    data = path.read_bytes()
    if harm == "zeroed":
        path.write_bytes(bytes(len(data)))
    elif harm == "all lines":
        path.write_bytes(data.replace(b"|d|", b"|X|"))
    else:
        path.write_bytes(data.replace(b"|d|", b"|\n|", 1))
    found = await mend(rig)
    assert found.ok
    assert (found.records, found.quarantined) == (5 - quarantined, quarantined)
    assert len(list((rig.queue / "quarantine").iterdir())) == files
    assert (await mend(rig)).quarantined == quarantined


async def test_what_an_older_version_has_put_aside_keeps_its_name(rig: Rig) -> None:
    path = cluster_of(await filled(rig), "deferred")
    raw = damage(path, 2)
    at = path.read_bytes().index(raw)
    old = rig.queue / "quarantine" / f"{str(path.relative_to(rig.queue)).replace('/', '-')}-{at}.bad"
    old.parent.mkdir()
    old.write_bytes(b"cut o")
    assert (await mend(rig)).quarantined == 1
    assert [each.read_bytes() for each in old.parent.iterdir()] == [raw]
    assert old.exists()


def _spoil(path: Path, harm: str) -> Path | None:
    """Have a cluster be out of reach; gives where it lies now, if it still does."""
    if harm == "empty":
        path.write_bytes(b"")
        return None
    if harm == "renamed":
        return path.rename(path.with_name("M999-0.mqc"))
    if harm == "its directory renamed":
        return path.parent.rename(path.parent.with_name("Tsaved")) / path.name
    path.unlink()
    if harm == "unreadable":
        path.mkdir()
    return None


@pytest.mark.parametrize("harm", ["gone", "unreadable", "empty", "renamed", "its directory renamed"])
async def test_orphans_stay_while_a_cluster_is_missing(rig: Rig, harm: str) -> None:
    path = cluster_of(await filled(rig), "deferred")
    whole, kept = path.read_bytes(), addresses(rig.listed())
    message = rig.spool / "s02" / f"{1 << 30:016X}.msg"
    message.write_bytes(b"whose?")
    half = rig.queue / "incoming" / "M1-8.tmp"
    half.write_bytes(b"half")
    messages = sorted(rig.spool.rglob("*.msg"))
    elsewhere = _spoil(path, harm)
    for _ in range(2):
        found = await mend(rig)
        assert Kind.CLUSTER in {each.kind for each in found.problems}
        assert "put back" in found.withheld
        assert found.quarantined == 0
        assert sorted(rig.spool.rglob("*.msg")) == messages
        assert elsewhere is None or elsewhere.read_bytes() == whole
        assert not half.exists()
    if harm == "unreadable":
        path.rmdir()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(whole)
    found = await mend(rig)
    assert (found.ok, found.orphans, found.withheld) == (True, [], "")
    assert not message.exists()
    assert elsewhere is None or not elsewhere.exists()
    assert addresses(rig.listed()) == kept


async def test_a_missing_content_stays_a_problem(rig: Rig) -> None:
    await filled(rig)
    (file, *_) = sorted(rig.spool.rglob("*.msg"))
    file.unlink()
    found = await mend(rig)
    assert found.missing >= 1
    assert [each.kind for each in found.problems] == [Kind.CONTENT]


async def test_a_whole_queue_stays_as_it_is(rig: Rig) -> None:
    await filled(rig)
    before = state_of(rig).clusters
    assert (await mend(rig)).ok
    assert state_of(rig).clusters == before


async def test_beside_a_server_it_is_refused(rig: Rig) -> None:
    with pytest.raises(StoreBusy, match="stop that server first"):
        await mend(rig)


async def test_what_the_journal_still_tells_is_not_forgotten(rig: Rig, tmp_path: Path) -> None:
    for name in "xyz":
        await rig.post.defer_new(f"{name}@a.example", DUE)
    await rig.evacuate()
    rig.clock.advance(DUE - rig.clock.now())
    [taken] = await rig.store.claim(1, rig.clock.now())
    await rig.post.settle(delivered(), taken)
    killed = Rig(tmp_path / "killed", rig.clock)
    copy_as_killed(rig.root, killed.root)
    path = next((killed.queue / "deferred").rglob("*.mqc"))
    path.write_bytes(path.read_bytes().replace(b"z@a.example", b"Z@a.example"))
    before = path.read_bytes()
    # The stop that comes before the repair can export nothing, so it leaves the journal as it is.
    killed.disk.fail("*", "*/events/*.tmp", times=None)
    with pytest.raises(StoreBusy, match="could not be emptied"):
        async with owned_by(killed) as ours:
            repair(ours)
    assert path.read_bytes() == before
    killed.disk.mend()
    async with owned_by(killed) as ours:
        assert repair(ours).ok
    await killed.open()
    assert [each.address for each in await killed.post.claim_all()] == ["y@a.example"]
    await killed.close()
    told = [event["recipient"] for event in killed.events() if event["event"] == "delivered"]
    assert told == [taken.address]


async def test_a_journal_that_tells_of_nothing_is_no_hindrance(rig: Rig) -> None:
    await filled(rig)
    state = state_of(rig)
    epoch, number = state.epoch + 1, max(state.first_live, state.last_segment + 1)
    note = frame.pack_header(frame.salt(epoch, number), frame.Kind.NOTE, [], 0, 0, state.sequence, 0, 0)
    header = segment_header.SegmentHeader(epoch, number, state.sequence, 0, 0, 0, 0)
    (rig.queue / "journal" / f"{number}.wal").write_bytes(segment_header.pack(header) + note)
    rig.disk.fail("*", "*/events/*.tmp", times=None)
    async with owned_by(rig) as ours:
        assert ours.number > number
        assert repair(ours).ok


async def test_a_damaged_manifest_is_refused_and_kept(rig: Rig) -> None:
    await filled(rig)
    path = rig.queue / "MANIFEST"
    damage(path, 1)
    data = path.read_bytes()
    with pytest.raises(StoreDamaged, match="MANIFEST"):
        await mend(rig)
    assert path.read_bytes() == data
    assert not look(rig).ok


@pytest.mark.parametrize("root", ["queue", "spool", "both"])
@pytest.mark.parametrize("harm", ["missing", "damaged", "empty"])
async def test_a_lost_uuid_is_written_again(rig: Rig, root: str, harm: str) -> None:
    await filled(rig)
    kept = (rig.queue / "uuid").read_text()
    for each in ("queue", "spool") if root == "both" else (root,):
        path = rig.root / each / "uuid"
        path.unlink()
        if harm != "missing":
            path.write_text("" if harm == "empty" else kept[:-3] + each)
    assert [each.kind for each in look(rig).problems] == [Kind.ROOTS]
    found = await mend(rig)
    assert (found.ok, found.records) == (True, 5)
    names = {(rig.root / each / "uuid").read_text() for each in ("queue", "spool")}
    assert len(names) == 1
    assert root == "both" or names == {kept}


@pytest.mark.parametrize("spool", ["another queue's", "not mounted", "a content is missing"])
async def test_a_uuid_is_not_guessed(rig: Rig, tmp_path: Path, spool: str) -> None:
    await filled(rig)
    (rig.queue / "uuid").unlink()
    rig.spool.rename(tmp_path / "away")
    match spool:
        case "another queue's":
            other = await Rig(tmp_path / "other").open()
            await other.post.send("else@x.example", content=LARGE)
            await other.close()
            other.spool.rename(rig.spool)
        case "not mounted":
            rig.spool.mkdir()
        case _:
            (tmp_path / "away").rename(rig.spool)
            next(rig.spool.rglob("*.msg")).unlink()
    with pytest.raises(StoreDamaged, match="do not belong together"):
        await mend(rig)
    assert not (rig.queue / "uuid").exists()


@pytest.mark.parametrize("lost", ["MANIFEST", "a cluster"])
async def test_records_that_cannot_be_read_prove_nothing_of_the_spool(
    rig: Rig, tmp_path: Path, lost: str
) -> None:
    path = cluster_of(await filled(rig), "deferred")
    (rig.queue / "MANIFEST" if lost == "MANIFEST" else path).unlink()
    (rig.queue / "uuid").unlink()
    other = await Rig(tmp_path / "other").open()
    await other.close()
    rig.spool.rename(tmp_path / "away")
    other.spool.rename(rig.spool)
    await mend_roots(rig.disk, rig.options)
    assert not (rig.queue / "uuid").exists()


async def test_two_uuids_stay_two(rig: Rig) -> None:
    await filled(rig)
    (rig.spool / "uuid").write_text("0f8fad5b-d9cb-469f-a165-70867728950e\n")
    with pytest.raises(StoreDamaged, match="do not belong together"):
        await mend(rig)

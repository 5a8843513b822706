"""How many directories a spool has: what silofactor says when it is made, and never another number."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import pytest

from mqcd.config.settings import SpoolSettings
from mqcd.disk.durable import Disk
from mqcd.queue.admin.transfer.guess import guess
from mqcd.queue.format.filenames import parse, path_of
from mqcd.queue.manifest.log import decode, encode, read
from mqcd.queue.manifest.state import Edit
from mqcd.queue.reading.snapshot import Snapshot
from mqcd.queue.spool.silos import Silos
from tests.contract.mail import BODY, chunks, deferred, delivered
from tests.fakes.clock import FakeClock
from tests.unit.queue.admin.kit import look
from tests.unit.queue.support import Rig

LARGE = b"Subject: large\r\n\r\n" + b"x" * 30_000


def spool(root: Path, factor: int, hardlinks: bool = False) -> SpoolSettings:
    return SpoolSettings(rootpath=root / "spool", silofactor=factor, hardlinks=hardlinks)


def silos(rig: Rig) -> list[str]:
    return sorted(path.name for path in rig.spool.iterdir() if path.is_dir())


def places(rig: Rig) -> list[str]:
    return sorted(str(path.relative_to(rig.spool)) for path in rig.spool.rglob("*.msg"))


def factor_read(rig: Rig) -> int:
    state = read(Disk(), rig.queue / "MANIFEST")
    assert state is not None
    return state.silos


@pytest.mark.parametrize(("factor", "count"), [(0, 1), (2, 4), (5, 32), (7, 128), (8, 256)])
async def test_a_new_spool_has_the_silos_of_silofactor(tmp_path: Path, factor: int, count: int) -> None:
    rig = await Rig(tmp_path, spool=spool(tmp_path, factor)).open()
    assert len(silos(rig)) == count
    assert factor_read(rig) == count
    again = await rig.reopened()
    assert (len(silos(again)), factor_read(again)) == (count, count)
    await rig.close()


@pytest.mark.parametrize("hardlinks", [False, True])
@pytest.mark.parametrize("factor", [0, 1, 8])
async def test_mail_is_found_in_any_number_of_silos(tmp_path: Path, factor: int, hardlinks: bool) -> None:
    rig = await Rig(tmp_path, spool=spool(tmp_path, factor, hardlinks)).open()
    for _ in range(5):
        await rig.post.send("a@example.org", "b@example.org")
    await rig.store.enqueue(rig.post.submission("c@example.org", content=chunks(LARGE)))
    for each in await rig.post.claim_all():
        await rig.post.settle(deferred(rig.clock.now() + 60_000), each)
    await rig.evacuate()
    right = [path_of(each, 1 << factor) for each in map(_file_of, places(rig))]
    assert sorted(right) == places(rig) != []
    assert (look(rig).problems, look(rig).notes) == ([], [])
    later = await rig.reopened()
    with closing(Snapshot(Disk(), rig.queue, rig.spool)) as snapshot:
        spids = {each.spid for each in later.listed(area=None)}
        assert {b"".join(snapshot.content(spid)) for spid in spids} == {BODY, LARGE}
    rig.clock.advance(60_000)
    for each in await later.post.claim_all():
        assert await later.post.read(each) in (BODY, LARGE)
        await later.post.settle(delivered(), each)
    await later.sweep()
    assert places(later) == []
    await rig.close()


def _file_of(place: str) -> int:
    file = parse(place.rpartition("/")[2])
    assert file is not None
    return file


async def test_another_silofactor_leaves_a_spool_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = await Rig(tmp_path, spool=spool(tmp_path, 2)).open()
    recipients = await rig.post.send("a@example.org", "b@example.org")
    for each in await rig.post.claim_all():
        await rig.post.settle(deferred(rig.clock.now() + 60_000), each)
    await rig.evacuate()
    await rig.close()
    caplog.clear()
    caplog.set_level(logging.WARNING)
    other = await Rig(tmp_path, FakeClock(rig.clock.now() + 60_000), spool=spool(tmp_path, 6)).open()
    assert ["silofactor 6" in record.getMessage() for record in caplog.records] == [True]
    assert (len(silos(other)), factor_read(other)) == (4, 4)
    claimed = await other.post.claim_all()
    assert [each.spid for each in claimed] == [each.spid for each in recipients]
    assert await other.post.read(claimed[0]) == BODY
    await other.close()


async def test_a_lost_manifest_is_guessed_by_the_directories(tmp_path: Path) -> None:
    rig = await Rig(tmp_path, spool=spool(tmp_path, 3)).open()
    await rig.close()
    manifest = rig.queue / "MANIFEST"
    manifest.write_bytes(b"x" + manifest.read_bytes())
    assert guess(Disk(), rig.queue, rig.spool).state.silos == 8


def test_the_usual_number_is_not_written() -> None:
    """Older programs read it then; of any other number they say that it is not known to them."""
    assert b"silos" not in encode(Edit(epoch=1), first=True)
    edit, _ = decode(encode(Edit(silos=64)).rstrip(b"\n"))
    assert edit.silos == 64


@pytest.mark.parametrize("count", [1, 2, 256])
def test_silos_have_names_of_two_digits_at_least(count: int) -> None:
    names = [path.name for path in Silos(Path("spool"), count)]
    assert (names[0], len(set(names))) == ("s01", count)

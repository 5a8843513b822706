"""What has a name of the queue's own and is no regular file: told of by name, never waited for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcd.core.errors import StoreDamaged, StoreUnavailable
from mqcd.disk.durable import Disk
from mqcd.queue.admin.findings import Kind
from mqcd.queue.manifest import log as manifest
from tests.unit.queue.admin.kit import cluster_of, filled, look, mend
from tests.unit.queue.support import Rig


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.mkdir()


def _link(path: Path) -> None:
    path.symlink_to("/dev/null")


def _socket(path: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    # Names of sockets are short; this one may lie deep.
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


HARM = pytest.mark.parametrize("make", [_fifo, _directory, _link, _socket])


@HARM
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT])
def test_only_a_regular_file_is_opened(tmp_path: Path, make: Callable[[Path], None], flags: int) -> None:
    path = tmp_path / "name"
    make(path)
    with pytest.raises(
        OSError, match=r"Is a (directory|symbolic link)|Not a regular file|No such dev"
    ) as caught:
        Disk().open(path, flags)
    assert caught.value.filename in (path, str(path))


@HARM
@pytest.mark.parametrize("name", ["journal/7.wal", "MANIFEST", "lock", "pin", "uuid"])
async def test_a_start_is_refused_by_name(rig: Rig, make: Callable[[Path], None], name: str) -> None:
    await filled(rig)
    path = rig.queue / name
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises((StoreUnavailable, StoreDamaged), match=str(path)):
        await Rig(rig.root, rig.clock).open()


@HARM
@pytest.mark.parametrize("name", ["journal/7.wal", "MANIFEST", "uuid"])
async def test_fsck_names_it(rig: Rig, make: Callable[[Path], None], name: str) -> None:
    await filled(rig)
    path = rig.queue / name
    path.unlink(missing_ok=True)
    make(path)
    [problem] = look(rig).problems
    assert str(path) in f"{problem.path} {problem.text}"


@HARM
async def test_names_that_nobody_needs_are_left_alone(rig: Rig, make: Callable[[Path], None]) -> None:
    await filled(rig)
    places = [
        rig.spool / "s01" / "00000000000000F0.msg",
        rig.spool / "s01" / "00000000000000F0.tmp",
        rig.queue / "incoming" / "M999-0.mqc",
    ]
    for path in places:
        make(path)
    (rig.queue / "quarantine").mkdir()
    make(rig.queue / "quarantine" / "odd.bad")
    found = look(rig)
    assert found.ok
    assert {each.path for each in found.notes if each.kind is Kind.STRAY} >= set(places)
    assert found.orphans == []
    assert (await mend(rig)).ok


@HARM
async def test_a_cluster_that_is_none_is_reported(rig: Rig, make: Callable[[Path], None]) -> None:
    path = cluster_of(await filled(rig), "deferred")
    path.unlink()
    make(path)
    assert (Kind.CLUSTER, path) in {(each.kind, each.path) for each in look(rig).problems}


async def test_a_start_on_newer_files_names_the_version_each_time(rig: Rig) -> None:
    path = cluster_of(await filled(rig), "deferred")
    path.write_bytes(path.read_bytes().replace(b"mqcd-cluster 1", b"mqcd-cluster 2", 1))
    state = manifest.read(Disk(), rig.queue / "MANIFEST")
    assert state is not None
    state.writer = "12.3.0"
    Disk().replace_file(rig.queue / "MANIFEST", [manifest.encode(state.whole(), first=True)])
    for _ in range(2):
        again = Rig(rig.root, rig.clock)
        with pytest.raises(StoreDamaged, match=r"cluster format 2 is not known here; mqcd 12\.3\.0 reads it"):
            await again.open()
        await again.close()
    with pytest.raises(StoreDamaged, match=r"mqcd 12\.3\.0 reads it"):
        rig.listed()
    [problem] = look(rig).problems
    assert "mqcd 12.3.0 reads it" in problem.text


async def test_a_newer_cluster_is_refused_at_start_by_version(rig: Rig) -> None:
    path = cluster_of(await filled(rig), "deferred")
    path.write_bytes(path.read_bytes().replace(b"mqcd-cluster 1", b"mqcd-cluster 2", 1))
    again = Rig(rig.root, rig.clock)
    with pytest.raises(StoreDamaged, match=rf"{path}: cluster format 2 .* newer mqcd"):
        await again.open()
    assert "cluster format 2" in again.store.refusing()
    assert await again.store.claim(10, again.clock.now() + 10**9) == ()
    await again.close()
    with pytest.raises(StoreDamaged, match="cluster format 2"):
        rig.listed()
    [problem] = look(rig).problems
    assert (problem.kind, problem.path) == (Kind.CLUSTER, path)
    assert path.read_bytes().startswith(b"mqcd-cluster 2")


async def test_a_lookalike_number_is_no_journal_file(rig: Rig) -> None:
    await filled(rig)
    (rig.queue / "journal" / "²").touch()
    await (await rig.killed()).close()

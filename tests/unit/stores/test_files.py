"""The store of files: its names, its directories, what it finds left over, and a disk that fails."""

from __future__ import annotations

import errno
import uuid
from pathlib import Path

import pytest

from mqcd.core.errors import ConfigError, ContentUnavailable, StoreBusy, StoreDamaged, StoreUnavailable
from mqcd.disk.durable import Disk
from mqcd.stores.files import ENV, META, FilesStore, spid_in, uuid_of
from mqcd.stores.queue.stored_queue import StoredQueue
from tests.contract.harness import SCHEDULE
from tests.contract.mail import BODY, Post, chunks, delivered, read_all
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FaultyDisk
from tests.fakes.observer import RecordingObserver
from tests.unit.stores.kills import check, killed


async def opened(path: Path, disk: Disk | None = None) -> tuple[StoredQueue, Post]:
    clock = FakeClock()
    store = FilesStore(path / "env", path / "meta", disk=disk)
    queue = StoredQueue(store, clock, RecordingObserver(), SCHEDULE)
    await queue.open()
    await queue.recovered()
    return queue, Post(queue, clock)


@pytest.mark.parametrize("spid", [0, 1, 0x0123456789ABCDEF, (1 << 64) - 1])
def test_a_name_is_a_uuid_with_the_spid(spid: int) -> None:
    made = uuid.UUID(uuid_of(spid))
    assert (made.version, made.variant, made.hex) == (8, uuid.RFC_4122, uuid_of(spid))
    assert spid_in(f"{uuid_of(spid)}.meta") == spid


@pytest.mark.parametrize("name", ["", "queue.lock", "0" * 32 + ".env", "x" * 32 + ".env", uuid_of(1)[:-1]])
def test_other_names_are_no_messages(name: str) -> None:
    assert spid_in(name) is None


async def test_a_message_is_two_files(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path)
    [recipient] = await post.send("a@example.org")
    name = uuid_of(recipient.spid)
    assert (tmp_path / "env" / f"{name}{ENV}").read_bytes() == BODY
    assert b"a@example.org" in (tmp_path / "meta" / f"{name}{META}").read_bytes()
    assert not list((tmp_path / "env" / "scratch").iterdir())
    await post.settle(delivered(), *await post.claim_all())
    assert {path.suffix for path in (tmp_path / "meta").iterdir()} == {".lock", ".marks"}
    assert {path.name for path in (tmp_path / "env").iterdir()} == {"queue.lock", "scratch"}
    await queue.close()


async def test_two_stores_do_not_share_a_directory(tmp_path: Path) -> None:
    queue, _ = await opened(tmp_path)
    for env, meta in (("env", "other"), ("other", "meta")):
        with pytest.raises(StoreBusy):
            await FilesStore(tmp_path / env, tmp_path / meta).open()
    await queue.close()
    queue, _ = await opened(tmp_path)
    await queue.close()


async def test_leftovers_are_removed_at_a_start(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path)
    [kept] = await post.send("a@example.org")
    await queue.close()
    env = tmp_path / "env"
    (env / f"{uuid_of(7)}{ENV}").write_bytes(b"its message never came")
    (env / "scratch" / "anything").write_bytes(b"half")
    (env / "README").write_bytes(b"not ours")
    queue, post = await opened(tmp_path)
    assert {path.name for path in env.iterdir()} == {
        f"{uuid_of(kept.spid)}{ENV}",
        "scratch",
        "queue.lock",
        "README",
    }
    assert not list((env / "scratch").iterdir())
    await queue.close()


async def test_another_meta_dir_removes_no_content(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path)
    [recipient] = await post.send("a@example.org")
    await queue.close()
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="meta_dir"):
            await FilesStore(tmp_path / "env", tmp_path / "mistyped").open()
    queue, _ = await opened(tmp_path)
    assert await read_all(await queue.content(recipient)) == BODY
    await queue.close()


@pytest.mark.parametrize("name", ["env", "meta"])
async def test_scratch_is_no_directory_of_messages(tmp_path: Path, name: str) -> None:
    queue, post = await opened(tmp_path)
    [recipient] = await post.send("a@example.org")
    await queue.close()
    with pytest.raises(ConfigError, match="tmp_dir"):
        await FilesStore(tmp_path / "env", tmp_path / "meta", tmp_path / name).open()
    queue, post = await opened(tmp_path)
    assert set(await post.scan()) == {recipient.key}
    await queue.close()


async def test_scratch_lies_on_the_same_file_system(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.fail("rename", code=errno.EXDEV)
    with pytest.raises(ConfigError, match="tmp_dir"):
        await FilesStore(tmp_path / "env", disk=disk).open()
    store = FilesStore(tmp_path / "env", tmp_dir=tmp_path / "tmp")
    await store.open()
    await store.close()
    assert {path.name for path in (tmp_path / "env").iterdir()} == {"queue.lock", "scratch"}


async def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path)
    [recipient] = await post.send("a@example.org")
    await queue.close()
    path = tmp_path / "meta" / f"{uuid_of(recipient.spid)}{META}"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StoreDamaged, match=path.name):
        await opened(tmp_path)


async def test_a_missing_content_is_unavailable(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path)
    [recipient] = await post.send("a@example.org")
    (tmp_path / "env" / f"{uuid_of(recipient.spid)}{ENV}").unlink()
    with pytest.raises(ContentUnavailable):
        await queue.content(recipient)
    await queue.close()


@pytest.mark.parametrize("operation", ["open", "pwritev", "datasync", "rename", "sync_dir"])
async def test_a_disk_that_fails_refuses_mail(tmp_path: Path, operation: str) -> None:
    disk = FaultyDisk()
    queue, post = await opened(tmp_path, disk)
    disk.fail(operation)
    with pytest.raises(StoreUnavailable):
        await post.send("a@example.org")
    # What it has left is removed, which must not meet the next failure.
    await queue._live.documents.idle()
    disk.fail(operation)
    with pytest.raises(StoreUnavailable):
        await queue.enqueue(post.submission("b@example.org", content=chunks(BODY)))
    [taken] = await post.send("c@example.org")
    assert set(await post.scan()) == {taken.key}
    await queue.close()
    queue, post = await opened(tmp_path)
    assert taken.key in await post.scan()
    await queue.close()


@pytest.mark.parametrize("operation", ["unlink", "sync_dir"])
async def test_an_end_that_fails_may_come_again(tmp_path: Path, operation: str) -> None:
    disk = FaultyDisk()
    queue, post = await opened(tmp_path, disk)
    await post.send("a@example.org")
    claimed = await post.claim_all()
    disk.fail(operation)
    with pytest.raises(StoreUnavailable):
        await post.settle(delivered(), *claimed)
    assert queue.in_flight(claimed[0])
    await post.settle(delivered(), *claimed)
    assert await post.scan() == {}
    await queue.close()
    queue, post = await opened(tmp_path)
    assert await post.scan() == {}
    await queue.close()


async def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    await check(killed("files", str(tmp_path)), FilesStore(tmp_path))

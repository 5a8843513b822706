"""What the stores of files have in common."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mqcd.core.errors import ContentUnavailable, StoreUnavailable
from mqcd.core.observing.null_observer import NullObserver
from mqcd.disk.durable import Disk
from mqcd.stores.backend import Backend, StoreFull
from mqcd.stores.files import FilesStore, uuid_of
from mqcd.stores.queue.state import TRY_AGAIN_MS
from mqcd.stores.queue.stored_queue import StoredQueue
from mqcd.stores.symlinks import SymlinksStore
from tests.contract.harness import HOUR, SCHEDULE
from tests.contract.mail import BODY, Post, deferred
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FaultyDisk

STORES: Mapping[str, Callable[[Path, Disk], Backend]] = {
    "files": lambda path, disk: FilesStore(path, disk=disk),
    "symlinks": lambda path, disk: SymlinksStore(path, disk=disk),
}


async def opened(name: str, path: Path, disk: Disk) -> tuple[StoredQueue, Post]:
    clock = FakeClock()
    queue = StoredQueue(STORES[name](path, disk), clock, NullObserver(), SCHEDULE)
    await queue.open()
    await queue.recovered()
    return queue, Post(queue, clock)


@pytest.mark.parametrize("name", STORES)
async def test_a_write_that_fails_ends_with_its_last_file(tmp_path: Path, name: str) -> None:
    disk = FaultyDisk()
    queue, post = await opened(name, tmp_path, disk)
    [first] = await post.send("a@example.org")
    await post.send("b@example.org")
    claimed = await post.claim_all()
    other = next(uuid_of(each.spid)[:18] for each in claimed if each.spid != first.spid)
    gate = disk.block("rename", f"*{other}*")
    disk.fail("rename", f"*{uuid_of(first.spid)[:18]}*")
    settling = asyncio.ensure_future(post.settle(deferred(post.clock.now() + HOUR), *claimed))
    await asyncio.to_thread(gate.reached.wait)
    while disk.armed:
        await asyncio.sleep(0)
    done, _ = await asyncio.wait([settling], timeout=0.1)
    gate.release()
    with pytest.raises(StoreUnavailable):
        await settling
    assert not done, "a file that is still being written could replace that of a later write"
    await queue.close()


@pytest.mark.parametrize("name", STORES)
async def test_content_of_another_length_is_unavailable(tmp_path: Path, name: str) -> None:
    queue, post = await opened(name, tmp_path, Disk())
    [recipient] = await post.send("a@example.org")
    [path] = [each for each in tmp_path.rglob("*") if each.is_file() and each.read_bytes() == BODY]
    path.write_bytes(BODY[:-1])
    with pytest.raises(ContentUnavailable):
        await queue.content(recipient)
    await queue.close()


@pytest.mark.parametrize("name", STORES)
async def test_content_of_a_closed_store_is_not_available(tmp_path: Path, name: str) -> None:
    queue, post = await opened(name, tmp_path, Disk())
    [recipient] = await post.send("a@example.org")
    content = await queue.content(recipient)
    await queue.close()
    with pytest.raises(ContentUnavailable, match="closed"):
        await content.read(1)
    content.close()


@pytest.mark.parametrize("name", STORES)
async def test_a_full_disk_keeps_nothing_of_refused_mail(tmp_path: Path, name: str) -> None:
    disk = FaultyDisk()
    queue, post = await opened(name, tmp_path, disk)
    gate = disk.block("datasync")
    first = asyncio.ensure_future(post.send("first@example.org"))
    await asyncio.to_thread(gate.reached.wait)
    submissions = [post.submission(f"{each}@example.org", f"{each}2@example.org") for each in "abc"]
    together = asyncio.gather(*map(queue.enqueue, submissions), return_exceptions=True)
    await asyncio.sleep(0)
    disk.mend()
    uuid = uuid_of(submissions[-1].envelope.spid)
    last = f"*{uuid}.meta" if name == "files" else f"*{uuid}/contents"
    disk.fail("rename", last, code=errno.ENOSPC)
    gate.release()
    [kept] = await first
    assert [type(each) for each in await together] == [StoreFull] * 3
    assert "No space" in queue.refusing()
    await queue._live.documents.idle()
    left = "".join(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert [uuid_of(each.envelope.spid)[:18] in left for each in submissions] == [False] * 3
    await post.clock.run_for(TRY_AGAIN_MS)
    assert not queue.refusing()
    await queue.close()
    queue, post = await opened(name, tmp_path, Disk())
    assert set(await post.scan()) == {kept.key}
    await queue.close()

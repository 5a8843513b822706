"""Idempotency keys from the journal to key files, over evacuations, restarts, failures and damage."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from mqcd.core.errors import MqcdError, StoreUnavailable
from mqcd.core.queueing.idempotency import key_of
from mqcd.queue.admin.findings import Kind
from tests.contract.harness import HOUR
from tests.contract.mail import BODY, delivered
from tests.unit.queue.admin.kit import look, mend
from tests.unit.queue.support import Rig

TO = "a@example.org"


async def send(rig: Rig, *names: str) -> list[int]:
    """The SPIDs of messages with these keys, delivered unless they are repeats."""
    spids = []
    for text in names:
        key = key_of("user:alice", text, "sender@example.com", [TO], BODY)
        [recipient] = await rig.store.enqueue(rig.post.submission(TO, key=key))
        spids.append(recipient.spid)
        await rig.post.settle(delivered(), *await rig.post.claim_all())
    return spids


def files(rig: Rig) -> list[str]:
    return sorted(path.name for path in (rig.queue / "keys").glob("*"))


async def test_an_evacuation_moves_keys_to_a_file(rig: Rig) -> None:
    spids = await send(rig, "a", "b")
    await rig.evacuate()
    assert len(files(rig)) == 1
    assert rig.shard.keys.live.count == 0
    assert rig.shard.keys.count == 2
    assert await send(rig, "a", "b") == spids
    assert rig.shard.keys.repeats == 2


async def test_evacuations_put_keys_of_older_files_together(rig: Rig) -> None:
    first = await send(rig, "a", "b")
    await rig.evacuate()
    second = await send(rig, "c", "d")
    await rig.evacuate()
    assert len(files(rig)) == 1
    assert await send(rig, "a", "b", "c", "d") == [*first, *second]


async def test_keys_in_files_outlive_kills(rig: Rig) -> None:
    spids = await send(rig, "a")
    await rig.evacuate()
    spids += await send(rig, "b")
    later = await rig.killed()
    assert await send(later, "a", "b") == spids


async def test_a_file_whose_keys_are_too_old_ends(rig: Rig) -> None:
    await send(rig, "a")
    await rig.evacuate()
    rig.clock.advance(25 * HOUR)
    await rig.post.send(TO)
    await rig.evacuate()
    assert files(rig) == []
    assert rig.shard.manifest.state.keys == {}
    assert rig.shard.keys.count == 0


async def test_keys_stay_when_their_evacuation_fails(rig: Rig) -> None:
    [spid] = await send(rig, "a")
    rig.disk.fail("rename", "*.keys", code=errno.ENOSPC)
    with pytest.raises((MqcdError, OSError)):
        await rig.evacuate()
    assert rig.shard.keys.live.count == 1
    assert await send(rig, "a") == [spid]
    rig.disk.mend()
    await rig.evacuate()
    assert await send(rig, "a") == [spid]


async def test_keys_stay_when_the_edit_fails(rig: Rig) -> None:
    [spid] = await send(rig, "a")
    await rig.enrolled()
    await rig.seal()
    rig.disk.fail("datasync", "*/MANIFEST", code=errno.EIO)
    with pytest.raises((MqcdError, OSError)):
        await rig.evacuate()
    rig.disk.mend()
    assert await send(rig, "a") == [spid]
    await rig.evacuate()
    later = await rig.killed()
    assert await send(later, "a") == [spid]


async def test_a_file_without_prints_is_read_from_disk(rig: Rig) -> None:
    rig.shard.keys._room = 0
    spids = await send(rig, "a")
    await rig.evacuate()
    assert await send(rig, "a") == spids
    [second] = await send(rig, "b")
    assert second not in spids


async def test_a_key_file_that_cannot_be_read_refuses(rig: Rig) -> None:
    await send(rig, "a")
    await rig.evacuate()
    rig.disk.fail("pread", "*.keys", times=None, code=errno.EIO)
    key = key_of("user:alice", "a", "sender@example.com", [TO], BODY)
    with pytest.raises(StoreUnavailable):
        await rig.store.enqueue(rig.post.submission(TO, key=key))


async def test_an_unlisted_key_file_is_removed_at_a_start(rig: Rig) -> None:
    await send(rig, "a")
    await rig.evacuate()
    [name] = files(rig)
    (rig.queue / "keys" / "K1.keys").write_bytes(b"left")
    (rig.queue / "keys" / "K2.tmp").write_bytes(b"left")
    (rig.queue / "keys" / "mine").write_bytes(b"not the queue's")
    later = await rig.reopened()
    await later.shard.tidy.wait()
    assert files(later) == sorted(("mine", name))


async def test_a_failed_accept_does_not_use_its_key(rig: Rig) -> None:
    rig.disk.fail("datasync", "*.wal", code=errno.EIO)
    key = key_of("user:alice", "a", "sender@example.com", [TO], BODY)
    with pytest.raises(StoreUnavailable):
        await rig.store.enqueue(rig.post.submission(TO, key=key))
    rig.disk.mend()
    rig.clock.advance(1000)
    first = await send(rig, "a")
    assert await send(rig, "a") == first
    assert rig.shard.keys.repeats == 1


@pytest.mark.parametrize("harm", ["record", "index", "missing"])
async def test_fsck_names_damaged_keys_and_forgets_them(rig: Rig, harm: str) -> None:
    spids = await send(rig, "a", "b")
    await rig.evacuate()
    await rig.close()
    assert look(rig).ok
    [name] = files(rig)
    path = rig.queue / "keys" / name
    data = bytearray(path.read_bytes())
    data[50 if harm == "record" else -1] ^= 1
    path.unlink() if harm == "missing" else path.write_bytes(data)
    found = look(rig)
    assert [problem.kind for problem in found.problems] == [Kind.KEYS]
    assert (await mend(rig)).ok
    again = await Rig(rig.root, rig.clock).open()
    kept = set(await send(again, "a", "b")) & set(spids)
    assert len(kept) == {"record": 1, "index": 2, "missing": 0}[harm]
    await again.close()


async def test_a_missing_key_file_does_not_keep_a_start(rig: Rig) -> None:
    await send(rig, "a")
    await rig.evacuate()
    await rig.close()
    (rig.queue / "keys" / files(rig)[0]).unlink()
    again = await Rig(rig.root, rig.clock).open()
    await send(again, "b")
    await again.evacuate()
    assert await send(again, "b") == await send(again, "b")
    await again.close()


async def test_fsck_finds_key_files_without_an_owner(rig: Rig) -> None:
    await send(rig, "a")
    await rig.evacuate()
    await rig.close()
    (rig.queue / "keys" / "K1.keys").write_bytes(b"left")
    found = look(rig)
    assert found.ok
    assert [path.name for path in found.orphans] == ["K1.keys"]
    assert (await mend(rig)).orphans == []


async def test_keys_take_less_than_sixty_octets(rig: Rig) -> None:
    keys = rig.shard.keys.live
    for number in range(100_000):
        name = number.to_bytes(4, "big") * 4
        keys.add(bytes([number * 37 & 255, number >> 4 & 255]) + name[2:] + bytes(24))
    octets = sum(bucket.__sizeof__() + 16 for bucket in keys._buckets.values()) + keys._buckets.__sizeof__()
    assert octets / keys.count < 60


async def test_another_age_holds_for_what_was_used_before(rig: Rig) -> None:
    first = await send(rig, "a")
    rig.clock.advance(2 * HOUR)
    assert await send(rig, "a") == first
    options = rig.shard.options
    rig.shard.options = replace(options, settings=replace(options.settings, key_age=HOUR))
    assert await send(rig, "a") != first

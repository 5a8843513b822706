"""What readers see: the same as the store, beside it, after a kill, and through every selection."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from mqcd.config.settings import JournalSettings
from mqcd.core.errors import ContentUnavailable, DecodeError, StoreBusy, StoreDamaged, StoreUnavailable
from mqcd.core.model import Action, Area, Recipient
from mqcd.core.selecting.selection import Selection
from mqcd.disk.file_window import STEP
from mqcd.queue.format import record
from mqcd.queue.format.frame import Kind, pack_submission
from mqcd.queue.reading.listing import read_part
from mqcd.queue.reading.snapshot import Snapshot
from mqcd.queue.spool.deleter import PIN_MS
from mqcd.queue.wal.segments import Segment
from tests.contract.harness import HOUR, MINUTE
from tests.contract.mail import BODY, batch, bounced, carry_out, deferred, delivered
from tests.fakes.disk import FaultyDisk
from tests.unit.queue.support import Rig


def seen(rig: Rig, disk: FaultyDisk | None = None) -> tuple[int, int]:
    """How many recipients a reader finds, and how many it misses."""
    snapshot = Snapshot(disk or FaultyDisk(), rig.queue, rig.spool)
    found = len(list(snapshot.items(Selection())))
    snapshot.close()
    return found, snapshot.unreadable.records


class Unpinned(FaultyDisk):
    """That of a reader whose pin has ended."""

    def lock(self, fd: int, *, exclusive: bool) -> bool:
        return True


async def populate(rig: Rig) -> list[Recipient]:
    """Mail in clusters of several areas, one of them half taken, and mail in the journal."""
    post = rig.post
    now = rig.clock.now()
    for n in range(4):
        await post.send(f"d{n}@example.org", sender=f"s{n % 2}@example.com")
    for n, each in enumerate(await post.claim_all()):
        await post.settle(deferred(now + (n + 1) * MINUTE), each)
    await post.send("bounce@example.net", sender="s0@example.com")
    await post.settle(bounced(), *await post.claim_all())
    await post.send("in1@example.org", "in2@example.net", sender="")
    await rig.evacuate()
    rig.clock.advance(2 * MINUTE)
    taken = [each for each in await post.claim_all() if each.area is Area.DEFERRED]
    assert len(taken) == 2
    await post.settle(deferred(rig.clock.now() + HOUR), taken[0])
    await post.send("new@example.org", sender="New@Example.com", content=b"new\r\n")
    return rig.listed()


async def test_a_snapshot_beside_the_store_sees_each_recipient_once(rig: Rig) -> None:
    found = await populate(rig)
    assert sorted(each.address for each in found) == [
        "bounce@example.net",
        "d0@example.org",
        "d1@example.org",
        "d2@example.org",
        "d3@example.org",
        "in1@example.org",
        "in2@example.net",
        "new@example.org",
    ]
    assert {each.key for each in found} == set(await rig.post.scan())
    assert {each.key: each for each in found} == await rig.post.scan()


async def test_its_stats_are_the_stores(rig: Rig) -> None:
    await populate(rig)
    snapshot = rig.snapshot()
    assert snapshot.stats() == dict(rig.store.stats())
    snapshot.close()


@pytest.mark.parametrize("kill", [True, False])
async def test_after_a_restart_it_sees_the_same(rig: Rig, kill: bool) -> None:
    before = await populate(rig)
    again = await (rig.killed() if kill else rig.reopened())
    assert {each.key: each for each in again.listed()} == {each.key: each for each in before}
    snapshot = again.snapshot()
    assert snapshot.stats() == dict(again.store.stats())
    snapshot.close()


@pytest.mark.parametrize(
    "conditions",
    [
        {"area": Area.DEFERRED},
        {"area": Area.BOUNCES},
        {"area": Area.HELD},
        {"sender": "S0@example.com"},
        {"sender": ""},
        {"recipient": "D1@Example.org"},
        {"domain": "example.net"},
        {"received_before": 1_800_000_000_001},
        {"received_before": 1},
        {"domain": "example.org", "area": Area.DEFERRED, "sender": "s1@example.com"},
    ],
    ids=str,
)
async def test_selections_give_what_matches(rig: Rig, conditions: dict[str, object]) -> None:
    every = await populate(rig)
    selection = Selection(**conditions)  # type: ignore[arg-type]
    expected = {each.key for each in every if selection.matches(each)}
    assert {each.key for each in rig.listed(**conditions)} == expected


async def test_a_spid_selects_its_recipients(rig: Rig) -> None:
    for spid in {each.spid for each in await populate(rig)}:
        assert {each.spid for each in rig.listed(spid=spid)} == {spid}


async def test_a_limit_limits(rig: Rig) -> None:
    await populate(rig)
    assert [len(rig.listed(limit=limit)) for limit in (0, 1, 5, 100)] == [0, 1, 5, 8]
    snapshot = rig.snapshot()
    assert sum(map(len, snapshot.batches(Selection(limit=7)))) == 7
    assert all(snapshot.batches(Selection()))
    snapshot.close()


async def test_an_attempt_that_has_begun_is_in_flight(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.post.send("b@example.org")
    claimed = await rig.post.claim_all()
    await rig.store.begin(claimed[:1], "mx")
    snapshot = rig.snapshot()
    flying = {item.recipient.address: item.in_flight for item in snapshot.items(Selection())}
    snapshot.close()
    assert flying == {"a@example.org": True, "b@example.org": False}


async def test_contents_come_from_journal_and_spool(rig: Rig) -> None:
    found = await populate(rig)
    snapshot = rig.snapshot()
    for each in found:
        expected = b"new\r\n" if each.address == "new@example.org" else BODY
        assert b"".join(snapshot.content(each.spid)) == expected
    with pytest.raises(StoreUnavailable, match="0000000000000ABC is not in the queue"):
        next(snapshot.content(0xABC))
    snapshot.close()


async def test_a_content_that_cannot_be_read_is_named(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.evacuate()
    [recipient] = rig.listed()
    [path] = rig.spool.glob("s??/*.msg")
    snapshot = rig.snapshot()
    data = path.read_bytes()
    path.unlink()
    for known in (None, recipient):
        with pytest.raises(ContentUnavailable, match=f"{path.name}: No such file"):
            next(snapshot.content(recipient.spid, known))
    path.mkdir()
    with pytest.raises(ContentUnavailable, match=f"{path.name}: Is a directory"):
        next(snapshot.content(recipient.spid))
    path.rmdir()
    path.write_bytes(data)
    snapshot.close()


async def test_lines_that_do_not_check_are_left_out_and_counted(rig: Rig) -> None:
    every = await populate(rig)
    name = next(name for name in rig.clusters() if name.startswith("bounces/"))
    path = rig.queue / name
    data = path.read_bytes()
    path.write_bytes(data.replace(b"bounce@", b"Bounce@"))
    snapshot = rig.snapshot()
    found = {item.recipient.key for item in snapshot.items(Selection())}
    assert found == {each.key for each in every if each.area is not Area.BOUNCES}
    assert snapshot.unreadable.damaged_lines == 1
    snapshot.close()
    path.write_bytes(data)


async def test_what_a_claim_will_put_into_quarantine_is_not_listed(rig: Rig) -> None:
    every = await populate(rig)
    path = next(rig.queue / name for name in rig.clusters() if name.startswith("bounces/"))
    data = path.read_bytes()
    line = data.splitlines(keepends=True)[-1]
    bounce = record.decode(line)
    impossible = record.encode(replace(bounce, due=-1, reply=bounce.reply[:-1]))
    assert len(impossible) == len(line)
    path.write_bytes(data.replace(line, impossible))
    assert seen(rig) == (len(every) - 1, 1)
    path.write_bytes(data)


async def test_records_of_a_lost_cluster_are_counted_only(rig: Rig) -> None:
    """Also beside the server: it removes no cluster that the MANIFEST lists."""
    every = await populate(rig)
    [half_taken] = [name for name in rig.clusters() if name.startswith("deferred/")]
    path = rig.queue / half_taken
    data = path.read_bytes()
    path.unlink()
    assert seen(rig) == (len(every) - 2, 2)
    path.mkdir()
    assert seen(rig) == (len(every) - 2, 2)
    path.rmdir()
    path.write_bytes(data)
    disk = FaultyDisk()
    disk.fail("pread", f"*/{half_taken}")
    assert seen(rig, disk) == (len(every) - 2, 2)
    assert seen(rig) == (len(every), 0)


async def test_records_that_a_short_cluster_lacks_are_counted(rig: Rig) -> None:
    for n in range(9):
        await rig.post.send(f"{n}@example.org")
    await rig.evacuate()
    [name] = rig.clusters()
    path = rig.queue / name
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    for kept in (b"".join(lines[:5]), b"".join(lines[:6])[:-9], data[:40], b""):
        path.write_bytes(kept)
        left = max(kept.count(b"\n") - 1, 0)
        assert seen(rig) == (left, 9 - left)
    path.write_bytes(data.replace(b"\n" + lines[3], b"|" + lines[3]))
    assert seen(rig) == (7, 2)
    path.write_bytes(b"M" + data[1:])
    assert seen(rig) == (9, 0)
    path.write_bytes(data)


async def test_a_cluster_that_ended_while_it_read_makes_it_try_again(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.evacuate()
    [name] = rig.clusters()
    snapshot = Snapshot(Unpinned(), rig.queue, rig.spool)
    await rig.post.settle(delivered(), *await rig.post.claim_all())
    await rig.evacuate()
    assert not (rig.queue / name).exists()
    with pytest.raises(StoreBusy, match="try again"):
        list(snapshot.items(Selection()))
    assert snapshot.left_out == 0
    snapshot.close()


async def test_what_a_reader_cannot_use_counts_as_damaged(rig: Rig) -> None:
    every = await populate(rig)

    def make(text: str, _begun: bool) -> str:
        if "example.net" in text:
            raise DecodeError("not for me")
        return text

    snapshot = rig.snapshot()
    made = [text for part in snapshot.project(Selection(), make) for text in part]
    wrong = sum(each.domain == "example.net" for each in every)
    assert (len(made), snapshot.unreadable.damaged_lines) == (len(every) - wrong, wrong)
    snapshot.close()


async def test_a_list_goes_on_amid_a_cluster_whose_name_has_a_port(rig: Rig) -> None:
    for n in range(3):
        await rig.post.send(f"d{n}@x.atrn.example")
    await carry_out(rig.store, batch(Action.REDIRECT, rig.post, target="relay.example:2525"))
    await rig.evacuate()
    assert any(":2525/" in name for name in rig.shard.manifest.state.clusters)
    found: list[Recipient] = []
    after: str | None = ""
    while after is not None:
        part = await rig.store.browse(Selection(limit=1), after)
        found += part.recipients
        after = part.after
    assert len({each.key for each in found}) == len(found) == 3


async def test_a_time_of_acceptance_that_is_none_counts_as_damaged(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    [sent] = await rig.post.send("a@example.org")
    part = record.encode_envelope(sent.envelope).replace(str(sent.envelope.received), "then")
    await rig.evacuate()
    monkeypatch.setattr(Snapshot, "in_journal", lambda _: [(9, [0], [record.encode(sent, part)[:-1]])])
    with closing(rig.snapshot()) as snapshot:
        assert len(read_part(snapshot, Selection(), "", by_age=True).texts) == 1
        assert snapshot.unreadable.damaged_lines == 1


async def test_stats_leave_out_a_journal_line_that_cannot_be_read(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    parts = pack_submission(b"no record\n", b"x", 1)
    await rig.shard.journal.append(Kind.ACCEPT, parts, 1, rig.clock.now(), lambda *_: None)
    with closing(rig.snapshot()) as snapshot:
        assert snapshot.stats()[Area.INCOMING].recipients == 1
        assert snapshot.unreadable.damaged_lines == 1


async def test_a_long_file_takes_little_memory(tmp_path: Path) -> None:
    journal = JournalSettings(segmentsize=2 << 20, segments=4, inline_max=64 << 10)
    rig = await Rig(tmp_path, journal=journal, maxclustersize=1 << 20).open()
    for n in range(30):
        await rig.post.send(*[f"r{n}-{m}@example.org" for m in range(80)], content=b"x" * (60 << 10))
        if n == 15:
            await rig.evacuate()
    largest = 0

    class Watching(FaultyDisk):
        def pread(self, fd: int, octets: int, offset: int) -> bytes:
            nonlocal largest
            largest = max(largest, octets)
            return super().pread(fd, octets, offset)

    snapshot = Snapshot(Watching(), rig.queue, rig.spool)
    assert len(list(snapshot.items(Selection()))) == 30 * 80
    assert snapshot.stats() == dict(rig.store.stats())
    assert sum(map(len, snapshot.content(rig.listed()[-1].spid))) == 60 << 10
    snapshot.close()
    await rig.close()
    assert largest <= STEP


async def test_a_snapshot_writes_nothing(rig: Rig) -> None:
    await populate(rig)
    disk = FaultyDisk()
    snapshot = Snapshot(disk, rig.queue, rig.spool)
    assert list(snapshot.items(Selection()))
    snapshot.close()
    assert {call.operation for call in disk.calls} == {"names", "open", "pread", "close"}
    opened = disk.count("open")
    assert disk.count("close") == opened


async def test_a_closed_snapshot_may_be_closed_again(rig: Rig) -> None:
    snapshot = rig.snapshot()
    snapshot.close()
    snapshot.close()
    assert snapshot.damage == 0


async def test_where_there_is_no_queue_it_says_so(rig: Rig) -> None:
    with pytest.raises(StoreUnavailable, match="holds no queue"):
        Snapshot(FaultyDisk(), rig.root / "nowhere", rig.spool)


@pytest.mark.parametrize("rest", ["journal", "clusters"])
@pytest.mark.parametrize("pin", [True, False])
async def test_a_queue_that_has_lost_its_manifest_is_still_one(rig: Rig, rest: str, pin: bool) -> None:
    await rig.post.send("a@example.org")
    await rig.close()
    if rest == "clusters":
        shutil.rmtree(rig.queue / "journal")
    else:
        for name in rig.clusters():
            (rig.queue / name).unlink()
    (rig.queue / "MANIFEST").unlink()
    if not pin:
        (rig.queue / "pin").unlink()
    disk = FaultyDisk()
    with pytest.raises(StoreDamaged, match=r"MANIFEST is missing though the queue holds files.*mqcd fsck"):
        Snapshot(disk, rig.queue, rig.spool)
    assert disk.count("close") == disk.count("open") - (1 if pin else 2)


async def test_a_reader_that_was_overtaken_is_told_to_try_again(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.seal()
    await rig.post.send("b@example.org")
    disk = FaultyDisk()
    gate = disk.block("open", "*/journal/*")
    reading = asyncio.create_task(asyncio.to_thread(Snapshot, disk, rig.queue, rig.spool))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    await rig.seal()
    while rig.shard.ring.segments:
        rig.store._live.checkpointer.wake()
        await rig.clock.run_for(PIN_MS + 1000)
        # What is committed in a thread comes back to the loop.
        await asyncio.to_thread(rig.clusters)
    # Evacuated files are used before those made ahead, so that both that the reader wants are gone.
    rig.shard.ring.free.sort(key=lambda path: path.name.startswith("ready"))
    await rig.post.send("c@example.org")
    await rig.seal()
    await rig.post.send("d@example.org")
    gate.release()
    with pytest.raises(StoreBusy, match="try again"):
        await reading
    assert [each.address for each in rig.listed()] == [f"{name}@example.org" for name in "abcd"]


class Meanwhile(FaultyDisk):
    """Lets something happen on the loop when a reader has read the MANIFEST, and comes to the journal."""

    def __init__(self, happens: Callable[[], Awaitable[None]], *, pinned: bool = True) -> None:
        super().__init__()
        self._happens = happens
        self._pinned = pinned
        self._loop = asyncio.get_running_loop()

    def names(self, path: Path) -> list[str]:
        if path.name == "journal":
            asyncio.run_coroutine_threadsafe(self._wait(), self._loop).result(30)
        return super().names(path)

    async def _wait(self) -> None:
        await self._happens()

    def lock(self, fd: int, *, exclusive: bool) -> bool:
        return super().lock(fd, exclusive=exclusive) if self._pinned else True


async def begin_evacuation(rig: Rig) -> asyncio.Task[None]:
    """Commit one: what it removes waits for the readers."""
    first = rig.shard.ring.first_live
    evacuation = asyncio.create_task(rig.evacuate())
    while rig.shard.ring.first_live == first:
        await asyncio.sleep(0)
    return evacuation


async def test_loads_during_a_scan_are_not_seen_twice(rig: Rig) -> None:
    for n in range(3):
        await rig.post.defer_new(f"{n}@example.org", rig.clock.now() + HOUR + n)
    evacuations: list[asyncio.Task[None]] = []

    async def evacuate_and_deliver() -> None:
        if not evacuations:
            evacuations.append(await begin_evacuation(rig))
            first, _ = await rig.post.claim_all(rig.clock.now() + HOUR + 1)
            await rig.post.settle(delivered(), first)

    disk = Meanwhile(evacuate_and_deliver)
    snapshot = await asyncio.to_thread(Snapshot, disk, rig.queue, rig.spool)
    found = [item.recipient.address for item in snapshot.items(Selection())]
    stats = snapshot.stats()
    snapshot.close()
    assert sorted(found) == ["1@example.org", "2@example.org"]
    assert stats == dict(rig.store.stats())
    assert disk.count("names", "*/journal") == 2
    await rig.clock.run_for(1000)
    await evacuations[0]


async def test_edits_that_it_need_not_know_of_do_not_hold_up_a_reader(rig: Rig) -> None:
    found = await populate(rig)
    evacuations: list[asyncio.Task[None]] = []

    async def evacuate() -> None:
        evacuations.append(await begin_evacuation(rig))

    disk = Meanwhile(evacuate)
    snapshot = await asyncio.to_thread(Snapshot, disk, rig.queue, rig.spool)
    listed = {item.recipient.key for item in snapshot.items(Selection())}
    snapshot.close()
    assert listed == {each.key for each in found}
    assert disk.count("names", "*/journal") == 1
    await rig.clock.run_for(1000)
    await evacuations[0]


async def test_an_overtaken_reader_is_asked_to_try_again(rig: Rig) -> None:
    async def move_on() -> None:
        await rig.post.send("a@example.org")
        await rig.evacuate()
        await rig.store.claim(1, rig.clock.now())

    disk = Meanwhile(move_on, pinned=False)
    with pytest.raises(StoreBusy, match="try again"):
        await asyncio.to_thread(Snapshot, disk, rig.queue, rig.spool)
    assert disk.count("names", "*/journal") < 10
    assert disk.count("close") == disk.count("open")


async def gone_or_waiting(rig: Rig, segment: Segment) -> bool:
    """Whether a segment goes without waiting for anything that only the clock brings."""
    while segment.number in rig.shard.ring.segments:
        if rig.clock.next_wake() is not None:
            return False
        await asyncio.to_thread(lambda: None)
    return True


async def test_a_journal_that_is_half_full_waits_for_no_reader(rig: Rig) -> None:
    half = rig.shard.ring.slots // 2
    with closing(rig.snapshot()):
        segments = []
        for _ in range(half):
            await rig.post.send("a@example.org")
            segments.append(await rig.seal())
        gone = await gone_or_waiting(rig, segments[0])
    await rig.clock.run_for(1000)
    assert gone


async def test_until_then_it_waits(rig: Rig) -> None:
    with closing(rig.snapshot()):
        await rig.post.send("a@example.org")
        segment = await rig.seal()
        evacuation = asyncio.create_task(rig.store._live.checkpointer.evacuate(segment))
        gone = await gone_or_waiting(rig, segment)
    await rig.clock.run_for(1000)
    await evacuation
    assert not gone


async def test_a_stop_waits_for_no_reader(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    with closing(rig.snapshot()):
        await asyncio.wait_for(rig.store.close(), 60)
    assert [each.address for each in rig.listed()] == ["a@example.org"]

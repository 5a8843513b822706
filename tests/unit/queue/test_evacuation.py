"""From the oldest segment to clusters and spool: what moves where, what stays when it fails, what goes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import pytest

from mqcd.config.settings import JournalSettings
from mqcd.core.errors import MqcdError, StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Action, Envelope, Recipient, Submission
from mqcd.core.queueing.idempotency import Used, key_of
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk
from mqcd.queue.clusters.file import FIRST_LINE, split_lines
from mqcd.queue.format import segment_header
from mqcd.queue.format.record import decode, encode
from mqcd.queue.keys.file import OpenFile
from mqcd.queue.memory.entries import Entries
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.memory.slices import AT_ONCE
from mqcd.queue.wal.entry_states import State
from mqcd.queue.wal.segments import JournalEntry, Segment
from tests.contract.harness import HOUR, MINUTE, SECOND
from tests.contract.mail import BODY, batch, bounced, carry_out, deferred, delivered
from tests.fakes.clock import turns
from tests.unit.queue.support import SEGMENT_SIZE, Rig, held, spool_path, tally


async def mixed(rig: Rig) -> None:
    """One recipient each: new, deferred twice (the later first), bounced, parked, delivered."""
    post = rig.post
    now = rig.clock.now()
    for name in ("late", "soon", "bad", "parked", "done"):
        await post.send(f"{name}@example.org")
    late, soon, bad, parked, done = await post.claim_all()
    await post.settle(deferred(now + HOUR), late)
    await post.settle(deferred(now + MINUTE + 500), soon)
    await post.settle(bounced(), bad)
    await post.settle(delivered(), done)
    await post.store.park([parked], now + HOUR)
    await post.send("new@example.org")


def records(rig: Rig, name: str) -> list[str]:
    data = (rig.queue / name).read_bytes()
    assert data.startswith(FIRST_LINE)
    return [decode(line).address.split("@")[0] for line in split_lines(data[len(FIRST_LINE) :])]


class Turns:
    """Counts turns of the loop while it runs, and the most that a figure changed within one of them."""

    def __init__(self, *figures: Callable[[], int]) -> None:
        self._figures = figures
        self._last = [each() for each in figures]
        self.most = 0
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._look)

    def _look(self) -> None:
        now = [each() for each in self._figures]
        self.most = max(self.most, *(abs(a - b) for a, b in zip(now, self._last, strict=True)))
        self._last = now
        self.count += 1
        self._handle = self._loop.call_soon(self._look)

    def stop(self) -> None:
        self._handle.cancel()


# ---------------------------------------------------------------- what moves where


async def test_records_go_to_the_clusters_of_their_areas(rig: Rig) -> None:
    await mixed(rig)
    number = max(rig.shard.ring.segments)
    before, figures = rig.listed(), held(dict(rig.store.stats()))
    await rig.evacuate()
    due = rig.clock.now() // 1000 + 60
    assert rig.clusters() == [
        f"bounces/M{number}-0.mqc",
        f"deferred/T{due}/M{number}-0.mqc",
        f"incoming/M{number}-0.mqc",
    ]
    assert records(rig, f"deferred/T{due}/M{number}-0.mqc") == ["soon", "late", "parked"]
    assert records(rig, f"incoming/M{number}-0.mqc") == ["new"]
    assert sorted(rig.listed(), key=lambda r: r.key) == sorted(before, key=lambda r: r.key)
    assert not rig.shard.ring.segments
    assert rig.shard.ring.entries == 0
    assert sum(count for count, _ in held(dict(rig.store.stats())).values()) == 5
    assert figures["bounces"] == held(dict(rig.store.stats()))["bounces"]


async def test_contents_that_are_needed_go_to_the_spool(rig: Rig) -> None:
    await mixed(rig)
    await rig.evacuate()
    needed = {record.spid for record in rig.listed()}
    assert rig.spooled() == sorted(f"{spid:016X}.msg" for spid in needed)
    assert all(spool_path(rig.spool, spid).read_bytes() == BODY for spid in needed)


async def test_mail_delivered_at_once_leaves_no_file(rig: Rig) -> None:
    await rig.post.send("a@example.org", "b@example.org")
    await rig.post.settle(delivered(), *await rig.post.claim_all())
    await rig.evacuate()
    assert (rig.clusters(), rig.spooled()) == ([], [])


async def test_clusters_stay_below_their_cap_and_are_sorted_by_due(tmp_path: Path) -> None:
    rig = await Rig(tmp_path / "q", maxclustersize=1000).open()
    now = rig.clock.now()
    for n in range(20):
        await rig.post.send(f"u{n}@example.org")
    for n, each in enumerate(await rig.post.claim_all()):
        await rig.post.settle(deferred(now + (n * 7 % 20 + 1) * MINUTE), each)
    await rig.evacuate()
    names = rig.clusters()
    assert len(names) > 2
    assert all((rig.queue / name).stat().st_size <= 1000 for name in names)
    due = []
    for name in sorted(names, key=lambda name: name.split("/")[1]):
        lines = list(split_lines((rig.queue / name).read_bytes()[len(FIRST_LINE) :]))
        times = [decode(line).due for line in lines]
        assert name.split("/")[1] == f"T{times[0] // MINUTE * 60}"
        due += times
    assert due == sorted(due)
    assert len(due) == 20
    await rig.close()


async def test_more_than_a_few_contents_are_synced_together(rig: Rig) -> None:
    for n in range(12):
        await rig.post.send(f"u{n}@example.org")
    rig.disk.calls.clear()
    await rig.evacuate()
    assert rig.disk.count("datasync", "*/s??/*") == 0
    order = rig.disk.order("sync_filesystem", "rename")
    together = order.index(("sync_filesystem", "spool"))
    messages = [index for index, (_, name) in enumerate(order) if name.endswith(".msg")]
    assert len(messages) == 12
    assert together < min(messages)
    assert len(rig.spooled()) == 12


async def test_no_error_of_a_write_escapes_the_sync_of_all(tmp_path: Path) -> None:
    """The system tells of one to those who had the file system open by then."""
    rig = await Rig(tmp_path / "q", maxclustersize=500).open()
    for n in range(30):
        await rig.post.send(f"u{n}@example.org")
    for n, each in enumerate(await rig.post.claim_all()):
        await rig.post.settle(deferred(rig.clock.now() + (n + 1) * MINUTE), each)
    rig.disk.calls.clear()
    await rig.evacuate()
    for root, part in ((rig.spool, "s??"), (rig.queue, "deferred")):
        calls = [
            call.operation
            for call in rig.disk.calls
            if (call.operation == "pwritev" and fnmatch(str(call.path), f"{root}/{part}/*"))
            or (call.operation in ("watching", "sync_filesystem") and call.path == root)
        ]
        assert calls == ["watching", *["pwritev"] * (len(calls) - 2), "sync_filesystem"]
        assert len(calls) > 10
    await rig.close()


def test_a_sync_of_all_asks_by_the_descriptor_that_watched(tmp_path: Path) -> None:
    disk = Disk()
    with disk.watching(tmp_path) as watch:
        disk.sync_filesystem(tmp_path, watch)
    disk.sync_filesystem(tmp_path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.sync_filesystem(tmp_path, -1)


# ---------------------------------------------------------------- failures


@pytest.mark.slow
async def test_a_failure_at_any_call_leaves_the_queue_as_it_was(tmp_path: Path) -> None:
    failures = 0
    for passes in range(200):
        rig = await Rig(tmp_path / f"q{passes}").open()
        await mixed(rig)
        await rig.enrolled()
        await rig.seal()
        await turns()
        before, figures = rig.listed(), held(dict(rig.store.stats()))
        rig.disk.fail(passes=passes)
        failed = False
        try:
            await rig.evacuate()
        except (OSError, MqcdError):
            failed = True
        fired = not rig.disk.armed
        rig.disk.mend()
        assert tally(rig.listed()) == tally(before)
        if failed:
            failures += 1
            assert rig.temporary() == []
            assert held(dict(rig.store.stats())) == figures
            if passes % 4 == 0:
                again = await rig.killed()
                assert tally(again.listed()) == tally(before)
            await rig.evacuate()
        assert tally(rig.listed()) == tally(before)
        assert not rig.shard.ring.segments
        for record in before:
            assert spool_path(rig.spool, record.spid).read_bytes() == BODY
        found = await rig.post.claim_all(rig.clock.now() + 2 * HOUR) + await rig.post.claim_bounces()
        assert tally(found) == tally(before)
        await rig.close()
        if not fired:
            break
    else:
        pytest.fail("it never came to an end")
    assert failures > 15


@pytest.mark.parametrize(
    ("given_up", "lands"),
    [
        ("by a batch", True),
        ("by a batch", False),
        ("by a cancelled claim", True),
        ("by a claim that passes over", True),
    ],
)
async def test_what_is_given_up_during_a_carry_is_found_when_it_has_landed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, given_up: str, lands: bool
) -> None:
    await rig.post.send("a@example.org")
    [entry] = [each for segment in rig.shard.ring for each in segment.entries.values()]
    claims, now = rig.store._live.claims, rig.clock.now()
    [claimed], _ = await claims.entries([entry])
    go_on = asyncio.Event()
    claim: asyncio.Future[Sequence[Recipient]] | None = None
    if given_up != "by a batch":
        claims.give_back([claimed])
        entry.recipient = None

        async def slowly(_shard: Shard, _entry: JournalEntry) -> Recipient:
            await go_on.wait()
            return claimed

        monkeypatch.setattr(Shard, "recipient", slowly)
        skip = {"example.org": now + HOUR} if "passes" in given_up else None
        claim = asyncio.ensure_future(rig.store.claim(1, now, skip, lambda _: False))
        await turns()
    gate = rig.disk.block("datasync", "*/journal/[0-9]*")
    evacuation = asyncio.ensure_future(rig.evacuate())
    while entry.state is not State.CARRYING:
        await asyncio.sleep(0)
    if claim is None:
        claims.give_back([claimed])
    else:
        go_on.set()
        if "cancelled" in given_up:
            claim.cancel()
        await asyncio.wait([claim])
        monkeypatch.undo()
    if not lands:
        rig.disk.fail("datasync", "*/journal/[0-9]*", times=2)
    gate.release()
    await asyncio.wait([evacuation])
    assert (evacuation.exception() is None) is lands
    assert rig.store.next_due() == 0
    rig.clock.advance(SECOND)
    while rig.shard.journal.trouble.failing:
        await asyncio.sleep(0)
    assert [each.key for each in await rig.post.claim_all()] == [claimed.key]


async def test_new_mail_is_claimed_again_after_a_failed_evacuation(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.seal()
    await turns()
    rig.disk.fail("rename", "*.mqc")
    with suppress(OSError):
        await rig.evacuate()
    [claimed] = await rig.post.claim_all()
    await rig.post.settle(delivered(), claimed)
    await rig.evacuate()
    assert (rig.clusters(), rig.spooled(), rig.listed()) == (rig.clusters(), [], [])
    again = await rig.reopened()
    await turns()
    assert again.clusters() == []


@pytest.mark.parametrize(
    ("where", "what", "fault"),
    [
        (OpenFile, "close", OSError("EIO")),
        (Shard, "notify", StoreUnavailable("a watcher fails")),
        (Entries, "evacuated", ValueError("a fault in C5")),
    ],
)
async def test_an_evacuation_that_memory_does_not_follow_is_an_internal_error(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, where: type, what: str, fault: Exception
) -> None:
    old, key = (key_of("user:alice", text, "sender@example.com", ["a@example.org"], BODY) for text in "ab")
    await rig.store.enqueue(rig.post.submission("a@example.org", key=old))
    await rig.evacuate()
    await rig.post.settle(delivered(), *await rig.post.claim_all())
    await rig.store.enqueue(rig.post.submission("a@example.org", key=key))
    await rig.seal()

    def fails(*_: object) -> None:
        raise fault

    monkeypatch.setattr(where, what, fails)
    with pytest.raises(RuntimeError):
        await rig.evacuate()
    monkeypatch.undo()
    assert rig.shard.journal.broken
    # It is in a cluster that the next start will find: claimed here, it would be delivered twice.
    assert await rig.post.claim_all() == []
    assert isinstance(await rig.shard.keys.turn(key), Used)


async def test_a_close_that_fails_behind_the_edit_leaves_the_journal_whole(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for text in "ab":
        key = key_of("user:alice", text, "sender@example.com", ["a@example.org"], BODY)
        await rig.store.enqueue(rig.post.submission("a@example.org", key=key))
        await rig.seal()
        if text == "a":
            await rig.evacuate()
    (keys,) = rig.shard.keys._files
    segment = rig.shard.ring.oldest_sealed
    assert segment is not None
    close, failing = rig.disk.close, {segment.fd, keys._fd}

    def fails(fd: int) -> None:
        close(fd)
        if fd in failing:
            failing.remove(fd)
            raise OSError(errno.EIO, "a write was lost")

    monkeypatch.setattr(rig.disk, "close", fails)
    await rig.evacuate()
    assert "a file of keys that was only read" in caplog.text
    assert "a journal file that is free" in caplog.text
    assert not rig.shard.journal.broken
    assert len(await rig.post.claim_all()) == 2


async def test_a_key_file_is_closed_when_its_edit_is_not_made(rig: Rig) -> None:
    key = key_of("user:alice", "a", "sender@example.com", ["a@example.org"], BODY)
    await rig.store.enqueue(rig.post.submission("a@example.org", key=key))
    await rig.seal()
    faults = [StoreUnavailable("a watcher fails")]

    def watcher() -> None:
        if faults:
            raise faults.pop()

    rig.store.watch(watcher)
    gate = rig.disk.block("open", "*.keys")
    evacuation = asyncio.ensure_future(rig.evacuate())
    while not gate.reached.is_set():
        await asyncio.sleep(0)
    rig.clock.leap(-HOUR)
    gate.release()
    with pytest.raises(StoreUnavailable):
        await evacuation
    assert rig.disk.count("open", "*.keys") == rig.disk.count("close", "*.keys") == 1


async def test_a_key_file_is_closed_when_a_stop_is_cut_off_as_it_opens(rig: Rig) -> None:
    key = key_of("user:alice", "a", "sender@example.com", ["a@example.org"], BODY)
    await rig.store.enqueue(rig.post.submission("a@example.org", key=key))
    gate = rig.disk.block("open", "*.keys")
    rig._open = False
    closing = asyncio.ensure_future(rig.store.close())
    while not gate.reached.is_set():
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.sleep(0)
    gate.release()
    await asyncio.wait([closing])
    assert rig.disk.count("open", "*.keys") == rig.disk.count("close", "*.keys") == 1


def spoil(segment: Segment, entry: JournalEntry) -> None:
    """An octet of a record in the journal goes bad at rest."""
    with segment.path.open("r+b") as file:
        file.seek(entry.offset)
        line = file.read(entry.length)
        file.seek(entry.offset + line.index(b"|d|") + 1)
        file.write(b"X")


async def test_a_bad_journal_record_is_quarantined_alone(rig: Rig) -> None:
    for name in "abc":
        await rig.post.defer_new(f"{name}@example.org", rig.clock.now() + HOUR)
    segment = await rig.seal()
    lines = {each: await rig.shard.raw_line(each) for each in segment.entries.values()}
    [bad] = [each for each, line in lines.items() if b"b@example" in line]
    spoil(segment, bad)
    before = held(dict(rig.store.stats()))
    await rig.evacuate()
    assert [record.address for record in rig.listed()] == ["a@example.org", "c@example.org"]
    [aside] = (rig.queue / "quarantine").iterdir()
    assert aside.name == f"segment-{segment.number}-{bad.offset}+1.bad"
    assert b"b@example.org" in aside.read_bytes()
    assert rig.shard.figures.quarantined == 1
    recipients, octets = before["deferred"]
    assert held(dict(rig.store.stats())) == {"deferred": (recipients - 1, octets - bad.size)}
    assert spool_path(rig.spool, bad.spid).read_bytes() == BODY
    again = await rig.killed()
    assert held(dict(again.store.stats())) == held(dict(rig.store.stats()))
    again.clock.advance(HOUR)
    assert len(await again.post.claim_all()) == 2


async def test_a_segment_whose_records_all_went_bad_is_let_go(rig: Rig) -> None:
    await rig.post.defer_new("a@example.org", rig.clock.now() + HOUR)
    segment = await rig.seal()
    for each in segment.entries.values():
        spoil(segment, each)
    await rig.evacuate()
    assert (rig.clusters(), rig.listed(), held(dict(rig.store.stats()))) == ([], [], {})
    assert rig.shard.figures.quarantined == 1
    assert not rig.shard.ring.segments


async def test_a_record_is_put_aside_durably_or_stays(rig: Rig) -> None:
    await rig.post.defer_new("a@example.org", rig.clock.now() + HOUR)
    segment = await rig.seal()
    for each in segment.entries.values():
        spoil(segment, each)
    rig.disk.fail("datasync", "*/quarantine/*")
    with pytest.raises(OSError, match="Input/output error"):
        await rig.evacuate()
    assert rig.shard.figures.quarantined == 0
    assert held(dict(rig.store.stats()))["deferred"][0] == 1
    await rig.evacuate()
    assert rig.shard.figures.quarantined == 1


# ---------------------------------------------------------------- what is in flight


async def test_claimed_recipients_are_carried(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    claimed = await rig.post.claim_all()
    old = max(rig.shard.ring.segments)
    await rig.evacuate()
    assert rig.clusters() == []
    assert min(rig.shard.ring.segments) > old
    assert tally(rig.listed()) == tally(claimed)
    assert await rig.post.claim_all() == []
    assert await rig.post.read(claimed[0]) == BODY
    await rig.post.settle(delivered(), *claimed)
    again = await rig.killed()
    assert again.listed() == []
    await rig.shard.deleter.settled()
    assert rig.spooled() == []


@pytest.mark.parametrize("begun", [True, False])
async def test_a_carried_attempt_is_known_after_a_kill(rig: Rig, begun: bool) -> None:
    await rig.post.send("a@example.org")
    claimed = await rig.post.claim_all()
    if begun:
        await rig.store.begin(claimed, "mx.example.org")
    await rig.evacuate()
    again = await rig.killed()
    assert again.observer.count(Verb.OUTCOME_UNKNOWN) == begun
    [record] = again.listed()
    assert (record.attempts, record.unknowns) == (begun, begun)


async def test_an_attempt_whose_begin_was_refused_is_carried_as_not_begun(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    claimed = await rig.post.claim_all()
    rig.disk.fail("datasync", "*/journal/*", times=2)
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        await rig.store.begin(claimed, "mx.example.org")
    while rig.shard.journal.trouble.failures:
        rig.clock.advance(1000)
        await asyncio.sleep(0)
    await rig.evacuate()
    again = await rig.killed()
    assert again.observer.count(Verb.OUTCOME_UNKNOWN) == 0
    [record] = again.listed()
    assert (record.attempts, record.unknowns) == (0, 0)


async def test_a_verdict_during_a_carry_waits_for_it(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.post.send("b@example.org")
    claimed = await rig.post.claim_all()
    sealed = await rig.seal()
    await turns()
    gate = rig.disk.block("datasync", "*/journal/*")
    evacuation = asyncio.create_task(rig.store._live.checkpointer.evacuate(sealed))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    verdict = asyncio.ensure_future(rig.post.settle(delivered(), claimed[0]))
    await turns()
    assert not verdict.done()
    gate.release()
    await asyncio.gather(verdict, evacuation)
    assert rig.observer.count(Verb.DELIVERED) == 1
    assert tally(rig.listed()) == tally(claimed[1:])
    again = await rig.killed()
    assert tally(again.listed()) == tally(claimed[1:])


async def test_mail_at_rest_is_known_while_it_moves(rig: Rig) -> None:
    await rig.post.send("a@x.atrn.example")
    sealed = await rig.seal()
    gate = rig.disk.block("datasync", "*/MANIFEST*")
    evacuation = asyncio.create_task(rig.store._live.checkpointer.evacuate(sealed))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    assert await rig.store.claim_held("x.atrn.example", 10) == []
    assert set(rig.store.held_domains()) == {"x.atrn.example"}
    gate.release()
    await evacuation
    [claimed] = await rig.store.claim_held("x.atrn.example", 10)
    assert claimed.address == "a@x.atrn.example"
    assert set(rig.store.held_domains()) == set()


async def test_mail_at_rest_is_known_while_a_batch_moves_its_cluster(rig: Rig) -> None:
    await rig.post.send("a@x.atrn.example")
    await rig.post.send("b@x.atrn.example")
    await rig.evacuate()
    gate = rig.disk.block("datasync", "*/journal/*")
    selection = Selection(recipient="a@x.atrn.example")
    removing = asyncio.create_task(carry_out(rig.store, batch(Action.REMOVE, rig.post), selection))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    assert await rig.store.claim_held("x.atrn.example", 10) == []
    assert set(rig.store.held_domains()) == {"x.atrn.example"}
    gate.release()
    assert await removing == (1, 0)
    [claimed] = await rig.store.claim_held("x.atrn.example", 10)
    assert claimed.address == "b@x.atrn.example"
    assert set(rig.store.held_domains()) == set()


async def test_no_loop_turn_handles_more_than_a_slice(tmp_path: Path) -> None:
    journal = JournalSettings(segmentsize=16 << 20, segments=8, seal_age=HOUR)
    rig = await Rig(tmp_path / "q", journal=journal).open()
    for number in range(4):
        await rig.post.send(*(f"u{number}.{each}@example.org" for each in range(AT_ONCE)), content=b"x")
    await rig.post.claim_all(step=AT_ONCE // 2)
    for number in range(4):
        await rig.post.send(*(f"v{number}.{each}@example.org" for each in range(AT_ONCE)), content=b"x")
    sealed = await rig.seal()
    entries = list(sealed.entries.values())
    held_before = rig.store.stats()
    wrong = []

    def in_state(state: State) -> Callable[[], int]:
        return lambda: sum(each.state is state for each in entries)

    def counted_wrong() -> int:
        if held(dict(rig.store.stats())) != held(dict(held_before)):
            wrong.append(rig.store.stats())
        return 0

    counter = Turns(*map(in_state, (State.FROZEN, State.CARRYING, State.EVACUATED)), counted_wrong)
    await rig.store._live.checkpointer.evacuate(sealed)
    counter.stop()
    assert in_state(State.EVACUATED)() == 4 * AT_ONCE
    assert counter.most <= AT_ONCE
    assert counter.count > 3 * len(entries) // AT_ONCE
    assert wrong == []
    await rig.close()


async def test_a_frozen_record_is_read_until_its_entry_is_dropped(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    sealed = await rig.seal()
    *_, entry = sealed.entries.values()
    entry.recipient, entry.raw = None, b""
    readers: list[asyncio.Task[bytes]] = []

    def committed() -> None:
        if sealed.retired and not readers:
            # One reader has just ended, another one comes.
            sealed.readers += 1
            assert sealed.unpin() == -1
            assert entry.state is State.FROZEN
            readers.append(asyncio.ensure_future(rig.shard.raw_line(entry)))

    rig.shard.watchers.append(committed)
    await rig.store._live.checkpointer.evacuate(sealed)
    [reader] = readers
    assert b"a@example.org" in await reader
    assert sealed.fd == -1


async def test_a_failed_evacuation_thaws_in_slices(tmp_path: Path) -> None:
    journal = JournalSettings(segmentsize=16 << 20, segments=8, seal_age=HOUR)
    rig = await Rig(tmp_path / "q", journal=journal).open()
    sent: list[Recipient] = []
    for number in range(3):
        sent += await rig.post.send(
            *(f"u{number}.{each}@example.org" for each in range(AT_ONCE)), content=b"x"
        )
    sealed = await rig.seal()
    entries = list(sealed.entries.values())
    counter = Turns(lambda: sum(each.state is State.FROZEN for each in entries))
    for _ in range(2):
        rig.disk.fail("rename", "*.mqc")
        with pytest.raises(OSError, match="Input/output"):
            await rig.store._live.checkpointer.evacuate(sealed)
        assert {each.state for each in entries} == {State.WAITING}
    counter.stop()
    assert counter.most <= AT_ONCE
    [row] = rig.shard.entries.waiting._fresh.rows
    assert [len(part) for part in row.parts.values()] == [len(entries)]
    assert [each.key for each in await rig.post.claim_all()] == [each.key for each in sent]
    await rig.close()


async def test_mail_in_flight_is_claimed_once_after_a_failed_carry(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.post.send("b@example.org")
    [flying] = await rig.store.claim(1, rig.clock.now())
    sealed = await rig.seal()
    rig.disk.fail("datasync", "*/journal/*", times=None)
    with pytest.raises(MqcdError):
        await rig.store._live.checkpointer.evacuate(sealed)
    rig.disk.mend()
    while rig.shard.journal.trouble.failing:
        rig.clock.advance(1000)
        await asyncio.to_thread(lambda: None)
    assert [each.state for each in sealed.entries.values()] == [State.CLAIMED, State.WAITING]
    rig.store._live.claims.give_back([flying])
    assert [each.address for each in await rig.post.claim_all()] == ["b@example.org", "a@example.org"]
    assert not rig.shard.entries.waiting.has_new


async def test_a_slow_reader_gets_its_own_octets(tmp_path: Path) -> None:
    journal = JournalSettings(segmentsize=SEGMENT_SIZE, segments=4, inline_max=16 << 10)
    rig = await Rig(tmp_path / "q", journal=journal).open()
    wanted = b"".join(b"%05d\r\n" % n for n in range(1500))
    await rig.post.send("slow@example.org", content=wanted)
    [claimed] = await rig.post.claim_all()
    content = await rig.store.content(claimed)
    start = await content.read(1000)
    await rig.evacuate()
    others = []
    for _ in range(2):
        await rig.post.send("other@example.org", content=b"x" * 15000)
        others += await rig.post.claim_all()
        await rig.seal()
    await rig.post.settle(deferred(rig.clock.now() + HOUR), others[0])
    await rig.seal()
    await rig.post.settle(deferred(rig.clock.now() + HOUR), others[1])
    rest = [start]
    while chunk := await content.read(1000):
        rest.append(chunk)
    assert b"".join(rest) == wanted
    content.close()
    assert await rig.post.read(claimed) == wanted
    await rig.close()


async def test_a_slot_is_not_used_again_while_a_reader_holds_its_pin(rig: Rig) -> None:
    await rig.post.defer_new("a@example.org", rig.clock.now() + HOUR)
    sealed = await rig.seal()
    await turns()
    sleepers = rig.clock.sleepers
    reader = rig.snapshot()
    evacuation = asyncio.ensure_future(rig.store._live.checkpointer.evacuate(sealed))
    while rig.clock.sleepers == sleepers and not evacuation.done():
        await asyncio.to_thread(lambda: None)
    # The evacuation is committed, and waits for the reader.
    assert rig.shard.ring.first_live > sealed.number
    for name in "bc":
        await rig.post.send(f"{name}@example.org")
        await rig.seal()
    header = segment_header.unpack(sealed.path.read_bytes()[: segment_header.HEADER_SIZE])
    assert header == sealed.header
    assert not evacuation.done()
    reader.close()
    while not evacuation.done():
        rig.clock.advance(100)
        await asyncio.to_thread(lambda: None)
    await rig.post.send("d@example.org")
    assert sealed.path in rig.shard.ring.free or not sealed.path.exists()


async def test_ended_files_go_before_their_frames(rig: Rig) -> None:
    await rig.post.send("large@example.org", content=b"x" * 40_000)
    [claimed] = await rig.post.claim_all()
    [name] = rig.spooled()
    rig.disk.fail("unlink", f"*/{name}")
    await rig.post.settle(delivered(), claimed)
    await rig.shard.deleter.settled()
    assert rig.spooled() == [name]
    sealed = await rig.seal()
    await turns()
    # It could not be removed. A start could not tell whose it was, once the verdict's segment has gone.
    await rig.store._live.checkpointer.evacuate(sealed)
    again = await rig.killed()
    await turns()
    assert again.spooled() == []


# ---------------------------------------------------------------- clusters after a kill


async def test_a_partly_loaded_cluster_delays_no_other_after_a_kill(rig: Rig) -> None:
    now = rig.clock.now()
    for name in ("first", "last"):
        await rig.post.send(f"{name}@example.org")
    first, last = await rig.post.claim_all()
    await rig.post.settle(deferred(now + MINUTE), first)
    await rig.post.settle(deferred(now + HOUR), last)
    await rig.evacuate()
    await rig.post.defer_new("middle@example.org", now + 2 * MINUTE)
    await rig.evacuate()
    rig.clock.advance(MINUTE)
    [claimed] = await rig.post.claim_all()
    await rig.post.settle(delivered(), claimed)
    again = await rig.killed()
    again.clock.advance(2 * MINUTE)
    [claimed] = await again.post.claim_all()
    assert claimed.address == "middle@example.org"
    assert again.store.next_due() == now + HOUR


@pytest.mark.parametrize(
    "left", [None, 0, len(FIRST_LINE), -1], ids=["gone", "empty", "without lines", "cut off"]
)
async def test_a_damaged_cluster_holds_up_no_other(rig: Rig, left: int | None) -> None:
    now = rig.clock.now()
    await rig.post.defer_new("damaged@example.org", now + MINUTE)
    await rig.evacuate()
    [name] = rig.clusters()
    await rig.post.defer_new("fine@example.org", now + 2 * MINUTE)
    await rig.evacuate()
    path = rig.queue / name
    if left is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:left])
    rig.clock.advance(2 * MINUTE)
    [claimed] = await rig.post.claim_all()
    assert claimed.address == "fine@example.org"
    assert held(dict(rig.store.stats()))["deferred"][0] == 2


@pytest.mark.parametrize("due", [False, True], ids=["new", "deferred"])
@pytest.mark.parametrize("octets", [0, 30], ids=["between two lines", "within a line"])
async def test_a_cut_off_cluster_yields_its_start_and_counts_the_rest(
    rig: Rig, caplog: pytest.LogCaptureFixture, due: bool, octets: int
) -> None:
    for name in "abcd":
        await rig.post.send(f"{name}@example.org")
    if due:
        await rig.post.settle(deferred(rig.clock.now() + MINUTE), *await rig.post.claim_all())
        rig.clock.advance(MINUTE)
    await rig.evacuate()
    [name] = rig.clusters()
    path = rig.queue / name
    whole = path.read_bytes()
    path.write_bytes(whole[: len(b"".join(whole.splitlines(keepends=True)[:3])) + octets])
    claimed = await rig.post.claim_all()
    assert [each.address for each in claimed] == ["a@example.org", "b@example.org"]
    assert f"cluster {name} cannot be read: " in caplog.text
    await rig.post.settle(delivered(), *claimed)
    await rig.evacuate()
    assert sum(count for count, _ in held(dict(rig.store.stats())).values()) == 2
    assert rig.shard.figures.quarantined == 0
    assert rig.clusters() == [name]
    path.write_bytes(whole)
    again = await rig.reopened()
    claimed = await again.post.claim_all()
    assert [each.address for each in claimed] == ["c@example.org", "d@example.org"]
    assert [await again.post.read(each) for each in claimed] == [BODY, BODY]


async def test_a_damaged_line_is_put_aside_and_the_others_are_claimed(rig: Rig) -> None:
    for name in "abc":
        await rig.post.send(f"{name}@example.org")
    await rig.evacuate()
    path = rig.queue / rig.clusters()[0]
    path.write_bytes(path.read_bytes().replace(b"b@example", b"X@example"))
    # What is put aside leaves the figures by as much as is told: the books of the server rely on it.
    before = sum(area.recipients for area in rig.store.stats().values())
    claimed = await rig.post.claim_all()
    assert [each.address for each in claimed] == ["a@example.org", "c@example.org"]
    [aside] = (rig.queue / "quarantine").iterdir()
    assert b"X@example" in aside.read_bytes()
    assert rig.shard.figures.quarantined == 1
    assert before - sum(area.recipients for area in rig.store.stats().values()) == 1


@pytest.mark.parametrize(
    "harm",
    [
        (b"a@example", b"a\nexample"),
        (b"a@example.org", b"a\n\n\n\n\n\n\n\n\n\n\n\n"),
        (b"|c@example", b"|c\nexample"),
    ],
    ids=["the first is split", "the first is in many pieces", "one that follows is split"],
)
@pytest.mark.parametrize("room", [1, 2, 10])
async def test_a_line_that_is_split_takes_no_other_with_it(
    rig: Rig, harm: tuple[bytes, bytes], room: int
) -> None:
    for name in "abcde":
        await rig.post.send(f"{name}@example.org")
    await rig.evacuate()
    path = rig.queue / rig.clusters()[0]
    path.write_bytes(path.read_bytes().replace(*harm))
    claimed = await rig.post.claim_all(step=room)
    assert len(claimed) == 4
    assert rig.shard.figures.quarantined == 1
    assert held(dict(rig.store.stats())) == {"incoming": (4, sum(each.size for each in claimed))}


async def test_lines_that_run_together_count_as_those_that_they_were(rig: Rig) -> None:
    for name in "abcd":
        await rig.post.send(f"{name}@example.org")
    await rig.evacuate()
    path = rig.queue / rig.clusters()[0]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2][:-1], b"X", *lines[3:]]))
    first = await rig.store.claim(1, rig.clock.now())
    assert rig.shard.cluster_index.clusters[rig.clusters()[0]].left == 1
    second = await rig.store.claim(1, rig.clock.now())
    assert [each.address for each in (*first, *second)] == ["a@example.org", "d@example.org"]
    assert rig.shard.figures.quarantined == 2
    assert held(dict(rig.store.stats()))["incoming"][0] == 2


async def test_an_oversized_line_is_quarantined_others_are_claimed(tmp_path: Path) -> None:
    rig = await Rig(tmp_path / "q", journal=JournalSettings(segmentsize=1 << 20)).open()
    await rig.post.send("a@example.org")
    long = rig.post.submission("b@example.org")
    await rig.store.enqueue(replace(long, envelope=replace(long.envelope, user="x" * 70_000)))
    await rig.post.send("c@example.org")
    await rig.evacuate()
    claimed = await rig.post.claim_all()
    assert [each.address for each in claimed] == ["a@example.org", "c@example.org"]
    [aside] = (rig.queue / "quarantine").iterdir()
    assert b"b@example.org" in aside.read_bytes()
    assert rig.shard.figures.quarantined == 1
    await rig.close()


async def test_a_claim_that_is_cancelled_keeps_nothing(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.evacuate()
    gate = rig.disk.block("datasync", "*/journal/*")
    claim = asyncio.create_task(rig.post.claim_all())
    assert await asyncio.to_thread(gate.reached.wait, 30)
    claim.cancel()
    await turns()
    gate.release()
    with pytest.raises(asyncio.CancelledError):
        await claim
    [claimed] = await rig.post.claim_all()
    assert claimed.address == "a@example.org"


async def test_records_whose_edit_is_in_doubt_are_not_claimed(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.enrolled()
    rig.shard.journal.seal()
    rig.disk.fail("datasync", "*/MANIFEST*", times=3)
    evacuation = asyncio.ensure_future(rig.evacuate())
    while not rig.clock.sleepers:
        await asyncio.sleep(0)
    assert await rig.post.claim_all() == []
    while not evacuation.done():
        rig.clock.advance(1000)
        await asyncio.sleep(0)
    with pytest.raises(OSError, match="Input/output error"):
        await evacuation
    assert len(await rig.post.claim_all()) == 1


async def test_a_foreign_file_in_the_spool_stops_the_evacuation(rig: Rig) -> None:
    """Else the segment would go, and the message's octets with it."""
    await rig.post.send("a@example.org")
    [waiting] = rig.listed()
    path = spool_path(rig.spool, waiting.spid)
    path.mkdir()
    segment = await rig.seal()
    with pytest.raises(OSError, match="no regular file"):
        await rig.store._live.checkpointer.evacuate(segment)
    path.rmdir()
    await rig.store._live.checkpointer.evacuate(segment)
    [claimed] = await rig.post.claim_all()
    assert await rig.post.read(claimed) == BODY


async def test_a_record_as_long_as_a_frame_is_carried(tmp_path: Path) -> None:
    journal = JournalSettings(segmentsize=64 << 10, segments=8, inline_max=16 << 10)
    rig = await Rig(tmp_path / "q", journal=journal).open()
    room = rig.shard.journal.largest_frame
    envelope = Envelope(spid=rig.store.reserve(False), sender="s@example.com", received=rig.clock.now())
    short = encode(Recipient(envelope=envelope, size=4, qid=1, address="a@example.org"))
    # As long as ACCEPT takes it, so that with an entry's head it has no room.
    envelope = replace(envelope, user="u" * (room - len(short) - 10))
    await rig.store.enqueue(Submission(envelope=envelope, recipients=("a@example.org",), content=b"abcd"))
    [claimed] = await rig.post.claim_all()
    before = rig.shard.journal.sequence
    segment = await rig.seal()
    await rig.store._live.checkpointer.evacuate(segment)
    assert rig.shard.journal.sequence == before + 1
    await rig.post.settle(delivered(), claimed)
    await rig.close()

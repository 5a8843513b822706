"""Operators' actions on a running server: recorded before they begin, carried out whole, counted exactly."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.cli import main
from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Action, Area, Batch
from mqcd.core.ports import Picked
from mqcd.core.queueing.amendment import LATEST_MS
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import parse_where
from mqcd.core.units import HOUR
from mqcd.daemon.control.actions.applying import purge
from mqcd.daemon.control.actions.batches import Batches
from mqcd.daemon.control.actions.orders import KEPT, Ended, Order, Outcome, completed, parse_order, record
from mqcd.daemon.control.api.binding import answering
from mqcd.daemon.control.resolving import Resolved
from mqcd.deliver.reaching import Reaching
from mqcd.disk.durable import Disk
from mqcd.eventlog.files import Source
from mqcd.eventlog.retention import Retention
from mqcd.ops.http.server import Answer, Request
from mqcd.stores.queue.exporting import EventFiles
from tests.contract.mail import Post, delivered
from tests.fakes.clock import FakeClock, turns
from tests.fakes.disk import FaultyDisk
from tests.fakes.observer import RecordingObserver
from tests.fakes.store import MemoryStore
from tests.unit.daemon.support import Running, running

NOT_NOW = "*@slow.example=450 4.2.1 not now"
GRACE = 3_600_000


class Halting(MemoryStore):
    """Fails after some parts of a pick."""

    parts = 1 << 30

    async def pick(self, selection: Selection, batch: Batch) -> AsyncGenerator[Picked, None]:
        async for part in super().pick(selection, batch):
            yield replace(part, recipients=[])
            for number, each in enumerate(part.recipients):
                if not self.parts:
                    await self.park(part.recipients[number:], 0)
                    raise StoreUnavailable("made to fail")
                self.parts -= 1
                yield Picked(recipients=[each])


class Rig:
    """A store with mail, and its batches."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.observer = RecordingObserver()
        files = EventFiles(directory=path.parent / "events", source=Source("n1", 0), retention=Retention())
        self.store = Halting(self.clock, self.observer, events=files)
        self.path = path
        self.events: list[dict[str, str | int]] = []
        self.batches = self.made()

    def made(self, disk: Disk | None = None) -> Batches:
        return Batches(self.store, self.clock, self.path, 0, GRACE, self._log, disk)

    def _log(self, event: str, **fields: str | int) -> None:
        self.events.append({"event": event, **fields})

    async def asked(self, uid: int = 7, author: str = "", **fields: object) -> Answer:
        body = json.dumps(fields).encode()
        request = Request(method="POST", path="/v1/batch", body=body, uid=uid, author=author)
        return await answering(lambda asked: self.batches.ask(asked, {}))(request)

    def follows(self, reaching: Reaching) -> None:
        """Delivery has these."""
        self.batches.following.reach, self.batches.following.pending = reaching.act, reaching.pending

    async def done(self, until: Callable[[], bool]) -> None:
        """Run until this holds."""
        task = asyncio.ensure_future(self.batches.run())
        while not until():
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    def listed(self, name: str) -> dict[str, Any]:
        """One batch as it is shown."""
        row = self.batches.progress(Request(method="GET", path="/v1/batches"), {"id": name})
        assert isinstance(row, dict)
        return row

    def every(self) -> list[dict[str, Any]]:
        """The list."""
        rows = self.batches.progress(Request(method="GET", path="/v1/batches"), {})
        assert isinstance(rows, list)
        return rows

    def files(self) -> list[str]:
        return (
            sorted(each.name for each in self.path.iterdir() if each.is_file()) if self.path.exists() else []
        )


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path / "batches")
    await made.store.open()
    await made.store.recovered()
    post = Post(made.store, made.clock)
    for number in range(4):
        await post.send(f"r{number}@x.example")
    return made


async def test_a_batch_is_recorded_before_it_begins_and_forgotten_when_done(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    said = json.loads((await rig.asked(action="hold", reason="why")).body)
    assert (said["changed"], said["done"]) == (0, False)
    [name] = rig.files()
    assert name == f"0-{said['batch']}.json"
    await rig.done(lambda: bool(rig.events))
    assert rig.files() == []
    assert "goes on" not in caplog.text
    [event] = rig.events
    assert (event["event"], event["changed"], event["by"], event["reason"]) == ("hold", 4, "uid:7", "why")
    assert rig.listed(said["batch"])["done"] is True
    assert rig.store.stats()[Area.HELD].recipients == 4


async def test_what_a_kill_cut_off_goes_on(rig: Rig) -> None:
    rig.store.parts = 2
    said = json.loads((await rig.asked(action="hold")).body)
    await rig.done(lambda: rig.observer.count(Verb.HELD) == 2 and bool(rig.clock.sleepers))
    assert len(rig.files()) == 1
    rig.store.parts = 1 << 30
    rig.batches = rig.made()
    await rig.done(lambda: bool(rig.events))
    assert rig.observer.count(Verb.HELD) == 4
    [event] = rig.events
    assert (event["batch"], event["changed"], rig.files()) == (said["batch"], 4, [])


async def test_an_undo_that_a_kill_cut_off_counts_both_runs(rig: Rig) -> None:
    held = json.loads((await rig.asked(action="hold")).body)["batch"]
    await rig.done(lambda: bool(rig.events))
    rig.store.parts = 3
    await rig.asked(action="undo", target=held)
    await rig.done(lambda: rig.observer.count(Verb.RESTORED) == 3 and bool(rig.clock.sleepers))
    rig.store.parts = 1 << 30
    rig.batches = rig.made()
    await rig.done(lambda: len(rig.events) == 2)
    assert rig.observer.count(Verb.RESTORED) == 4
    assert rig.events[-1]["changed"] == 4


@pytest.mark.parametrize("selection", [{}, {"area": "incoming"}])
async def test_a_limit_counts_over_a_kill(rig: Rig, selection: dict[str, str]) -> None:
    rig.store.parts = 2
    await rig.asked(action="hold", selection={**selection, "limit": 3})
    await rig.done(lambda: rig.observer.count(Verb.HELD) == 2 and bool(rig.clock.sleepers))
    rig.store.parts = 1 << 30
    rig.batches = rig.made()
    await rig.done(lambda: bool(rig.events))
    assert rig.observer.count(Verb.HELD) == 3


async def test_what_ended_while_the_store_failed_is_not_in_flight(rig: Rig) -> None:
    post = Post(rig.store, rig.clock)
    [busy] = await rig.store.claim(1, rig.clock.now(), {})
    rig.store.parts = 0
    name = json.loads((await rig.asked(action="hold")).body)["batch"]
    running = asyncio.ensure_future(rig.batches.run())
    while not rig.listed(name)["trouble"]:
        await asyncio.sleep(0)
    assert rig.listed(name)["in_flight"] == 1
    await post.settle(delivered(), busy, *await post.claim_all())
    rig.clock.advance(1000)
    while not rig.events:
        await asyncio.sleep(0)
    running.cancel()
    [event] = rig.events
    assert (event["changed"], event["in_flight"]) == (0, 0)


async def test_what_has_not_followed_a_batch_outlives_a_kill(rig: Rig) -> None:
    [busy] = await rig.store.claim(1, rig.clock.now(), {})
    reaching = Reaching(rig.clock)
    rig.follows(reaching)
    await rig.asked(action="hold", reason="why")
    await rig.done(lambda: bool(rig.events))
    assert rig.events[0]["in_flight"] == 1
    reaching, rig.batches = Reaching(rig.clock), rig.made()
    rig.follows(reaching)
    await rig.batches.following.recall()
    amended = reaching.take_amendment(busy)
    assert amended is not None
    assert (amended.batch.id, amended.batch.reason) == (rig.events[0]["batch"], "why")
    assert reaching.take_amendment(busy) is None


async def test_what_has_followed_is_noted_after_a_while(rig: Rig) -> None:
    [busy] = await rig.store.claim(1, rig.clock.now(), {})
    reaching = Reaching(rig.clock)
    rig.follows(reaching)
    await rig.asked(action="hold")
    await rig.done(lambda: bool(rig.events))
    file = rig.path / "following" / "0.json"
    assert format_spid(busy.spid) in file.read_text()
    reaching.take_amendment(busy)
    tending = asyncio.ensure_future(rig.batches.tend())
    while format_spid(busy.spid) in file.read_text():
        await asyncio.sleep(0)
        rig.clock.advance(1000)
    tending.cancel()


async def test_a_damaged_note_of_what_follows_is_logged(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    file = rig.path / "following" / "0.json"
    file.parent.mkdir(parents=True)
    for text in ("[", "[1]", "{}x", '[{"action": "hold"}]', '[{"keys": ["7"]}]'):
        file.write_text(text)
        caplog.clear()
        await rig.made().following.recall()
        assert "0.json: mail that was in flight does not follow" in caplog.text, text


async def test_what_was_recorded_while_the_shard_was_away_is_taken_up_in_its_order(rig: Rig) -> None:
    hold = Batch(id="z", action=Action.HOLD, at=rig.clock.now(), by="uid:7")
    undo = Batch(id="a", action=Action.UNDO, at=rig.clock.now() + 1, by="uid:7", target="z")
    for each in (undo, hold):
        record(Disk(), rig.path, 0, Order(batch=each, selection=Selection()))
        record(Disk(), rig.path, 1, Order(batch=each, selection=Selection()))
    tending = asyncio.ensure_future(rig.batches.tend())
    await asyncio.sleep(0)
    rig.clock.advance(5000)
    await rig.done(lambda: len(rig.events) == 2)
    tending.cancel()
    assert [(each["batch"], each["changed"]) for each in rig.events] == [("z", 4), ("a", 4)]
    assert rig.files() == ["1-a.json", "1-z.json"]


async def test_a_later_attempt_than_the_longest_delay_is_refused(rig: Rig) -> None:
    rig.batches.longest_ms = 4 * 3_600_000
    answer = await rig.asked(action="reschedule", until=rig.clock.now() + 5 * 3_600_000)
    assert (answer.status, b"longest retry delay, 4h 00m" in answer.body) == (400, True)
    assert rig.files() == []
    assert (await rig.asked(action="reschedule", until=rig.clock.now() + 4 * 3_600_000)).status == 200


async def test_a_dry_run_counts_and_shows_a_few(rig: Rig) -> None:
    said = json.loads((await rig.asked(action="hold", dry_run=True, selection={"limit": 3})).body)
    assert (said["batch"], said["changed"], len(said["sample"])) == (None, 3, 3)
    assert rig.files() == []


@pytest.mark.parametrize("action", ["redirect", "reschedule"])
async def test_a_dry_run_needs_no_details(rig: Rig, action: str) -> None:
    said = await rig.asked(action=action, dry_run=True)
    assert (said.status, json.loads(said.body)["changed"]) == (200, 4)
    assert (await rig.asked(action=action)).status == 400


async def test_the_last_batches_are_listed_over_a_restart(rig: Rig) -> None:
    held = json.loads((await rig.asked(action="hold", reason="why")).body)["batch"]
    await rig.done(lambda: bool(rig.events))
    rig.clock.advance(1000)
    removed = json.loads((await rig.asked(action="remove")).body)["batch"]
    await rig.done(lambda: len(rig.events) == 2)
    rig.batches = rig.made()
    rig.batches.known.resume()
    newest, oldest = rig.every()
    assert (newest["batch"], newest["changed"], newest["undo"]) == (removed, 4, True)
    assert (oldest["batch"], oldest["by"], oldest["reason"], oldest["undo_until"]) == (
        held,
        "uid:7",
        "why",
        None,
    )
    rig.clock.advance(GRACE)
    assert [each["undo"] for each in rig.every()] == [False, True]


async def test_what_is_undone_is_not_listed_as_if_it_could_be(rig: Rig) -> None:
    held = json.loads((await rig.asked(action="hold")).body)["batch"]
    await rig.done(lambda: bool(rig.events))
    for selection, left in (({"domain": "nowhere.example"}, True), ({}, False)):
        rig.events.clear()
        rig.clock.advance(1000)
        await rig.asked(action="undo", target=held, selection=selection)
        await rig.done(lambda: bool(rig.events))
        assert [each["undo"] for each in rig.every() if each["batch"] == held] == [left]


@pytest.mark.parametrize("known", [True, False])
async def test_an_undo_does_not_believe_a_name(rig: Rig, known: bool) -> None:
    await rig.asked(action="redirect", target="relay.example", id="hold-1")
    await rig.done(lambda: bool(rig.events))
    if not known:
        shutil.rmtree(rig.path / "ended")
        rig.batches = rig.made()
    counted = await rig.asked(action="undo", target="hold-1", dry_run=True)
    assert json.loads(counted.body)["changed"] == 4
    await rig.asked(action="undo", target="hold-1")
    await rig.done(lambda: len(rig.events) == 2)
    assert rig.observer.count(Verb.RESTORED) == 4


async def test_an_undo_keeps_to_the_area_that_it_is_given(rig: Rig) -> None:
    held = json.loads((await rig.asked(action="hold")).body)["batch"]
    await rig.done(lambda: bool(rig.events))
    for area, changed in (("incoming", 0), ("held", 4)):
        said = await rig.asked(action="undo", target=held, selection={"area": area}, dry_run=True)
        assert json.loads(said.body)["changed"] == changed


def test_no_more_batches_are_kept_than_may_be(tmp_path: Path) -> None:
    ended = Ended(Disk(), tmp_path / "ended", 0)
    for number in range(KEPT + 3):
        batch = Batch(id=f"hold-{number}", action=Action.HOLD, at=number, by="uid:1")
        ended.add(Outcome(order=Order(batch=batch, selection=Selection()), changed=number))
    kept = ended.load()
    assert len(list((tmp_path / "ended").iterdir())) == len(kept) == KEPT
    assert [kept[0].changed, kept[-1].changed] == [3, KEPT + 2]


async def test_the_end_of_graces_is_looked_for(rig: Rig) -> None:
    await rig.asked(action="remove")
    await rig.done(lambda: bool(rig.events))
    purging = asyncio.ensure_future(purge(rig.store, rig.clock))
    while rig.store.stats()[Area.REMOVED].recipients:
        await asyncio.sleep(0)
        rig.clock.advance(GRACE // 10)
    purging.cancel()
    assert len(rig.observer.purges) == 4


async def test_a_leap_of_the_clock_ends_no_grace(rig: Rig) -> None:
    await rig.asked(action="remove")
    await rig.done(lambda: bool(rig.events))
    purging = asyncio.ensure_future(purge(rig.store, rig.clock))
    rig.clock.leap(2 * GRACE)
    await rig.clock.run_for(15_000)
    assert not rig.observer.purges
    rig.clock.leap(-2 * GRACE)
    while rig.store.stats()[Area.REMOVED].recipients:
        await asyncio.sleep(0)
        rig.clock.advance(GRACE // 10)
    purging.cancel()
    assert len(rig.observer.purges) == 4


async def test_nobody_is_named_but_by_the_front_process(rig: Rig) -> None:
    await rig.asked(action="hold", author="uid:0", uid=os.geteuid() + 1)
    await rig.done(lambda: bool(rig.events))
    await rig.asked(action="release", author="uid:9", uid=os.geteuid())
    await rig.done(lambda: len(rig.events) == 2)
    assert [each["by"] for each in rig.events] == [f"uid:{os.geteuid() + 1}", "uid:9"]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "action: expected one of hold, "),
        ({"action": "eat"}, "action: expected one of hold, "),
        ({"action": "hold", "at": "now"}, "at: expected int"),
        ({"action": "hold", "what": 1}, "no such field: what"),
        ({"action": "undo"}, "target: expected the name of a batch"),
        ({"action": "undo", "dry_run": True}, "target: expected the name of a batch"),
        ({"action": "redirect", "target": "a b@c"}, "not a mail address"),
        ({"action": "redirect", "target": "host:99999"}, "target: "),
        ({"action": "redirect", "target": "host:99999", "dry_run": True}, "target: "),
        ({"action": "reschedule", "until": -1, "dry_run": True}, "until: expected a time"),
        ({"action": "hold", "id": "../x"}, "id: expected a word"),
        ({"action": "hold", "id": "x" * 101}, "id: expected a word"),
        ({"action": "hold", "dry_run": "yes"}, "dry_run: expected bool"),
        ({"action": "undo", "target": "~retry-1"}, "target: expected the name of a batch"),
        ({"action": "reschedule"}, "until: expected the time"),
        ({"action": "hold", "selection": {"spid": "zz"}}, "spid: not a SPID"),
        ({"action": "hold", "selection": {"area": "nowhere"}}, "area: "),
    ],
)
async def test_what_is_not_understood_changes_nothing(rig: Rig, fields: dict[str, Any], error: str) -> None:
    said = await rig.asked(**fields)
    assert (said.status, rig.files()) == (400, [])
    assert error in said.body.decode()


async def test_a_full_disk_is_said(rig: Rig) -> None:
    rig.path.write_text("in the way")
    said = await rig.asked(action="hold")
    assert said.status == 503
    assert b"cannot be recorded" in said.body


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("operation", ["names", "unlink", "sync_dir"])
async def test_a_disk_that_fails_stops_no_batches(rig: Rig, operation: str, refused: bool) -> None:
    async def refuse(_selection: Selection) -> Resolved:
        raise DecodeError("no such site")

    batch = Batch(id="hold-1", action=Action.HOLD, at=rig.clock.now(), by="uid:7")
    unresolved = parse_where("site = mx.example", rig.clock.now(), live=True) if refused else None
    record(Disk(), rig.path, 0, Order(batch=batch, selection=Selection(where=unresolved)))
    disk = FaultyDisk()
    disk.fail(operation)
    rig.batches = rig.made(disk)
    rig.batches.resolve = refuse
    running = asyncio.ensure_future(rig.batches.run())
    while not (running.done() or [each for each in rig.every() if each["done"]]):
        await asyncio.sleep(0)
        rig.clock.advance(1000)
    assert running.cancel()
    assert (rig.files(), rig.listed("hold-1")["trouble"]) == ([], "no such site" if refused else "")


@pytest.mark.parametrize("stuck", [False, True])
async def test_a_batch_that_was_not_recorded_stays_undone(rig: Rig, stuck: bool) -> None:
    disk = FaultyDisk()
    rig.batches = rig.made(disk)
    rig.batches.known.resume()
    disk.fail("sync_dir", str(rig.path))
    if stuck:
        disk.fail("unlink", str(rig.path / "0-a.json"))
    said = await rig.asked(action="remove", id="a", selection={"limit": 1})
    assert (said.status, b"carried out all the same" in said.body) == (503, stuck)
    rig.batches.known.look()
    assert bool(rig.every()) is stuck


def test_a_batch_recorded_before_stays_so(rig: Rig) -> None:
    order = Order(batch=Batch(id="a", action=Action.HOLD, at=1, by="uid:7"), selection=Selection())
    record(Disk(), rig.path, 0, order)
    disk = FaultyDisk()
    disk.fail("sync_dir", str(rig.path))
    with pytest.raises(OSError, match="Input/output"):
        record(disk, rig.path, 0, order)
    assert len(rig.files()) == 1


_WHERE = '"action": "hold", "selection": {"where": "domain = a.example", "now": 1}'


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        '{"action": "redirect", "id": "x", "at": 1, "target": "a\\ud800@b.example", "selection": {}}',
        '"x"',
        '{"action": "hold", "outcome": 5}',
        f'{{{_WHERE}, "resolved": 5}}',
        "[" * 100_000,
    ],
)
async def test_a_file_that_is_no_batch_stays(
    rig: Rig, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig.path.mkdir()
    (rig.path / "0-x.json").write_text(content)
    (rig.path / "1-of-another-shard.json").write_text("{}")
    rig.batches.known.resume()
    rig.batches.known.look()
    assert caplog.text.count("0-x.json is no batch") == 1
    assert len(rig.files()) == 2


@given(st.binary(max_size=60))
def test_any_fields_are_refused_in_words(octets: bytes) -> None:
    with suppress(DecodeError, ValueError):
        fields = json.loads(octets)
        if isinstance(fields, dict):
            parse_order(fields)


def test_an_order_comes_back() -> None:
    batch = Batch(id="hold-1", action=Action.HOLD, at=5, by="uid:1", reason="why", until=7, report=True)
    order = Order(batch=batch, selection=Selection(domain="x.example", limit=3))
    assert parse_order(order.fields()) == order


@pytest.mark.parametrize("action", [Action.REMOVE, Action.BOUNCE, Action.RETRY])
def test_the_latest_order_comes_back(action: Action) -> None:
    batch = Batch(id="x", action=action, at=LATEST_MS, by="uid:1")
    order = completed(Order(batch=batch, selection=Selection()), by="uid:1", now=5, grace_ms=HOUR)
    assert parse_order(order.fields()) == order


async def command(house: Running, *words: str) -> int:
    return await asyncio.to_thread(main, ["-c", str(house.conf), "queue", *words])


async def test_commands_say_what_they_did(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path, rules=[NOT_NOW]) as house:
        await house.send("a@slow.example")
        await house.heard(Verb.DEFERRED)
        assert await command(house, "hold", "--dry-run") == 0
        assert "would be held: 1" in capfd.readouterr().out
        assert await command(house, "hold") == 0
        said = capfd.readouterr().out
        assert said.startswith("held: 1; to take it back: mqcd queue undo hold-")
        assert await command(house, "remove", "--area", "deferred") == 0
        assert capfd.readouterr().out == "nothing matches\n"
        assert await command(house, "undo", said.split()[-1]) == 0
        assert capfd.readouterr().out == "restored: 1\n"
        assert await command(house, "undo", "hold-none") == 0
        assert "there was none of that name" in capfd.readouterr().out
        assert await command(house, "batches", "--json") == 0
        rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert [(row["action"], row["changed"], row["undo"]) for row in rows] == [
            ("undo", 0, False),
            ("undo", 1, False),
            ("remove", 0, False),
            ("hold", 1, False),
        ]
        for action, changed in (("redirect", "redirected"), ("reschedule", "rescheduled")):
            assert await command(house, action) == 2
            assert await command(house, action, "--dry-run") == 0
            assert f"would be {changed}: 1" in capfd.readouterr().out


@pytest.mark.parametrize("name", ["until", "at"])
@pytest.mark.parametrize("value", [-1, 1 << 53, 1 << 80])
async def test_a_time_that_cannot_be_stored_is_refused(rig: Rig, name: str, value: int) -> None:
    fields: dict[str, Any] = {"action": "reschedule", name: value}
    answer = await rig.asked(**fields)
    assert answer.status == 400
    assert answer.body.startswith(f"{name}: expected a time".encode())
    assert rig.files() == []


async def test_a_name_in_use_is_refused_but_to_its_own_request(rig: Rig) -> None:
    first = await rig.asked(action="hold", id="mine", at=rig.clock.now())
    file = (rig.path / "0-mine.json").read_text()
    other = await rig.asked(action="remove", id="mine", at=rig.clock.now())
    assert (other.status, other.body[:31]) == (400, b"id: there is another batch mine")
    again = await rig.asked(action="hold", id="mine", at=rig.clock.now())
    assert (again.status, again.body) == (200, first.body)
    assert (rig.path / "0-mine.json").read_text() == file
    await rig.done(lambda: bool(rig.events))
    assert rig.observer.count(Verb.HELD) == 4


async def test_of_two_batches_of_a_name_one_begins(rig: Rig) -> None:
    asked = [rig.asked(action=action, id="mine") for action in ("hold", "remove")]
    assert [each.status for each in await asyncio.gather(*asked)] == [200, 400]


class Resolver:
    """Answers for selections when it is let."""

    def __init__(self) -> None:
        self.let = asyncio.Event()
        self.asked = 0

    async def __call__(self, selection: Selection) -> Resolved:
        self.asked += 1
        await self.let.wait()
        return Resolved(selection=selection)


@pytest.mark.parametrize(("second", "statuses"), [("remove", [200, 400]), ("hold", [200, 200])])
async def test_a_name_is_taken_while_sites_are_looked_up(rig: Rig, second: str, statuses: list[int]) -> None:
    rig.batches.resolve = resolver = Resolver()
    at, until = rig.clock.now(), rig.clock.now() + GRACE
    first = asyncio.ensure_future(rig.asked(action="hold", id="mine", at=at, until=until))
    other = asyncio.ensure_future(rig.asked(action=second, id="mine", at=at, until=until))
    await turns()
    resolver.let.set()
    assert [each.status for each in await asyncio.gather(first, other)] == statuses
    await rig.done(lambda: bool(rig.events))
    assert (resolver.asked, rig.files()) == (1, [])
    assert [(each["event"], each["changed"]) for each in rig.events] == [("hold", 4)]


async def test_a_part_that_the_front_records_meanwhile_runs_once(rig: Rig) -> None:
    rig.batches.resolve = resolver = Resolver()
    rig.batches.known.resume()
    tending = asyncio.ensure_future(rig.batches.tend())
    asking = asyncio.ensure_future(rig.asked(action="hold", id="mine", at=rig.clock.now()))
    await turns()
    batch = Batch(id="mine", action=Action.HOLD, at=rig.clock.now(), by="uid:7")
    record(Disk(), rig.path, 0, Order(batch=batch, selection=Selection()))
    await rig.clock.run_for(6000)
    assert rig.every() == []
    resolver.let.set()
    assert (await asking).status == 200
    await rig.done(lambda: bool(rig.events))
    tending.cancel()
    assert ([each["changed"] for each in rig.events], rig.files()) == ([4], [])


async def test_a_limit_counts_where_a_request_comes_again_before_the_start_goes_on(rig: Rig) -> None:
    rig.store.parts = 2
    request: dict[str, Any] = {"action": "hold", "id": "mine", "at": rig.clock.now()}
    request["selection"] = {"limit": 3}
    await rig.asked(**request)
    await rig.done(lambda: rig.observer.count(Verb.HELD) == 2 and bool(rig.clock.sleepers))
    rig.store.parts = 1 << 30
    rig.batches = rig.made()
    assert (await rig.asked(**request)).status == 200
    await rig.done(lambda: bool(rig.events))
    assert rig.observer.count(Verb.HELD) == 3


async def test_a_clock_in_doubt_hides_no_undo(rig: Rig) -> None:
    names = []
    for _ in range(2):
        rig.clock.advance(GRACE)
        names.append(json.loads((await rig.asked(action="remove", selection={"limit": 1})).body)["batch"])
        await rig.done(lambda: rig.listed(names[-1])["done"])
    for leap in (2 * GRACE, -4 * GRACE):
        assert [rig.listed(name)["undo"] for name in names] == [False, True]
        rig.clock.leap(leap)
    assert [rig.listed(name)["undo"] for name in names] == [False, True]

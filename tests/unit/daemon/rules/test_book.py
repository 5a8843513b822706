"""The file of rules: whole after each crash, shared by processes, and the end of rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mqcd.core.clockwatch import ClockWatch
from mqcd.core.errors import DecodeError, StoreDamaged, StoreUnavailable
from mqcd.core.selecting.rules import StandingRule
from mqcd.daemon.rules import book as room
from mqcd.daemon.rules.book import CLEAR_MS, LOOK_MS, Edit, RuleBook, Rules, encode, read_rules
from mqcd.disk.durable import Disk
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.disk import FaultyDisk
from tests.unit.core.selecting.test_rules import rule

HOUR = 3_600_000
HOLD, SUSPEND = rule("hold"), rule("suspend", until=START_MS + HOUR)


def adding(*added: StandingRule) -> Edit:
    return lambda rules: rules.update({each.id: each for each in added})


def believed(watch: ClockWatch, clock: FakeClock) -> bool:
    watch.look(clock.now(), clock.monotonic())
    return not watch.in_doubt


class Process:
    """One process that goes by the file."""

    def __init__(self, path: Path, clock: FakeClock, disk: Disk | None = None) -> None:
        self.applied: list[list[str]] = []
        watch = ClockWatch(0, clock.now(), clock.monotonic())
        self.book = RuleBook(path, clock, partial(believed, watch, clock), self._apply, disk)

    async def _apply(self, before: Rules, after: Rules) -> None:
        assert before != after
        self.applied.append(sorted(after))

    @property
    def standing(self) -> list[str]:
        return sorted(self.book.rules)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue" / "rules.json"


async def test_rules_survive_a_restart(path: Path, clock: FakeClock) -> None:
    first = Process(path, clock)
    await first.book.load()
    for each in (HOLD, SUSPEND):
        await first.book.change(adding(each))
    assert first.applied == [["hold-1"], ["hold-1", "suspend-1"]]
    second = Process(path, clock)
    await second.book.load()
    assert second.applied == [["hold-1", "suspend-1"]]
    assert dict(second.book.rules) == {"hold-1": HOLD, "suspend-1": SUSPEND}
    assert [each.id for each in read_rules(path, clock.now())] == ["hold-1", "suspend-1"]


def failures() -> Iterator[tuple[str, str]]:
    for operation in ("open", "pwritev", "datasync", "rename"):
        yield operation, "*.tmp" if operation != "rename" else "*"


@pytest.mark.parametrize(("operation", "pattern"), [*failures()])
async def test_a_change_cut_short_leaves_the_old_file(
    path: Path, clock: FakeClock, operation: str, pattern: str
) -> None:
    disk = FaultyDisk()
    cut = Process(path, clock, disk)
    await cut.book.change(adding(HOLD))
    before = path.read_bytes()
    disk.fail(operation, pattern)
    with pytest.raises(StoreUnavailable):
        await cut.book.change(adding(SUSPEND))
    assert path.read_bytes() == before
    assert cut.standing == ["hold-1"]
    after = Process(path, clock)
    await after.book.load()
    assert after.standing == ["hold-1"]
    await after.book.change(adding(SUSPEND))
    assert after.standing == ["hold-1", "suspend-1"]


async def test_the_file_is_durable_before_it_is_answered(path: Path, clock: FakeClock) -> None:
    disk = FaultyDisk()
    made = Process(path, clock, disk)
    await made.book.change(adding(HOLD))
    steps = disk.order("datasync", "rename", "sync_dir")[-6:-3]
    assert steps == [("datasync", "rules.json.tmp"), ("rename", "rules.json"), ("sync_dir", "queue")]


async def test_another_process_takes_a_change_up(path: Path, clock: FakeClock) -> None:
    one, other = Process(path, clock), Process(path, clock)
    await other.book.load()
    task = asyncio.ensure_future(other.book.run())
    await one.book.change(adding(HOLD))
    while not other.applied:
        await clock.run_for(LOOK_MS)
    assert other.standing == ["hold-1"]
    await one.book.change(lambda rules: rules.pop(HOLD.id))
    await other.book.look()
    assert other.standing == []
    task.cancel()


async def test_changes_of_two_processes_are_both_kept(path: Path, clock: FakeClock) -> None:
    one, other = Process(path, clock), Process(path, clock)

    async def moving() -> None:
        while True:
            await clock.run_for(room._LOCK_MS)

    mover = asyncio.ensure_future(moving())
    await asyncio.gather(
        *(
            process.book.change(adding(each))
            for number in range(5)
            for process, each in ((one, rule("hold", number=number)), (other, rule("bounce", number=number)))
        )
    )
    mover.cancel()
    await one.book.look()
    assert len(one.standing) == 10


async def test_a_rule_ends_by_the_clock(
    path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    made = Process(path, clock, disk)
    await made.book.change(adding(HOLD, SUSPEND))
    disk.fail("rename", "*/rules.json", times=2)
    task = asyncio.ensure_future(made.book.run())
    await clock.run_for(HOUR - LOOK_MS)
    assert made.standing == ["hold-1", "suspend-1"]
    await clock.run_for(2 * LOOK_MS)
    assert made.standing == ["hold-1"]
    await clock.run_for(CLEAR_MS - 2 * LOOK_MS)
    assert b"suspend-1" in path.read_bytes()
    while b"suspend-1" in path.read_bytes():
        await clock.run_for(LOOK_MS)
    task.cancel()
    # Two could not be made.
    assert (disk.count("rename", "*/rules.json"), len(caplog.records)) == (4, 1)
    doubting = RuleBook(path, clock, lambda: False, made._apply)
    await doubting.load()
    assert list(doubting.rules) == ["hold-1"]


async def test_a_clock_that_is_set_right_loses_no_rule(path: Path, clock: FakeClock) -> None:
    made = Process(path, clock)
    await made.book.change(adding(SUSPEND))
    clock.leap(HOUR * 5 // 6)
    task = asyncio.ensure_future(made.book.run())
    await clock.run_for(HOUR // 2)
    assert made.standing == []
    clock.leap(-HOUR * 5 // 6)
    await clock.run_for(LOOK_MS)
    assert made.standing == ["suspend-1"]
    task.cancel()


async def test_a_clock_in_doubt_ends_no_rule_that_stands(path: Path, clock: FakeClock) -> None:
    made = Process(path, clock)
    await made.book.change(adding(HOLD, SUSPEND))
    clock.leap(3 * HOUR)
    await made.book.look()
    await made.book.change(lambda rules: rules.pop(HOLD.id))
    assert (made.standing, b"suspend-1" in path.read_bytes()) == (["suspend-1"], True)
    other = RuleBook(path, clock, lambda: False, made._apply)
    await other.load()
    assert list(other.rules) == ["suspend-1"]
    clock.leap(-3 * HOUR)
    clock.advance(HOUR)
    await made.book.look()
    assert made.standing == []


async def test_what_ended_before_the_doubt_does_not_stand_again(path: Path, clock: FakeClock) -> None:
    made = Process(path, clock)
    await made.book.change(adding(SUSPEND))
    clock.advance(HOUR)
    await made.book.look()
    clock.leap(3 * HOUR)
    await made.book.look()
    assert made.standing == []


async def test_a_start_without_readable_rules_fails(path: Path, clock: FakeClock) -> None:
    path.parent.mkdir()
    for content in (b"", b"{}", b'{"version": 9, "rules": []}', b'{"version": 1, "rules": [{"id": "x"}]}'):
        path.write_bytes(content)
        with pytest.raises(StoreDamaged, match=r"rules\.json"):
            await Process(path, clock).book.load()


async def test_damage_leaves_the_rules_that_stood(
    path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    made = Process(path, clock)
    await made.book.change(adding(HOLD))
    path.write_bytes(b"nonsense")
    await made.book.look()
    await made.book.look()
    assert made.standing == ["hold-1"]
    assert len(caplog.records) == 1
    with pytest.raises(DecodeError):
        await made.book.change(lambda rules: rules.clear())
    path.write_bytes(encode([SUSPEND]))
    await made.book.look()
    assert made.standing == ["suspend-1"]


async def test_a_file_that_cannot_be_looked_at_is_not_taken_as_none(
    path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    made = Process(path, clock)
    await made.book.change(adding(HOLD))
    kept = path.rename(path.with_name("kept.json"))
    path.symlink_to(path)
    await made.book.look()
    await made.book.look()
    assert (made.standing, len(caplog.records)) == (["hold-1"], 1)
    with pytest.raises(StoreUnavailable):
        await made.book.change(adding(SUSPEND))
    with pytest.raises(StoreDamaged):
        await Process(path, clock).book.load()
    with pytest.raises(StoreDamaged):
        read_rules(path, clock.now())
    kept.rename(path)
    await made.book.change(adding(SUSPEND))
    assert made.standing == ["hold-1", "suspend-1"]


async def test_a_rule_may_stand_before_it_is_recorded(path: Path, clock: FakeClock) -> None:
    disk = FaultyDisk()
    made = Process(path, clock, disk)
    disk.fail("rename", times=1)
    await made.book.add_now(HOLD)
    assert (made.standing, path.exists()) == (["hold-1"], False)
    await made.book.add_now(SUSPEND)
    await made.book.look()
    assert made.standing == ["hold-1", "suspend-1"]
    assert [each.id for each in read_rules(path, clock.now())] == ["suspend-1"]


async def test_rules_added_together_are_one_change(path: Path, clock: FakeClock) -> None:
    disk = FaultyDisk()
    made = Process(path, clock, disk)
    await made.book.add_now(*(rule("suspend", number=number) for number in range(50)))
    assert (len(made.standing), len(made.applied), disk.count("rename", "*/rules.json")) == (50, 1, 1)
    await made.book.change(adding(HOLD))
    before = dict(made.book.rules)
    await made.book.change(adding(rule("slow", connections=1)))
    assert all(made.book.rules[name] is each for name, each in before.items())


async def test_there_is_a_bound_on_rules(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MOST_RULES", 1)
    made = Process(path, clock)
    await made.book.change(adding(HOLD))
    with pytest.raises(DecodeError, match="1 rules stand already"):
        await made.book.change(adding(SUSPEND))


async def test_who_has_changed_what_is_kept(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MOST_HISTORY", 4)
    book = Process(path, clock).book
    await book.load()
    await book.change(adding(HOLD, SUSPEND), "uid:7")
    await book.change(lambda rules: rules.pop(HOLD.id), "uid:8")
    clock.advance(2 * HOUR)
    await book.look()
    slow = rule("slow", connections=1, by="uid:9", reason="too many")
    await book.change(adding(slow), "uid:9")
    notes = [json.loads(line) for line in path.with_name(room.HISTORY).read_text().splitlines()]
    assert [(each["event"], each.get("by"), each["rule"]["id"]) for each in notes] == [
        ("added", SUSPEND.by, "suspend-1"),
        ("cancelled", "uid:8", "hold-1"),
        ("added", "uid:9", "slow-1"),
        ("ended", None, "suspend-1"),
    ]
    assert notes[2]["rule"]["reason"] == "too many"

"""Refusals and connections: told as far as there is room, never more, never at anybody's cost."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqcd.core.events import BEST_EFFORT
from mqcd.core.model import Attempt, Phase
from mqcd.core.ports import Refusal
from mqcd.core.smtp.reply import Reply
from mqcd.disk.durable import Disk
from mqcd.eventlog.files import Source
from mqcd.eventlog.lossy import BURST, FILE_OCTETS, MAX_TEXT, RATE, WAIT_MS, LossyEvents
from mqcd.eventlog.lossy_files import Line, LossyFiles
from mqcd.eventlog.pseudonyms import Pseudonyms
from tests.contract import schema
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.disk import FaultyDisk

SOURCE = Source("node", 3)
REFUSAL = Refusal(
    reason="relay",
    reply=Reply(code=550, status="5.7.1", text="Not <bob@else.example>"),
    listener="smtp",
    client="192.0.2.9",
    sender="ann@here.example",
    recipient="bob@Else.example",
    session="smtp-1",
    command="GET",
    user="ann@here.example",
)
ATTEMPT = Attempt(
    destination="mx.else.example",
    zone="bulk",
    phase=Phase.CONNECT,
    remote_host="mx.else.example",
    remote_addr="192.0.2.25",
    source_addr="192.0.2.1",
    connect_ms=7,
)


class Told(LossyEvents):
    """Tells when it has tried to write, and knows what came of it."""

    def __init__(self, files: LossyFiles, clock: FakeClock, key: bytes) -> None:
        super().__init__(files, clock, key)
        self.tried = asyncio.Event()

    async def _flush(self) -> None:
        await super()._flush()
        self.tried.set()


class Bench:
    """One log, running."""

    def __init__(self, directory: Path, key: bytes = b"") -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.disk = FaultyDisk()
        self.files = LossyFiles(self.disk, directory, SOURCE, 0)
        self.log = Told(self.files, self.clock, key)

    async def minute(self) -> None:
        """Let a minute pass for what waits, and wait until it has been tried to write."""
        await self.waiting()
        self.clock.advance(WAIT_MS)
        await self.written()

    async def waiting(self) -> None:
        """Until it has seen what came, and waits for more."""
        async with asyncio.timeout(30):
            while not self.clock.sleepers:
                await asyncio.sleep(0)

    async def written(self) -> None:
        """Wait for the next try to write."""
        async with asyncio.timeout(30):
            await self.log.tried.wait()
        self.log.tried.clear()


@asynccontextmanager
async def running(directory: Path, key: bytes = b"") -> AsyncIterator[Bench]:
    bench = Bench(directory, key)
    task = asyncio.ensure_future(bench.log.run())
    yield bench
    bench.log.stop()
    async with asyncio.timeout(30):
        await task


def events(directory: Path) -> list[dict[str, Any]]:
    lines = [
        line
        for path in sorted(directory.glob("*.jsonl.gz"))
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    found = [json.loads(line) for line in lines]
    for event in found:
        assert schema.problems(event) == []
    assert len({event["id"] for event in found}) == len(found)
    return found


async def test_what_they_say(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        at = bench.clock.now()
        bench.log.refused(at, REFUSAL)
        bench.log.connected(at, ATTEMPT)
        bench.log.connect_failed(at, replace(ATTEMPT, source_addr="", zone=""), "Connection refused")
    assert [path.name for path in tmp_path.iterdir()] == [f"node-3-b{START_MS:013d}.jsonl.gz"]
    head = {"v": 1, "at": "2027-01-15T08:00:00.000Z"}
    way = {"destination": "mx.else.example", "site": "mx.else.example", "remote_host": "mx.else.example"}
    assert events(tmp_path) == [
        {
            **head,
            "id": f"node/3/b{START_MS}-1",
            "event": "refused",
            "reason": "relay",
            "listener": "smtp",
            "client": "192.0.2.9",
            "user": "ann@here.example",
            "sender": "ann@here.example",
            "recipient": "bob@Else.example",
            "domain": "else.example",
            "code": 550,
            "status": "5.7.1",
            "class": "policy",
            "reply": "Not <bob@else.example>",
            "session": "smtp-1",
            "command": "GET",
        },
        {
            **head,
            **way,
            "id": f"node/3/b{START_MS}-2",
            "event": "connected",
            "zone": "bulk",
            "remote_addr": "192.0.2.25",
            "source_addr": "192.0.2.1",
            "connect_ms": 7,
        },
        {
            **head,
            **way,
            "id": f"node/3/b{START_MS}-3",
            "event": "connect-failed",
            "remote_addr": "192.0.2.25",
            "reason": "Connection refused",
        },
    ]


async def test_with_a_key_nobody_is_named(tmp_path: Path) -> None:
    key = b"0123456789abcdef"
    async with running(tmp_path, key) as bench:
        bench.log.refused(0, replace(REFUSAL, command="From:alice@Exämple...."))
    [event] = events(tmp_path)
    assert "alice" not in str(event)
    assert len(event["command"]) == 32
    bob, ann = (Pseudonyms(key).address(each) for each in (REFUSAL.recipient, REFUSAL.sender))
    assert event["user"] == ann
    assert (event["sender"], event["recipient"], event["reply"]) == (ann, bob, f"Not <{bob}>")
    assert event["domain"] == "else.example"


async def test_together_they_have_every_field(tmp_path: Path) -> None:
    """Else the schema promises what nobody writes."""
    async with running(tmp_path) as bench:
        for _ in range(2000):
            bench.log.refused(0, REFUSAL)
            bench.log.connected(0, ATTEMPT)
            bench.log.connect_failed(0, ATTEMPT, "no")
        await bench.minute()
        bench.log.refused(0, REFUSAL)
        bench.log.connected(0, ATTEMPT)
        bench.log.connect_failed(0, ATTEMPT, "no")
    told = events(tmp_path)
    for verb in BEST_EFFORT:
        assert set().union(*(event for event in told if event["event"] == verb)) == set(schema.allowed(verb))


async def test_a_flood_is_cut_and_counted(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        for _ in range(5000):
            bench.log.refused(0, REFUSAL)
        await bench.minute()
        bench.log.refused(0, REFUSAL)
    *first, last = events(tmp_path)
    assert sum(len(json.dumps(event)) for event in first) < 2 * BURST
    assert last["left_out"] == 5000 - len(first)
    assert bench.log.missing == {"connect-failed": 0, "connected": 0, "refused": 5000 - len(first)}


async def test_in_the_long_run_a_verb_gets_its_share(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        for _ in range(60):
            for _ in range(1000):
                bench.log.refused(0, REFUSAL)
            await bench.minute()
    octets = sum(len(gzip.decompress(path.read_bytes())) for path in tmp_path.iterdir())
    assert octets < 2 * (BURST + RATE * 3600)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < octets / 4


async def test_one_verb_does_not_take_the_room_of_another(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        for _ in range(2000):
            bench.log.refused(0, REFUSAL)
        bench.log.connect_failed(0, ATTEMPT, "no")
    assert events(tmp_path)[-1]["event"] == "connect-failed"


async def test_what_a_stranger_says_is_cut(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        hostile = '\udc80\x00"\\\n' + "x" * 5000 + "@y.example"
        bench.log.refused(0, replace(REFUSAL, sender=hostile, reply=Reply(code=550, text=hostile)))
    [event] = events(tmp_path)
    assert (len(event["sender"]), len(event["reply"])) == (MAX_TEXT, MAX_TEXT)


async def test_what_is_no_text_has_a_hash_too(tmp_path: Path) -> None:
    async with running(tmp_path, b"0123456789abcdef") as bench:
        bench.log.refused(0, replace(REFUSAL, sender="\udc80@y.example"))
    [event] = events(tmp_path)
    assert len(event["sender"]) == 32


async def test_a_file_is_written_a_minute_after_its_first_event(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        bench.log.connected(0, ATTEMPT)
        await bench.waiting()
        await bench.clock.run_for(WAIT_MS - 1)
        assert list(tmp_path.iterdir()) == []
        bench.clock.advance(1)
        await bench.written()
        assert len(events(tmp_path)) == 1


async def test_much_does_not_wait(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        for _ in range(FILE_OCTETS // 100):
            bench.log.connected(0, ATTEMPT)
            bench.log.refused(0, REFUSAL)
        await bench.written()
        assert sum(len(json.dumps(event)) for event in events(tmp_path)) > FILE_OCTETS


async def test_nothing_is_written_while_nothing_happens(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.clock.run_for(10 * WAIT_MS)
    assert [call.operation for call in bench.disk.calls if call.operation != "names"] == []


async def test_nothing_is_ever_synced(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        bench.log.connected(0, ATTEMPT)
    assert not {"datasync", "sync_dir", "sync_filesystem"} & {call.operation for call in bench.disk.calls}
    assert bench.disk.count("rename") == 1


async def test_a_full_disk_is_logged_once_and_costs_events_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as bench:
        bench.disk.fail("pwritev", times=2, code=errno.ENOSPC)
        for _ in range(3):
            bench.log.refused(0, REFUSAL)
            await bench.minute()
    [event] = events(tmp_path)
    assert event["left_out"] == bench.log.missing["refused"] == 2
    assert caplog.text.count("No space left on device") == 1


async def test_below_minfree_nothing_is_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, disk = FakeClock(), Disk()
    log = LossyEvents(LossyFiles(disk, tmp_path, SOURCE, minfree=1 << 62), clock)
    log.refused(0, REFUSAL)
    log.stop()
    await log.run()
    assert list(tmp_path.iterdir()) == []
    assert "below minfree" in caplog.text


def lines(count: int) -> list[Line]:
    return [Line(verb, f'"event":"{verb}"}}') for verb in list(BEST_EFFORT)[:1] * count]


def test_numbers_go_on_behind_the_files_that_are_there(tmp_path: Path) -> None:
    LossyFiles(Disk(), tmp_path, SOURCE, 0).write(lines(1), 5000)
    again = LossyFiles(Disk(), tmp_path, SOURCE, 0)
    again.prepare()
    # The clock went back.
    again.write(lines(1), 1000)
    again.write(lines(1), 1000)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"node-3-b{number:013d}.jsonl.gz" for number in (5000, 5001, 5002)]


@pytest.mark.parametrize("keep", [0, 1, 20, -1])
def test_what_a_power_cut_has_torn_goes(tmp_path: Path, keep: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    files = LossyFiles(Disk(), tmp_path, SOURCE, 0)
    for number in (1, 2, 3):
        files.write(lines(3), number)
    torn = tmp_path / "node-3-b0000000000002.jsonl.gz"
    torn.write_bytes(torn.read_bytes()[:keep])
    (tmp_path / "node-3-b0000000000004.jsonl.gz.tmp").write_bytes(b"")
    others = [
        "node-30-b0000000000002.jsonl.gz",
        "node-3-0000000002.jsonl.gz",
        "node-3-0000000003.jsonl.gz.tmp",
    ]
    for name in others:
        (tmp_path / name).write_bytes(b"")
    LossyFiles(Disk(), tmp_path, SOURCE, 0).prepare()
    ours = {f"node-3-b{number:013d}.jsonl.gz" for number in (1, 3)}
    assert {path.name for path in tmp_path.iterdir()} == {*ours, *others}

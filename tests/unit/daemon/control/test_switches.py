"""Pauses: durable before they take effect, over restarts, and what each keeps from happening."""

from __future__ import annotations

import asyncio
import json
import smtplib
from functools import partial
from pathlib import Path

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Area
from mqcd.daemon.control.switches import Part, Switches
from mqcd.ops.http.server import Request
from tests.contract.mail import Post
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FaultyDisk
from tests.fakes.observer import RecordingObserver
from tests.fakes.store import MemoryStore
from tests.unit.daemon.support import Running, running

ASKED = Request(method="POST", path="/v1/pause", uid=7)


class Rig:
    """The switches of one process."""

    def __init__(self, path: Path, store: MemoryStore, clock: FakeClock) -> None:
        self.turned: list[tuple[Part, bool]] = []
        self.disk = FaultyDisk()
        turn = {part: partial(self._turn, part) for part in Part}
        self.switches = Switches(path, store, clock, lambda event, **fields: None, turn, self.disk)

    def _turn(self, part: Part, paused: bool) -> None:
        self.turned.append((part, paused))


@pytest.fixture
async def store() -> MemoryStore:
    made = MemoryStore(FakeClock(), RecordingObserver())
    await made.open()
    return made


async def test_a_pause_stands_over_a_restart(tmp_path: Path, store: MemoryStore) -> None:
    clock = FakeClock()
    first = Rig(tmp_path / "paused", store, clock)
    await first.switches.change(ASKED, {"part": "deliver", "paused": True, "reason": "disk"})
    assert first.turned == [(Part.DELIVER, True)]
    second = Rig(tmp_path / "paused", store, clock)
    second.switches.start()
    assert second.turned == [(Part.DELIVER, True)]
    [reason] = second.switches.reasons()
    assert reason.startswith("deliver is paused: by uid:7 since ")
    await second.switches.change(ASKED, {"part": "deliver", "paused": False})
    third = Rig(tmp_path / "paused", store, clock)
    third.switches.start()
    assert (second.turned[-1], third.turned, third.switches.reasons()) == ((Part.DELIVER, False), [], [])


async def test_a_pause_that_is_not_durable_takes_no_effect(tmp_path: Path, store: MemoryStore) -> None:
    rig = Rig(tmp_path / "paused", store, FakeClock())
    rig.disk.fail("rename", "*.json*")
    with pytest.raises(StoreUnavailable):
        await rig.switches.change(ASKED, {"part": "accept", "paused": True})
    assert rig.turned == []


def test_a_damaged_file_pauses_all_the_same(tmp_path: Path, store: MemoryStore) -> None:
    (tmp_path / "accept.json").write_bytes(b"\xff")
    rig = Rig(tmp_path, store, FakeClock())
    rig.switches.start()
    assert rig.turned == [(Part.ACCEPT, True)]


async def test_a_drain_ends_with_the_last_recipient(tmp_path: Path, store: MemoryStore) -> None:
    clock = FakeClock()
    rig = Rig(tmp_path / "paused", store, clock)
    await Post(store, clock).send("a@x.example")
    await rig.switches.change(ASKED, {"part": "accept", "paused": True})
    assert (rig.switches.state(ASKED, {})["waiting"], rig.switches.state(ASKED, {})["drained"]) == (1, False)
    empty = MemoryStore(clock, RecordingObserver())
    await empty.open()
    assert Rig(tmp_path / "paused", empty, clock).switches.state(ASKED, {})["drained"] is False


async def pause(house: Running, part: str, paused: bool) -> int:
    """Ask the running server; the status."""
    fields = {"part": part, "paused": paused}
    status, _ = await asyncio.to_thread(house.control.post, "/v1/pause", fields, 30)
    return status


async def test_while_accepting_is_paused_mail_gets_450(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        assert await pause(house, "accept", True) == 200
        with pytest.raises(smtplib.SMTPSenderRefused) as refused:
            await house.send("a@x.example")
        assert refused.value.smtp_code == 450
        status, text = await house.get("/readyz")
        assert (status, text.startswith("accept is paused: by uid:")) == (503, True)
        await pause(house, "accept", False)
        await house.send("a@x.example")
        await house.heard(Verb.DELIVERED)


async def test_while_delivery_is_paused_no_attempt_begins(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        # A connection rests: new mail would go straight to it.
        await house.send("a@x.example")
        await house.heard(Verb.DELIVERED)
        await pause(house, "deliver", True)
        attempts = house.observer.count(Verb.ATTEMPTED)
        await house.send("b@x.example", "c@x.example")
        rows = json.loads((await house.get("/v1/recipients"))[1])["rows"]
        while any(row["inflight"] for row in rows):
            rows = json.loads((await house.get("/v1/recipients"))[1])["rows"]
        assert house.server.store.stats()[Area.INCOMING].recipients == len(rows) == 2
        assert house.observer.count(Verb.ATTEMPTED) == attempts
        house.observer.news.clear()
        await pause(house, "deliver", False)
        while house.observer.count(Verb.DELIVERED) < 3:
            house.observer.news.clear()
            await house.observer.news.wait()


async def test_while_reporting_is_paused_bounces_wait(tmp_path: Path) -> None:
    async with running(tmp_path, rules=["b@x.example=550 5.1.1 no"]) as house:
        await pause(house, "report", True)
        await house.send("b@x.example")
        while not house.server.store.stats()[Area.BOUNCES].recipients:
            await asyncio.sleep(0)
        assert not house.observer.count(Verb.REPORTED)
        await pause(house, "report", False)
        while not house.observer.count(Verb.REPORTED):
            await asyncio.sleep(0)

"""`queue show`: a message that waits, one that is gone, and one that never was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mqcd.cli import main
from mqcd.core.events import format_time
from mqcd.core.model import Envelope, Settlement, Submission
from tests.contract.mail import deferred, delivered
from tests.unit.cli.queue.test_commands import HOUR, MINUTE, House
from tests.unit.cli.queue.test_commands import house as house


def shown(capfd: pytest.CaptureFixture[str], house: House, spid: str) -> dict[str, Any]:
    assert main([*house.words, "show", spid, "--json"]) == 0
    [line] = capfd.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


async def test_a_waiting_message_shows_all_of_it(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    spid = await house.put("eve@example.org", "fox@example.org", age=HOUR)
    claimed = [each for each in await house.store.claim(9, house.now) if f"{each.spid:016X}" == spid]
    await house.store.begin(claimed, "mx.example.org")
    eve, fox = claimed
    await house.store.settle([Settlement(recipient=eve, verdict=delivered())])
    await house.store.settle([Settlement(recipient=fox, verdict=deferred(house.now + MINUTE))])
    found = shown(capfd, house, spid)
    assert (found["spid"], found["sender"], found["origin"]) == (spid, "me@here.example", "smtp")
    assert found["received"] == format_time(house.now - HOUR)
    assert found["headers"] == [["Subject", "�t�"]]
    gone, waits = found["recipients"]
    assert (gone["recipient"], gone["area"], gone["last"]) == ("eve@example.org", None, "delivered")
    assert (gone["attempts"], gone["reply"]) == (1, "250 ok")
    assert (waits["area"], waits["last"], waits["attempts"]) == ("deferred", "deferred", 1)
    assert waits["due"] == format_time(house.now + MINUTE)
    assert [each["event"] for each in found["history"]] == [
        "accepted", "accepted", "attempted", "attempted", "delivered", "deferred",
    ]  # fmt: skip


async def test_a_message_that_is_gone_has_its_history(
    house: House, capfd: pytest.CaptureFixture[str]
) -> None:
    spid = await house.put("eve@example.org", age=HOUR)
    [eve] = [each for each in await house.store.claim(9, house.now) if f"{each.spid:016X}" == spid]
    await house.store.begin([eve], "mx.example.org")
    await house.store.settle([Settlement(recipient=eve, verdict=delivered())])
    await house.store.close()
    found = shown(capfd, house, spid)
    assert (found["sender"], found["headers"]) == ("me@here.example", None)
    assert [each["last"] for each in found["recipients"]] == ["delivered"]
    assert found["history"][-1]["event"] == "delivered"


async def test_people_see_each_part(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    spid = await house.put("eve@example.org", sender="", age=HOUR)
    assert main([*house.words, "show", spid]) == 0
    text = capfd.readouterr().out
    for part in (spid, "<>", "eve@example.org", "incoming", "Subject: ", "accepted"):
        assert part in text


async def test_a_message_nobody_knows_is_exit_code_1(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*house.words, "show", "0000000000000000"]) == 1
    said = capfd.readouterr()
    assert said.out == ""
    assert "0000000000000000" in said.err


async def test_a_folded_field_is_one_line(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    spid = house.store.reserve(False)
    envelope = Envelope(spid=spid, sender="", received=house.now)
    content = b"Received: from a\r\n\tby b;\r\n  now\r\nSubject:x\r\n\r\nbody: none\r\n"
    await house.store.enqueue(Submission(envelope=envelope, recipients=["a@b.example"], content=content))
    found = shown(capfd, house, f"{spid:016X}")
    assert found["headers"] == [["Received", "from a by b; now"], ["Subject", "x"]]

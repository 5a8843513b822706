"""Looks into the queue over the control socket, on a store in memory."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from mqcd.cli.queue.records import recipient_line
from mqcd.core.errors import DecodeError
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.control.api.binding import Missing
from mqcd.daemon.control.browsing import Browsing
from mqcd.daemon.control.records import recipient_row
from mqcd.daemon.control.resolving import as_it_is
from mqcd.ops.http.server import Answer, Request
from mqcd.queue.format import record
from tests.contract.mail import Post, deferred
from tests.fakes.clock import FakeClock
from tests.fakes.observer import RecordingObserver
from tests.fakes.store import MemoryStore

MINE = os.geteuid()


class Rig:
    """A store with mail."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock, RecordingObserver())
        self.post = Post(self.store, self.clock)
        self.browsing = Browsing(self.store, self.clock, as_it_is)

    async def listed(self, **given: object) -> dict[str, Any]:
        found = await self.browsing.recipients(Request(method="GET", path="/v1/recipients"), given)
        assert isinstance(found, dict)
        return found


def asked(spid: int, uid: int = MINE) -> Request:
    return Request(method="GET", path="/v1/messages/x", names={"spid": format_spid(spid)}, uid=uid)


@pytest.fixture
async def rig() -> Rig:
    made = Rig()
    await made.store.open()
    for number in range(3):
        await made.post.send(f"a{number}@x.example", f"b{number}@y.example")
        made.clock.advance(1000)
    return made


async def test_recipients_come_in_parts(rig: Rig) -> None:
    first = await rig.listed(limit=4)
    rest = await rig.listed(limit=4, after=first["next"])
    assert (len(first["rows"]), len(rest["rows"]), rest["next"]) == (4, 2, None)
    found = await rig.listed(where="domain = y.example", sort="age")
    assert [row["recipient"] for row in found["rows"]] == [f"b{number}@y.example" for number in range(3)]


async def test_a_condition_that_is_none_is_refused(rig: Rig) -> None:
    with pytest.raises(DecodeError, match=r"where: column 1"):
        await rig.listed(where="colour = red")


async def test_a_row_is_that_of_the_command(rig: Rig) -> None:
    claimed = await rig.post.claim_all()
    await rig.post.settle(deferred(rig.clock.now() + 1000), claimed[0])
    async for each in rig.store.scan(Selection()):
        line = recipient_line(record.verify(record.encode(each)), True)
        assert recipient_row(each, True) == json.loads(line)


async def test_a_count_is_exact(rig: Rig) -> None:
    found = await rig.browsing.count(Request(method="GET", path=""), {"where": "recipient ~ a*"})
    assert isinstance(found, dict)
    assert found["recipients"] == 3
    everything = await rig.browsing.count(Request(method="GET", path=""), {})
    areas = rig.browsing.areas(Request(method="GET", path=""), {})
    assert isinstance(areas, list)
    assert areas[0] == {"area": "incoming", **everything} if isinstance(everything, dict) else False


async def test_a_message_shows_its_header(rig: Rig) -> None:
    content = b"Subject: one\r\n two\r\nX-Odd: \xff\x1b[1m\r\n\r\nBody: no\r\n"
    [first, _] = await rig.post.send("c@x.example", "d@x.example", content=content)
    found = await rig.browsing.message(asked(first.spid), {})
    assert isinstance(found, dict)
    assert found["headers"] == [["Subject", "one two"], ["X-Odd", "\N{REPLACEMENT CHARACTER}\x1b[1m"]]
    assert [row["recipient"] for row in found["recipients"]] == ["c@x.example", "d@x.example"]
    assert found["envelope"]["size"] == len(content)


@pytest.mark.parametrize(("uid", "author"), [(MINE + 1, ""), (MINE, f"uid:{MINE + 1}")])
async def test_contents_are_for_few(rig: Rig, uid: int, author: str) -> None:
    [first] = await rig.post.send("c@x.example")
    request = Request(method="GET", path="", names={"spid": format_spid(first.spid)}, uid=uid, author=author)
    shown = await rig.browsing.message(request, {})
    assert isinstance(shown, dict)
    assert shown["headers"] is None
    assert (await rig.browsing.content(request, {})).status == 403


async def test_a_content_comes_as_it_is(rig: Rig) -> None:
    content = bytes(range(256)) * 1000
    [first] = await rig.post.send("c@x.example", content=content)
    answer = await rig.browsing.content(asked(first.spid), {})
    assert isinstance(answer, Answer)
    assert answer.chunks is not None
    assert answer.length == len(content)
    assert b"".join([chunk async for chunk in answer.chunks]) == content


async def test_a_message_that_is_gone_is_missing(rig: Rig) -> None:
    with pytest.raises(Missing):
        await rig.browsing.message(asked(1), {})

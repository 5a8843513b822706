"""/v1/lanes, /v1/destinations and /v1/stuck of a running server, and what their objects hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mqcd.core.events import Verb
from mqcd.core.smtp.reply import Reply
from mqcd.daemon.control.api.answers import WHY
from mqcd.daemon.control.rows import destination_rows, lane_rows, stuck_rows, why_slow
from mqcd.deliver.health.watchdog import Kind, Stuck
from mqcd.deliver.lanes.lane import LaneState
from mqcd.ops.last_replies import LastReply
from tests.unit.daemon.support import running

LANE = LaneState(
    name="mx.example/d.example via bulk",
    destination="mx.example",
    zone="bulk",
    waiting=3,
    connections=5,
    idle=1,
    window=5,
    suspended=False,
    probe_in_ms=0,
    rate_in_ms=250,
)


async def test_a_running_server_lists_its_lanes_and_what_is_stuck(tmp_path: Path) -> None:
    async with running(tmp_path, rules=["*=drop:connect"]) as house:
        await house.send("a@example.com")
        await house.heard(Verb.DEFERRED)
        status, text = await house.get("/v1/lanes")
        assert status == 200
        [lane] = json.loads(text)
        assert lane["name"] == lane["destination"] == f"127.0.0.1:{house.sink.port}"
        assert lane["suspended"] is True
        assert 0 < lane["probe_in_ms"] <= 60_000
        assert await house.get("/v1/stuck") == (200, "[]\n")


async def test_the_metric_counts_what_the_list_holds(tmp_path: Path) -> None:
    """With no patience to speak of: an attempt that the next hop does not answer is stuck at once."""
    async with running(tmp_path, rules=["*=stall:data"], deliver="<watchdog>1ms</watchdog>") as house:
        await house.send("a@example.com", "b@example.com")
        await house.heard(Verb.ATTEMPTED)
        rows: list[dict[str, object]] = []
        while not rows:
            rows = json.loads((await house.get("/v1/stuck"))[1])
        assert [(row["kind"], row["recipients"]) for row in rows] == [("attempt", 2)]
        metrics = (await house.get("/metrics"))[1]
        assert "\nmqcd_stuck_recipients 2.0\n" in metrics
        assert "\nmqcd_lanes 1.0\n" in metrics


def test_lanes_in_use_come_by_what_waits() -> None:
    idle = replace(LANE, name="idle", waiting=0, connections=0)
    more = replace(LANE, name="more", waiting=9)
    rows = lane_rows([LANE, idle, more])
    assert [row["name"] for row in rows] == ["more", LANE.name]
    assert rows[1] == {
        "name": "mx.example/d.example via bulk",
        "destination": "mx.example",
        "zone": "bulk",
        "waiting": 3,
        "connections": 5,
        "idle": 1,
        "window": 5,
        "suspended": False,
        "probe_in_ms": 0,
        "rate_in_ms": 250,
        "rule": "",
        "booked_in_ms": 0,
        "rest_in_ms": 0,
        "pace_ms": 0,
        "rates": (),
    }


def test_the_longest_stuck_comes_first() -> None:
    item = Stuck(kind=Kind.LANE, name="a", message="0" * 16, recipients=2, since_ms=5, why="slow")
    rows = stuck_rows([item, replace(item, name="b", since_ms=7)])
    assert [row["name"] for row in rows] == ["b", "a"]
    assert json.loads(json.dumps(rows[1])) == {
        "kind": "lane",
        "name": "a",
        "message": "0" * 16,
        "recipients": 2,
        "since_ms": 5,
        "why": "slow",
    }


def test_destinations_are_listed_with_lanes_oldest_mail_first() -> None:
    word = LastReply(900, Reply(code=450, status="4.2.1", text="busy"))
    dead = replace(LANE, destination="dead.example", waiting=0, connections=0, suspended=True, probe_in_ms=70)
    rows = destination_rows(
        [
            LANE,
            replace(LANE, zone="", waiting=4, rate_in_ms=0),
            dead,
            replace(dead, destination="other.example"),
        ],
        {"mx.example": 600, "gone.example": 100},
        {"mx.example": word, "nobody.example": word},
        1000,
    )
    assert [(row["destination"], row["oldest_ms"]) for row in rows] == [
        ("gone.example", 900),
        ("mx.example", 400),
        ("dead.example", None),
        ("other.example", None),
    ]
    assert rows[1] == {
        "destination": "mx.example",
        "oldest_ms": 400,
        "waiting": 7,
        "connections": 10,
        "idle": 2,
        "window": 10,
        "state": "open",
        "suspended": False,
        "probe_in_ms": 0,
        "rate_in_ms": 0,
        "rates": [],
        "reply": "450 4.2.1 busy",
        "reply_ms": 100,
        "rule": None,
        "why": "replies",
        "why_text": "its servers defer or refuse mail: 450 4.2.1 busy",
    }
    assert (rows[2]["suspended"], rows[2]["probe_in_ms"]) == (True, 70)
    assert (rows[0]["suspended"], rows[0]["reply"]) == (False, None)


def test_destinations_name_the_rule_that_concerns_them() -> None:
    slowed = replace(LANE, rule="slow-1")
    rows = destination_rows([LANE, slowed], {}, {}, 0, {"shop.example": "suspend-1"})
    found = {row["destination"]: (row["rule"], row["suspended"]) for row in rows}
    assert found == {"mx.example": ("slow-1", False), "shop.example": ("suspend-1", True)}


SAID = LastReply(900, Reply(code=450, status="4.2.1", text="busy"))


@pytest.mark.parametrize(
    ("lane", "last", "why"),
    [
        (replace(LANE, suspended=True, probe_in_ms=4000), SAID, "suspended"),
        (LANE, SAID, "rate"),
        (replace(LANE, rate_in_ms=0, window=4), SAID, "full"),
        (replace(LANE, rate_in_ms=0, window=4, pace_ms=9000), None, "slow"),
        (replace(LANE, rate_in_ms=0), SAID, "replies"),
        (replace(LANE, rate_in_ms=0), None, "waits"),
        (replace(LANE, waiting=0), None, "well"),
    ],
)
def test_why_a_destination_is_slow(lane: LaneState, last: LastReply | None, why: str) -> None:
    word, text = why_slow([lane], last)
    assert (word, text.startswith(WHY[why])) == (why, True)


async def test_a_running_server_lists_destinations_with_replies(tmp_path: Path) -> None:
    async with running(tmp_path, rules=["*=450 4.2.1 mailbox busy"]) as house:
        await house.send("a@example.com")
        await house.heard(Verb.DEFERRED)
        status, text = await house.get("/v1/destinations")
        assert status == 200
        [row] = json.loads(text)
        assert row["destination"] == f"127.0.0.1:{house.sink.port}"
        assert row["reply"] == "450 4.2.1 mailbox busy"
        assert row["oldest_ms"] >= 0

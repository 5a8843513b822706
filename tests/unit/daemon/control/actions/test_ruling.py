"""Rules of a running server: its pages, its commands, and what a restart and the end of a rule leave."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqcd.cli import main
from mqcd.cli import rule as command_room
from mqcd.core.events import Verb
from mqcd.core.model import Area
from mqcd.core.selecting.rules import RuleAction
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.control.actions import ruling
from mqcd.page.ui.rules import ACTIONS
from tests.unit.core.selecting.test_rules import rule
from tests.unit.daemon.support import Running, arrived, running

NOT_NOW = "*@slow.example=450 4.2.1 not now"
MEMORY = '<store class="memory"/>'


async def post(house: Running, path: str = "/v1/rules", **fields: Any) -> tuple[int, Any]:
    status, text = await asyncio.to_thread(house.control.post, path, fields, 30)
    return status, json.loads(text) if status == 200 else text


async def added(house: Running, **fields: Any) -> str:
    status, said = await post(house, **fields)
    assert status == 200, said
    return str(said["rule"]["id"])


async def listed(house: Running) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((await house.get("/v1/rules"))[1])
    return rows


async def command(house: Running, *words: str) -> int:
    return await asyncio.to_thread(main, ["-c", str(house.conf), *words])


async def held(house: Running, count: int) -> None:
    while house.server.store.stats()[Area.HELD].recipients != count:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("queue", ["", MEMORY])
async def test_a_hold_covers_waiting_and_new_mail_until_undone(tmp_path: Path, queue: str) -> None:
    async with running(tmp_path, rules=[NOT_NOW], queue=queue) as house:
        await house.send("a@slow.example")
        await house.heard(Verb.DEFERRED)
        name = await added(house, action="hold", where="domain = slow.example", reason="why")
        await held(house, 1)
        ended = await post(house, action="bounce", where="domain = slow.example", dry_run=True)
        assert ended[1]["matched"] == 0
        await house.send("b@slow.example")
        await house.send("c@here.example")
        await held(house, 2)
        await arrived(house.sink, 1)
        [row] = await listed(house)
        assert (row["id"], row["reason"], row["applied"]) == (name, "why", 1)
        status, said = await post(house, "/v1/rules/cancel", id=name)
        assert (status, said["stays"], said["undo"]) == (200, "held", f"mqcd queue undo {name}")
        assert await listed(house) == []
        assert house.server.store.stats()[Area.HELD].recipients == 2
        assert await command(house, "queue", "undo", name) == 0
        await held(house, 0)


async def test_a_dry_run_counts_and_adds_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, rules=[NOT_NOW]) as house:
        await house.send("a@slow.example", "b@slow.example")
        await house.heard(Verb.DEFERRED)
        for where in ("domain = slow.example", f'site = "127.0.0.1:{house.sink.port}"'):
            status, said = await post(house, action="suspend", where=where, dry_run=True)
            assert (status, said["rule"], said["matched"], len(said["sample"])) == (200, None, 2, 2)
        assert await listed(house) == []


async def test_rules_stand_after_a_restart_before_any_delivery(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        await added(house, action="suspend", where="sender = me@here.example", name="all of mine")
        await added(house, action="hold", where="sender = <>", **{"for": "1h"})
        await house.send("a@example.com")
        before = await listed(house)
    async with running(tmp_path) as house:
        await house.send("b@example.com", sender="other@here.example")
        await arrived(house.sink, 1)
        assert {row["id"]: row["where"] for row in before} == {
            row["id"]: row["where"] for row in await listed(house)
        }
        assert [each.recipients for each in house.arrived] == [("b@example.com",)]


async def test_a_resumed_destination_gets_its_mail_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        site = f"127.0.0.1:{house.sink.port}"
        name = await added(house, action="suspend", where=f'site = "{site}"')
        await house.send("a@example.com")
        rows: list[dict[str, Any]] = []
        while not rows:
            rows = json.loads((await house.get("/v1/destinations"))[1])
        assert [(row["destination"], row["suspended"], row["rule"]) for row in rows] == [(site, True, name)]
        await house.send("b@example.com")
        await post(house, "/v1/rules/cancel", id=name)
        await arrived(house.sink, 2)
        batch = json.loads((await house.get(f"/v1/batches?id=retry-{name}"))[1])
        assert (batch["action"], batch["by"]) == ("retry", "server")
        assert name in batch["reason"]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/rules", {}),
        ("/v1/rules", {"action": "hold", "where": "x = y"}),
        ("/v1/rules", {"action": "hold", "where": "age > 0s", "id": "hold-1"}),
        ("/v1/rules", {"action": "hold", "where": "age > 0s", "until": "2020-01-01T00:00:00Z"}),
        ("/v1/rules/cancel", {"id": "hold-1"}),
        ("/v1/rules/cancel", {}),
    ],
)
async def test_what_is_not_understood_changes_no_rule(
    tmp_path: Path, path: str, fields: dict[str, object]
) -> None:
    async with running(tmp_path) as house:
        status, said = await post(house, path, **fields)
        assert (status, await listed(house)) == (400, []), said


async def test_rules_are_counted_and_logged_with_their_author(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        name = await added(house, action="slow", where="domain = a.example", rate="1/s")
        assert '\nmqcd_rules{action="slow"} 1.0\n' in (await house.get("/metrics"))[1]
        await post(house, "/v1/rules/cancel", id=name)
        log = house.log.getvalue()
        for event in ("rule-added", "rule-cancelled"):
            assert f"event={event} rule={name} by=uid:" in log


async def test_commands_add_list_and_cancel_rules(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path) as house:
        add = ("rule", "add", "bounce", "--where", "sender = <>")
        assert await command(house, *add, "--dry-run") == 0
        assert capfd.readouterr().out == "waiting mail that comes under it: 0\n"
        assert await command(house, *add, "--until", "23:59", "--no-report", "--json") == 0
        rule = json.loads(capfd.readouterr().out)["rule"]
        assert (rule["report"], rule["until"][17:]) == (False, "00.000Z")
        assert await command(house, "rule", "ls") == 0
        assert capfd.readouterr().out.startswith(f"{rule['id']}  bounce  sender = <>")
        assert await command(house, "rule", "cancel", rule["id"]) == 0
        assert f"mqcd queue undo {rule['id']}" in capfd.readouterr().out
        assert await command(house, "rule", "cancel", rule["id"]) == 1
        assert await command(house, *add, "--for", "1h", "--until", "18:00") == 2
        await added(house, action="hold", where="sender = <>")
    assert await asyncio.to_thread(main, ["-c", str(house.conf), "rule", "ls", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["action"] == "hold"


async def test_a_reload_changes_the_grace_of_rules(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        await added(house, action="bounce", where="sender = me@here.example")
        settings = house.server.settings
        house.server.reload(replace(settings, queue=replace(settings.queue, grace=5000)))
        await house.send("a@example.com")
        while not house.server.store.stats()[Area.REMOVED].recipients:
            await asyncio.sleep(0.001)
        [each] = [each async for each in house.server.store.scan(Selection())]
        assert each.due - each.envelope.received < 3_600_000


BUSY = '<rules><rule match="421*" action="{}" for="1h"/></rules>'


@pytest.mark.parametrize("action", ["suspend", "slow"])
async def test_a_reply_makes_a_rule_that_can_be_cancelled(tmp_path: Path, action: str) -> None:
    said = ["*@busy.example=421 4.7.0 too many", "*=accept"]
    async with running(tmp_path, rules=said, deliver=BUSY.format(action)) as house:
        await house.send("a@busy.example")
        await house.heard(Verb.DEFERRED)
        rows: list[dict[str, Any]] = []
        while not rows:
            rows = await listed(house)
        [row] = rows
        assert (row["action"], row["by"]) == (action, "server")
        assert "421 4.7.0 too many" in row["reason"]
        assert row["where"] == f"site = 127.0.0.1:{house.sink.port}"
        await house.send("c@here.example")
        while not (await listed(house))[0]["applied"]:
            await asyncio.sleep(0.001)
        if action == "suspend":
            assert house.arrived == []
        await post(house, "/v1/rules/cancel", id=row["id"])
        await arrived(house.sink, 1)
        # The process that makes a rule logs it once it stands.
        while f"event=rule-added rule={row['id']} by=server" not in house.log.getvalue():
            await asyncio.sleep(0)


def test_each_action_is_in_all_tables_of_actions() -> None:
    actions = {each.value for each in RuleAction}
    assert set(command_room._ACTIONS) == set(ACTIONS) == actions
    changing = {each for each in RuleAction if rule(each.value).batch_action}
    assert ruling._STAYS.keys() == changing

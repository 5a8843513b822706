"""A door's rules are exchanged whole, or not at all; without a filter that is named no session begins."""

from __future__ import annotations

import asyncio
import ipaddress
from pathlib import Path
from typing import Any

import pytest

from mqcd.config.settings import ServerNetworkSettings
from mqcd.submit.esmtp.refusal import DoorRefused, Reason
from mqcd.submit.policy.rulemaking import Rulemaking
from mqcd.submit.policy.rules import Rules
from tests.fakes.handlers import Discarding, Optional
from tests.unit.submit.support import House, open_house, server

FAKES = "tests.fakes.handlers"
OUTSIDE, INSIDE = "192.0.2.1", "10.0.0.1"


def network(**settings: Any) -> Any:
    made: Any = ServerNetworkSettings
    return made(ip=(ipaddress.ip_network("10.0.0.0/8"),), **settings)


def rules_of(house: House, client: str = OUTSIDE) -> Rules:
    """Of a session that begins now."""
    return house.door.receive(client).dialogue.rules


def instance_of(rules: Rules) -> object:
    return None if rules.handler is None else rules.handler.instance


async def test_a_filter_that_cannot_be_made_leaves_the_old_one_with_its_options() -> None:
    first = server(filter=f"{FAKES}:Optional", filter_options=("a=1",))
    async with open_house(House(first)) as house:
        house.door.reload(server(filter=f"{FAKES}:Demanding"))
        assert isinstance(instance_of(rules_of(house)), Optional)
        house.door.reload(server(filter=f"{FAKES}:Optional", filter_options=("raise=",)))
        assert isinstance(instance_of(rules_of(house)), Optional)
        assert house.door.settings.server == first


async def test_a_list_that_cannot_be_read_leaves_a_network_its_filter(tmp_path: Path) -> None:
    async with open_house(House(server(remotenets=(network(filter=f"{FAKES}:Discarding"),)))) as house:
        house.door.reload(server(blacklist=tmp_path / "missing"))
        assert isinstance(instance_of(rules_of(house, INSIDE)), Discarding)


async def test_a_reload_that_fails_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "good").write_text(f"{OUTSIDE}\n")
    first = server(blacklist=tmp_path / "good", remotenets=(network(maxrecips=3),))
    async with open_house(House(first)) as house:
        for wrong in ({"blacklist": "missing"}, {"users": "missing"}):
            paths = {name: tmp_path / path for name, path in wrong.items()}
            house.door.reload(server(maxrecips=7, remotenets=(network(maxrecips=8),), **paths))
            assert house.door.settings.server == first
            assert rules_of(house, INSIDE).settings.maxrecips == 3
            with pytest.raises(DoorRefused, match="from your address"):
                house.door.receive(OUTSIDE)
        house.door.reload(server(maxrecips=7))
        assert rules_of(house).settings.maxrecips == 7


async def test_a_list_that_is_switched_on_with_another_that_is_missing_is_not_gone_by(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(f"{OUTSIDE}\n")
    off = server(blacklist=tmp_path / "list", blacklist_enabled=False)
    async with open_house(House(off)) as house:
        house.door.reload(server(blacklist=tmp_path / "missing"))
        assert not house.door.settings.server.blacklist_enabled
        house.door.reload(server(blacklist=tmp_path / "list"))
        with pytest.raises(DoorRefused):
            house.door.receive(OUTSIDE)


async def test_no_session_begins_before_the_filter_is_made() -> None:
    house = House(server(remotenets=(network(filter=f"{FAKES}:Discarding"),)))
    house.door.receive(OUTSIDE)
    with pytest.raises(DoorRefused) as refused:
        house.door.receive(INSIDE)
    assert (refused.value.reason, refused.value.reply.code) == (Reason.CLOSED, 421)


async def test_a_reload_while_the_files_are_first_read_stands() -> None:
    house = House(server(maxrecips=3, filter=f"{FAKES}:Discarding"))
    start = asyncio.ensure_future(house.door.start())
    await asyncio.sleep(0)
    house.door.reload(server(maxrecips=7))
    await start
    assert rules_of(house).settings.maxrecips == 7
    await house.door.stop()


@pytest.mark.parametrize(
    ("chore", "what"), [("files", "files are not looked at"), ("looking_up", "host names are not looked up")]
)
async def test_the_end_of_a_chore_by_a_fault_is_logged(
    chore: str, what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: Rulemaking) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Rulemaking, f"_keep_{chore}", fail)
    async with open_house(House(server())):
        pass
    [record] = [each for each in caplog.records if each.levelname == "CRITICAL"]
    assert f"listener test: {what} any more" in record.getMessage()
    assert record.exc_info

"""Selections on their way to a server, and `queue retry` on a running one."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.cli import main
from mqcd.core.errors import DecodeError
from mqcd.core.events import Verb
from mqcd.core.model import Area
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import parse_where
from mqcd.daemon.control.selections import parse_selection, selection_fields
from tests.unit.daemon.support import Running, running

NOT_NOW = "*@slow.example=450 4.2.1 not now"


async def retry(house: Running, *words: str) -> int:
    return await asyncio.to_thread(main, ["-c", str(house.conf), "queue", "retry", *words])


async def test_what_waits_is_tried_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path, rules=[NOT_NOW]) as house:
        await house.send("a@slow.example")
        await house.heard(Verb.DEFERRED)
        assert await retry(house, "--json", "--domain", "*.example", "--reason", "they are back") == 0
        done = json.loads(capfd.readouterr().out)
        assert (done["matched"], done["changed"], done["in_flight"]) == (1, 1, 0)
        while house.observer.count(Verb.DEFERRED) < 2:
            house.observer.news.clear()
            await house.observer.news.wait()
        [line] = [line for line in house.log.getvalue().splitlines() if "event=retry" in line]
        told = (
            f"batch={done['batch']}",
            f"by=uid:{os.getuid()}",
            "domain=*.example",
            'reason="they are back"',
        )
        assert all(each in line for each in told)


async def test_a_dry_run_and_no_match_try_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path, rules=[NOT_NOW]) as house:
        # What the server has logged at its start.
        capfd.readouterr()
        assert await retry(house) == 0
        assert capfd.readouterr().out == "nothing matches\n"
        await house.send("a@slow.example")
        await house.heard(Verb.DEFERRED)
        assert await retry(house, "--json", "--dry-run") == 0
        done = json.loads(capfd.readouterr().out)
        assert (done["batch"], done["matched"], done["sample"][0]["recipient"]) == (None, 1, "a@slow.example")
        assert await retry(house, "--sender", "other@*") == 0
        assert capfd.readouterr().out == "nothing matches\n"
        assert house.observer.count(Verb.ATTEMPTED) == 1


async def test_without_a_server_it_is_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path) as house:
        pass
    assert await retry(house) == 1
    assert "no server runs at" in capfd.readouterr().err


@pytest.mark.parametrize(
    "asked",
    [
        Selection(),
        Selection(
            area=Area.DEFERRED,
            spid=0x0123456789ABCDE0,
            sender="",
            recipient="a@*",
            domain="b.example",
            received_before=5,
            where=parse_where("age > 2h and not (sender = 'a b' or area = held)", 7),
            limit=7,
        ),
    ],
)
def test_a_selection_survives_its_way(asked: Selection) -> None:
    assert parse_selection(json.loads(json.dumps(selection_fields(asked)))) == asked


@pytest.mark.parametrize(
    "fields",
    [
        [],
        None,
        {"domian": "x"},
        {"limit": True},
        {"limit": -1},
        {"area": "nowhere"},
        {"spid": "12"},
        {"sender": None},
        {"where": "area = held"},
        {"now": 5},
        {"where": "area = there", "now": 5},
        {"where": "area = held", "now": "5"},
        {"where": "site = x", "now": 5},
    ],
)
def test_what_is_not_understood_is_refused(fields: object) -> None:
    with pytest.raises(DecodeError):
        parse_selection(fields)


NAMES = st.sampled_from(["area", "spid", "sender", "limit", "where", "now", "x"])
VALUES = st.none() | st.booleans() | st.integers() | st.text()


@given(VALUES | st.dictionaries(NAMES, VALUES))
def test_any_json_is_a_selection_or_a_decode_error(value: object) -> None:
    with suppress(DecodeError):
        assert isinstance(parse_selection(value), Selection)

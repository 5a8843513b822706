"""`explain`: by a running server over HTTP, and from the files of one that does not run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mqcd.cli import main
from mqcd.core.events import Verb
from mqcd.core.queueing.spid import format_spid
from tests.unit.daemon.support import running, settings_of, write_conf


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


async def test_a_running_server_tells_where_mail_goes_and_what_waits(tmp_path: Path) -> None:
    async with running(tmp_path, rules=["slow@*=450 4.2.1 not now"]) as house:
        await house.send("slow@example.com")
        await house.heard(Verb.DEFERRED)
        status, text = await house.get("/v1/explain?q=slow%40example.com")
        assert status == 200
        would, waits = rows(text)
        assert (would["waiting_for"], would["rule"]) == (None, "default relay")
        assert would["destination"] == f"127.0.0.1:{house.sink.port}"
        assert waits["waiting_for"].startswith("its next attempt in ")
        assert waits["waiting_for"].endswith(", after 450 4.2.1 not now from 127.0.0.1")
        assert waits["due"].endswith("Z")
        [again] = rows((await house.get(f"/v1/explain?q={waits['spid']}"))[1])
        assert {**again, "waiting_for": ""} == {**waits, "waiting_for": ""}
        would, waits = rows((await house.get("/v1/explain?q=Example.COM."))[1])
        assert (would["rule"], would["suppressed"]) == ("default relay", None)
        assert waits["recipient"] == "slow@example.com"


@pytest.mark.parametrize("asked", ["", "nonsense", "12345", "%00", "a@b@c", "0" * 16])
async def test_what_is_neither_gets_400_and_says_why(tmp_path: Path, asked: str) -> None:
    async with running(tmp_path) as house:
        status, text = await house.get(f"/v1/explain?q={asked}")
        assert status == 400
        assert "neither a SPID" in text or "is in the queue" in text


async def test_explain_asks_the_server_or_reads_the_files(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with running(tmp_path, rules=["slow@*=450 4.2.1 not now"]) as house:
        await house.send("slow@example.com")
        await house.heard(Verb.DEFERRED)
        [heard] = house.observer.of(Verb.DEFERRED)
        assert heard.recipient is not None
        spid = format_spid(heard.recipient.spid)
        sink, port = str(house.sink.port), str(house.server.ops_port)
        conf = write_conf(tmp_path, sink=sink, ops=port)
        words = ["-c", str(conf), "explain", "--json"]
        assert await asyncio.to_thread(main, [*words, spid]) == 0
        live = capfd.readouterr()
        assert live.err == ""
        assert await asyncio.to_thread(main, [*words, "nonsense"]) == 1
        assert "neither a SPID" in capfd.readouterr().err
    assert await asyncio.to_thread(main, [*words, spid]) == 0
    still = capfd.readouterr()
    assert "no server runs" in still.err
    [before], [after] = rows(live.out), rows(still.out)
    assert {**before, "waiting_for": ""} == {**after, "waiting_for": ""}
    assert await asyncio.to_thread(main, ["-c", str(conf), "explain", "other@example.com"]) == 0
    said = capfd.readouterr().out
    assert "default relay" in said
    assert f"goes to     127.0.0.1:{sink}" in said


def test_without_a_queue_an_address_is_explained_all_the_same(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    conf = write_conf(tmp_path, ops="1")
    assert settings_of(conf).ops.port == 1
    assert main(["-c", str(conf), "explain", "--json", "a@example.com", "--sender", "b@example.org"]) == 0
    [would] = rows(capfd.readouterr().out)
    assert (would["destination"], would["sender"]) == ("127.0.0.1:9", "b@example.org")
    assert main(["-c", str(conf), "explain", "0123456789ABCDEF"]) == 1
    assert "no recipient of message 0123456789ABCDEF" in capfd.readouterr().err

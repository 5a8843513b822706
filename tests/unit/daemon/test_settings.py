"""Settings under `ops` and `application` in a running server."""

from __future__ import annotations

import asyncio
import grp
import gzip
import json
import os
import socket
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqcd.config.settings import ServerNetworkSettings
from mqcd.core.events import Verb
from mqcd.daemon.derived import options_of, own_names, schedule_of
from mqcd.eventlog.retention import Retention
from mqcd.submit.policy.local import listener_of
from tests.fakes.certificates import Authority
from tests.unit.daemon.support import running, settings_of, write_conf


async def test_what_operators_are_reported_is_what_the_settings_say(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events, advice, key = tmp_path / "told", tmp_path / "advised", tmp_path / "key"
    advice.mkdir()
    (advice / "active.xml").write_text("<advice>this is none")
    key.write_bytes(b"0123456789abcdef")
    key.chmod(0o600)
    more = (
        '<metrics sites="0"/>'
        f'<events><rootpath>{events}</rootpath><hashkey file="{key}"/></events>'
        f"<advice><rootpath>{advice}</rootpath></advice>"
    )
    level = 'debug" format="json'
    async with running(tmp_path, node="other", level=level, ops_more=more) as house:
        await house.send("ann@example.com")
        await house.heard(Verb.DELIVERED)
        page = (await house.get("/metrics"))[1]
        assert f'site="127.0.0.1:{house.sink.port}"' not in page
        assert 'mqcd_site_verdicts_total{site="other",verdict="delivered"} 1.0' in page
    lines = [json.loads(line) for line in house.log.getvalue().splitlines()]
    assert any(line["level"] == "debug" for line in lines)
    assert str(advice / "active.xml") in caplog.text
    files = list(events.glob("other-*.jsonl.gz"))
    told = [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert {each["event"] for each in told} >= {"accepted", "delivered"}
    assert not any("ann@" in str(each) for each in told)


def test_event_files_are_kept_as_long_as_the_settings_say(tmp_path: Path) -> None:
    """What the queue makes of it: queue/test_retention."""
    limits = "<events><maxage>2d</maxage><maxsize>3M</maxsize></events>"
    settings = settings_of(write_conf(tmp_path, ops_more=limits))
    assert options_of(settings, schedule_of(settings)).retention == Retention(
        maxage=2 * 86_400_000, maxsize=3 << 20
    )


def test_a_name_that_one_network_sees_is_the_servers_own(tmp_path: Path) -> None:
    settings = settings_of(write_conf(tmp_path))
    [listener] = settings.submit.listeners
    base = listener.server
    network: Any = ServerNetworkSettings
    seen = [network(announcehost=name) for name in ("mx.example.net", None)]
    server = replace(base, announcehost="in.example.net", remotenets=tuple(seen))
    submit = replace(settings.submit, listeners=(replace(listener, server=server),))
    assert own_names(replace(settings, submit=submit)) >= {"mx.example.net", "in.example.net"}
    assert "" not in own_names(replace(settings, submit=submit))


def test_no_door_holds_mail_for_longer_than_the_queue(tmp_path: Path) -> None:
    settings = settings_of(write_conf(tmp_path))
    longest = schedule_of(settings).longest
    programs = listener_of(settings.submit.local, "mx.example.org")
    doors = [each.server for each in (*settings.submit.listeners, programs)]
    assert [each for each in doors if each.offers_hold and each.hold_max > longest] == []


async def test_operators_are_answered_under_known_names_alone(tmp_path: Path) -> None:
    async with running(tmp_path, ops_more="<hosts>Mail.internal</hosts>") as house:
        asked = {
            "mail.internal:9125": 200,
            "mx.example.org": 200,
            "n1": 200,
            "127.0.0.1": 200,
            "evil.example": 421,
        }
        assert {host: await status(house.server.ops_port, host) for host in asked} == asked
        conf = write_conf(tmp_path, sink=str(house.sink.port), ops_more="<hosts>evil.example</hosts>")
        assert house.server.reload(settings_of(conf)).applied == ("ops/hosts",)
        assert await status(house.server.ops_port, "evil.example") == 200


async def test_other_parts_do_not_go_by_what_a_door_refuses(tmp_path: Path) -> None:
    names, certificate = tmp_path / "names", Authority(tmp_path).sign("mx", "DNS:other.example")
    async with running(tmp_path) as house:
        server, old = house.server, house.server.settings
        [first] = old.submit.listeners
        block = replace(first.server, announcehost="other.example", blacklist=names)
        ssl = replace(first.ssl, certfile=(certificate,), keyfile=(certificate,))
        submit = replace(old.submit, listeners=(replace(first, server=block, ssl=ssl),))
        new, loaded = replace(old, submit=submit), server.tls.load(submit)
        for code, is_taken in ((421, False), (200, True)):
            server.reload(new, loaded)
            assert await status(server.ops_port, "other.example") == code
            # What is in use is not loaded again.
            assert (server.tls.load(submit)[first.name] is loaded[first.name]) == is_taken
            names.touch()


async def status(port: int, host: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


async def test_the_control_socket_is_where_and_whose_it_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "run" / "mqcd.sock"
    group = grp.getgrgid(os.getgid()).gr_name
    async with running(tmp_path, ops_more=f'<control path="{path}" group="{group}"/>'):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert path.stat().st_gid == os.getgid()
        assert not (tmp_path / "var" / "control.sock").exists()


async def test_operators_are_answered_at_their_address_alone(tmp_path: Path) -> None:
    async with running(tmp_path, interface="127.0.0.2") as house:
        for address, answers in (("127.0.0.2", True), ("127.0.0.1", False)):
            with socket.socket() as client:
                assert (client.connect_ex((address, house.server.ops_port)) == 0) is answers

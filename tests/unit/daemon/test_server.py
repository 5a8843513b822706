"""The composition as a whole: in one process, on ports of its own, with the sink as its next hop."""

from __future__ import annotations

import asyncio
import io
import json
import re
import smtplib
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from mqcd.core.errors import ConfigError
from mqcd.core.events import Verb
from mqcd.core.ports import Clock
from mqcd.daemon.advised import Adviser
from mqcd.daemon.server import Server
from mqcd.daemon.stopping import CUT_OFF_SECONDS, GRACE_MS, LIMITS, MAIL, MAILDROP, REPORTS, STOP_MS
from mqcd.deliver.service import SETTLE_GRACE_MS
from mqcd.net.clock import SystemClock
from mqcd.ops.log.log import Log
from mqcd.sendmail.main import SOCKET
from tests.fakes.clock import FakeClock
from tests.unit.daemon.support import Running, arrived, fetch, running, settings_of, write_conf


def bare_server(directory: Path, clock: Clock | None = None, **changes: str) -> Server:
    """One that was made, and no more."""
    settings = settings_of(write_conf(directory, **changes))
    clock = clock or SystemClock()
    return Server(settings, clock=clock, log_to=Log(clock, io.StringIO(), settings.ops.log))


async def test_mail_goes_in_and_out_and_is_reported(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        await house.send("ann@example.com", "bob@example.com")
        await arrived(house.sink, 1)
        (message,) = house.arrived
        assert message.recipients == ("ann@example.com", "bob@example.com")
        assert message.content.startswith(b"Received: from client.example ")
        assert message.content.endswith(b"Subject: hello\r\n\r\nWorld\r\n")
        await house.heard(Verb.DELIVERED)
        status, page = await house.get("/metrics")
        assert status == 200
        assert "mqcd_recipients_accepted_total 2.0" in page
        assert 'mqcd_queue_recipients{area="held"} 0.0' in page
        assert "mqcd_syncs_total" in page
        site = f"127.0.0.1:{house.sink.port}"
        for figure in (
            'mqcd_listener_recipients_total{listener="smtp"} 2.0',
            'mqcd_zone_delivered_total{tls="none",zone="-"} 2.0',
            f'mqcd_site_verdicts_total{{site="{site}",verdict="delivered"}} 2.0',
            f'mqcd_site_connections_total{{site="{site}"}} 1.0',
            'mqcd_replies_total{class="success",code="2xx",verdict="delivered"} 2.0',
            "mqcd_ledger_imbalance_recipients 0.0",
        ):
            assert f"\n{figure}\n" in page


async def test_configured_figures_exist_before_any_mail(tmp_path: Path) -> None:
    zones = '<zones><zone name="bulk"><match domain="example.com"/></zone></zones>'
    async with running(tmp_path, deliver=zones) as house:
        page = (await house.get("/metrics"))[1]
        for figure in (
            'mqcd_listener_messages_total{listener="smtp",tls="none"} 0.0',
            'mqcd_zone_verdicts_total{verdict="bounced",zone="bulk"} 0.0',
            'mqcd_zone_verdicts_total{verdict="bounced",zone="-"} 0.0',
            'mqcd_site_verdicts_total{site="other",verdict="deferred"} 0.0',
        ):
            assert f"\n{figure}\n" in page


async def test_each_end_is_a_line_of_an_audit_log(tmp_path: Path) -> None:
    audit = tmp_path / "var" / "logs" / "audit"
    async with running(
        tmp_path,
        rules=["*@no.example=550 5.1.1 no such user"],
        deliver='<audit rot="yearly">%DIRLOG%/audit/%Y%/delivered.log</audit>',
        report="<report><audit>%DIRLOG%/audit/failed.log</audit></report>",
    ) as house:
        await house.send("ann@no.example", "bob@example.com")
        await arrived(house.sink, 2)
    (year,) = [each for each in audit.iterdir() if each.is_dir()]
    delivered = (year / "delivered.log").read_text().splitlines()
    assert sorted(re.findall(r" recipient=(\S+)", "\n".join(delivered))) == [
        "bob@example.com",
        "me@here.example",
    ]
    (report,) = [line for line in delivered if " origin=report " in line]
    (failed,) = (audit / "failed.log").read_text().splitlines()
    assert " event=bounced " in failed
    assert " recipient=ann@no.example " in failed
    assert f" report={re.findall('spid=([0-9A-F]+)', report)[0]} " in failed


async def test_each_listener_is_reported_with_the_port_that_it_has(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        lines = [line.split(" ", 2)[2] for line in house.log.getvalue().splitlines()]
        assert lines == [
            f"event=listening name=smtp address=127.0.0.1 port={house.server.doors.all[0].port}",
            f"event=listening name=ops address=127.0.0.1 port={house.server.ops_port}",
            f"event=listening name=control address={house.server.settings.ops.control.path}",
            f"event=listening name=sendmail address={house.conf.parent.parent}/var/submit.sock",
            "event=ready",
        ]


async def test_what_is_for_commands_is_not_on_the_port(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        for path in (
            "/v1/lanes",
            "/v1/destinations",
            "/v1/stuck",
            "/v1/explain?q=a@example.com",
            "/v1/batches",
        ):
            assert (await asyncio.to_thread(fetch, house.server.ops_port, path))[0] == 404
        assert (await house.get("/v1/lanes"))[0] == 200
        for path in ("/metrics", "/healthz", "/readyz"):
            assert (await asyncio.to_thread(house.control.get, path, 30))[0] == 200
    assert not house.control.path.exists()


async def test_nothing_is_let_in_before_the_queue_is_open(tmp_path: Path) -> None:
    async with running(tmp_path, bind_only=True) as house:
        with pytest.raises(smtplib.SMTPSenderRefused) as refused:
            await house.send("ann@example.com")
        assert refused.value.smtp_code == 451
        assert (await house.get("/readyz")) == (503, "starting: the queue is not open yet\n")
        assert (await house.get("/metrics"))[0] == 503
        assert (await house.get("/healthz"))[0] == 200
        await house.server.open()
        assert (await house.get("/readyz")) == (200, "ok\n")
        await house.send("ann@example.com")
        await arrived(house.sink, 1)


async def test_it_is_not_ready_from_the_beginning_of_a_stop(tmp_path: Path) -> None:
    async with running(tmp_path, rules=["*=stall:dot"]) as house:
        await house.send("ann@example.com")
        await house.heard(Verb.ATTEMPTED)
        stop = asyncio.ensure_future(house.server.stop())
        await asyncio.sleep(0)
        assert (await house.get("/readyz")) == (503, "stopping\n")
        await house.sink.close()
        await stop
        with pytest.raises(ConnectionRefusedError):
            await house.get("/readyz")


async def test_it_is_not_ready_while_the_disk_is_too_full_for_mail(tmp_path: Path) -> None:
    async with running(tmp_path, queue="<minfree>1000000G</minfree>") as house:
        with pytest.raises(smtplib.SMTPSenderRefused) as refused:
            await house.send("ann@example.com")
        assert refused.value.smtp_code == 452
        status, text = await house.get("/readyz")
        assert status == 503
        assert re.search(r"/queue: \d+ octets .* minfree .* \d+\n", text)


async def test_a_stop_ends_its_parts_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        await house.server.stop()
        events = [line.split("event=")[1] for line in house.log.getvalue().splitlines() if "event=" in line]
        assert events[-2:] == ["stopping", "stopped"]
        assert "did not stop" not in house.log.getvalue()
        await house.server.stop()


async def test_the_queue_has_time_to_close_when_all_else_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, closed = FakeClock(), list[int]()
    server = bare_server(tmp_path, clock)

    async def hang(_grace: int = 0) -> None:
        await asyncio.Event().wait()

    async def close() -> None:
        await clock.sleep(500)
        closed.append(clock.monotonic())

    monkeypatch.setattr(server.deliverer, "stop", hang)
    monkeypatch.setattr(server.store, "close", close)
    server.guard.spawn(MAILDROP, hang())
    server.guard.spawn(REPORTS, hang())
    stop = asyncio.ensure_future(server.stop())
    while not stop.done():
        clock.advance(clock.next_wake() or 0)
        await asyncio.sleep(0)
    assert closed
    assert LIMITS[MAIL] > GRACE_MS + SETTLE_GRACE_MS
    assert clock.monotonic() <= STOP_MS < CUT_OFF_SECONDS * 1000


async def test_a_port_that_is_taken_names_the_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(ConfigError) as failed:
            async with running(tmp_path, port=port):
                pass
        place = f"{tmp_path}/conf/mqcd.xml:10: mta/submit/listeners/listener[1]"
        assert str(failed.value).startswith(f"{place}: cannot listen")
        assert f" port {port}: Address already" in str(failed.value)
        with pytest.raises(ConfigError) as failed:
            async with running(tmp_path, ops=port):
                pass
        assert str(failed.value).startswith(f"{tmp_path}/conf/mqcd.xml:19: ops: cannot listen")


async def test_nobody_is_served_before_it_listens(tmp_path: Path) -> None:
    """What it had root for, it still has by then."""
    server = bare_server(tmp_path)
    await server.bind()
    for port in (server.doors.all[0].port, server.ops_port):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
    await server.listen()
    for port in (server.doors.all[0].port, server.ops_port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
    await server.stop()


async def test_of_two_that_were_bound_to_a_port_one_may_listen(tmp_path: Path) -> None:
    first = bare_server(tmp_path)
    await first.bind()
    port = first.doors.all[0].port
    second = bare_server(tmp_path, port=str(port))
    await second.bind()
    await first.listen()
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}: "):
        await second.listen()
    await second.stop()
    await first.stop()


async def reload(house: Running, directory: Path, **changes: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    conf = write_conf(directory, **changes)
    told = house.server.reload(settings_of(conf))
    return told.applied, told.needs_restart


async def test_a_reload_lets_other_clients_in(tmp_path: Path) -> None:
    async with running(tmp_path, relay_clients="192.0.2.1") as house:
        with pytest.raises(smtplib.SMTPRecipientsRefused):
            await house.send("ann@example.com")
        sink = str(house.sink.port)
        applied, waits = await reload(house, tmp_path, sink=sink)
        assert (applied, waits) == (("mta/submit/listeners/listener[smtp]/server/relay_clients",), ())
        await house.send("ann@example.com")
        await arrived(house.sink, 1)


async def test_a_reload_changes_the_relay_the_delays_and_the_log(tmp_path: Path) -> None:
    async with running(tmp_path, retry_delays="1s") as house, running(tmp_path / "other") as other:
        sink = str(other.sink.port)
        told = await reload(house, tmp_path, sink=sink, retry_delays="5m", level="error")
        relays = [f"mta/deliver/relays/relay[127.0.0.1:{each.sink.port}]" for each in (house, other)]
        assert told == (("mta/queue/retry_delays", *relays, "ops/log@level"), ())
        await house.send("ann@example.com")
        await arrived(other.sink, 1)
        assert house.arrived == []
        assert "event=accepted" not in house.log.getvalue()


async def test_a_reload_takes_effect_at_the_open_and_not_in_a_stop(tmp_path: Path) -> None:
    delays = "mta/queue/retry_delays"
    async with running(tmp_path, bind_only=True) as house:
        sink = str(house.sink.port)
        assert await reload(house, tmp_path, sink=sink, retry_delays="5m") == ((delays,), ())
        await house.server.open()
        explained = json.loads((await house.get("/v1/explain?q=a@example.com"))[1])
        assert explained["schedule"]["retry_delays_ms"] == [300_000]
        await house.server.stop()
        assert await reload(house, tmp_path, sink=sink, retry_delays="6m") == ((), (delays,))


async def test_what_needs_a_restart_is_said_at_every_reload(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        for _ in range(2):
            sink = str(house.sink.port)
            told = await reload(house, tmp_path, sink=sink, node="n2", port="2525")
            assert told == ((), ("mta/submit/listeners/listener[smtp]@port", "ops/node"))


async def test_a_reload_names_what_a_door_refuses_and_the_next_tries_again(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        submit, names = house.server.settings.submit, tmp_path / "names"
        [first] = submit.listeners
        listener = replace(first, server=replace(first.server, maxrecips=7, blacklist=names))
        local = replace(submit.local, filter="absent:Filter")
        new = replace(submit, listeners=(listener,), local=local)
        here = "mta/submit/listeners/listener[smtp]/server"
        server = f"{here}/maxrecips", f"{here}/blacklist@file"
        told = house.server.reload(replace(house.server.settings, submit=new))
        assert (told.applied, sorted(told.refused)) == (
            (),
            sorted([*server, "mta/submit/local/filter@class"]),
        )
        assert house.server.settings.submit == submit
        names.touch()
        told = house.server.reload(replace(house.server.settings, submit=new))
        assert (sorted(told.applied), told.refused) == (sorted(server), ("mta/submit/local/filter@class",))


async def test_a_part_that_fails_is_reported(tmp_path: Path) -> None:
    async def fail() -> None:
        raise RuntimeError("a mistake")

    async with running(tmp_path) as house:
        house.server.guard.spawn("the failing one", fail())
        await house.server.guard.failed.wait()


async def test_a_read_only_server_shows_the_queue_and_takes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, rules=["*=450 4.2.1 later"]) as house:
        await house.send("ann@example.com")
        await house.heard(Verb.DEFERRED)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "var").rglob("*")}
    async with running(tmp_path, queue="<read_only>Y</read_only>") as house:
        status, page = await house.get("/metrics")
        assert status == 200
        assert 'mqcd_queue_recipients{area="deferred"} 1.0' in page
        status, page = await house.get("/readyz")
        assert (status, "read_only" in page) == (503, True)
        with pytest.raises(smtplib.SMTPSenderRefused) as refused:
            await house.send("bob@example.com")
        assert refused.value.smtp_code == 451
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "var").rglob("*")} == written


async def _reply_to_mail(path: Path) -> bytes:
    """What the door for local programs answers to MAIL."""
    reader, writer = await asyncio.open_unix_connection(path)
    await reader.readline()
    writer.write(b"HELO here\r\nMAIL FROM:<me@here.example>\r\n")
    await reader.readline()
    answer = await reader.readline()
    writer.close()
    return answer


async def test_programs_get_no_answer_of_their_own_to_a_full_disk(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        path = tmp_path / "var" / "submit.sock"
        assert (await _reply_to_mail(path)).startswith(b"250")
        house.server.doors.load.refusing = "the disk is full"
        assert (await _reply_to_mail(path)).startswith(b"452")


async def test_programs_wait_for_the_doors_to_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    look = Adviser.look

    async def looked(self: Adviser) -> None:
        answers.append(await _reply_to_mail(tmp_path / "var" / "submit.sock"))
        await look(self)

    monkeypatch.setattr(Adviser, "look", looked)
    async with running(tmp_path) as house:
        assert [answer[:3] for answer in answers] == [b"451"]
        assert (await _reply_to_mail(house.server.settings.submit.local.rootpath / SOCKET)).startswith(b"250")

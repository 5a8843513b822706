"""Page and API beside a real server: who gets in, whose name a change has, and what their end costs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from mqcd.core.queueing.spid import parse_spid, shard_of
from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server, children
from tests.e2e.kit.waiting import DEADLINE, poll

pytestmark = pytest.mark.needs("curl")

PAGE = '<page port="0"/>'
DEAD = (("", "127.0.0.1:1"),)


def curl(server: Server, path: str, *words: str, token: str = "") -> tuple[int, str]:
    """Status and body."""
    shown = ("-H", f"Authorization: Bearer {token}") if token else ()
    done = subprocess.run(
        ["curl", "-s", "-w", "\n%{http_code}", *shown, *words,
         f"http://127.0.0.1:{server.ports['page']}{path}"],
        capture_output=True, text=True, timeout=DEADLINE, check=True,
    )  # fmt: skip
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def started(server: Server) -> Server:
    """The server, once its page is served."""
    server.start()
    server.event("listening", name="page")
    return server


def token(server: Server, *roles: str) -> str:
    words = [word for role in roles for word in ("--role", role)]
    return server.command("token", "add", "-".join(roles), *words).strip()


def page_process(server: Server) -> int:
    """Process id of the page: of the server's child, or of that of the front process of several shards."""

    def found(pid: int) -> list[int]:
        below = [each for child in children(pid) for each in found(child)]
        return [*below, *(child for child in children(pid) if b"daemon.page" in command_line(child))]

    return poll(lambda: next(iter(found(server.pid)), None), "the page's process")


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def post(fields: Mapping[str, object]) -> tuple[str, ...]:
    return "-H", "Content-Type: application/json", "-d", json.dumps(fields)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_token_opens_what_its_role_says(make_server: MakeServer, shards: int) -> None:
    server = started(make_server(Plan(relays=DEAD, queue={"shards": shards}, ops=PAGE)))
    reader, operator = token(server, "read"), token(server, "operate")
    mail.send(server.port, mail.message("waits"), "a@b.test")
    assert curl(server, "/v1/areas")[0] == 401
    assert curl(server, "/")[0] == 303
    assert curl(server, "/v1/areas", "-H", "Host: evil.test", token=reader)[0] == 421
    status, body = curl(server, "/v1/recipients", token=reader)
    assert (status, [row["recipient"] for row in json.loads(body)["rows"]]) == (200, ["a@b.test"])
    hold = post({"action": "hold", "selection": {}, "reason": "a test"})
    assert curl(server, "/v1/batch", *hold, token=reader)[0] == 403
    assert curl(server, "/v1/batch", *hold, token=operator)[0] == 200
    [batch] = json.loads(curl(server, "/v1/batches", token=reader)[1])
    assert (batch["by"], batch["reason"]) == ("token:operate", "a test")
    described = json.loads(curl(server, "/v1/openapi.json", token=reader)[1])
    assert described["paths"]["/v1/batch"]["post"]["security"]
    server.command("token", "remove", "read")
    poll(lambda: curl(server, "/v1/areas", token=reader)[0] == 401, "a removed token being refused")
    assert server.stop() == 0
    log = json.dumps(server.lines.all())
    assert reader not in log
    assert operator not in log


def test_a_browser_logs_in(make_server: MakeServer, tmp_path: Path) -> None:
    server = started(make_server(Plan(relays=DEAD, ops=PAGE)))
    jar = str(tmp_path / "jar")
    shown = f"token={token(server, 'read')}"
    assert curl(server, "/login", "-c", jar, "--data-urlencode", shown)[0] == 303
    assert curl(server, "/", "-b", jar)[0] == 200
    assert curl(server, "/v1/areas", "-b", jar)[0] == 200
    assert curl(server, "/logout", "-b", jar, "-X", "POST")[0] == 403
    assert server.stop() == 0


def test_its_end_costs_no_mail(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(Plan(relays=[("", f"127.0.0.1:{receiver.port}")], ops=PAGE))
    server.faults_expected = lambda line: "the page's process has ended" in line.get("msg", "")
    first = page_process(started(server))
    os.kill(first, signal.SIGKILL)
    mail.send(server.port, mail.message("goes"), "a@b.test")
    receiver.to("a@b.test")
    second = poll(lambda: (now := page_process(server)) != first and now, "another process")
    assert curl(server, "/")[0] == 303
    server.kill()
    poll(lambda: not command_line(second), "the page's end with its server")


def test_by_hand_it_says_that_the_server_is_down(make_server: MakeServer) -> None:
    server = make_server(Plan(relays=DEAD, ops='<page enabled="N" port="0" open="Y"/>'))
    words = ["-m", "mqcd", "page", "-c", str(server.conf), "--var", str(server.var)]
    with subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = json.loads(process.stderr.readline())
        server.ports["page"] = line["port"]
        status, body = curl(server, "/")
        assert (status, "no server runs at" in body) == (503, True)
        assert curl(server, "/v1/areas")[0] == 503
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0


def test_live_events_pass_as_they_come(make_server: MakeServer) -> None:
    server = started(make_server(Plan(relays=DEAD, ops=PAGE)))
    words = ["curl", "-sN", "-H", f"Authorization: Bearer {token(server, 'read')}"]
    address = f"http://127.0.0.1:{server.ports['page']}/v1/events"
    with subprocess.Popen([*words, address], stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert following.stdout.readline().startswith(":")
        mail.send(server.port, mail.message("is seen"), "a@b.test")
        seen = next(line for line in following.stdout if line.startswith("data:"))
        assert json.loads(seen.removeprefix("data:"))["recipient"] == "a@b.test"
        assert server.stop() == 0
        assert following.wait(DEADLINE) == 0


def test_a_batch_stays_held_until_it_is_released(make_server: MakeServer, receiver: Receiver) -> None:
    senders = '<senders><sender user="token:inject" addresses="*"/></senders>'
    plan = Plan(relays=relay(receiver.port), queue={"shards": 2}, ops=PAGE, local=senders)
    server = started(make_server(plan))
    injector, operator = token(server, "inject"), token(server, "operate")
    for number in range(6):
        message = {"from": "me@here.test", "to": [f"a{number}@b.test"], "content": "Subject: x\n\ny\n"}
        body = post({**message, "hold": "spring-7" if number < 4 else "other", "key": f"k{number}"})
        status, said = curl(server, "/v1/messages", *body, token=injector)
        assert (status, json.loads(said)["recipients"][0]["accepted"]) == (200, True), said
    held = json.loads(curl(server, "/v1/recipients?where=area+%3D+held", token=operator)[1])["rows"]
    assert {shard_of(parse_spid(row["spid"])) for row in held} == {0, 1}
    assert curl(server, "/v1/count?where=hold+%3D+spring-7", token=operator)[1].startswith('{"recipients":4')
    now = int(time.time() * 1000)
    order = {"selection": {"where": "hold = spring-7", "now": now}, "reason": "checked"}
    assert curl(server, "/v1/batch", *post({"action": "release", **order}), token=operator)[0] == 200
    for number in range(4):
        receiver.to(f"a{number}@b.test")
    order["selection"] = {"where": "hold = other", "now": now}
    assert curl(server, "/v1/batch", *post({"action": "remove", **order}), token=operator)[0] == 200
    server.metric("mqcd_queue_recipients{held}", 0)
    assert receiver.count("a4@b.test") == 0
    assert server.stop() == 0

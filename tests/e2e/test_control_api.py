"""What the API asks of a server of two shards: everything over the control socket, as of one server."""

from __future__ import annotations

import json
import smtplib
import socket
from typing import Any

import pytest
from openapi_spec_validator import validate

from tests.e2e.conftest import MakePeer, MakeServer
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Script
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import DEADLINE, poll

COUNT = 12


def get(server: Server, path: str) -> Any:
    status, text = server.page(path)
    assert status == 200, text
    return json.loads(text)


def post(server: Server, path: str, **fields: object) -> Any:
    status, text = server.control.post(path, fields, DEADLINE)
    assert status == 200, text
    return json.loads(text)


def send(server: Server, number: int) -> None:
    with smtplib.SMTP("127.0.0.1", server.port, timeout=DEADLINE) as client:
        client.sendmail("me@here.test", [f"r{number}@there.test"], b"Subject: s\r\n\r\nb\r\n")


def listed(server: Server, query: str) -> list[str]:
    """The recipients of all parts."""
    found: list[str] = []
    after = ""
    while True:
        part = get(server, f"/v1/recipients?limit=5{query}{after}")
        found += [row["recipient"] for row in part["rows"]]
        if part["next"] is None:
            return found
        after = f"&after={part['next']}"


def test_two_shards_are_one_api(make_server: MakeServer, make_peer: MakePeer) -> None:
    peer = make_peer(Script(dot="450 4.2.1 not now"))
    plan = Plan(relays=relay(peer.port), queue={"shards": 2, "retry_delays": "1h"})
    server = make_server(plan).start()
    validate(get(server, "/v1/openapi.json"))
    listener = socket.socket(socket.AF_UNIX)
    with listener:
        listener.settimeout(DEADLINE)
        listener.connect(str(server.var / "control.sock"))
        listener.sendall(b"GET /v1/events?verb=accepted HTTP/1.1\r\nHost: x\r\n\r\n")
        stream = listener.makefile("rb")
        while b": listening" not in stream.readline():
            pass
        for number in range(COUNT):
            send(server, number)
        heard = 0
        while heard < COUNT:
            heard += stream.readline().startswith(b"event: accepted")
    names = sorted(f"r{number}@there.test" for number in range(COUNT))
    assert sorted(listed(server, "")) == sorted(listed(server, "&sort=age")) == names
    assert get(server, "/v1/count?where=domain+%3D+there.test")["recipients"] == COUNT
    first = get(server, "/v1/recipients?limit=1")["rows"][0]
    assert get(server, f"/v1/messages/{first['spid']}")["history"][0]["event"] == "accepted"
    assert server.page(f"/v1/messages/{first['spid']}/content")[1].endswith("Subject: s\r\n\r\nb\r\n")

    poll(lambda: not [row for row in get(server, "/v1/recipients")["rows"] if row["inflight"]], "rest")
    held = post(server, "/v1/batch", action="hold", reason="why", selection={})
    poll(lambda: get(server, f"/v1/batches?id={held['batch']}")["done"], "the end of the batch")
    [row] = get(server, "/v1/batches")
    assert (row["changed"], row["reason"], row["undo"]) == (COUNT, "why", True)
    areas = {row["area"]: row["recipients"] for row in get(server, "/v1/areas")}
    assert areas["held"] == COUNT

    post(server, "/v1/pause", part="accept", paused=True, reason="moving")
    with pytest.raises(smtplib.SMTPSenderRefused):
        send(server, COUNT)
    assert server.stop() == 0
    server.start()
    state = get(server, "/v1/state")
    assert [part["reason"] for part in state["parts"] if part["paused"]] == ["moving"]
    assert get(server, "/v1/batches")[0]["batch"] == held["batch"]
    assert server.page("/readyz")[0] == 503
    post(server, "/v1/pause", part="accept", paused=False)
    send(server, COUNT)
    assert post(server, "/v1/loglevel", level="debug")["level"] == "debug"
    assert server.stop() == 0

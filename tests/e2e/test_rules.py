"""Standing rules over shards: one file for all, kept over a kill, and mail that is tried when they end."""

from __future__ import annotations

import json

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.ledger import stopped
from tests.e2e.kit.load import Load
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server

SHARDS = 2
SENT = 24


def add(server: Server, *words: str) -> str:
    return str(json.loads(server.command("rule", "add", *words, "--json"))["rule"]["id"])


def test_rules_stand_over_shards_and_kills(make_server: MakeServer, receiver: Receiver) -> None:
    plan = Plan(relays=relay(receiver.port), queue={"shards": SHARDS, "retry_delays": "500ms"})
    server = make_server(plan).start()
    server.faults_expected = lambda line: "the supervisor has ended" in str(line)
    hold = add(server, "hold", "--where", "recipient ~ load-1-*", "--reason", "first")
    suspend = add(server, "suspend", "--where", "domain = load.test")
    with Load(server.port, 4, mail.message) as load:
        load.more(SENT)
    sent = load.acknowledged.all()
    held = [each for each in sent if each.startswith("load-1-")]
    server.metric("mqcd_queue_recipients{held}", len(held))
    assert server.metrics()["mqcd_recipients_delivered_total"] == 0
    server.kill()
    server.start()
    rows = [json.loads(line) for line in server.command("rule", "ls", "--json").splitlines()]
    assert {row["id"]: row["reason"] for row in rows} == {hold: "first", suspend: ""}
    server.command("rule", "cancel", suspend)
    for recipient in set(sent) - set(held):
        receiver.to(recipient)
    retries = [each for each in json.loads(server.page("/v1/batches")[1]) if each["action"] == "retry"]
    assert [(each["batch"], each["by"]) for each in retries] == [(f"retry-{suspend}", "server")]
    assert server.metrics()["mqcd_queue_recipients{held}"] == len(held)
    undo = json.loads(server.command("rule", "cancel", hold, "--json"))["undo"].split()
    server.command(*undo[1:])
    for recipient in held:
        receiver.to(recipient)
    assert stopped(server).unfinished() == set()

"""Operators' actions by the commands, on a live server: each takes effect, is undone, outlives kill -9."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import poll

COUNT = 30
SOON = {"seal_age": "1s", "evacuate_age": "1s"}


def act(server: Server, *words: str) -> dict[str, object]:
    done: dict[str, object] = json.loads(server.command("queue", words[0], "--json", *words[1:]))
    return done


def areas(server: Server) -> dict[str, int]:
    rows = [json.loads(line) for line in server.command("queue", "stat", "--json").splitlines()]
    return {row["area"]: row["recipients"] for row in rows if row["recipients"]}


def waiting(make_server: MakeServer, dead: Receiver, receiver: Receiver, shards: int) -> Server:
    """A server with mail for a dead host, `keep0@dead.test` and so on."""
    dead.down()
    relays = (("dead.test", f"127.0.0.1:{dead.port}"), ("", f"127.0.0.1:{receiver.port}"))
    queue = {"retry_delays": "1h", "shards": str(shards), "grace": "1h"}
    server = make_server(Plan(relays=relays, queue=queue, journal=SOON)).start()
    for number in range(COUNT):
        name = "spam" if number % 3 == 0 else "keep"
        mail.send(server.port, mail.message(f"{name} {number}"), f"{name}{number}@dead.test")
    server.metric("mqcd_queue_recipients{deferred}", COUNT)
    return server


@pytest.mark.parametrize("shards", [1, 3])
def test_actions_take_effect_and_are_undone(
    make_server: MakeServer, make_receiver: MakeReceiver, receiver: Receiver, shards: int
) -> None:
    dead = make_receiver()
    server = waiting(make_server, dead, receiver, shards)
    before = sorted(server.queue_ls(), key=lambda row: str(row["recipient"]))

    counted = act(server, "remove", "--dry-run", "--recipient", "spam*")
    assert (counted["batch"], counted["changed"]) == (None, COUNT // 3)
    removed = act(server, "remove", "--recipient", "spam*", "--reason", "a wave of spam")
    assert removed["changed"] == COUNT // 3
    assert areas(server) == {"deferred": COUNT * 2 // 3, "removed": COUNT // 3}
    line = server.event("remove", batch=removed["batch"])
    assert line["reason"] == "a wave of spam"
    assert str(line["by"]).startswith("uid:")
    held = act(server, "hold", "--where", "recipient ~ keep*")
    assert areas(server) == {"held": COUNT * 2 // 3, "removed": COUNT // 3}

    server.faults_expected = lambda line: "supervisor has ended" in str(line)
    server.kill()
    server.start()
    assert areas(server) == {"held": COUNT * 2 // 3, "removed": COUNT // 3}
    assert act(server, "undo", str(removed["batch"]))["changed"] == COUNT // 3
    assert act(server, "undo", str(held["batch"]))["changed"] == COUNT * 2 // 3
    after = sorted(server.queue_ls(), key=lambda row: str(row["recipient"]))
    assert after == before

    moved = act(server, "redirect", "--to", f"127.0.0.1:{receiver.port}", "--recipient", "keep*")
    assert moved["changed"] == COUNT * 2 // 3
    act(server, "reschedule", "--in", "0s", "--recipient", "keep*")
    for number in (each for each in range(COUNT) if each % 3):
        receiver.to(f"keep{number}@dead.test")
    assert server.stop() == 0


def test_bounced_mail_is_reported_after_its_grace(
    make_server: MakeServer, make_receiver: MakeReceiver, receiver: Receiver
) -> None:
    dead = make_receiver()
    dead.down()
    relays = (("dead.test", f"127.0.0.1:{dead.port}"), ("", f"127.0.0.1:{receiver.port}"))
    plan = Plan(relays=relays, queue={"retry_delays": "1h", "grace": "1ms"}, journal=SOON)
    server = make_server(plan).start()
    mail.send(server.port, mail.message("one"), "one@dead.test", sender="author@alive.test")
    server.metric("mqcd_queue_recipients{deferred}", 1)
    assert act(server, "bounce", "--reason", "customer left")["changed"] == 1
    report = receiver.to("author@alive.test")
    assert "customer left" in str(report)
    server.metric("mqcd_queue_recipients{removed}", 0)
    assert server.stop() == 0


def test_an_action_follows_mail_in_flight_over_a_kill(
    make_server: MakeServer, make_receiver: MakeReceiver
) -> None:
    receiver = make_receiver("*=stall:dot")
    server = make_server(Plan(relays=relay(receiver.port))).start()
    mail.send(server.port, mail.message("one"), "one@far.test")
    poll(lambda: any(row["inflight"] for row in server.queue_ls()), "an attempt")
    done = act(server, "hold", "--reason", "why")
    assert (done["changed"], done["in_flight"]) == (0, 1)
    server.kill()
    receiver.follow()
    server.start()
    server.metric("mqcd_queue_recipients{held}", 1)
    assert server.metrics()["mqcd_recipients_delivered_total"] == 0
    assert act(server, "undo", str(done["batch"]))["changed"] == 1
    receiver.to("one@far.test")
    assert server.stop() == 0

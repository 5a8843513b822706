"""A queue of several shards: one server to its clients, and each process may die by itself."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import signal
import smtplib
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from mqcd.config.checks.complete import SLAVE_CONNECTIONS
from mqcd.core.queueing.spid import parse_spid, shard_of
from tests.e2e.conftest import MakePeer, MakeReceiver, MakeServer, MakeSmall
from tests.e2e.kit import mail
from tests.e2e.kit.ledger import arrivals, stopped
from tests.e2e.kit.load import Load
from tests.e2e.kit.plan import Plan, Values, relay
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.receivers import Receiver, Script
from tests.e2e.kit.server import ROOT, Server, children
from tests.e2e.kit.waiting import DEADLINE, poll

SHARDS = 3
JOURNAL: Values = {
    "segmentsize": "256K",
    "segments": 6,
    "inline_max": "16K",
    "seal_age": "300ms",
    "evacuate_age": "1s",
}


def shard(content: bytes) -> int:
    """The shard that accepted a message that has come."""
    return shard_of(parse_spid(mail.spid_of(content)))


def plan(port: int, shards: int = SHARDS, **queue: str | int) -> Plan:
    return Plan(
        relays=relay(port),
        smtp_port=free_port(),
        journal=JOURNAL,
        queue={"shards": shards, "retry_delays": "500ms", **queue},
    )


def content(token: str) -> bytes:
    return mail.message(token, lines=600 if token.endswith("0") else 20)


def stat(server: Server) -> str:
    command = [sys.executable, "-m", "mqcd", "queue", "stat", "--json", "-c", str(server.conf)]
    done = subprocess.run(
        [*command, "--var", str(server.var)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_one_server_to_clients_and_operators(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(plan(receiver.port)).start()
    with Load(server.port, 6, content) as load:
        load.more(150)
    for recipient in load.acknowledged.all():
        arrived = receiver.to(recipient)
        assert mail.sent_part(arrived.content) == content(recipient.removesuffix("@load.test"))
    server.metric("mqcd_queue_recipients{incoming}", 0)
    assert server.page("/readyz") == (200, "ok\n")
    figures = server.metrics()
    assert figures["mqcd_recipients_accepted_total"] == len(load.acknowledged.all())
    assert figures["mqcd_ledger_imbalance_recipients"] == 0
    server.shards(SHARDS)
    used = {shard(each.content) for each in receiver.mail.all()}
    assert len(used) > 1, "one shard took it all"
    ledger = stopped(server)
    assert ledger.unfinished() == set()
    assert len({event["id"].split("/")[1] for event in ledger.events}) == len(used)


DEFAULT = ""
"""An empty element has the default."""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor is one shard")
def test_a_queue_of_one_shard_gets_more_at_a_restart(
    make_server: MakeServer, make_receiver: MakeReceiver
) -> None:
    later = make_receiver("*=450 4.2.1 later")
    one = plan(later.port, 1, retry_delays="1h")
    server = make_server(one).start()
    with Load(server.port, 6, content) as load:
        load.more(30)
    sent = len(load.acknowledged.all())
    server.metric("mqcd_queue_recipients{deferred}", sent)
    assert server.stop() == 0
    server.write(one.but(queue={"shards": DEFAULT}))
    server.start()
    assert len(server.shards(server.plan.processes)) > 1
    assert recipients(server) == sent
    with Load(server.port, 6, content) as more:
        more.more(30)
    sent += len(more.acknowledged.all())
    server.metric("mqcd_queue_recipients{deferred}", sent)
    later.follow()
    server.command("queue", "retry")
    for recipient in [*load.acknowledged.all(), *more.acknowledged.all()]:
        later.to(recipient)
    assert stopped(server).unfinished() == set()


def test_on_one_processor_the_default_is_one_process(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(plan(receiver.port).but(queue={"shards": DEFAULT}))
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        server.start()
    finally:
        os.sched_setaffinity(0, before)
    mail.send(server.port, mail.message("one"), "a@load.test")
    receiver.to("a@load.test")
    assert children(server.pid) == [server.helper()]
    server.stop()


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    poll(lambda: not os.path.exists(f"/proc/{pid}"), "its end")


def kill_one(server: Server) -> None:
    end(server.shards(SHARDS)[-1])


def kill_a_helper(server: Server) -> None:
    end(server.helper(server.shards(SHARDS)[0]))


def kill_the_front(server: Server) -> None:
    workers = server.shards(SHARDS)
    [front] = [pid for pid in children(server.pid) if pid not in workers]
    end(front)


def kill_the_supervisor(server: Server) -> None:
    everyone = children(server.pid)
    server.kill()
    poll(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in everyone) or None, "their end")
    server.start()


def kill_all(server: Server) -> None:
    everyone = children(server.pid)
    for pid in [server.pid, *everyone]:
        os.kill(pid, signal.SIGKILL)
    server.kill()
    server.start()


def kill_one_after_the_other(server: Server) -> None:
    for kill in (kill_one, kill_the_front, kill_a_helper, kill_one):
        kill(server)


@pytest.mark.crash
@pytest.mark.parametrize(
    "kill",
    [kill_one, kill_a_helper, kill_the_front, kill_one_after_the_other, kill_the_supervisor, kill_all],
    ids=lambda kill: kill.__name__,
)
def test_nothing_is_lost_whoever_is_killed(
    make_server: MakeServer, receiver: Receiver, kill: Callable[[Server], None]
) -> None:
    server = make_server(plan(receiver.port)).start()
    server.faults_expected = lambda line: any(
        word in str(line) for word in ("has ended", "helper", "supervisor")
    )
    with Load(server.port, 6, content) as load:
        load.more(60)
        kill(server)
        load.more(60)
    server.shards(SHARDS)
    for recipient in load.acknowledged.all():
        receiver.to(recipient)
    poll(lambda: server.page("/readyz")[0] == 200 or None, "readiness")
    for area in ("incoming", "deferred", "bounces"):
        server.metric(f"mqcd_queue_recipients{{{area}}}", 0)
    ledger = stopped(server)
    assert ledger.unfinished() == set()
    assert ledger.surprises(arrivals([receiver])) == {}


def test_kept_connections_are_balanced(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(plan(receiver.port, 4)).start()
    with ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(smtplib.SMTP("127.0.0.1", server.port, timeout=DEADLINE))
            assert client.noop()[0] == 250
        held = []
        for shard in range(4):
            control = type(server.control)(server.var / f"control.sock.{shard}")
            lines = control.get("/metrics", 30)[1].splitlines()
            held += [float(line.split()[-1]) for line in lines if line.startswith("mqcd_listener_open")]
    assert sum(held) == 20
    assert max(held) <= 8
    server.stop()


def test_a_limit_of_one_connection_holds_over_shards(make_server: MakeServer, make_peer: MakePeer) -> None:
    peer = make_peer(Script())
    many = plan(peer.port).but(deliver={"maxserverconnections": 1, "maxmessages": 5, "maxidletime": "100ms"})
    server = make_server(many).start()
    with Load(server.port, 6, content) as load:
        load.more(60)
    sent = len(load.acknowledged.all())
    peer.contents.several(lambda _: True, sent, "all messages")
    assert len({shard(each) for each in peer.contents.all()}) > 1, "one shard sent it all"
    assert peer.most_open == 1
    server.stop()


@pytest.mark.parametrize("most", [2, 9])
def test_connections_of_a_client_are_limited_over_shards(
    make_server: MakeServer, receiver: Receiver, most: int
) -> None:
    door = {"maxpeerconnections": most, "relay_clients": "192.0.2.1"}
    server = make_server(plan(receiver.port, 4).but(door=door)).start()

    def greeting(stack: ExitStack) -> tuple[int, smtplib.SMTP]:
        client = smtplib.SMTP(timeout=DEADLINE)
        code = client.connect("127.0.0.1", server.port)[0]
        stack.callback(client.close)
        return code, client

    with ExitStack() as stack:
        clients = [greeting(stack) for _ in range(3 * most)]
        assert [code for code, _ in clients].count(220) == most
        for code, client in clients:
            if code == 220:
                client.quit()
        for _ in range(most):
            poll(lambda: greeting(stack)[0] == 220 or None, "room again")
        assert greeting(stack)[0] == 421
    server.stop()


def test_a_rate_holds_over_shards(make_server: MakeServer, make_peer: MakePeer) -> None:
    peer = make_peer(Script())
    ways = '<destinations><destination match="load.test" rate="10/1s"/></destinations>'
    server = make_server(plan(peer.port, 4).but(ways=ways)).start()
    began = time.monotonic()
    with Load(server.port, 6, content) as load:
        load.more(110)
    peer.contents.several(lambda _: True, 100, "most of it, though the shards have different shares")
    # However slow the machine is: the burst is what the rate gives in its second, and at least one per shard.
    assert time.monotonic() - began > 8, "more than 10 a second and one burst"
    assert len({shard(each) for each in peer.contents.all()}) > 1, "one shard sent it all"
    server.stop()


def test_every_process_reloads(make_server: MakeServer, receiver: Receiver) -> None:
    before = plan(receiver.port)
    server = make_server(before).start()
    assert server.status_as("figures.test", "/readyz") == 421
    server.write(before.but(door={"maxrecips": 1}, ops="<hosts>figures.test</hosts>"))
    server.signal(signal.SIGHUP)
    took_over = server.lines.several(
        lambda line: "took over" in str(line.get("msg")), SHARDS, "that each process took it over"
    )
    assert all("maxrecips" in line["msg"] for line in took_over)
    for _ in range(6):
        with smtplib.SMTP("127.0.0.1", server.port, timeout=DEADLINE) as client:
            client.ehlo()
            client.mail("a@example.org")
            assert [client.rcpt(f"{name}@example.org")[0] for name in "ab"] == [250, 452]

    def known() -> bool | None:
        return server.status_as("figures.test", "/readyz") == 200 or None

    poll(known, "the new name in the front process")
    server.faults_expected = lambda line: "the front process" in str(line)
    kill_the_front(server)
    poll(known, "the new name in the next front process")
    server.conf.write_text("<mqcd>")
    kill_the_front(server)
    server.lines.several(
        lambda line: "start: the config" in str(line.get("msg")), 1, "why it keeps the old one"
    )
    server.stop()


def test_fewer_shards_empty_the_others(make_server: MakeServer, make_receiver: MakeReceiver) -> None:
    later = make_receiver("*=450 4.2.1 later")
    server = make_server(plan(later.port, retry_delays="1h")).start()
    with Load(server.port, 6, content) as load:
        load.more(60)
    sent = len(load.acknowledged.all())
    server.metric("mqcd_queue_recipients{deferred}", sent)
    assert recipients(server) == sent
    assert server.stop() == 0
    later.follow()
    listed = '<blacklist file="%DIRVAR%/list"/>'
    server.write(dataclasses.replace(plan(later.port, 1), door_elements=listed))
    (server.var / "list").touch()
    server.launch()
    server.events("ready", SHARDS)
    server.faults_expected = lambda line: "of shard 2" in str(line) or "blacklist" in str(line)
    (server.var / "list").unlink()
    kill_one(server)
    server.events("ready", SHARDS + 1)
    assert sum(most_connections(server, shard) for shard in range(SHARDS)) <= SLAVE_CONNECTIONS
    ask = {"action": "retry"}
    poll(lambda: server.control.post("/v1/batch", ask, 30)[0] == 200 or None, "a retry of all")
    for recipient in load.acknowledged.all():
        later.to(recipient)
    with ExitStack() as stack:
        for _ in range(12):
            client = stack.enter_context(smtplib.SMTP("127.0.0.1", server.port, timeout=DEADLINE))
            assert client.noop()[0] == 250, "a connection was passed to a shard that takes no mail"
    taken = [submitted(server, "control.sock") for _ in range(SHARDS)]
    assert {shard_of(parse_spid(json.loads(each)["spid"])) for each in taken} == {0}
    assert "takes no programs' mail" in submitted(server, "control.sock.1")
    ledger = stopped(server)
    assert ledger.unfinished() == set()
    assert [line.get("shard") for line in server.seen("listening") if line["name"] == "in"] == [0]


def submitted(server: Server, name: str) -> str:
    """What a message of the API is answered at the control socket of this name."""
    words = ["-H", "X-Mqcd-From: a@example.org", "-H", "X-Mqcd-To: b@example.net", "-d", "Subject: s"]
    socket = ["--unix-socket", str(server.var / name), "http://mqcd/v1/messages"]
    return subprocess.run(["curl", "-s", *words, *socket], capture_output=True, text=True, check=True).stdout


def most_connections(server: Server, shard: int) -> int:
    """The connections to next hops that the process of a shard may have."""
    rows = json.loads(type(server.control)(server.var / f"control.sock.{shard}").get("/v1/settings", 30)[1])
    return next(int(row["value"]) for row in rows if row["path"] == "mta/deliver/maxconnections")


def recipients(server: Server) -> int:
    return sum(int(line.split('"recipients":')[1].split(",")[0]) for line in stat(server).splitlines())


def test_a_shard_is_moved_while_stopped(make_server: MakeServer, make_receiver: MakeReceiver) -> None:
    later = make_receiver("*=450 4.2.1 later")
    before = plan(later.port, 2, retry_delays="1h")
    server = make_server(before).start()
    with Load(server.port, 6, content) as load:
        load.more(60)
    sent = len(load.acknowledged.all())
    server.metric("mqcd_queue_recipients{deferred}", sent)
    assert server.stop() == 0
    queue, spool = server.var / "other" / "queue", server.var / "other" / "spool"
    listed = [("", ""), (str(queue), str(spool))]
    server.write(dataclasses.replace(before, shards=listed, queue={"retry_delays": "1h"}))
    server.faults_expected = out_of_service
    server.launch()
    server.lines.first(lambda line: "lies in" in str(line), "that the shard is not where the list says")
    assert server.stop() == 0

    queue.parent.mkdir()
    (server.var / "queue" / "shard-1").rename(queue)
    (server.var / "spool" / "shard-1").rename(spool)
    later.follow()
    server.start()
    assert recipients(server) == sent
    server.command("queue", "retry")
    assert {line["by"] for line in server.events("retry", 2)} == {f"uid:{os.getuid()}"}
    for recipient in load.acknowledged.all():
        later.to(recipient)
    with Load(server.port, 6, content) as load:
        load.more(30)
    assert list((queue / "journal").iterdir())
    ledger = stopped(server)
    assert ledger.unfinished() == set()

    # Named no more, it is found by its links.
    server.write(before.but(queue={"shards": 1}))
    server.launch()
    server.events("ready", 2)
    assert server.stop() == 0
    # With its disk gone, nothing is begun in its place.
    queue.rename(queue.with_name("gone"))
    server.write(dataclasses.replace(before, shards=listed, queue={"retry_delays": "1h"}))
    server.launch()
    server.lines.first(lambda line: "mounted" in str(line), "that the shard is gone")
    assert server.stop() == 0
    assert not (queue / "MANIFEST").exists()


def test_an_action_reaches_a_shard_that_was_out_of_service(
    make_server: MakeServer, make_receiver: MakeReceiver
) -> None:
    later = make_receiver("*=450 4.2.1 later")
    server = make_server(plan(later.port, 2, retry_delays="1h")).start()
    with Load(server.port, 6, content) as load:
        load.more(40)
    sent = len(load.acknowledged.all())
    server.metric("mqcd_queue_recipients{deferred}", sent)
    assert server.stop() == 0
    journal = server.var / "queue" / "shard-1" / "journal"
    journal.rename(journal.with_name("away"))
    journal.write_text("no directory\n")
    server.faults_expected = out_of_service
    server.launch()
    server.lines.first(lambda line: "out of service" in str(line), "that a shard is out of service")
    server.events("ready", 1)
    done = json.loads(server.command("queue", "hold", "--json", code=1))
    assert 0 < done["changed"] < sent
    assert done["left_out"][0].startswith("shard 1: ")
    journal.unlink()
    journal.with_name("away").rename(journal)
    server.events("hold", 2)
    assert sum(int(str(line["changed"])) for line in server.seen("hold")) == sent
    server.metric("mqcd_queue_recipients{held}", sent)
    undone = json.loads(server.command("queue", "undo", done["batch"], "--json"))
    assert (undone["changed"], "left_out" in undone) == (sent, False)
    assert server.stop() == 0


def test_a_batch_has_one_limit_for_all_shards(make_server: MakeServer, make_receiver: MakeReceiver) -> None:
    later = make_receiver("*=450 4.2.1 later")
    server = make_server(plan(later.port, retry_delays="1h")).start()
    with Load(server.port, 6, content) as load:
        load.more(30)
    sent = len(load.acknowledged.all())
    server.metric("mqcd_queue_recipients{deferred}", sent)
    done = json.loads(server.command("queue", "retry", "--limit", "7", "--json"))
    assert (done["matched"], done["changed"]) == (7, 7)
    status, _ = server.control.post("/v1/batch", {"action": "retry", "selection": {"no": 1}}, 30)
    assert status == 400
    shards = {int(each["spid"], 16) >> 15 & 255 for each in server.queue_ls()}
    assert len(shards) > 1
    limit = sent - 1
    for flags, changed in ((["--dry-run"], limit), ([], limit), ([], 1)):
        done = json.loads(server.command("queue", "hold", "--limit", str(limit), *flags, "--json"))
        assert (done["changed"], done["in_flight"]) == (changed, 0)
    assert len(server.queue_ls("--area", "held")) == sent
    server.stop()


def test_a_second_server_takes_no_connection(make_server: MakeServer, receiver: Receiver) -> None:
    first = make_server(plan(receiver.port)).start()
    second = make_server(first.plan)
    second.faults_expected = lambda line: "cannot listen" in str(line)
    second.launch()
    assert second.ended() == 1
    mail.send(first.port, mail.message("one"), "a@load.test")
    receiver.to("a@load.test")
    first.stop()


def test_a_stop_while_it_starts_is_no_failure(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(plan(receiver.port))
    server.launch()
    server.lines.first(lambda line: line.get("event") == "listening", "the first process")
    assert server.stop() == 0


def break_shard(server: Server, shard: int) -> Path:
    root = server.var / "queue" / (f"shard-{shard}" if shard else "")
    root.mkdir(parents=True)
    (root / "journal").write_text("no directory\n")
    return root / "journal"


def out_of_service(line: dict[str, object]) -> bool:
    return "cannot start" in str(line) or "out of service" in str(line)


def greetings(server: Server, count: int) -> list[int]:
    codes = []
    for _ in range(count):
        with smtplib.SMTP() as client:
            codes.append(client.connect("127.0.0.1", server.port)[0])
    return codes


def test_a_shard_that_cannot_start_is_out_of_service(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(plan(receiver.port))
    server.faults_expected = out_of_service
    broken = break_shard(server, 1)
    server.launch()
    server.events("ready", SHARDS - 1)
    server.lines.first(lambda line: "out of service" in str(line), "that a shard is out of service")
    server.shards(SHARDS - 1)
    assert greetings(server, 20) == [220] * 20
    with Load(server.port, 6, content) as load:
        load.more(30)
    for recipient in load.acknowledged.all():
        receiver.to(recipient)
    status, said = server.page("/readyz")
    assert (status, "shard 1" in said) == (503, True)
    assert server.page("/v1/lanes")[0] == 200

    broken.unlink()
    server.events("ready", SHARDS)
    poll(lambda: server.page("/readyz")[0] == 200 or None, "readiness")
    assert server.stop() == 0


def test_a_shard_that_finds_a_wrong_configuration_is_out_of_service(
    make_server: MakeServer, receiver: Receiver
) -> None:
    server = make_server(plan(receiver.port)).start()
    server.faults_expected = lambda line: out_of_service(line) or "has ended" in str(line)
    right = server.conf.read_text()
    server.conf.write_text("<mailserver>")
    kill_one(server)
    server.lines.first(lambda line: "out of service" in str(line), "that a shard is out of service")
    assert greetings(server, 20) == [220] * 20
    server.conf.write_text(right)
    server.shards(SHARDS)
    assert server.stop() == 0


def test_a_server_of_which_no_shard_can_start_ends(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(plan(receiver.port))
    server.faults_expected = lambda line: True
    for shard in range(SHARDS):
        break_shard(server, shard)
    server.launch()
    assert server.ended() == 1


def is_open(client: smtplib.SMTP) -> bool:
    """Whether the server has left a client that waits alone."""
    return client.sock is not None and not select.select([client.sock], [], [], 0)[0]


def test_a_full_disk_of_one_shard(make_server: MakeServer, receiver: Receiver, make_small: MakeSmall) -> None:
    server = make_server(plan(receiver.port))
    disk = server.var.parent / "disk"
    small = make_small(disk)
    places = [("", ""), (str(disk / "queue"), str(disk / "spool")), ("", "")]
    server.write(dataclasses.replace(server.plan, shards=places, queue={"retry_delays": "500ms"}))
    server.faults_expected = lambda line: "No space left" in str(line) or "octets are free" in str(line)
    server.start()
    with Load(server.port, 6, content) as load:
        load.more(60)
    with ExitStack() as stack:
        kept = [smtplib.SMTP("127.0.0.1", server.port, timeout=DEADLINE) for _ in range(12)]
        for client in kept:
            stack.callback(client.close)
        small.fill()
        poll(lambda: server.page("/readyz")[0] == 503 or None, "that a shard takes no mail")
        assert "shard 1" in server.page("/readyz")[1]
        poll(lambda: not all(map(is_open, kept)) or None, "421 for the clients of that shard")
        left = [client for client in kept if is_open(client)]
        assert 4 <= len(left) < 12
        for client in left:
            assert client.noop()[0] == 250
    for number in range(20):
        mail.send(server.port, mail.message(f"full-{number}"), f"full-{number}@load.test")
    small.empty()
    poll(lambda: server.page("/readyz")[0] == 200 or None, "readiness")
    for recipient in [*load.acknowledged.all(), *(f"full-{number}@load.test" for number in range(20))]:
        receiver.to(recipient)
    for area in ("incoming", "deferred", "bounces"):
        server.metric(f"mqcd_queue_recipients{{{area}}}", 0)
    ledger = stopped(server)
    assert ledger.unfinished() == set()
    assert ledger.surprises(arrivals([receiver])) == {}

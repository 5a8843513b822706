"""What an operator does to a running server: signals, pages, the queue command, and mistakes."""

from __future__ import annotations

import json
import os
import signal
import smtplib
from collections.abc import Sequence

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.load import Load
from tests.e2e.kit.mail import Client
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Line, Server
from tests.e2e.kit.waiting import DEADLINE, poll


def relay_refused(server: Server, recipient: str) -> bool:
    """Whether a client that nothing allows may not send there."""
    with Client(server.port) as client:
        client.greet()
        assert client.ask("MAIL FROM:<stranger@elsewhere.test>").startswith("250 ")
        return client.ask(f"RCPT TO:<{recipient}>").startswith("554 5.7.1")


def reload(server: Server, text: str | None = None) -> Line:
    """SIGHUP; gives the line that says what came of it."""
    if text is not None:
        server.conf.write_text(text)
    before = len(server.lines)
    server.signal(signal.SIGHUP)
    return server.lines.first(
        lambda line: line.get("msg", "").startswith(("SIGHUP: took over", "SIGHUP: the new configuration")),
        "what became of SIGHUP",
        after=before,
    )


# ---------------------------------------------------------------- relaying


@pytest.mark.parametrize(
    "recipient",
    [
        "somebody@elsewhere.test",
        "somebody@sub.ours.test",
        "somebody%elsewhere.test@ours.test",
        "elsewhere.test!somebody@ours.test",
        '"somebody@elsewhere.test"@ours.test',
        "@ours.test:somebody@elsewhere.test",
        "somebody@[127.0.0.1]",
    ],
)
def test_it_is_no_open_relay(make_server: MakeServer, receiver: Receiver, recipient: str) -> None:
    server = make_server(
        Plan(relays=relay(receiver.port), door={"relay_clients": "192.0.2.1", "relay_domains": "ours.test"})
    ).start()
    assert relay_refused(server, recipient)
    assert not relay_refused(server, "somebody@ours.test")
    mail.send(server.port, mail.message("ours"), "somebody@ours.test")
    receiver.to("somebody@ours.test")
    assert server.metrics()["mqcd_refused_total{relay}"] == 1
    assert server.stop() == 0


# ---------------------------------------------------------------- SIGHUP


def test_sighup_takes_over_what_it_can(make_server: MakeServer, receiver: Receiver) -> None:
    plan = Plan(
        relays=relay(receiver.port), door={"relay_clients": "192.0.2.1", "relay_domains": "ours.test"}
    )
    server = make_server(plan).start()
    assert relay_refused(server, "a@new.test")
    changed = plan.but(door={"relay_domains": "ours.test | new.test"}, log_level="debug")
    assert "took over" in reload(server, changed.xml())["msg"]
    assert not relay_refused(server, "a@new.test")
    mail.send(server.port, mail.message("new"), "a@new.test")
    server.event("attempted", recipient="a@new.test", level="debug")
    assert server.stop() == 0


def test_sighup_on_a_connection_under_way(make_server: MakeServer, receiver: Receiver) -> None:
    plan = Plan(relays=relay(receiver.port))
    server = make_server(plan).start()
    with Client(server.port) as client:
        client.greet()
        client.envelope("sender@origin.test", "under-way@example.test")
        client.send(b"Subject: under way\r\n\r\n")
        reload(server, plan.but(log_level="debug").xml())
        client.send(b"text\r\n.\r\n")
        assert client.reply().startswith("250 ")
    assert (
        mail.sent_part(receiver.to("under-way@example.test").content) == b"Subject: under way\r\n\r\ntext\r\n"
    )
    assert server.stop() == 0


def test_sighup_refuses_a_bad_configuration(make_server: MakeServer, receiver: Receiver) -> None:
    plan = Plan(
        relays=relay(receiver.port), door={"relay_clients": "192.0.2.1", "relay_domains": "ours.test"}
    )
    server = make_server(plan).start()
    server.faults_expected = lambda line: str(server.conf) in line["msg"] or "SIGHUP" in line["msg"]
    good = plan.but(door={"relay_domains": "new.test"}).xml()
    bad = good.replace("<maxhops", "<x").replace("<queue>", "<queue><retry_delay>1s</retry_delay>", 1)
    for text in (bad, good[: len(good) // 2], ""):
        assert "the old one stays" in reload(server, text)["msg"]
    named = [line["msg"] for line in server.lines.all() if line.get("level") == "error"]
    line_number = 1 + bad[: bad.index("<retry_delay>")].count("\n")
    assert any(f"{server.conf}:{line_number}" in text and "retry_delays" in text for text in named), named
    assert not relay_refused(server, "a@ours.test")
    assert relay_refused(server, "a@new.test")
    assert server.page("/readyz")[0] == 200
    assert "took over" in reload(server, good)["msg"]
    assert not relay_refused(server, "a@new.test")
    assert server.stop() == 0


# ---------------------------------------------------------------- pages


# ---------------------------------------------------------------- the queue command


def test_the_queue_command_beside_a_busy_server(make_server: MakeServer, receiver: Receiver) -> None:
    receiver.follow("*@waiting.test=450 4.2.1 Busy")
    server = make_server(Plan(relays=relay(receiver.port), queue={"retry_delays": "1h"})).start()
    waiting = [f"w{number}@waiting.test" for number in range(20)]
    for recipient in waiting:
        mail.send(server.port, mail.message(recipient), recipient)
    server.metric("mqcd_queue_recipients{deferred}", 20)
    with Load(server.port, 2, lambda token: mail.message(token, lines=50)) as load:
        for _ in range(5):
            load.more(20)
            rows = server.queue_ls()
            assert [row["recipient"] for row in rows if row["area"] == "deferred"] == waiting
            keys = [(row["spid"], row["qid"]) for row in rows]
            assert len(keys) == len(set(keys)), "a recipient is listed twice"
        stat = {
            row["area"]: row
            for row in map(json.loads, server.command("queue", "stat", "--json").splitlines())
        }
        assert stat["deferred"]["recipients"] == 20
    one = server.queue_ls("--recipient", waiting[7])[0]
    # Read from the files, beside the server, wherever the content lies by now.
    content = server.command("queue", "cat", one["spid"]).encode()
    # Text mode makes line ends plain; what is compared is the text.
    assert content.endswith(mail.message(waiting[7]).replace(b"\r\n", b"\n"))
    shown = json.loads(server.command("queue", "show", one["spid"], "--json"))
    assert [each["event"] for each in shown["history"]] == ["accepted", "attempted", "deferred"]
    assert server.stop() == 0
    assert [row["recipient"] for row in server.queue_ls()] == waiting


# ---------------------------------------------------------------- starting and stopping


def last_words(server: Server) -> Sequence[str]:
    return [str(line.get("msg", line.get("raw", ""))) for line in server.lines.all()]


def test_a_queue_that_another_server_has(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(Plan(relays=relay(receiver.port))).start()
    second = make_server(Plan(relays=relay(receiver.port)))
    second.var = server.var
    second.faults_expected = lambda line: "cannot start" in line.get("msg", "")
    second.launch()
    assert second.ended() == 1
    assert str(server.pid) in " ".join(last_words(second))
    mail.send(server.port, mail.message("still"), "still@example.test")
    receiver.to("still@example.test")
    assert server.stop() == 0


def test_a_bad_configuration_at_the_start(make_server: MakeServer) -> None:
    server = make_server(Plan(queue={"maxclustersize": "1.5K"}))
    server.faults_expected = lambda line: True
    server.launch()
    assert server.ended() == 1
    assert any("mqcd.xml:" in text and "maxclustersize" in text for text in last_words(server))


def test_doors_are_shut_while_it_stops(make_server: MakeServer, receiver: Receiver) -> None:
    """A client in mid-message gets its reply, or none; never a 250 that is not kept."""
    server = make_server(Plan(relays=relay(receiver.port))).start()
    with Client(server.port) as client:
        client.greet()
        client.envelope("sender@origin.test", "last@example.test")
        client.send(b"Subject: last\r\n\r\n")
        server.signal(signal.SIGTERM)
        server.event("stopping")
        client.send(b"words\r\n.\r\n")
        reply = client.reply()
    assert server.ended() == 0
    kept = server.queue_ls("--recipient", "last@example.test")
    assert reply[:3] in ("250", "421", "451", "")
    assert (receiver.count("last@example.test") + len(kept) == 1) == reply.startswith("250")


def test_interrupt_from_a_terminal_stops_too(make_server: MakeServer) -> None:
    server = make_server(Plan()).start()
    server.signal(signal.SIGINT)
    assert server.ended() == 0


def test_files_are_for_the_server_alone(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(Plan(relays=relay(receiver.port), queue={"retry_delays": "1h"})).start()
    receiver.follow("*=450 4.2.1 Busy")
    mail.send(server.port, b"Subject: x\r\n\r\n" + (b"x" * 70 + b"\r\n") * 3000, "big@example.test")
    server.event("deferred", recipient="big@example.test")
    assert server.stop() == 0
    seen = 0
    for directory, _, names in os.walk(server.var):
        # Programs of every user put mail into the maildrop, and list nothing there.
        others = 0o033 if directory == str(server.var / "maildrop") else 0
        assert os.stat(directory).st_mode & 0o077 == others or directory == str(server.var), directory
        for name in names:
            seen += 1
            assert os.stat(os.path.join(directory, name)).st_mode & 0o077 == 0, name
    assert seen > 5


def test_a_client_that_talks_nonsense_costs_only_itself(make_server: MakeServer, receiver: Receiver) -> None:
    server = make_server(Plan(relays=relay(receiver.port))).start()
    for nonsense in (
        b"\x16\x03\x01\x02\x00\x01" * 50,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\0" * 70_000,
        b"x" * 70_000,
    ):
        with Client(server.port) as client:
            assert client.reply().startswith("220 ")
            try:
                client.send(nonsense + b"\r\n" * 5)
                while client.reply():
                    pass
            except ConnectionError:
                pass  # it may well hang up on us
    with smtplib.SMTP("127.0.0.1", server.port, local_hostname=mail.HELO, timeout=DEADLINE) as healthy:
        healthy.sendmail("a@origin.test", "healthy@example.test", mail.message("healthy"))
    receiver.to("healthy@example.test")
    poll(lambda: server.page("/healthz")[0] == 200, "health")
    assert server.stop() == 0

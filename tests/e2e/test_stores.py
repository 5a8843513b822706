"""The server on other stores than the clustered-file queue."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.stores import store_element
from tests.fakes.redis_server import RedisServer

STORES = {
    "memory": '<store class="memory"/>',
    "files": '<store class="files"><env_dir>%DIRVAR%/mail</env_dir></store>',
    "symlinks": '<store class="symlinks"><rootpath>%DIRVAR%/links</rootpath></store>',
    "leveldb": '<store class="leveldb"><rootpath>%DIRVAR%/ldb</rootpath></store>',
    "sqlite": '<store class="tests.fakes.sqlite_store:SqliteStore"><rootpath>%DIRVAR%/db</rootpath></store>',
}
INFO = {
    "memory": "mqcd_store_info{no,memory,no,no}",
    "files": "mqcd_store_info{no,files,no,yes}",
    "symlinks": "mqcd_store_info{no,symlinks,no,yes}",
    "leveldb": "mqcd_store_info{yes,leveldb,no,yes}",
    "sqlite": "mqcd_store_info{yes,tests.fakes.sqlite_store:SqliteStore,no,yes}",
}


@pytest.mark.parametrize(("kind", "kill"), [("files", False), *((kind, True) for kind in STORES)])
def test_mail_goes_through_and_survives_a_restart(
    kind: str, kill: bool, make_server: MakeServer, make_receiver: MakeReceiver
) -> None:
    """But of memory, which nothing outlives."""
    receiver = make_receiver()
    if kind != "memory":
        receiver.down()
    server = make_server(Plan(relays=relay(receiver.port), store=STORES[kind])).start()
    content = mail.message("kept")
    mail.send(server.port, content, ["a@example.test", "b@example.test"])
    if kind != "memory":
        if kill:
            server.kill()
        else:
            assert server.stop() == 0
        receiver.follow()
        server.start()
    for recipient in ("a@example.test", "b@example.test"):
        assert mail.sent_part(receiver.to(recipient).content) == content
    server.metric("mqcd_recipients_delivered_total", 2)
    server.metric("mqcd_ledger_imbalance_recipients", 0)
    assert [name for name in server.metrics() if name.startswith("mqcd_store_info")] == [INFO[kind]]
    assert server.stop() == 0
    assert not (server.var / "queue").exists()


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The element of a store that has a server of its own."""
    with store_element(request.param, tmp_path) as element:
        yield element


@pytest.mark.parametrize(
    ("database", "kill"),
    [("redis", True), ("postgres", True), ("s3", True), ("postgres", False)],
    indirect=["database"],
)
def test_mail_on_a_server_survives_a_restart(
    database: str, kill: bool, make_server: MakeServer, make_receiver: MakeReceiver
) -> None:
    receiver = make_receiver()
    receiver.down()
    server = make_server(Plan(relays=relay(receiver.port), store=database)).start()
    content = mail.message("kept")
    mail.send(server.port, content, ["a@example.test", "b@example.test"])
    assert len(server.queue_ls()) == 2
    if kill:
        server.kill()
    else:
        assert server.stop() == 0
    receiver.follow()
    server.start()
    for recipient in ("a@example.test", "b@example.test"):
        assert mail.sent_part(receiver.to(recipient).content) == content
    assert server.stop() == 0


def test_the_log_says_what_a_store_does_not_promise(make_server: MakeServer) -> None:
    server = make_server(Plan(store=STORES["memory"])).start()
    warned = [line for line in server.lines.all() if line.get("level") == "warning"]
    assert sum("store memory" in str(line) for line in warned) == 2
    assert server.stop() == 0


def test_events_of_another_store_are_exported(make_server: MakeServer, make_receiver: MakeReceiver) -> None:
    receiver = make_receiver()
    server = make_server(Plan(relays=relay(receiver.port), store=STORES["sqlite"])).start()
    mail.send(server.port, mail.message("seen"), "a@example.test")
    server.metric("mqcd_recipients_delivered_total", 1)
    assert server.stop() == 0
    files = sorted((server.var / "events").glob("node-0-[0-9]*.jsonl.gz"))
    lines = b"".join(gzip.decompress(file.read_bytes()) for file in files).splitlines()
    verbs = [json.loads(line)["event"] for line in lines]
    assert verbs == ["accepted", "attempted", "delivered"]


@pytest.mark.parametrize(
    ("kind", "running"), [("memory", True), *((kind, False) for kind in STORES if kind != "symlinks")]
)
def test_commands_look_into_the_queue(
    kind: str, running: bool, tmp_path: Path, make_server: MakeServer, make_receiver: MakeReceiver
) -> None:
    receiver = make_receiver()
    receiver.down()
    plan = Plan(relays=relay(receiver.port), store=STORES[kind], queue={"retry_delays": "1h"})
    server = make_server(plan).start()
    content = mail.message("seen", lines=40_000)
    mail.send(server.port, content, ["a@example.test", "b@other.test"])
    server.metric("mqcd_destinations_suspended", 1)
    if not running:
        assert server.stop() == 0
    if kind == "memory" and not running:
        with pytest.raises(AssertionError, match="memory"):
            server.queue_ls()
        return
    listed = server.queue_ls()
    assert [each["recipient"] for each in listed] == ["a@example.test", "b@other.test"]
    assert len(server.queue_ls("--domain", "other.test")) == len(server.queue_ls("--limit", "1")) == 1
    spid = listed[0]["spid"]
    assert mail.sent_part(server.command("queue", "cat", spid).replace("\n", "\r\n").encode()) == content
    shown = json.loads(server.command("queue", "show", spid, "--json"))
    assert [each["recipient"] for each in shown["recipients"]] == ["a@example.test", "b@other.test"]
    assert [each["event"] for each in shown["history"]].count("accepted") == 2
    assert "Subject" in dict(shown["headers"])
    counted = [json.loads(line) for line in server.command("queue", "stat", "--json").splitlines()]
    assert sum(each["recipients"] for each in counted) == 2
    assert "other.test" in server.command("queue", "stat", "--by", "domain")
    to = tmp_path / "copy"
    done = json.loads(server.command("queue", "export", "--to", str(to), "--json"))
    assert (done["messages"], done["recipients"], done["failed"]) == (1, 2, 0)
    assert mail.sent_part((to / f"{spid}.eml").read_bytes()) == content
    if running:
        assert json.loads(server.command("queue", "retry", "--json", "--dry-run"))["matched"] == 2
        assert server.stop() == 0


def test_what_a_database_is_set_to_counts(tmp_path: Path, make_server: MakeServer) -> None:
    redis = RedisServer(tmp_path / "redis", "--appendonly", "no")
    server = make_server(Plan(store=f'<store class="redis"><url>{redis.url}</url></store>')).start()
    warned = [str(line) for line in server.lines.all() if line.get("level") == "warning"]
    assert sum("store redis" in line for line in warned) == 1
    assert "mqcd_store_info{yes,redis,yes,no}" in server.metrics()
    assert server.stop() == 0
    redis.stop()

"""A real run, with kill -9 and operators' actions, then its tables and ledger; a queue with a cut line."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.load import Load
from tests.e2e.kit.plan import Plan, Values, relay
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.server import Server, children
from tests.e2e.kit.waiting import poll
from tests.e2e.test_actions import act
from tests.pipeline.asking import ask

pytestmark = [
    pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.e2e, pytest.mark.crash, pytest.mark.timeout(900),
]  # fmt: skip

KILLS = 3
ENDS = ("delivered", "bounced", "expired", "removed", "queued", "quarantined")
SMALL: Values = {"segmentsize": "256K", "segments": 6, "seal_age": "300ms", "evacuate_age": "1s"}


def kill(server: Server) -> None:
    """All processes of the server."""
    for pid in children(server.pid):
        os.kill(pid, signal.SIGKILL)
    server.kill()


def deferred(server: Server) -> list[Path]:
    """Clusters of mail that waits, of whichever shard."""
    found = (server.var / "queue").rglob("M*")
    return [path for path in sorted(found) if "deferred" in path.parts and path.suffix != ".tmp"]


def operate(server: Server, held: str, removed: str, restored: str, redirected: str) -> None:
    """Do this to the mail of these recipients, which waits."""
    for words in (
        ("hold", "--recipient", held),
        ("remove", "--recipient", removed),
        ("redirect", "--to", "moved@load.test", "--recipient", redirected),
        ("reschedule", "--in", "0s", "--recipient", "moved@load.test"),
    ):
        assert act(server, *words)["changed"] == 1
    batch = act(server, "remove", "--recipient", restored)["batch"]
    assert act(server, "undo", str(batch))["changed"] == 1


def test_the_ledger_balances_after_kills_and_names_a_cut_line(
    spark: SparkSession, make_server: MakeServer, make_receiver: MakeReceiver
) -> None:
    receiver = make_receiver("slow-*=450 4.2.1 later", "dead-*=550 5.1.1 no such user")
    settings: Values = {"retry_delays": "30m", "shards": 3}
    server = make_server(
        Plan(relays=relay(receiver.port), smtp_port=free_port(), journal=SMALL, queue=settings)
    ).start()
    server.faults_expected = lambda line: "has ended" in str(line)
    pipeline = partial(ask, server.conf, server.var)
    kinds = ("load.test", "dead.test", "slow.test")
    loads = [Load(server.port, 1, mail.message, domain=domain) for domain in kinds]
    with ExitStack() as running:
        for load in loads:
            running.enter_context(load)
        for _ in range(KILLS):
            for load in loads:
                load.more(15)
            kill(server)
            server.start()
        for load in loads:
            load.more(15)
    good, dead, slow = (len(load.acknowledged.all()) for load in loads)
    server.metric("mqcd_queue_recipients{incoming}", 0)
    operate(server, *loads[2].acknowledged.all()[:4])
    receiver.to("moved@load.test")

    code, alive = pipeline("ledger")
    assert (code, alive["imbalance"], alive["missing"], alive["excess"]) == (0, 0, [], [])
    assert alive["accepted"] >= good + dead + slow
    poll(lambda: deferred(server), "a cluster of deferred mail")
    assert server.stop() == 0

    code, taken = pipeline("run")
    assert (code, taken["damaged"]) == (0, 0)
    code, even = pipeline("ledger")
    assert (code, even["imbalance"], even["doubled"]) == (0, 0, 0)
    assert even["delivered"] >= good + 1
    assert even["bounced"] >= dead
    assert even["queued"] >= slow - 2
    assert even["removed"] == 1
    assert even["accepted"] == sum(even[name] for name in ENDS)

    path = next(path for path in deferred(server) if path.read_bytes())
    *kept, cut = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept))
    spid, qid, *_ = cut.decode().split("|")
    code, found = pipeline("ledger")
    assert (code, found["imbalance"], found["missing"]) == (1, 1, [f"{spid}/{qid}"])

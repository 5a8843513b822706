"""The ledger of a server on another store than the clustered-file queue: beside it, and after a kill."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.load import Load
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.stores import store_element
from tests.pipeline.asking import ask

pytestmark = [
    pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.e2e, pytest.mark.crash, pytest.mark.timeout(600),
]  # fmt: skip

FILES = '<store class="files"><env_dir>%DIRVAR%/mail</env_dir></store>'
ENDS = ("delivered", "bounced", "expired", "removed", "queued", "quarantined")


def test_the_ledger_balances_under_load(
    spark: SparkSession, make_server: MakeServer, make_receiver: MakeReceiver
) -> None:
    receiver = make_receiver("slow-*=450 4.2.1 later", "dead-*=550 5.1.1 no such user")
    plan = Plan(
        relays=relay(receiver.port), smtp_port=free_port(), store=FILES, queue={"retry_delays": "30m"}
    )
    server = make_server(plan).start()
    pipeline = partial(ask, server.conf, server.var)
    loads = [
        Load(server.port, 1, mail.message, domain=domain)
        for domain in ("load.test", "dead.test", "slow.test")
    ]
    with ExitStack() as running:
        for load in loads:
            running.enter_context(load)
        for load in loads:
            load.more(15)
        server.kill()
        server.start()
        for load in loads:
            load.more(15)
        # Events of the moment are in no file yet.
        code, beside = pipeline("ledger")
        assert (code, beside["imbalance"], beside["missing"], beside["excess"]) == (0, 0, [], [])
        for load in loads:
            load.more(1)
    good, dead, slow = (len(load.acknowledged.all()) for load in loads)
    server.kill()

    code, killed = pipeline("ledger")
    assert (code, killed["imbalance"], killed["doubled"], killed["damaged"]) == (0, 0, 0, 0)
    assert killed["accepted"] == sum(killed[name] for name in ENDS) >= good + dead + slow
    assert killed["queued"] >= slow

    server.start()
    # A refusal that the kill cut off is met again.
    server.metric("mqcd_queue_recipients{incoming}", 0)
    assert server.stop() == 0
    code, even = pipeline("ledger")
    assert (code, even["imbalance"], even["doubled"]) == (0, 0, 0)
    assert even["delivered"] >= good
    assert even["bounced"] >= dead


@pytest.mark.parametrize("kind", ["memory", "symlinks", "leveldb", "postgres", "redis", "s3"])
def test_the_ledger_balances(
    spark: SparkSession, make_server: MakeServer, make_receiver: MakeReceiver, kind: str, tmp_path: Path
) -> None:
    """After a kill; in memory, where nothing outlives one, beside the server."""
    receiver = make_receiver("slow-*=450 4.2.1 later", "dead-*=550 5.1.1 no such user")
    with store_element(kind, tmp_path) as element:
        plan = Plan(
            relays=relay(receiver.port), smtp_port=free_port(), store=element, queue={"retry_delays": "30m"}
        )
        server = make_server(plan).start()
        addresses = [f"{name}-{number}@load.test" for number in range(5) for name in ("good", "slow", "dead")]
        for address in addresses:
            mail.send(server.port, mail.message(address), [address, f"other-{address}"])
        server.metric("mqcd_queue_recipients{incoming}", 0)
        if kind != "memory":
            server.kill()
        code, ledger = ask(server.conf, server.var, "ledger")
    assert (code, ledger["imbalance"], ledger["doubled"], ledger["damaged"]) == (0, 0, 0, 0)
    assert ledger["accepted"] == sum(ledger[name] for name in ENDS) >= 2 * len(addresses)
    assert ledger["queued"] >= 5

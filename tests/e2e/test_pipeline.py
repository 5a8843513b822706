"""A real run: mail under kill -9, then the tables and the ledger of it; and a queue that somebody cut."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.load import Load
from tests.e2e.kit.plan import Plan, Values, relay
from tests.e2e.kit.ports import free_port
from tests.e2e.kit.server import ROOT, Server
from tests.e2e.kit.waiting import poll

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.crash, pytest.mark.timeout(900)]

KILLS = 3
ENDS = ("delivered", "bounced", "expired", "removed", "queued", "quarantined")
SMALL: Values = {"segmentsize": "256K", "segments": 6, "seal_age": "300ms", "evacuate_age": "1s"}


def pipeline(server: Server, *words: str) -> tuple[int, Any]:
    """A command's exit code, and what it says."""
    command = [sys.executable, "-m", "mqcd", "pipeline", *words, "--json"]
    place = ["-c", str(server.conf), "--var", str(server.var)]
    done = subprocess.run(
        [*command, *place], capture_output=True, text=True, cwd=ROOT, timeout=400, check=False
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_ledger_balances_after_kills_and_names_a_line_that_was_cut(
    make_server: MakeServer, make_receiver: MakeReceiver
) -> None:
    receiver = make_receiver("slow-*=450 4.2.1 later", "dead-*=550 5.1.1 no such user")
    server = make_server(
        Plan(relays=relay(receiver.port), smtp_port=free_port(), journal=SMALL, queue={"retry_delays": "30m"})
    ).start()
    kinds = ("load.test", "dead.test", "slow.test")
    loads = [Load(server.port, 1, mail.message, domain=domain) for domain in kinds]
    with ExitStack() as running:
        for load in loads:
            running.enter_context(load)
        for _ in range(KILLS):
            for load in loads:
                load.more(15)
            server.kill()
            server.start()
        for load in loads:
            load.more(15)
    good, dead, slow = (len(load.acknowledged.all()) for load in loads)

    code, alive = pipeline(server, "ledger")
    assert (code, alive["imbalance"], alive["missing"], alive["excess"]) == (0, 0, [], [])
    assert alive["accepted"] >= good + dead + slow
    queue = server.var / "queue" / "deferred"
    poll(lambda: any(path.suffix != ".tmp" for path in queue.rglob("M*")), "a cluster of deferred mail")
    assert server.stop() == 0

    code, taken = pipeline(server, "run")
    assert (code, taken["damaged"]) == (0, 0)
    code, even = pipeline(server, "ledger")
    assert (code, even["imbalance"], even["doubled"]) == (0, 0, 0)
    assert even["delivered"] >= good
    assert even["bounced"] >= dead
    assert even["queued"] >= slow
    assert even["accepted"] == sum(even[name] for name in ENDS)

    path = next(path for path in sorted(queue.rglob("M*")) if path.read_bytes())
    *kept, cut = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept))
    spid, qid, *_ = cut.decode().split("|")
    code, found = pipeline(server, "ledger")
    assert (code, found["imbalance"], found["missing"]) == (1, 1, [f"{spid}/{qid}"])

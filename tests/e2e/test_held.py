"""Mail held for domains that call for it: ETRN over one shard and several, and release by hand."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan
from tests.e2e.kit.waiting import poll

MESSAGES = 20


@pytest.mark.parametrize("shards", [1, 2])
def test_etrn_starts_the_held_mail_of_all_shards(
    make_server: MakeServer, make_receiver: MakeReceiver, shards: int
) -> None:
    receiver = make_receiver()
    receiver.close()
    server = make_server(
        Plan(
            relays=(("office.test", f"127.0.0.1:{receiver.port}"),),
            held='<domain name="office.test" mode="etrn"/>',
            queue={"shards": shards, "retry_delays": "1h"},
            journal={"evacuate_age": "1s", "seal_age": "200ms"},
            door={"extETRN": "Y"},
        )
    ).start()
    for number in range(MESSAGES):
        mail.send(server.port, mail.message(f"held {number}"), f"m{number}@office.test")
    # One waits in each process for the next probe.
    poll(lambda: len(server.queue_ls("--area", "held")) >= MESSAGES - shards or None, "held mail")
    with mail.Client(server.port) as client:
        assert "ETRN" in client.greet()
        assert client.ask("ETRN other.test").startswith("459 ")
        receiver.follow()
        assert client.ask("ETRN office.test").startswith("250 ")
    for number in range(MESSAGES):
        receiver.to(f"m{number}@office.test")
    server.metric("mqcd_recipients_delivered_total", MESSAGES)
    assert server.queue_ls() == []
    with mail.Client(server.port) as client:
        client.greet()
        assert client.ask("ETRN @test").startswith("251 ")
    assert server.stop() == 0

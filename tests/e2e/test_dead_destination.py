"""A destination that only breaks is probed rather than tried, delays no other, and recovers by itself."""

from __future__ import annotations

from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan
from tests.e2e.kit.receivers import Receiver


def test_a_dead_destination_delays_no_other_and_loses_nothing(
    make_server: MakeServer, make_receiver: MakeReceiver, receiver: Receiver
) -> None:
    dead = make_receiver()
    dead.down()
    relays = (("dead.test", f"127.0.0.1:{dead.port}"), ("", f"127.0.0.1:{receiver.port}"))
    server = make_server(Plan(relays=relays)).start()
    for number in range(20):
        mail.send(server.port, mail.message(f"dead {number}"), f"d{number}@dead.test")
        mail.send(server.port, mail.message(f"live {number}"), f"l{number}@live.test")
    for number in range(20):
        receiver.to(f"l{number}@live.test")
    server.metric("mqcd_destinations_suspended", 1)
    assert len(server.queue_ls("--domain", "dead.test")) == 20
    dead.follow()
    for number in range(20):
        assert mail.sent_part(dead.to(f"d{number}@dead.test").content) == mail.message(f"dead {number}")
    server.metric("mqcd_recipients_delivered_total", 40)
    server.metric("mqcd_destinations_suspended", 0)
    assert server.stop() == 0

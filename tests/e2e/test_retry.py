"""`mqcd queue retry` after an outage: all that waited goes out; a host that is still dead gets one try."""

from __future__ import annotations

import json

from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan
from tests.e2e.kit.receivers import Receiver
from tests.e2e.kit.server import Server

COUNT = 60


def retry(server: Server, *words: str) -> dict[str, object]:
    done: dict[str, object] = json.loads(server.command("queue", "retry", "--json", *words))
    return done


def test_mail_goes_out_after_an_outage(
    make_server: MakeServer, make_receiver: MakeReceiver, receiver: Receiver
) -> None:
    dead, other = make_receiver(), make_receiver()
    dead.down()
    other.down()
    relays = (
        ("dead.test", f"127.0.0.1:{dead.port}"),
        ("other.test", f"127.0.0.1:{other.port}"),
        ("", f"127.0.0.1:{receiver.port}"),
    )
    plan = Plan(relays=relays, queue={"retry_delays": "1h"}, journal={"seal_age": "1s", "evacuate_age": "1s"})
    server = make_server(plan).start()
    for number in range(COUNT):
        mail.send(server.port, mail.message(f"dead {number}"), f"d{number}@dead.test")
    mail.send(server.port, mail.message("other"), "o@other.test")
    server.metric("mqcd_destinations_suspended", 2)

    server.events("connect-failed", 2)
    assert retry(server, "--domain", "dead.test")["matched"] == COUNT
    # Still dead: one recipient was the probe, and no other was tried.
    server.event("retry", domain="dead.test")
    server.events("connect-failed", 3)
    assert len(server.seen("deferred")) <= 3

    dead.follow()
    words = ("--domain", "*.TEST", "--recipient", "d*", "--reason", "it is back")
    done = retry(server, *words)
    assert done["matched"] == COUNT
    for number in range(COUNT):
        dead.to(f"d{number}@dead.test")
    server.metric("mqcd_recipients_delivered_total", COUNT)
    line = server.event("retry", batch=done["batch"])
    assert line["reason"] == "it is back"
    assert len(server.queue_ls("--domain", "other.test")) == 1
    assert server.queue_ls("--where", "domain = dead.test or attempts > 9 or age > 1h") == []
    [row] = server.queue_ls("--sort", "age", "--where", "domain in (other.test) and not size > 1M")
    assert row["recipient"] == "o@other.test"

    other.follow()
    assert retry(server)["matched"] == 1
    other.to("o@other.test")
    assert server.stop() == 0

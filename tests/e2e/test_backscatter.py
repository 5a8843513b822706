"""A stranger names another's address as the sender, and many recipients that nobody knows."""

from __future__ import annotations

import smtplib

from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.waiting import DEADLINE

FORGED = "victim@elsewhere.test"
RECIPIENTS = 1000


def test_a_forged_sender_gets_one_report_without_the_message(
    make_server: MakeServer, make_receiver: MakeReceiver
) -> None:
    receiver = make_receiver("*@ours.test=550 5.1.1 No such user")
    door = {"relay_clients": "192.0.2.1", "relay_domains": "ours.test"}
    server = make_server(Plan(relays=relay(receiver.port), door=door)).start()
    content = b"Subject: spam\r\n\r\n" + b"Buy this now.\r\n" * 20_000
    with smtplib.SMTP("127.0.0.1", server.port, timeout=DEADLINE) as client:
        options = ["RET=FULL"]
        client.sendmail(FORGED, [f"no-{n}@ours.test" for n in range(RECIPIENTS)], content, options)
    server.events("bounced", count=RECIPIENTS)
    report = receiver.to(FORGED).content
    assert b"Subject: spam" in report
    assert b"Buy this now." not in report
    assert len(report) < len(content) * 2
    told = report.count(b"Final-Recipient")
    # What failed later is gathered for a minute.
    assert len(server.queue_ls()) == RECIPIENTS - told
    assert receiver.count(FORGED) == 1
